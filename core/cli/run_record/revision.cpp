#include "cli/run_record/revision.h"

#include "base/process.h"
#include "base/text.h"

namespace orrery {
namespace {

// Asks git about a file without changing the repository, and for at most 5 s a call. The first output line is the
// commit; then follow changed tracked files, the script if it is untracked, and "?" if git fails.
constexpr const char* ask_git = R"(
    unset GIT_DIR GIT_WORK_TREE; export GIT_OPTIONAL_LOCKS=0
    cd "${1%/*}/" && timeout 5 git rev-parse --verify -q HEAD && {
        timeout 5 git status --porcelain --untracked-files=no && {
            timeout 5 git ls-files --error-unmatch -- "$1" > /dev/null || echo untracked; } || echo '?'; })";

}  // namespace

std::optional<Revision> revision_of(const std::filesystem::path& file) {
    std::error_code problem;
    const std::string whole = std::filesystem::canonical(file, problem);
    const ChildEnd git = run_child({"/bin/sh", "-c", ask_git, "sh", whole}, std::chrono::seconds(20));
    const std::vector<std::string> lines = split(trim(git.output), '\n');
    if (problem || !git.why_not().empty() || lines.front().empty()) return std::nullopt;
    Revision revision{lines.front()};
    if (lines.back() != "?") revision.clean = lines.size() == 1;
    return revision;
}

}  // namespace orrery

#include "cli/run_record/revision.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>

#include "base/text.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

std::string in_quotes(const std::string& text) {
    std::string quoted = "'";
    for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
}

/// Output of a command; "" if it fails or does not exist.
std::string said_by(const std::string& command) {
    std::FILE* const pipe = ::popen(command.c_str(), "re");
    if (!pipe) return "";
    std::string said;
    std::array<char, 4096> part{};
    for (size_t got; (got = std::fread(part.data(), 1, part.size(), pipe)) > 0;) said.append(part.data(), got);
    return ::pclose(pipe) == 0 ? said : "";
}

}  // namespace

std::optional<Revision> revision_of(const fs::path& file) {
    std::error_code problem;
    const fs::path whole = fs::canonical(file, problem);
    if (problem) return std::nullopt;
    // git must not change the repository, nor block the run in a large one. The first output line is the commit; then
    // follow changed tracked files, the script if it is untracked, and "?" if git fails.
    const std::string git = "timeout 5 git -C " + in_quotes(whole.parent_path().string());
    const std::string said =
        said_by(fmt::format("exec 2> /dev/null; unset GIT_DIR GIT_WORK_TREE; export GIT_OPTIONAL_LOCKS=0; "
                            "{0} rev-parse --verify -q HEAD && {{ {0} status --porcelain --untracked-files=no && "
                            "{{ {0} ls-files --error-unmatch -- {1} > /dev/null || echo untracked; }} || echo '?'; }}",
                            git, in_quotes(whole.string())));
    const std::vector<std::string> lines = split(trim(said), '\n');
    if (lines.empty() || lines.front().empty()) return std::nullopt;
    Revision revision{lines.front()};
    if (lines.back() != "?") revision.clean = lines.size() == 1;
    return revision;
}

}  // namespace orrery

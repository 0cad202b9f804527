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

/// What a command says; "" where it fails or is not there.
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
    // It must not touch the repository, nor hold up the run in a large one. Of files that git does not track it shows
    // the script alone.
    const std::string git = "timeout 5 git -C " + in_quotes(whole.parent_path().string());
    const std::string said = said_by(fmt::format(
        "exec 2> /dev/null; export GIT_OPTIONAL_LOCKS=0; {} status --porcelain=v2 --branch --untracked-files=no && "
        "{{ {} ls-files --error-unmatch -- {} > /dev/null || echo untracked; }}",
        git, git, in_quotes(whole.string())));
    constexpr std::string_view commit = "# branch.oid ";
    std::optional<Revision> revision;
    for (const std::string& line : split(said, '\n')) {
        if (line.starts_with(commit) && line != "# branch.oid (initial)")
            revision = Revision{line.substr(commit.size())};
        else if (revision && !line.empty() && !line.starts_with('#'))
            revision->clean = false;
    }
    return revision;
}

}  // namespace orrery

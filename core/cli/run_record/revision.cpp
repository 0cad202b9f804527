#include "cli/run_record/revision.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// Of a small file, without the end of its line; "" where there is none.
std::string first_line(const fs::path& file) {
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);
    return line;
}

std::string behind(const std::string& text, std::string_view prefix) {
    return text.starts_with(prefix) ? text.substr(prefix.size()) : "";
}

/// .git of the repository that the folder lies in: a folder, or of a worktree a file that names one.
fs::path git_folder(fs::path folder) {
    std::error_code ignored;
    for (;; folder = folder.parent_path()) {
        const fs::path git = folder / ".git";
        if (fs::is_directory(git, ignored)) return git;
        const std::string other = behind(first_line(git), "gitdir: ");
        if (!other.empty()) return folder / other;
        if (folder == folder.root_path()) return {};
    }
}

/// What a reference stands for, in a file of its own or in the list of packed ones.
std::string commit_of(const fs::path& git, const std::string& reference) {
    const std::string common = first_line(git / "commondir");
    const fs::path shared = common.empty() ? git : git / common;
    for (const fs::path& folder : {git, shared})
        if (std::string line = first_line(folder / reference); !line.empty()) return line;
    std::ifstream packed(shared / "packed-refs");
    for (std::string line; std::getline(packed, line);)
        if (line.ends_with(" " + reference)) return line.substr(0, line.find(' '));
    return "";
}

std::string in_quotes(const std::string& text) {
    std::string quoted = "'";
    for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
}

/// What a command says; nullopt where it fails or is not there.
std::optional<std::string> said_by(const std::string& command) {
    std::FILE* const pipe = ::popen(command.c_str(), "re");
    if (!pipe) return std::nullopt;
    std::string said;
    std::array<char, 4096> part{};
    for (size_t got; (got = std::fread(part.data(), 1, part.size(), pipe)) > 0;) said.append(part.data(), got);
    return ::pclose(pipe) == 0 ? std::optional(said) : std::nullopt;
}

}  // namespace

std::optional<Revision> revision_of(const fs::path& file) {
    std::error_code problem;
    const fs::path whole = fs::canonical(file, problem);
    if (problem) return std::nullopt;
    const fs::path git = git_folder(whole.parent_path());
    if (git.empty()) return std::nullopt;
    Revision revision{first_line(git / "HEAD")};
    if (const std::string reference = behind(revision.commit, "ref: "); !reference.empty())
        revision.commit = commit_of(git, reference);
    if (revision.commit.empty()) return std::nullopt;
    // It must not touch the repository, nor hold up the run in a large one.
    const std::string ask = fmt::format("exec 2>/dev/null; GIT_OPTIONAL_LOCKS=0 timeout 5 git -C {} ",
                                        in_quotes(whole.parent_path().string()));
    const auto changed = said_by(ask + "status --porcelain --untracked-files=no");
    if (changed)
        revision.clean =
            changed->empty() && said_by(ask + "ls-files --error-unmatch -- " + in_quotes(whole.string())).has_value();
    return revision;
}

}  // namespace orrery

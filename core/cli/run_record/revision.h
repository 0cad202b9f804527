#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace orrery {

/// The revision of a file's repository.
struct Revision {
    std::string commit;              ///< commit of HEAD
    std::optional<bool> clean = {};  ///< whether the file and all tracked files are as committed; unset: unknown
};

/// The revision of the git repository that contains a file, from the program `git`, with a timeout of 5 s for each
/// call; nullopt without a repository, a commit or git.
std::optional<Revision> revision_of(const std::filesystem::path& file);

}  // namespace orrery

#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace orrery {

/// What a file's repository is at.
struct Revision {
    std::string commit;              ///< of its HEAD
    std::optional<bool> clean = {};  ///< the file and all that is tracked are as committed; none: no git to ask
};

/// Of the git repository that a file lies in; nullopt where it lies in none, or that has no commit. Reads git's files;
/// asks the program `git`, if there is one, for at most some seconds, whether anything was changed.
std::optional<Revision> revision_of(const std::filesystem::path& file);

}  // namespace orrery

#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace orrery {

/// What a file's repository is at.
struct Revision {
    std::string commit;              ///< of its HEAD
    std::optional<bool> clean = {};  ///< the file and all that is tracked are as committed; none: git cannot say it
};

/// Of the git repository that a file lies in, by the program `git`, which has 5 s for each answer; nullopt where there
/// is no repository, no commit, or no such program.
std::optional<Revision> revision_of(const std::filesystem::path& file);

}  // namespace orrery

#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace orrery {

/// What a file's repository is at.
struct Revision {
    std::string commit;  ///< of its HEAD
    bool clean = true;   ///< the file and all that is tracked are as committed
};

/// Of the git repository that a file lies in, by the program `git`; nullopt where there is no repository or no commit,
/// or where `git` is missing, fails or takes more than 5 s.
std::optional<Revision> revision_of(const std::filesystem::path& file);

}  // namespace orrery

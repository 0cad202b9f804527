#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace orrery {

/// A hint about the missing mount option if flock failed with error `code`, as a line for a message; "" for other
/// codes.
std::string flock_advice(int code);

/// The same for a lock file that cannot be opened because it is a symbolic link, which O_NOFOLLOW refuses.
std::string link_advice(int code);

/// An exclusive lock on a run's folder: a file in it that is locked with flock while this object and its process live.
/// Works on network file systems that forward locks. A stopped process keeps its lock.
class FolderLock {
public:
    /// The lock files of a run's folder. Rank 0 of a running job holds `job`. A launcher holds `launcher` for its whole
    /// life, even while no rank runs. To get the folder exclusively, lock `launcher` first, then `job`.
    static constexpr const char* job = ".lock";
    static constexpr const char* launcher = ".launcher.lock";

    /// Creates the folder if it is missing. Waits up to 2 s for the lock. Throws Error naming the process that holds
    /// the lock, or why the file cannot be written.
    explicit FolderLock(const std::string& folder, const std::string& name = job)
        : FolderLock(folder, name, "another run", "run.folder", false) {}
    /// Locks a step while it is copied to the folder `place`. The lock file is deleted with the returned object.
    static std::unique_ptr<FolderLock> of_step(const std::string& place, int64_t step);
    ~FolderLock();
    FolderLock(const FolderLock&) = delete;

private:
    FolderLock(const std::string& folder, const std::string& name, const char* by, const char* instead, bool passing);
    bool is_there() const;

    int file_ = -1;
    std::string path_;
    const bool passing_;  ///< whether the destructor deletes the lock file
};

}  // namespace orrery

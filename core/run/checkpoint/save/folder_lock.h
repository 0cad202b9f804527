#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace orrery {

/// The mount option that is missing where flock failed with `code`, as a line for the message; "" for other reasons.
std::string flock_advice(int code);

/// Keeps a run's folder to one job at a time: a file in it is locked (flock) as long as this object or its process
/// lives, on network file systems that pass locks on too. A process that is stopped keeps it.
class FolderLock {
public:
    /// What is locked: `job` by rank 0 of a running job, `launcher` by who starts ranks from its first to its last
    /// one, also while none runs. Who needs the folder for itself takes the launcher's, then the job's.
    static constexpr const char* job = ".lock";
    static constexpr const char* launcher = ".launcher.lock";

    /// Makes the folder where there is none. A job that is just ending is waited for, up to 2 s. Throws Error naming
    /// the process that uses the folder, or why it cannot be written.
    explicit FolderLock(const std::string& folder, const std::string& name = job)
        : FolderLock(folder, name, "another run", "run.folder", false) {}
    /// Of one step in a place that no run has: by who writes it, whose file goes with this object.
    static std::unique_ptr<FolderLock> of_step(const std::string& place, int64_t step);
    ~FolderLock();
    FolderLock(const FolderLock&) = delete;

private:
    FolderLock(const std::string& folder, const std::string& name, const char* by, const char* instead, bool passing);
    bool is_there() const;

    int file_ = -1;
    std::string path_;
    const bool passing_;  ///< its file goes
};

}  // namespace orrery

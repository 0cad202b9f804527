#pragma once
#include <string>

namespace orrery {

/// Keeps a run's folder to one job at a time: FOLDER/.lock is locked (flock) as long as this object or its process
/// lives, on network file systems that pass locks on too. A process that is stopped keeps it.
class FolderLock {
public:
    /// Makes the folder where there is none. A job that is just ending is waited for, up to 2 s. Throws Error naming
    /// the process that uses the folder, or why it cannot be written.
    explicit FolderLock(const std::string& folder);
    ~FolderLock();
    FolderLock(const FolderLock&) = delete;

private:
    int file_ = -1;
};

}  // namespace orrery

#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orrery/checkpoint.h"
#include "orrery/config.h"
#include "orrery/registry.h"
#include "plugin/loader.h"
#include "run/checkpoint/retain/retention.h"
#include "run/checkpoint/save/folder_lock.h"

namespace orrery {

/// Locks on a run's folder against launchers and against ranks; released in the opposite order.
struct WholeFolderLock {
    explicit WholeFolderLock(const std::string& folder) : launcher(folder, FolderLock::launcher), job(folder) {}
    FolderLock launcher, job;
};

/// Checkpoints of one run's folder, or at one path in a store.
class StorePlace {
public:
    /// Opens checkpoints. `where`: a run's folder (with a config.toml), its checkpoints/, or a path in a store of kind
    /// `kind` ("": the run's, else posix). `there`: true if the path must exist (for stores of folders), false if it
    /// will be written and must not be inside another run or step. Throws Error saying what was found instead.
    StorePlace(const std::string& where, const std::string& kind, const std::vector<std::string>& sets, bool there);

    CheckpointStore& store() { return *store_; }
    const std::string& kind() const { return kind_; }
    bool is_run() const { return !run_.empty(); }
    /// The run's folder; "": not a run.
    const std::string& run() const { return run_; }
    /// The retention policy of the run, [checkpoint] keep and keep_*; the defaults if this is not a run.
    const RetentionPolicy& policy() const { return policy_; }
    /// Throws Error if the step is not committed.
    void require(int64_t step);
    /// Locks the run's folder against jobs; nullptr for checkpoints that are not in a run's folder, whose jobs are
    /// unknown. Throws Error if a job is using the folder.
    std::unique_ptr<WholeFolderLock> lock() const;
    /// Locks a step against other copies, in a store of folders. nullptr for other stores, and for a run, which lock()
    /// locks as a whole. Throws Error if another copy is in progress.
    std::unique_ptr<FolderLock> lock_step(int64_t step) const;

private:
    std::string run_;
    std::string kind_;
    Config config_;
    Registry registry_;
    std::optional<Loader> loader_;
    std::unique_ptr<CheckpointStore> store_;
    RetentionPolicy policy_;
};

}  // namespace orrery

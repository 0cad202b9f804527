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

/// Nobody else starts ranks in the folder, and none run. Given back in the opposite order.
struct WholeFolderLock {
    explicit WholeFolderLock(const std::string& folder) : launcher(folder, FolderLock::launcher), job(folder) {}
    FolderLock launcher, job;
};

/// The checkpoints of a run's folder, in whatever store it has, or of a place of a store.
class StorePlace {
public:
    /// `where`: a folder with a config.toml, or its checkpoints/, else a place of the store `kind` ("": of a run as its
    /// configuration says, else posix). `there`: it must be, of a store of folders; else it is written to, and lies in
    /// no other run or step. Throws Error saying what it is instead.
    StorePlace(const std::string& where, const std::string& kind, const std::vector<std::string>& sets, bool there);

    CheckpointStore& store() { return *store_; }
    const std::string& kind() const { return kind_; }
    bool is_run() const { return !run_.empty(); }
    /// [checkpoint] keep, keep_* of the run; the defaults of a place.
    const RetentionPolicy& policy() const { return policy_; }
    /// Throws Error unless the step is committed.
    void require(int64_t step);
    /// Keeps jobs out of the run's folder; nullptr of a place, whose jobs are not known. Throws Error when one is in
    /// it.
    std::unique_ptr<WholeFolderLock> lock() const;
    /// Keeps other copies of the step out of a place of a store of folders; nullptr of a run, which is locked as a
    /// whole, and of other stores. Throws Error where another one is under way.
    std::unique_ptr<FolderLock> lock_step(int64_t step) const;

private:
    std::string run_;  ///< its folder; "": a place
    std::string kind_;
    Config config_;
    Registry registry_;
    std::optional<Loader> loader_;
    std::unique_ptr<CheckpointStore> store_;
    RetentionPolicy policy_;
};

}  // namespace orrery

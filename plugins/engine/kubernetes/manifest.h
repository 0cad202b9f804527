#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "orrery/config.h"
#include "orrery/engine.h"

namespace orrery::kubernetes {

using Pairs = std::vector<std::pair<std::string, std::string>>;

/// The table [submit.kubernetes].
struct Settings {
    explicit Settings(Config& config);

    Origin origin;                   ///< of the table
    std::string name_space;          ///< "": that of kubectl's context
    std::string kind;                ///< "jobset" or "trainjob"
    std::string image;               ///< container image with `orrery` in its PATH
    std::string claim, mount;        ///< persistent volume claim, and the folder where pods see it
    std::string work;                ///< folder in the pod where the command starts; "": the one of `orrery submit`
    std::string secret;              ///< Secret; its key `token` is the job's token; "": none
    std::string shared_memory;       ///< limit of /dev/shm, "8Gi"; "": the pod's memory
    int64_t uid = 1000;              ///< user and group of the processes
    Pairs resources;                 ///< limits of a pod: {"nvidia.com/gpu", "8"}
    Pairs node_selector;             ///< labels that a node must have
    std::vector<std::string> extra;  ///< lines of YAML for the pod's spec
};

/// Returns the name of a job's JobSet: the run's, as a DNS label. Throws Error if its pods would have names that are
/// too long.
std::string object_name(const EngineJob& job);

/// Returns the manifest of a job: a JobSet, or a TrainingRuntime and its TrainJob. Throws Error at a setting that is
/// missing or wrong.
std::string manifest(const Settings& settings, const EngineJob& job);

}  // namespace orrery::kubernetes

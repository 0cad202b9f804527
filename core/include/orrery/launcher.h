#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "orrery/api.h"

namespace orrery {

/// The environment variables of a process. An empty variable counts as unset.
class ORRERY_API Environment {
public:
    using Lookup = std::function<const char*(const char* name)>;  ///< returns the variable's value, nullptr when unset
    explicit Environment(Lookup lookup) : lookup_(std::move(lookup)) {}

    bool has(const char* name) const { return text(name).has_value(); }
    std::optional<std::string> text(const char* name) const;
    /// Reads an integer variable. Throws Error naming it when it is unset or is not an integer of 0 or more.
    int64_t count(const char* name) const;
    /// Reads an integer variable; returns `otherwise` when it is unset.
    int64_t count_or(const char* name, int64_t otherwise) const;

private:
    Lookup lookup_;
};

/// One task of a job as the environment from its launcher describes it. It becomes a rank where there are as many tasks
/// as the mesh has ranks, else the process that starts the ranks of its node. Core reads MASTER_ADDR, MASTER_PORT
/// and ORRERY_TOKEN.
struct LaunchedRank {
    std::string job;         ///< id, the same on all tasks; unique on a host unless meets_in_folder
    int64_t generation = 0;  ///< number of times that the job was restarted
    int64_t rank = 0, ranks = 1;
    int64_t local_rank = 0, local_ranks = 1;  ///< local_rank -1: unknown; then only an agent may run
    bool counted = true;                      ///< false: local_ranks is a guess, as ranks may be on several hosts
    int64_t node = -1, nodes = 0;             ///< this host among the job's hosts, and their number; -1 and 0: unknown
    int64_t threads = 0;                      ///< CPU threads of each rank; 0: not given
    std::string first_host = "127.0.0.1";     ///< host of rank 0, unless MASTER_ADDR is set
    bool keeps_port = false;  ///< the launcher listens at MASTER_PORT: the rendezvous uses the next port
    /// The launcher does not tell the first host: unless MASTER_ADDR is set, rank 0 writes its address and a secret in
    /// the run's folder, where the others read them.
    bool meets_in_folder = false;
    /// How to set a variable on all ranks, for messages: "mpirun -x MASTER_ADDR=10.0.0.1"; "" for no hint.
    std::string hint;
};

/// Detects which task of a job this process is when another program (torchrun, srun, mpirun) started it: a plugin
/// launcher/NAME. Each rank calls it before anything else. It reads only the environment that it is given, changes
/// nothing and starts no thread. Its ORRERY_FACTS:
///   variables=A,B   core opens the plugin only when at least one of these variables is set
///   inside=X,Y      tasks of these launchers may start it: when both are detected, this one counts
///   uncounted       local_ranks may be a guess: run.ranks is not compared with it
///   restarts        it can restart a failed job itself
///   late_name       MASTER_ADDR may be a name that stands for another host for some seconds after a restart
class ORRERY_API Launcher {
public:
    virtual ~Launcher();
    /// True when this launcher started the process as a task of a job.
    virtual bool detect(const Environment& environment) const = 0;
    /// Returns this process's task if detect() is true. Throws Error naming a variable that is missing or impossible.
    virtual LaunchedRank read(const Environment& environment) const = 0;
    /// Returns a warning for an `orrery run` started inside a job of this launcher but not as one of its ranks: ranks
    /// start on this host only, and how to use all hosts. "" when there is nothing to warn of.
    virtual std::string left_out(const Environment&) const { return ""; }
};

}  // namespace orrery

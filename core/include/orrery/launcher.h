#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "orrery/api.h"

namespace orrery {

/// The environment variables of a process. An empty one counts as unset.
class ORRERY_API Environment {
public:
    using Lookup = std::function<const char*(const char* name)>;  ///< nullptr: it is unset
    explicit Environment(Lookup lookup) : lookup_(std::move(lookup)) {}

    bool has(const char* name) const { return text(name).has_value(); }
    std::optional<std::string> text(const char* name) const;
    /// Throws Error naming the variable when it is unset or is not an integer of 0 or more.
    int64_t count(const char* name) const;
    /// The same, `otherwise` when it is unset.
    int64_t count_or(const char* name, int64_t otherwise) const;

private:
    Lookup lookup_;
};

/// The place of one rank in its job, as the launcher's environment gives it. Core itself reads MASTER_ADDR, MASTER_PORT
/// and ORRERY_TOKEN.
struct LaunchedRank {
    std::string job;         ///< id of the job: the same on all its ranks, unique among the jobs of a host
    int64_t generation = 0;  ///< counts its restarts
    int64_t rank = 0, ranks = 1;
    int64_t local_rank = 0, local_ranks = 1;
    bool counted = true;  ///< local_ranks is this host's true count; false: a guess, the ranks may be on several hosts
    int64_t threads = 0;  ///< CPU threads that it gives each rank; 0: it does not say
    std::string first_host = "127.0.0.1";  ///< where rank 0 runs, unless MASTER_ADDR says so
    bool keeps_port = false;               ///< the launcher listens at MASTER_PORT: the ranks meet at the next port
    /// How its user hands a variable to all ranks, for messages: "mpirun -x MASTER_ADDR=10.0.0.1"; "": no hint.
    std::string hint;
};

/// Reads which rank of a job this process is, where another program (torchrun, srun, mpirun) started it: a plugin
/// launcher/NAME. Each rank calls it before anything else. It reads only the environment that it is given, changes
/// nothing and starts no thread. Its ORRERY_FACTS:
///   variables=A,B   core opens the plugin only where at least one of these variables is set
///   inside=X,Y      tasks of these launchers may start it: where it is detected with one of them, it counts
///   uncounted       local_ranks may be a guess: run.ranks is not compared with it
///   restarts        it can restart a failed job itself
class ORRERY_API Launcher {
public:
    virtual ~Launcher();
    /// Whether it has started this process as a rank.
    virtual bool detect(const Environment& environment) const = 0;
    /// Where detect() is true. Throws Error naming the variable that is missing or has an impossible value.
    virtual LaunchedRank read(const Environment& environment) const = 0;
    /// A warning for `orrery run` inside this launcher's job that is not one of its ranks: ranks start on this host
    /// only, and how to use all hosts. "" where there is nothing to warn of.
    virtual std::string left_out(const Environment&) const { return ""; }
};

}  // namespace orrery

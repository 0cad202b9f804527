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

/// A rank that a launcher has started, as it says. MASTER_ADDR, MASTER_PORT and ORRERY_TOKEN are read by core.
struct LaunchedRank {
    std::string job;         ///< id of the job: the same on all its ranks, another one for each job of a host
    int64_t generation = 0;  ///< counts its restarts
    int64_t rank = 0, ranks = 1;
    int64_t local_rank = 0, local_ranks = 1;
    bool counted = true;  ///< local_ranks is this host's true count; false: it is a guess, and may be ranks of several
    int64_t threads = 0;  ///< CPU threads that it gives each rank; 0: it does not say
    std::string first_host = "127.0.0.1";  ///< where rank 0 runs, unless MASTER_ADDR says so
    bool keeps_port = false;               ///< it listens at MASTER_PORT itself: the ranks meet at the next port
    /// How its user hands a variable to all ranks, for messages: "mpirun -x MASTER_ADDR=10.0.0.1"; "": no hint.
    std::string hint;
};

/// A program that starts ranks in place of `orrery run`, a kind of plugin: launcher/NAME. The plugin reads the
/// environment that it is given and nothing else, changes nothing and starts no thread: each rank asks it before all
/// else. Its ORRERY_FACTS:
///   variables=A,B   names, at least one of which is set where it has something to say; it is not opened elsewhere
///   inside=X,Y      launchers whose tasks may run it in turn: where both are detected the ranks are this one's
///   uncounted       it may leave out how many ranks a host has: run.ranks is not held against that
///   restarts        it starts a failed job again itself, when told so
class ORRERY_API Launcher {
public:
    virtual ~Launcher();
    /// Whether it has started this process as a rank.
    virtual bool detect(const Environment& environment) const = 0;
    /// Where detect() is true. Throws Error naming the variable that is missing or cannot be.
    virtual LaunchedRank read(const Environment& environment) const = 0;
    /// Where `orrery run` was called in a job of this launcher's, but not by it: that ranks start on this host alone,
    /// and how to use all. "" elsewhere.
    virtual std::string left_out(const Environment&) const { return ""; }
};

}  // namespace orrery

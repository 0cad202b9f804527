#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "cli/launch.h"
#include "cli/supervise/node_check.h"
#include "control/supervisor.h"

namespace orrery {

/// Settings that a launcher needs to restart its job, in addition to LaunchSpec.
struct Supervision {
    Supervisor::Options policy;
    int64_t node = 0;           ///< number of this node
    double disk_timeout_s = 0;  ///< a rank that waits longer for a disk has failed
    /// Called on node 0 before anything starts; throws Error if the job's folder cannot be used.
    std::function<void()> claim = {};
    /// Returns the folder of events.jsonl; called after `claim`. "": nothing is written.
    std::function<std::string()> folder = {};
    /// Permanently takes a generation greater than `after` and returns it.
    std::function<int64_t(int64_t after)> mint = {};
    /// Called for a node that joins or rejoins, to check it.
    std::function<NodeCheck()> check = {};
};

/// Like launch_meeting(), for a job that is restarted when it fails: its ranks are ended, reaped and started again as a
/// new generation. Reports on stderr and in events.jsonl, and at the end prints where the time went on stdout. With
/// several nodes, node 0 decides and the others follow its orders.
int supervise(LaunchSpec spec, const Supervision& supervision);

}  // namespace orrery

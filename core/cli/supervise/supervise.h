#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "cli/launch.h"
#include "cli/supervise/node_check.h"
#include "control/supervisor.h"

namespace orrery {

/// What a launcher that restarts its job needs besides what one that does not needs.
struct Supervision {
    Supervisor::Options policy;
    int64_t node = 0;           ///< which this is
    double disk_timeout_s = 0;  ///< a rank that waits so long for a disk has failed
    /// Called where the job's folder is decided on, before anything is started; throws Error for what cannot be.
    std::function<void()> claim = {};
    /// The folder of events.jsonl; asked after `claim`. "": none is written.
    std::function<std::string()> folder = {};
    /// Takes a generation beyond `after` for good, and returns it.
    std::function<int64_t(int64_t after)> mint = {};
    /// The checks of a node that comes (back) in.
    std::function<NodeCheck()> check = {};
};

/// As launch_meeting(), of a job that is restarted when it fails: its ranks are ended and reaped, and started again as
/// a new generation. Says what it does on stderr and in events.jsonl, and at the end on stdout where the time went.
/// Of several nodes, node 0's decides, and the others do what it orders.
int supervise(LaunchSpec spec, const Supervision& supervision);

}  // namespace orrery

#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "cli/launch.h"
#include "cli/supervise/node_check.h"
#include "control/supervisor.h"

namespace orrery {

/// Settings of a launcher that restarts a failed job, besides LaunchSpec.
struct Supervision {
    Supervisor::Options policy;
    int64_t node = 0;
    bool drain_ends_job = false;  ///< if this node is asked to leave, the job ends on all nodes
    double disk_timeout_s = 0;    ///< a rank has failed if it waits for a disk for longer
    /// Reserves the job's folder on node 0 before anything starts; throws Error if the folder cannot be used.
    std::function<void()> claim = {};
    /// Returns the folder for events.jsonl; called after `claim`. "": events are not written.
    std::function<std::string()> folder = {};
    /// Reserves and returns a generation (number of a start) greater than `after`.
    std::function<int64_t(int64_t after)> mint = {};
    std::function<NodeCheck()> check = {};
    /// Returns whether the job has ended by job.json, and prints that. A node that looks for node 0 then exits with 0.
    /// Never true without an engine that makes ended nodes again, and therefore writes the job's start to job.json.
    std::function<bool()> over = {};
};

/// Starts a job's ranks and restarts them when the job fails: all ranks are ended, reaped and started again as a new
/// generation. Reports on stderr and in events.jsonl, and at the end prints where the time went on stdout. With several
/// nodes, node 0 decides and the others follow its orders.
int supervise(LaunchSpec spec, const Supervision& supervision);

}  // namespace orrery

#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "orrery/rendezvous.h"
#include "run/control/job.h"

namespace orrery {

class SignalTaker;

/// Describes the rank processes to start on one host.
struct LaunchSpec {
    std::vector<std::string> arguments;  ///< arguments of each rank: argv[0] and on
    Job job;                             ///< identity of the job; rank fields are set for each process
    int64_t first_rank = 0;
    int64_t local_ranks = 1;
    /// Called with `job` before the first rank starts. Threads that it creates block stop signals.
    std::function<void(Job&)> before = {};
    int grace_ms = 1500;  ///< how long other ranks may take to end after one failed
    /// Processors that each local rank may run on; empty: those of this process.
    std::vector<std::vector<int>> processors = {};
    /// Receives this process's signals until launch() takes over, if ranks save a checkpoint on signals. nullptr: a
    /// signal ends ranks and launcher.
    SignalTaker* taken_by = nullptr;
    /// Called for the first rank that fails, with its process and how it ended: "(pid 42) was killed by signal 9
    /// (Killed)". Returns false if that rank had not joined the others.
    std::function<bool(const Loss& how)> gone = {};
    /// Whether a rank has joined; only then can it know that another rank failed, and be blamed for ending late.
    std::function<bool(int64_t rank)> joined = {};
    /// Why the job is over, if a rank of another host was lost. Ranks that do not end by themselves are then killed.
    std::function<Loss()> lost = {};
    /// Backend of the rendezvous at which the ranks meet.
    std::shared_ptr<RendezvousBackend> meeting = {};
    std::chrono::milliseconds join_timeout{30'000};  ///< max wait of a node's launcher for node 0's rendezvous
};

/// Starts the ranks and waits for all. If ranks save on signals: SIGUSR1 is forwarded as it is; SIGTERM, SIGINT and
/// SIGHUP as SIGTERM; a second SIGINT kills all; a rank that exits with 75 or 130 stops the others. If a rank fails,
/// the others get `grace_ms` to report and end, then SIGKILL. If this process dies, the ranks see their lifeline close
/// and end. Returns the exit code: that of a failed rank; 1 if a rank was killed; 130 after SIGINT, also if only a rank
/// got it; 75 if one was stopped; otherwise 0. If ranks do not save: 128 + signal after a signal. Reports on stderr.
int launch(const LaunchSpec& spec);

struct ScriptCommand;  // defined in cli/commands.h

/// Throws Error if --nodes and --node-rank are inconsistent.
void check_nodes(const ScriptCommand& command);
/// Describes the launch of `ranks` ranks over --nodes hosts. Throws Error unless they divide into equal parts.
LaunchSpec over_hosts(const ScriptCommand& command, int64_t ranks);
/// launch() over several nodes. Node 0's launcher serves the job's store, which the other launchers join: every rank's
/// end is reported to it, and each launcher learns from it that the job is over, so that a rank blocked in foreign code
/// is killed. `claim` is called on node 0 before a rank starts; its error is sent to the other nodes. A usage error on
/// any node makes all nodes exit with its code.
int launch_meeting(LaunchSpec spec, int64_t node_rank, const std::function<void()>& claim);
/// Throws Error for flags that have no meaning in a rank started by another launcher.
void refuse_launch_flags(const ScriptCommand& command, const Job& job);

/// Pins each rank of this host to its own processor, if there are enough processors and the transport's contract sets
/// pins_ranks: measurements of two ranks on one processor would time the scheduler.
void pin_rank(const Job& job, const TransportContract& contract);

/// Runs a rank of a command that measures: joins the job, serving its rendezvous if it must, calls `measure` and
/// leaves. Reports an error to the other ranks first. Returns the result of `measure`.
int measuring_rank(const Job& job, RendezvousBackend& meeting, const std::function<int(Rendezvous&)>& measure);

/// Ends this process once the launcher is gone. Must be called first in a rank started by `launch`.
void watch_lifeline();

}  // namespace orrery

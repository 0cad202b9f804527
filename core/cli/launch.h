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

/// Rank processes of one host to start.
struct LaunchSpec {
    std::vector<std::string> arguments;  ///< of each rank: argv[0] and on
    Job job;                             ///< what all ranks share; rank fields are filled per process
    int64_t first_rank = 0;
    int64_t local_ranks = 1;
    /// Called with `job` before the first rank starts. Threads that it makes leave signals to this one.
    std::function<void(Job&)> before = {};
    int grace_ms = 1500;  ///< how long the others may take to end after one rank failed
    /// By local rank, the processors that it may run on; empty: those of this process.
    std::vector<std::vector<int>> processors = {};
    /// Who takes this process' signals until `launch` does, where ranks take theirs, save and end. nullptr: a signal
    /// ends ranks and launcher.
    SignalTaker* taken_by = nullptr;
    /// Told of the first rank that fails, which process that was and how: "(pid 42) was killed by signal 9 (Killed)".
    /// Returns false when that one had not joined the others.
    std::function<bool(const Loss& how)> gone = {};
    /// Whether it has: one that has not cannot know that another failed, and is not blamed when its time is over.
    std::function<bool(int64_t rank)> joined = {};
    /// Why the job is over, where it is: a rank of another host was lost. Ranks that do not end by themselves are
    /// ended.
    std::function<Loss()> lost = {};
    /// How the ranks meet.
    std::shared_ptr<RendezvousBackend> meeting = {};
    std::chrono::milliseconds join_timeout{30'000};  ///< for a launcher of another node than the rendezvous'
};

/// Starts the ranks and waits for all. Where ranks save, SIGUSR1 is forwarded, and SIGTERM, SIGINT and SIGHUP as
/// SIGTERM; a second SIGINT kills all; and a rank that ends with 75 or 130 stops the others, too. When a rank fails the
/// others get `grace_ms` to report and end, then SIGKILL. When this process dies, the ranks see their lifeline close
/// and end. Returns the exit code: a failed rank's own; 1 when a rank was killed; 130 after SIGINT, to a rank also; 75
/// when one was stopped; 0. Where they do not save: 128 + signal after one. Reports on stderr.
int launch(const LaunchSpec& spec);

struct ScriptCommand;  // cli/commands.h

/// Throws Error where --nodes and --node-rank of a command cannot be.
void check_nodes(const ScriptCommand& command);
/// What --nodes, --node-rank and --rendezvous, checked, say of `ranks` ranks; one secret for all. Throws Error for what
/// cannot be.
LaunchSpec over_hosts(const ScriptCommand& command, int64_t ranks);
/// launch(), with the store of the job in the launcher of node 0, which those of the other nodes join: every rank's end
/// is told there, and each launcher hears there that the job is over, so that a rank in a foreign call that nothing
/// ends is ended with the others. `claim` is called where the store is, before a rank starts; what it throws is told to
/// the other nodes. What a mistake on any node ends exits with that one's code on all.
int launch_meeting(LaunchSpec spec, int64_t node_rank, const std::function<void()>& claim);
/// Throws Error for flags that say nothing to a rank that another launcher has started.
void refuse_launch_flags(const ScriptCommand& command, const Job& job);

/// A processor for each rank of this host, where there are enough and the contract asks for it (pins_ranks): two on one
/// would time the scheduler.
void pin_rank(const Job& job, const TransportContract& contract);

/// A rank's process of a command that measures: joins the job, which it serves where it has to, calls `measure` and
/// leaves; an error is reported to the other ranks first. Returns the exit code of `measure`.
int measuring_rank(const Job& job, RendezvousBackend& meeting, const std::function<int(Rendezvous&)>& measure);

/// Ends this process as soon as the launcher is gone. Called first thing in a rank started by `launch`.
void watch_lifeline();

}  // namespace orrery

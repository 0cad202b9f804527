#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "orrery/rendezvous.h"
#include "run/control/job.h"

namespace orrery {

class Config;
class Loader;
class SignalTaker;
struct Settings;

struct LaunchSpec {
    std::vector<std::string> arguments;  ///< arguments of each rank: argv[0] and on
    Job job;                             ///< identity of the job; each process gets its own rank fields
    int64_t first_rank = 0;
    int64_t local_ranks = 1;
    /// Called with `job` before the first rank starts. Threads that it creates must block stop signals.
    std::function<void(Job&)> before = {};
    int grace_ms = 1500;  ///< time for the other ranks to end after a rank failed, before they are killed
    /// Processors that each local rank may run on; empty: those of this process.
    std::vector<std::vector<int>> processors = {};
    /// If ranks save a checkpoint on signals: receives this process's signals until launch() does. nullptr: ranks do
    /// not save, so a signal ends ranks and launcher.
    SignalTaker* taken_by = nullptr;
    /// Called for the first rank that fails, with its process and how it ended: "(pid 42) was killed by signal 9
    /// (Killed)". Returns false if that rank had not joined the others.
    std::function<bool(const Loss& how)> gone = {};
    /// Whether a rank has joined. If not, it cannot know that another rank failed, and is not to blame for ending late.
    std::function<bool(int64_t rank)> joined = {};
    /// Returns why the job is over if a rank of another host was lost; ranks that do not end are then killed.
    std::function<Loss()> lost = {};
    std::string folder = {};  ///< the run's folder, for the logs of ranks; "": there are none
    bool shows_all = false;   ///< the terminal shows the output of all ranks
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

/// Waits up to 60 s, with a note, until the host of the rendezvous resolves if this process is to listen there.
/// `moves`: also while its name stands for another host.
void await_name(const Job& job, bool moves);

void check_nodes(const ScriptCommand& command);
/// Throws Error, with this remedy, for --spares of a job of one node or without restarts.
void check_spares(const ScriptCommand& command, const char* remedy);
/// Describes the launch of this host's part of `ranks` ranks. Throws Error unless --nodes hosts can have equal parts.
LaunchSpec over_hosts(const ScriptCommand& command, int64_t ranks);
/// launch() over several nodes. Node 0's launcher serves the job's store, which the other launchers join: every rank's
/// end is reported to it, and each launcher learns from it that the job is over, so that a rank blocked in foreign code
/// is killed. `claim` is called on node 0 before a rank starts; its error is sent to the other nodes. A usage error on
/// any node makes all nodes exit with its code.
int launch_meeting(LaunchSpec spec, int64_t node_rank, const std::function<void()>& claim);
/// Sets the threads of each rank of this host and, with run.pin_ranks, the processors that it may run on: near its
/// device, if that is known. Throws Error if a rank has no device of its own.
void place_ranks(LaunchSpec& spec, const Settings& settings, Config& config, const Loader& loader);
/// For a rank that another launcher started: takes its place on this host in the same way and sets its threads, unless
/// the launcher has bound it to processors.
void take_place(Job& job, const Settings& settings, Config& config, const Loader& loader);
void refuse_launch_flags(const ScriptCommand& command, const Job& job);

/// Pins each rank of this host to one processor of its place, if the transport's contract sets pins_ranks and there are
/// enough processors. Two ranks on one processor would measure the scheduler, not the transport.
void pin_rank(const Job& job, const TransportContract& contract);

/// Runs a rank of a command that measures: joins the job, also serving its rendezvous if this rank has to, calls
/// `measure`, leaves, and returns the result of `measure`. An error is reported to the other ranks first.
int measuring_rank(const Job& job, RendezvousBackend& meeting, const std::function<int(Rendezvous&)>& measure);

/// Runs `rank` in a thread of this process for each of `ranks` ranks, for transports that need one address space.
/// Serves their rendezvous; a rank is lost after `silence`. Throws the exception of the first rank that failed.
void launch_threads(const std::string& id, int64_t ranks, RendezvousBackend& meeting, std::chrono::milliseconds silence,
                    const std::function<void(const Job&)>& rank);

/// Ends this process as soon as its launcher ends. Must be called first in a rank that launch() started.
void watch_lifeline();

}  // namespace orrery

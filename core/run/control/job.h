#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/error.h"
#include "orrery/launcher.h"
#include "run/control/address.h"

namespace orrery {

/// Identity of this process: which rank of which job it is, and where its rendezvous is.
struct Job {
    std::string id = "local";
    std::string token;       ///< shared secret of the job; connections without it are refused
    int64_t generation = 0;  ///< counts restarts of the job; older generations are refused
    std::string run;         ///< id of this start of the job, as recorded by its rendezvous; "": unknown
    std::string nonce;       ///< random id of this process, to tell processes with the same pid apart
    int64_t rank = 0, ranks = 1;
    int64_t local_rank = 0, local_ranks = 1;
    int64_t threads = 0;             ///< CPU threads that the launcher assigns to each rank; 0: not set
    int64_t processors = 0;          ///< processors that the launcher assigns to each rank; 0: not set
    int64_t session = 0;             ///< number of sessions so far in each process of this job
    std::string host = "127.0.0.1";  ///< host of the rendezvous
    int port = 0;
    std::chrono::milliseconds silence{10'000};  ///< a peer that sends no heartbeat for longer is lost; [run] silence_s,
                                                ///< once the configuration is read
    bool serves = false;    ///< this process runs the rendezvous service itself (rank 0 of srun, mpirun, torchrun)
    bool assigned = false;  ///< a launcher started this rank
    std::string launcher;   ///< name of the launcher plugin, "orrery" for Orrery's own launcher, or ""
    bool ours = false;      ///< Orrery's own launcher started this rank and locks the run's folder
    bool counted = true;    ///< whether run.ranks must equal local_ranks; not if the launcher has the fact `uncounted`
    bool restarts = false;  ///< the launcher can be asked to restart a failed job
};

/// An error in the environment of all ranks of a host: its first rank prints it, and other ranks throw this type.
class SaidElsewhere : public Error {
    using Error::Error;
};

/// A launcher plugin and the facts that its file states (plugin/facts.h).
struct KnownLauncher {
    std::string name;
    std::vector<std::string> variables = {}, inside = {};
    bool uncounted = false, restarts = false;
    std::function<std::unique_ptr<Launcher>()> open;
    bool late_name = false;
};

/// The launcher plugins that may have started this process, in the order in which they are tried.
struct Launchers {
    std::vector<KnownLauncher> known;
    bool required = false;            ///< whether the configuration names the launcher, so that no other is tried
    Origin asked = {};                ///< where the configuration names the launcher
    std::optional<Ports> ports = {};  ///< [run] ports
};

/// A task of a job, as the launcher that started it tells.
struct LaunchedTask {
    std::string launcher;
    bool counted = true, restarts = false;  ///< as in Job
    LaunchedRank place;
    std::optional<Ports> ports = {};  ///< [run] ports, for the rendezvous unless MASTER_PORT is set
    bool late_name = false;           ///< the name of the first host may stand for another one at first
};

/// Returns the task that this process is; nullopt if `orrery run` or no launcher started it. Opens those launchers of
/// `find` that have one of their variables set, and asks them. If one launcher was started by another
/// (KnownLauncher::inside), the inner one counts. Throws Error if two are detected, or if a variable is missing or not
/// a number.
std::optional<LaunchedTask> launched_task(const std::function<Launchers()>& find);

/// Returns the job of a task, without the place where its tasks meet.
Job job_of(const LaunchedTask& task);

/// A folder in which the tasks of a launcher that does not tell the first host meet (LaunchedRank::meets_in_folder).
struct MeetingFolder {
    std::string path;
    std::chrono::milliseconds limit{};  ///< run.join_timeout_s
    std::string command;  ///< of all tasks: keeps jobs apart that meet there and have no id of their launcher
};

/// Sets where the tasks of `job` meet, and their secret. Without `folder`, or with MASTER_ADDR set, both are those of
/// the environment. Throws Error if tasks of several hosts would meet at a loopback address, and if tasks would meet at
/// another address without ORRERY_TOKEN, since any process could join them there.
void settle_meeting(Job& job, const LaunchedTask& task, const std::optional<MeetingFolder>& folder);

/// Throws Error unless the task of `job` has a place among those of its host, which is the number of its GPU.
void require_local_rank(const Job& job);

/// Returns the job of a rank that `orrery run` started, by its variables; nullopt if they are not set.
std::optional<Job> job_from_orrery();

/// Returns the job of a process that is a rank if anything started it: job_from_orrery(), or launched_task() with its
/// meeting. If nothing did, returns a one-rank job with assigned = false.
Job job_from_environment(const std::function<Launchers()>& find);

/// Number of ranks per host if the launcher gives all hosts equally many; 0: unknown.
inline int64_t per_host(const Job& job) { return job.ours ? job.local_ranks : 0; }

/// Number of processors that all ranks of this host may use together.
int64_t processors_of_host(const Job& job);

/// For `orrery run` in a job of several nodes: returns a text that says that ranks start on this node only, and how to
/// use all nodes, from the first launcher that has such a text; "" if none does.
std::string nodes_left_out(const Launchers& launchers);

/// Returns the secret that the user gives to all processes of a job: ORRERY_TOKEN, or the content of the file that
/// ORRERY_TOKEN_FILE names; nullopt if neither variable is set. The file must be a regular file of this user or root
/// that no other user can write, or read unless it is in the volume of a Secret (secret_volume.h). Throws Error if the
/// secret has fewer than 16 characters, if the file is unsuitable, or if both variables are set.
std::optional<std::string> user_token();

/// Returns the variables from which job_from_environment() reads `job`, as "NAME=value".
std::vector<std::string> environment_of(const Job& job);

}  // namespace orrery

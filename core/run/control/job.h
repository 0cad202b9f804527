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

namespace orrery {

/// Which process of which job this is.
struct Job {
    std::string id = "local";
    std::string token;       ///< shared secret of the job; peers without it are refused
    int64_t generation = 0;  ///< counts restarts; an older one is fenced off
    std::string run;         ///< id of this start of the job, as its rendezvous has it; "": not known
    std::string nonce;       ///< of this process, random: with its pid it says who is meant
    int64_t rank = 0, ranks = 1;
    int64_t local_rank = 0, local_ranks = 1;
    int64_t threads = 0;             ///< CPU threads that the launcher gives each rank; 0: it does not say
    int64_t processors = 0;          ///< processors that it gives each rank; 0: it does not say
    int64_t session = 0;             ///< counts the sessions of the job's processes
    std::string host = "127.0.0.1";  ///< of the rendezvous
    int port = 0;
    std::chrono::milliseconds silence{10'000};  ///< longer unheard, a peer is lost; [run] silence_s, once it is known
    bool serves = false;    ///< this process runs the rendezvous itself (srun, mpirun, torchrun: rank 0)
    bool assigned = false;  ///< somebody else started the ranks
    std::string launcher;   ///< a plugin's name, "orrery" for this project's own, or ""
    bool ours = false;      ///< this project's own has started it: it holds the run's folder and takes generations
    bool counted = true;    ///< run.ranks must equal local_ranks; false: its launcher has the fact `uncounted`
    bool restarts = false;  ///< the launcher starts a failed job again, when told so
};

/// What all ranks of a host find alike in their environment: thrown on all but the host's first, which says it.
class SaidElsewhere : public Error {
    using Error::Error;
};

/// A plugin of kind launcher with the facts of its file (plugin/facts.h).
struct KnownLauncher {
    std::string name;
    std::vector<std::string> variables = {}, inside = {};
    bool uncounted = false, restarts = false;
    std::function<std::unique_ptr<Launcher>()> open;
};

/// Those that may have started this process, in the order in which they are asked.
struct Launchers {
    std::vector<KnownLauncher> known;
    bool required = false;  ///< [run] launcher names the only one
    Origin asked = {};      ///< where
};

/// Reads the variables of `orrery run`; where they are not set, opens and asks those launchers of `find` that have one
/// of their variables set. If one launcher was started by another (KnownLauncher::inside), the inner one counts. If
/// none is detected, returns a one-rank job with assigned = false. Throws Error when two are detected, when a variable
/// is missing or not a number, when ranks of several hosts would meet at a loopback address, and when they meet at
/// another address without ORRERY_TOKEN, since any process could join them there.
Job job_from_environment(const std::function<Launchers()>& find);

/// Ranks of each host, where its launcher gives all hosts equally many; 0: it need not.
inline int64_t per_host(const Job& job) { return job.ours ? job.local_ranks : 0; }

/// Processors that the ranks of this host have together.
int64_t processors_of_host(const Job& job);

/// Where `orrery run` was called in a job of several nodes: that ranks start on this one alone, and how to use all, by
/// the first launcher that says so; "" elsewhere.
std::string nodes_left_out(const Launchers& launchers);

/// The secret that the user gives all processes of a job: ORRERY_TOKEN, or what stands in the file that
/// ORRERY_TOKEN_FILE names, a regular file of this user's that nobody else may read or write. Throws Error when it has
/// fewer than 16 characters, when the file is another, or when both are set; nullopt when none is.
std::optional<std::string> user_token();

/// The variables that `job_from_environment` reads back, "NAME=value".
std::vector<std::string> environment_of(const Job& job);

}  // namespace orrery

#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace orrery {

/// Which process of which job this is.
struct Job {
    std::string id = "local";
    std::string token;       ///< shared secret of the job; peers without it are refused
    int64_t generation = 0;  ///< counts restarts; an older one is fenced off
    int64_t rank = 0, ranks = 1;
    int64_t local_rank = 0, local_ranks = 1;
    std::string host = "127.0.0.1";  ///< of the rendezvous
    int port = 0;
    bool serves = false;    ///< this process runs the rendezvous itself (srun, mpirun, torchrun: rank 0)
    bool assigned = false;  ///< somebody else started the ranks
    std::string launcher;   ///< "orrery", "torchrun", "slurm", "openmpi", or ""
};

/// Reads the variables of this project's launcher, torchrun, srun or mpirun, in that order; an unassigned one-rank job
/// when there are none. Throws Error naming the variable that is missing or no number.
/// A Slurm batch script is no rank: only tasks that srun started count.
Job job_from_environment();

/// The variables that `job_from_environment` reads back, "NAME=value".
std::vector<std::string> environment_of(const Job& job);

}  // namespace orrery

#include "orrery/launcher.h"
#include "orrery/plugin.h"

namespace orrery {
namespace {

class Hydra : public Launcher {
public:
    /// srun --mpi=pmi2 sets PMI_RANK and PMI_SIZE, too, but not MPI_LOCALRANKID.
    bool detect(const Environment& environment) const override {
        return environment.has("PMI_RANK") && environment.has("MPI_LOCALRANKID");
    }

    LaunchedRank read(const Environment& environment) const override {
        LaunchedRank rank;
        rank.job = environment.text("I_MPI_HYDRA_UUID").value_or("hydra");  // MPICH has no name of the job
        rank.rank = environment.count("PMI_RANK");
        rank.ranks = environment.count("PMI_SIZE");
        rank.local_rank = environment.count("MPI_LOCALRANKID");
        rank.local_ranks = environment.count("MPI_LOCALNRANKS");
        rank.meets_in_folder = true;
        rank.hint = "mpirun -genvall, where both are exported";
        if (rank.local_rank >= rank.local_ranks || rank.local_ranks > rank.ranks)
            throw Error("environment: MPI_LOCALRANKID=" + std::to_string(rank.local_rank) + " of MPI_LOCALNRANKS=" +
                        std::to_string(rank.local_ranks) + ", and PMI_SIZE=" + std::to_string(rank.ranks));
        return rank;
    }
};

void add(Registry& registry) {
    registry.add_launcher("hydra", [] { return std::make_unique<Hydra>(); });
}

}  // namespace
}  // namespace orrery

// In a Slurm job, srun starts hydra's proxies on the nodes.
ORRERY_FACTS("variables=MPI_LOCALRANKID inside=slurm");
ORRERY_PLUGIN("launcher.hydra", "0.1", orrery::add);

#include "orrery/launcher.h"
#include "orrery/plugin.h"

namespace orrery {
namespace {

class OpenMpi : public Launcher {
public:
    bool detect(const Environment& environment) const override { return environment.has("OMPI_COMM_WORLD_RANK"); }

    LaunchedRank read(const Environment& environment) const override {
        LaunchedRank rank;
        rank.job = environment.text("PMIX_NAMESPACE").value_or("openmpi");
        // Open MPI 4 makes the namespace of process ids, which come again; this text is random.
        if (const auto random = environment.text("OMPI_MCA_orte_precondition_transports")) rank.job += "." + *random;
        rank.rank = environment.count("OMPI_COMM_WORLD_RANK");
        rank.ranks = environment.count("OMPI_COMM_WORLD_SIZE");
        rank.local_rank = environment.count("OMPI_COMM_WORLD_LOCAL_RANK");
        rank.local_ranks = environment.count("OMPI_COMM_WORLD_LOCAL_SIZE");
        rank.nodes = environment.count_or("OMPI_MCA_orte_num_nodes", 0);
        rank.meets_in_folder = true;
        rank.hint = "mpirun -x MASTER_ADDR=10.0.0.1 -x ORRERY_TOKEN";
        if (rank.local_rank >= rank.local_ranks || rank.local_ranks > rank.ranks)
            throw Error("environment: OMPI_COMM_WORLD_LOCAL_RANK=" + std::to_string(rank.local_rank) +
                        " of OMPI_COMM_WORLD_LOCAL_SIZE=" + std::to_string(rank.local_ranks) +
                        ", and OMPI_COMM_WORLD_SIZE=" + std::to_string(rank.ranks));
        return rank;
    }
};

void add(Registry& registry) {
    registry.add_launcher("openmpi", [] { return std::make_unique<OpenMpi>(); });
}

}  // namespace
}  // namespace orrery

// In a Slurm job, srun starts Open MPI's daemons on the nodes.
ORRERY_FACTS("variables=OMPI_COMM_WORLD_RANK inside=slurm");
ORRERY_PLUGIN("launcher.openmpi", "0.1", orrery::add);

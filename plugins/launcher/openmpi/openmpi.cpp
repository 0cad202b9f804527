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
        rank.rank = environment.count("OMPI_COMM_WORLD_RANK");
        rank.ranks = environment.count("OMPI_COMM_WORLD_SIZE");
        rank.local_rank = environment.count("OMPI_COMM_WORLD_LOCAL_RANK");
        rank.local_ranks = environment.count("OMPI_COMM_WORLD_LOCAL_SIZE");
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

ORRERY_FACTS("variables=OMPI_COMM_WORLD_RANK");
ORRERY_PLUGIN("launcher.openmpi", "0.1", orrery::add);

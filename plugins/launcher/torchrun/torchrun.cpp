#include "orrery/launcher.h"
#include "orrery/plugin.h"

namespace orrery {
namespace {

class Torchrun : public Launcher {
public:
    bool detect(const Environment& environment) const override {
        return environment.has("RANK") && environment.has("WORLD_SIZE");
    }

    LaunchedRank read(const Environment& environment) const override {
        LaunchedRank rank;
        rank.job = environment.text("TORCHELASTIC_RUN_ID").value_or("torchrun");
        rank.rank = environment.count("RANK");
        rank.ranks = environment.count("WORLD_SIZE");
        rank.local_rank = environment.count_or("LOCAL_RANK", rank.rank);
        rank.counted = environment.has("LOCAL_WORLD_SIZE");
        rank.local_ranks = environment.count_or("LOCAL_WORLD_SIZE", rank.ranks);
        rank.generation = environment.count_or("TORCHELASTIC_RESTART_COUNT", 0);
        rank.keeps_port = environment.has("TORCHELASTIC_RUN_ID");  // torchrun's agent has a store at that port
        if (rank.local_rank >= rank.local_ranks || rank.local_ranks > rank.ranks)
            throw Error("environment: LOCAL_RANK=" + std::to_string(rank.local_rank) + " of LOCAL_WORLD_SIZE=" +
                        std::to_string(rank.local_ranks) + ", and WORLD_SIZE=" + std::to_string(rank.ranks));
        return rank;
    }
};

void add(Registry& registry) {
    registry.add_launcher("torchrun", [] { return std::make_unique<Torchrun>(); });
}

}  // namespace
}  // namespace orrery

// srun and mpirun may start torchrun's agents on the nodes of a job.
ORRERY_FACTS("variables=WORLD_SIZE inside=slurm,openmpi restarts");
ORRERY_PLUGIN("launcher.torchrun", "0.1", orrery::add);

#include "orrery/launcher.h"
#include "orrery/plugin.h"

namespace orrery {
namespace {

/// The rank's place among those of its host, if the hosts have equally many, one after the other; -1: unknown.
int64_t place_on_host(const LaunchedRank& rank) {
    const bool equal = rank.counted && rank.local_ranks > 0 && rank.ranks % rank.local_ranks == 0;
    return equal ? rank.rank % rank.local_ranks : rank.ranks == 1 ? 0 : -1;
}

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
        rank.counted = environment.has("LOCAL_WORLD_SIZE");
        rank.local_ranks = environment.count_or("LOCAL_WORLD_SIZE", rank.ranks);
        rank.local_rank = environment.count_or("LOCAL_RANK", place_on_host(rank));
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
ORRERY_FACTS("variables=WORLD_SIZE inside=slurm,openmpi,hydra restarts");
ORRERY_PLUGIN("launcher.torchrun", "0.1", orrery::add);

// A launcher that counts ranks over hosts: HERALD_RANK of HERALD_RANKS, HERALD_LOCAL_RANK of HERALD_LOCAL_RANKS.
#include "orrery/launcher.h"
#include "orrery/plugin.h"

namespace {

using namespace orrery;

class Herald : public Launcher {
public:
    bool detect(const Environment& environment) const override { return environment.has("HERALD_RANK"); }

    LaunchedRank read(const Environment& environment) const override {
        LaunchedRank rank;
        rank.job = environment.text("HERALD_JOB").value_or("herald");
        rank.rank = environment.count("HERALD_RANK");
        rank.ranks = environment.count("HERALD_RANKS");
        rank.local_rank = environment.count_or("HERALD_LOCAL_RANK", rank.rank);
        rank.local_ranks = environment.count_or("HERALD_LOCAL_RANKS", rank.ranks);
        return rank;
    }

    std::string left_out(const Environment& environment) const override {
        return environment.has("HERALD_HOSTS") ? "the herald has more hosts" : "";
    }
};

void add(Registry& registry) {
    registry.add_launcher("herald", [] { return std::make_unique<Herald>(); });
}

}  // namespace

ORRERY_FACTS("variables=HERALD_RANK,HERALD_HOSTS");
ORRERY_PLUGIN("launcher.herald", "0.1", add);

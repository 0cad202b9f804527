// A launcher that numbers its ranks in MY_RANK and MY_RANKS, all on one host.
#include "orrery/launcher.h"
#include "orrery/plugin.h"

namespace {

using namespace orrery;

class Sundial : public Launcher {
public:
    bool detect(const Environment& environment) const override { return environment.has("MY_RANK"); }

    LaunchedRank read(const Environment& environment) const override {
        LaunchedRank rank;
        rank.job = environment.text("MY_JOB").value_or("sundial");
        rank.rank = rank.local_rank = environment.count("MY_RANK");
        rank.ranks = rank.local_ranks = environment.count("MY_RANKS");
        return rank;
    }
};

void add(Registry& registry) {
    registry.add_launcher("sundial", [] { return std::make_unique<Sundial>(); });
}

}  // namespace

// It is opened only where this variable is set.
ORRERY_FACTS("variables=MY_RANK");
ORRERY_PLUGIN("launcher.sundial", "0.1", add);

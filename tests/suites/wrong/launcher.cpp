// A launcher that breaks one rule of orrery/launcher.h, which ORRERY_TEST_FAULT names; otherwise the template's.
#include "orrery/plugin.h"
#pragma push_macro("ORRERY_PLUGIN")
#undef ORRERY_PLUGIN
#define ORRERY_PLUGIN(...) static_assert(true)
#include "../scripts/templates/launcher/sundial.cpp"
#pragma pop_macro("ORRERY_PLUGIN")

#include <cstdlib>

namespace {

class Wrong final : public Launcher {
public:
    bool detect(const Environment& environment) const override {
        return fault_ == "always" || right_.detect(environment);
    }
    LaunchedRank read(const Environment& environment) const override {
        if (fault_ == "environment") return right_.read(Environment(::getenv));
        if (fault_ == "changes") ::setenv("SUNDIAL_SEEN", std::to_string(++reads_).c_str(), 1);
        LaunchedRank rank;
        try {
            rank = right_.read(environment);
        } catch (const Error&) {
            if (fault_ != "nameless") throw;
            throw Error("it cannot be read");
        }
        if (fault_ == "swapped") std::swap(rank.rank, rank.ranks);
        if (fault_ == "negative") rank.local_rank -= 2;
        return rank;
    }

private:
    std::string fault_ = std::getenv("ORRERY_TEST_FAULT") ? std::getenv("ORRERY_TEST_FAULT") : "";
    Sundial right_;
    mutable int reads_ = 0;
};

void add_wrong(Registry& registry) {
    registry.add_launcher("wrong", [] { return std::make_unique<Wrong>(); });
}

}  // namespace

ORRERY_PLUGIN("launcher.wrong", "0.1", add_wrong);

// Optimizers written in Lua: on every mesh each gradient is judged, and a mistake in one is named.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "ir/describe.h"
#include "trial.h"
#include "verify_plan.h"

using namespace orrery;
using namespace orrery::equivalence;

namespace {

const char* const optimizers[] = {"lion", "muon", "nesterov", "adamw", "adafactor"};

struct Place {
    std::string name, mesh, script;
};

const std::vector<Place>& places() {
    static const std::vector<Place> all{
        {"dp", "dp = 2\n", ""},
        {"tp", "tp = 2\n", ""},
        {"dp x tp", "dp = 2\ntp = 2\n", "sequence = true\n"},
        {"zero1", "dp = 2\n", "zero = 1\n"},
        {"zero2", "dp = 2\n", "zero = 2\n"},
        {"zero3", "dp = 2\n", "zero = 3\n"},
        {"zero1 x tp", "dp = 2\ntp = 2\n", "zero = 1\n"},
        {"zero2 x tp", "dp = 2\ntp = 2\n", "zero = 2\n"},
        {"zero3 x tp", "dp = 2\ntp = 2\n", "zero = 3\n"},
    };
    return all;
}

struct Made {
    std::unique_ptr<Experiment> experiment;
    test::Lowered lowered;
};

Made made(const std::string& optimizer, const Place& place) {
    Made m;
    m.experiment = experiment("tests/equivalence/optimizers.lua",
                              fmt::format("[mesh]\n{}[train]\nsteps = 2\nsequences_per_step = 8\nmicrobatches = 2\n"
                                          "[data]\npath = \"none\"\ntokens_per_sequence = 8\n"
                                          "[script]\noptimizer = \"{}\"\n{}",
                                          place.mesh, optimizer, place.script));
    m.lowered = compiled(*m.experiment);
    return m;
}

VerifyReport verified(const Made& m, test::Verifying how = {}) {
    how.contents = [](const Value& value, int64_t step) { return draw(value, step, 40); };
    return test::verify_plan(m.experiment->train(), m.lowered, how);
}

double worst(const VerifyReport& report) {
    double most = 0;
    for (const Compared& line : report.compared) most = std::max(most, line.worst);
    return most;
}

}  // namespace

TEST_CASE("five optimizers written in Lua are judged on every mesh", "[optimizers]") {
    fmt::print("optimizers: part of what rounding explains, of the gradients' tolerance; elements left out\n");
    for (const char* optimizer : optimizers)
        for (const Place& place : places()) {
            const std::string name = fmt::format("  {:<10} {:<11}", optimizer, place.name);
            try {
                const Made m = made(optimizer, place);
                const VerifyReport report = verified(m);
                INFO(name << "\n" << report.text(m.lowered.plan, {}));
                CHECK(report.passed());
                CHECK(report.unjudged.empty());
                CHECK(report.gradients > 0);
                CHECK(report.compared[2].comparisons > 0);
                CHECK(report.compared[3].left_out < report.compared[3].elements / 4);
                fmt::print("{} {:>8.2g} {:>8.2g} {:>6} of {}\n", name, worst(report), report.gradients,
                           report.compared[3].left_out, report.compared[3].elements);
            } catch (const Error& error) {
                INFO(name << " " << error.what());
                CHECK(false);
            }
            std::fflush(stdout);
        }
}

TEST_CASE("a mistake in one rank's gradient is named with optimizers written in Lua", "[optimizers]") {
    const char* const params[] = {"h.0.mlp.up.weight", "h.0.attn.q.weight", "ln_f.bias", "h.0.attn.o.weight"};
    int named = 0, made_mistakes = 0;
    for (const char* optimizer : optimizers)
        for (const Place& place : places()) {
            if (place.name.find('x') != std::string::npos) continue;
            const Made m = made(optimizer, place);
            test::Verifying how;
            how.options.steps = 1;
            how.options.injections = {parse_injection(
                fmt::format("scale,rank=1,tensor={}.grad,by=1.01,micro=1", params[made_mistakes++ % 4]))};
            const VerifyReport report = verified(m, how);
            INFO(optimizer << " on " << place.name << "\n" << report.text(m.lowered.plan, how.options));
            CHECK_FALSE(report.passed());
            REQUIRE(!report.roots.empty());
            const Finding& first = report.roots[0];
            const Program& program = m.lowered.plan.program;
            const bool right = first.rank == 1 && program.value(original_of(program, first.value)).name ==
                                                      how.options.injections[0].tensor;
            CHECK(right);
            named += right;
        }
    fmt::print("  {} of {} mistakes named with tensor and rank\n", named, made_mistakes);
}

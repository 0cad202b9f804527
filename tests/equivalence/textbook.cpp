// A dense mixture, a recurrent network and an encoder in Lua: their gradients name their dims, so they can be trained
// and sharded.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "trial.h"
#include "verify_plan.h"

using namespace orrery;
using namespace orrery::equivalence;

TEST_CASE("a dense mixture, a recurrent network and an encoder train on every mesh", "[textbook]") {
    const std::pair<const char*, const char*> places[] = {{"", ""},
                                                          {"dp = 2\n", ""},
                                                          {"tp = 2\n", ""},
                                                          {"dp = 2\n", "zero = 1\n"},
                                                          {"dp = 2\n", "zero = 2\n"},
                                                          {"dp = 2\n", "zero = 3\n"},
                                                          {"dp = 2\ntp = 2\n", "zero = 3\n"}};
    for (const char* model : {"mixture", "recurrent", "encoder"})
        for (const auto& [mesh, script] : places) {
            INFO(model << " on " << mesh << script);
            const auto made = experiment(
                "tests/equivalence/textbook.lua",
                fmt::format("[mesh]\n{}[train]\nsteps = 2\nsequences_per_step = 8\nmicrobatches = 2\n[data]\n"
                            "path = \"none\"\ntokens_per_sequence = 8\n[script]\nmodel = \"{}\"\n{}",
                            mesh, model, script));
            const auto lowered = compiled(*made);
            test::Verifying how;
            how.contents = [](const Value& value, int64_t step) { return draw(value, step, 40); };
            const VerifyReport report = test::verify_plan(made->train(), lowered, how);
            INFO(report.text(lowered.plan, how.options));
            CHECK(report.passed());
            CHECK(report.gradients >= 0);
        }
}

// Gradients that are sent as bf16: how far a run goes from one that sends them as f32.
#include <fmt/format.h>
#include <catch2/catch.hpp>
#include <cmath>

#include "follow.h"

using namespace orrery;
using namespace orrery::equivalence;

namespace {

constexpr int64_t steps = 20, vocab = 40;

test::Ran run(const std::string& mesh, const std::string& script, int64_t microbatches) {
    const auto made = experiment({"llama", mesh, script, microbatches, "f32", 8, steps});
    show_gradients(made->train());
    return run_drawn(compiled(*made), steps, vocab);
}

double norm_of(const std::vector<float>& x) {
    double sum = 0;
    for (const float value : x) sum += static_cast<double>(value) * static_cast<double>(value);
    return std::sqrt(sum);
}

/// The largest distance of a gradient of the first step, of its norm.
double farthest(const test::Ran& ran, const test::Ran& reference) {
    double most = 0;
    for (const auto& [name, want] : reference.steps[0]) {
        if (!name.starts_with("result grad ")) continue;
        std::vector<float> off = at(ran.steps[0], name);
        for (size_t i = 0; i < off.size(); ++i) off[i] -= want[i];
        most = std::max(most, norm_of(off) / norm_of(want));
    }
    return most;
}

}  // namespace

TEST_CASE("gradients sent as bf16 are off by its rounding, and the loss follows", "[narrow]") {
    const test::Ran alone = run("", "", 1);
    for (const auto& [mesh, script, microbatches] :
         std::vector<std::tuple<std::string, std::string, int64_t>>{{"dp = 2", "", 1},
                                                                    {"dp = 4", "", 2},
                                                                    {"dp = 2", "zero = 1", 2},
                                                                    {"dp = 2", "zero = 2", 2},
                                                                    {"dp = 2", "zero = 3", 2},
                                                                    {"dp = 2\ntp = 2", "zero = 2\nsequence = true", 2},
                                                                    {"pp = 2\ndp = 2", "zero = 1", 4}}) {
        INFO(mesh << " " << script);
        const test::Ran narrow = run(mesh, script + "\nreduce = \"bf16\"", microbatches);
        const double off = farthest(narrow, alone);
        fmt::print("  llama {} {}: gradients off by {:.2g} of their norm\n", mesh, script, off);
        // Terms are rounded by 2^-9 of themselves at most, the sum by as much; terms here are up to 1.5 of the sum.
        CHECK(off < 4 * std::ldexp(1.0, -9));
        CHECK(off > std::ldexp(1.0, -13));  // they were rounded
        for (size_t step = 0; step < steps; ++step)
            CHECK(loss_of(narrow.steps[step]) == Approx(loss_of(alone.steps[step])).epsilon(1e-3));
    }
}

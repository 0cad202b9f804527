// A condensed plan takes as long as the simulation of the plan itself.
#include "published/graph.h"

#include <catch2/catch.hpp>

#include "folders.h"
#include "published/job.h"
#include "sim/simulate.h"

using namespace orrery;
using namespace orrery::published;

namespace {

/// Some time that depends on all that a price may depend on.
double seconds_of(const KernelSpec& spec) {
    double bytes = 0;
    for (const auto* operands : {&spec.inputs, &spec.outputs})
        for (const TensorType& type : *operands) bytes += static_cast<double>(type.bytes());
    return 1e-6 + bytes * 1e-10 * static_cast<double>(spec.op.size());
}
double seconds_of(Opcode opcode, AxisId axis, int64_t bytes) {
    return 1e-5 * static_cast<double>(1 + static_cast<int>(opcode) + axis) + static_cast<double>(bytes) * 1e-9;
}

class SomePrices final : public orrery::Prices {
public:
    Demand kernel(const KernelSpec& spec, int64_t) override { return fixed(seconds_of(spec)); }
    Demand copy(int64_t bytes, int64_t) override { return fixed(static_cast<double>(bytes) * 1e-10); }
    Demand collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>&,
                      const std::vector<int64_t>&) override {
        return fixed(seconds_of(opcode, axis, bytes));
    }
    Demand message(AxisId axis, int64_t bytes, int64_t, int64_t, const std::vector<int64_t>&) override {
        return fixed(seconds_of(Opcode::send, axis, bytes));
    }
    double capacity(ResourceId) const override { return 1; }

private:
    static Demand fixed(double seconds) {
        Demand demand;
        demand.fixed_s = seconds;
        return demand;
    }
};

double played(const Graph& graph) {
    std::vector<double> seconds;
    for (const Priced& one : graph.prices)
        seconds.push_back(one.kind == Priced::Kind::kernel ? seconds_of(one.spec)
                          : one.kind == Priced::Kind::copy ? static_cast<double>(one.bytes) * 1e-10
                                                           : seconds_of(one.opcode, one.axis, one.bytes));
    return graph.play(seconds);
}

Row small() {
    Row row;
    row.id = "small", row.gpu = "H100-80G-SXM", row.model = "gpt-tiny", row.precision = "bf16", row.zero = "none";
    row.layers = 4, row.embed = 64, row.heads = 4, row.kv_heads = 4, row.mlp = 128, row.vocab = 512, row.tokens = 32;
    row.micro_batch = 1, row.recompute = "none";
    return row;
}

}  // namespace

TEST_CASE("published: a condensed plan takes as long as the simulated one", "[published]") {
    struct Case {
        int64_t tp, pp, dp, chunks, micros;
        const char *zero, *notes, *recompute;
    };
    const Case cases[] = {
        {1, 1, 2, 1, 3, "FSDP", "", "full"},    {2, 1, 2, 1, 2, "distributed optimizer", "sequence parallel", "none"},
        {1, 2, 1, 1, 6, "none", "", "none"},    {2, 2, 2, 2, 4, "ZeRO-1", "sequence parallel", "full"},
        {1, 2, 2, 1, 80, "ZeRO-1", "", "none"},  // a stretch of its stream is repeated
    };
    for (const Case& c : cases) {
        Row row = small();
        row.tp = c.tp, row.pp = c.pp, row.dp = c.dp, row.chunks = c.chunks, row.gpus = c.tp * c.pp * c.dp;
        row.batch = c.micros * c.dp, row.zero = c.zero, row.notes = c.notes, row.recompute = c.recompute;
        const Job job = jobs_of(row).at(0);
        const Plan plan = plan_of(job, in_source("bench/published/model.lua"));
        SomePrices prices;
        const double simulated = simulate(plan, contracts_of(plan.mesh), prices).step_s;
        INFO(job.toml);
        CHECK(played(condense(plan, job.words, Waits::planned)) == Approx(simulated).epsilon(1e-6));
    }
}

TEST_CASE("published: weights of a graph's prices are the slopes of its time", "[published]") {
    Row row = small();
    row.pp = 2, row.gpus = 2, row.batch = 4;
    const Job job = jobs_of(row).at(0);
    const Graph graph = condense(plan_of(job, in_source("bench/published/model.lua")), job.words);
    std::vector<double> seconds(graph.prices.size(), 1e-3), weights;
    const double step = graph.play(seconds, &weights);
    for (size_t p = 0; p < seconds.size(); ++p) {
        std::vector<double> moved = seconds;
        moved[p] += 1e-9;
        CHECK((graph.play(moved) - step) / 1e-9 >= weights[p] * (1 - 1e-3) - 1e-3);
    }
}

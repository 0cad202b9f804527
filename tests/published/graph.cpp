// A condensed plan takes as long as the simulated one, with the rows' software profiles and without.
#include "published/graph.h"

#include <catch2/catch.hpp>

#include "folders.h"
#include "published/job.h"
#include "published/prices.h"
#include "sim/simulate.h"

using namespace orrery;
using namespace orrery::published;

namespace {

/// Some time that depends on all that a price may depend on. Long ones: the engine counts picoseconds.
double seconds_of(const KernelWork& work) {
    return 1 + work.bytes * 1e-4 * static_cast<double>(1 + static_cast<int>(work.work));
}
double seconds_of(int64_t bytes) { return 1 + static_cast<double>(bytes) * 1e-4; }
double seconds_of(Opcode opcode, AxisId axis, int64_t bytes) {
    return 3 * static_cast<double>(1 + static_cast<int>(opcode) + axis) + static_cast<double>(bytes) * 1e-3;
}

class SomePrices final : public Prices {
public:
    Demand kernel(const KernelSpec& spec, int64_t) override {
        return fixed(lays_out(spec) ? 0 : seconds_of(work_of(spec)));
    }
    Demand copy(int64_t bytes, int64_t) override { return fixed(seconds_of(bytes)); }
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
        seconds.push_back(one.kind == Question::Kind::kernel    ? seconds_of(one.work)
                          : one.kind == Question::Kind::copy    ? seconds_of(one.bytes)
                          : one.kind == Question::Kind::message ? seconds_of(Opcode::send, one.axis, one.bytes)
                                                                : seconds_of(one.opcode, one.axis, one.bytes));
    return graph.dag.play(seconds);
}

double simulated(const Plan& plan, const Questions::Mapped& mapped = {}) {
    SomePrices prices;
    SimulateOptions options;
    options.mapped = mapped;
    return simulate(plan, contracts_of(plan.mesh), prices, options).step_s;
}
double simulated(const TpChunked& software) { return simulated(software.plan, software.chunks); }

Row small() {
    Row row;
    row.id = "small", row.gpu = "H100-80G-SXM", row.model = "gpt-tiny", row.precision = "bf16", row.zero = "none";
    row.layers = 4, row.embed = 64, row.heads = 4, row.kv_heads = 4, row.mlp = 128, row.vocab = 512, row.tokens = 32;
    row.micro_batch = 1, row.recompute = "none";
    return row;
}

std::vector<Job> small_jobs() {
    struct Case {
        int64_t tp, pp, dp, chunks, micros;
        const char *zero, *notes, *recompute;
        int64_t cp = 1;
    };
    const Case cases[] = {
        {1, 1, 2, 1, 3, "FSDP", "fp32 params", "full"},
        {2, 1, 2, 1, 2, "distributed optimizer", "sequence parallel", "none"},
        {1, 2, 1, 1, 6, "none", "", "none"},
        {2, 2, 2, 2, 4, "ZeRO-1", "SP + TP overlap", "full"},
        {1, 2, 2, 1, 8, "ZeRO-1", "deepspeed", "none"},
        {2, 1, 2, 1, 2, "distributed optimizer, overlapped grad", "", "none", 2},
        {1, 1, 2, 1, 80, "FSDP", "fp32 params", "full"},  // of the last two a stretch of the stream is repeated
        {1, 2, 2, 1, 80, "ZeRO-1", "overlapped grad", "none"},
        {2, 2, 2, 1, 80, "ZeRO-1", "sequence parallel", "none"},
    };
    std::vector<Job> jobs;
    for (const Case& c : cases) {
        Row row = small();
        row.tp = c.tp, row.pp = c.pp, row.dp = c.dp, row.chunks = c.chunks, row.cp = c.cp;
        row.gpus = c.tp * c.pp * c.dp * c.cp;
        row.batch = c.micros * c.dp, row.zero = c.zero, row.notes = c.notes, row.recompute = c.recompute;
        jobs.push_back(jobs_of(row).at(0));
    }
    return jobs;
}

}  // namespace

TEST_CASE("published: a condensed plan takes as long as the simulated one", "[published]") {
    for (const Job& job : small_jobs()) {
        const Plan plan = plan_of(job, in_source("bench/published/model.lua"));
        const TpChunked software = with_software(plan, job.words);
        INFO(job.toml << text_of_profile(job));
        CHECK(played(condense(plan, contracts_of(plan.mesh))) == Approx(simulated(plan)).epsilon(1e-9));
        const Graph graph = condense(software.plan, contracts_of(plan.mesh), software.chunks);
        CHECK(played(graph) == Approx(simulated(software)).epsilon(1e-9));
    }
}

TEST_CASE("published: a repeated stretch has the software profile of one that is written out", "[published]") {
    int repeated = 0;
    for (const Job& job : small_jobs()) {
        const Plan plan = plan_of(job, in_source("bench/published/model.lua"));
        repeated += repeats(plan.classes[0]);
        INFO(job.toml << text_of_profile(job));
        CHECK(simulated(with_software(plan, job.words)) ==
              Approx(simulated(with_software(unrolled(plan), job.words))).epsilon(1e-9));
    }
    CHECK(repeated >= 2);
}

TEST_CASE("published: slopes of a graph are those of its time", "[published]") {
    Row row = small();
    row.pp = 2, row.gpus = 2, row.batch = 4;
    const Job job = jobs_of(row).at(0);
    const Plan plan = with_software(plan_of(job, in_source("bench/published/model.lua")), job.words).plan;
    const Graph graph = condense(plan, contracts_of(plan.mesh));
    std::vector<double> seconds(graph.prices.size(), 1e-3), slopes;
    const double step = graph.dag.play(seconds, &slopes);
    for (size_t p = 0; p < seconds.size(); ++p) {
        std::vector<double> moved = seconds;
        moved[p] += 1e-9;
        CHECK((graph.dag.play(moved) - step) / 1e-9 >= slopes[p] * (1 - 1e-3) - 1e-3);
    }
}

// Steps that are recorded: their slices on a mesh, clocks of other hosts, costs of all ranks.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "layout_models.h"
#include "plan/repeat.h"
#include "plan_ranks.h"
#include "ranks.h"
#include "run/record/clock_offset.h"
#include "run/record/run_costs.h"
#include "run/record/step_trace.h"

using namespace orrery;
using namespace orrery::test;

namespace {

/// A perceptron over data and tensor parallelism.
Lowered perceptron(int64_t micro) {
    Model m = mlp(8, 4, 12, true, true);
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    return compile(m.program, Mesh(std::vector<Axis>{{"dp", 2}, {"tp", 2}}).with_microbatches(micro));
}

Ran recorded(const Lowered& lowered, int64_t steps) {
    Running how;
    how.steps = steps;
    how.record = true;
    return run_steps(lowered, how);
}

RankTrace trace_of(const StepRecord& record) {
    RankTrace trace{"n1", 1500, {7, {}, {}, record}};
    trace.traced.whole = {record.spans.front().time.begin, record.spans.back().time.end};
    return trace;
}

}  // namespace

TEST_CASE("a recorded step has every instruction once, without gaps, and a trace of it is sound") {
    const Lowered lowered = perceptron(2);
    const Ran ran = recorded(lowered, 2);
    std::ostringstream out;
    TraceWriter writer(out);
    PlanSlices slices(lowered.plan);
    size_t bars = 0;
    for (size_t rank = 0; rank < ran.records.size(); ++rank) {
        const StepRecord& record = ran.records[rank];
        const auto own = static_cast<int64_t>(rank);
        const RankClass& c = lowered.plan.class_of(own);
        std::multiset<int64_t> worked;
        for (size_t i = 0; i < record.spans.size(); ++i) {
            const StepRecord::Span& span = record.spans[i];
            if (span.what == StepRecord::What::work) worked.insert(span.position);
            CHECK(span.time.begin <= span.time.end);
            if (i > 1) CHECK(span.time.begin == record.spans[i - 1].time.end);
        }
        CHECK(record.spans.back().what == StepRecord::What::end);
        CHECK(static_cast<int64_t>(worked.size()) == issues(c));
        CHECK(std::set<int64_t>(worked.begin(), worked.end()).size() == worked.size());
        const RankTrace trace = trace_of(record);
        const RankTrace sent = decode_rank_trace(encode(trace));
        CHECK(encode(sent) == encode(trace));
        const int64_t origin =
            std::chrono::duration_cast<std::chrono::nanoseconds>(sent.traced.whole.begin.time_since_epoch()).count();
        std::set<std::string> lanes;
        for (const TraceSlice& slice : slices_of(slices, lowered.plan, own, sent, origin)) {
            writer.slice(slice);  // throws where they are not in order
            lanes.insert(slice.lane);
            ++bars;
        }
        CHECK(lanes == std::set<std::string>{"step", "compute", "dp", "tp"});
    }
    writer.finish();
    CHECK(bars > 4 * 10);
    CHECK(out.str().find("\"micro_batch\":1") != std::string::npos);
}

TEST_CASE("a step is recorded once, and where it is not asked for nothing is") {
    const Lowered lowered = perceptron(1);
    Running how;
    how.steps = 3;
    const Ran ran = run_steps(lowered, how);
    CHECK(ran.records[0].spans.empty());
}

TEST_CASE("costs by spec and size add up to the times by name, and leave out the first step") {
    const Lowered lowered = perceptron(2);
    const Ran ran = recorded(lowered, 4);
    for (size_t rank = 0; rank < ran.costs.size(); ++rank) {
        std::map<std::string, std::pair<int64_t, double>> by_name;
        for (const Executor::Cost& cost : ran.costs[rank]) {
            by_name[cost.name].first += cost.all.count;
            by_name[cost.name].second += cost.all.seconds;
            CHECK(cost.all.count == 4 * cost.first.count);
            CHECK(cost.all.least <= cost.all.seconds);
        }
        for (const Executor::Time& time : ran.times[rank]) {
            CHECK(by_name.at(time.name).first == time.count);
            CHECK(by_name.at(time.name).second == Approx(time.seconds));
        }
    }
}

TEST_CASE("ranks' costs become one table: means of kernels, the member that waits least") {
    const Lowered lowered = perceptron(1);
    const Plan& plan = lowered.plan;
    using Kind = Executor::Time::Kind;
    const auto costs = [&](double collective) {
        RankCosts rank{"n1", 10, 0.5};
        rank.rows.push_back({Kind::compute, 0, Opcode::kernel, none, 0, {3.0, 0.1, 10}});
        rank.rows.push_back({Kind::communication, none, Opcode::all_reduce, 0, 4096, {collective, 0.2, 10}});
        rank.rows.push_back({Kind::communication, none, Opcode::send, 1, 64, {1, 0.1, 10}});
        rank.rows.push_back({Kind::waiting, none, Opcode::kernel, none, 0, {1, 0.1, 10}});
        return decode_rank_costs(encode(rank));
    };
    const CostTable table =
        merge_costs(plan, {costs(4), costs(6), costs(8), costs(10)}, {{"dp", "shm"}, {"tp", "gloo"}}, {});
    REQUIRE(!table.kernels.empty());
    CHECK(table.kernels[0].spec == plan.class_of(0).kernels[0]);
    CHECK(table.kernels[0].time.seconds == Approx(0.3));
    REQUIRE(table.wires.size() == 1);
    CHECK(table.wires[0].op == "all_reduce");
    CHECK(table.wires[0].axis == "dp");
    CHECK(table.wires[0].transport == "shm");
    CHECK(table.wires[0].ranks == 2);
    CHECK(table.wires[0].time.seconds == Approx(0.4));
    CHECK(*table.wires[0].mean_s == Approx(0.7));
    CHECK(*table.wires[0].time.least_s == Approx(0.2));
    const std::map<std::string, double> totals(table.totals.begin(), table.totals.end());
    CHECK(totals.at("step") == Approx(0.5));
    CHECK(totals.at("compute") == Approx(0.3));
    CHECK(totals.at("waiting") == Approx(0.1));
    const CostTable queued = merge_costs(plan, {costs(4)}, {}, {"they are queued", {{"dp", "nccl queues"}}});
    CHECK(queued.kernels.empty());
    CHECK(queued.wires.empty());
    CHECK(queued.notes.size() == 2);
    CHECK(merge_costs(plan, {RankCosts{"n1"}}, {}, {}).notes.size() == 1);
}

TEST_CASE("clocks of other hosts are brought to rank 0's") {
    constexpr int64_t ranks = 5;
    const std::vector<std::string> clocks = {"a", "b", "a", "b", ""};
    const std::vector<int64_t> ahead = {0, 5'000'000'000, 0, 5'000'000'000, -7'000'000'000};  // ns
    std::vector<ClockOffset> found(ranks);
    std::vector<int64_t> took(ranks);
    const auto clock = [] {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    };
    run_ranks(ranks, [&](int64_t rank, Rendezvous& rendezvous) {
        const auto r = static_cast<size_t>(rank);
        const int64_t begin = clock();
        found[r] = clock_offset(rendezvous, "trace/1", rank, clocks, std::chrono::seconds(60),
                                [&] { return clock() + ahead[r]; });
        took[r] = clock() - begin;
    });
    for (size_t r = 0; r < ranks; ++r) {
        INFO("rank " << r);
        CHECK(std::abs(found[r].ns + ahead[r]) <= found[r].error_ns);
        CHECK(found[r].error_ns <= took[r] + took[1]);  // that of rank 1 is rank 3's
    }
    CHECK(found[2].error_ns == 0);
    CHECK(found[1].ns == found[3].ns);
    CHECK(found[4].error_ns > 0);
}

#include "sim/simulate.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <tuple>

#include "lua/fake_host.h"
#include "lua/script.h"
#include "plan/timeline.h"
#include "sim/distance.h"
using namespace orrery;

namespace {

/// A kernel takes what its op's name says in seconds, messages and collectives what the test says.
class Listed final : public Prices {
public:
    Demand kernel(const KernelSpec& spec, int64_t) override { return {std::stod(spec.op), {}, 0, ""}; }
    Demand copy(int64_t, int64_t) override { return {}; }
    Demand collective(Opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                      const std::vector<int64_t>& alike) override {
        asked.push_back(fmt::format("axis {} {} B, group of {}, {} alike", axis, bytes, group.size(), alike.size()));
        return transfer(bytes);
    }
    Demand message(AxisId, int64_t bytes, int64_t, int64_t, const std::vector<int64_t>&) override {
        return transfer(bytes);
    }
    double capacity(ResourceId) const override { return 1; }

    std::function<Demand(int64_t)> transfer = [](int64_t) { return Demand{}; };
    std::vector<std::string> asked;
};

TransportContract queued() {
    TransportContract contract;
    contract.queued = true;
    contract.send = TransportContract::Send::grouped;
    return contract;
}

int add_kernel(RankClass& c, double seconds) {
    const KernelSpec spec{fmt::format("{}", seconds), {}, {}, {}};
    for (size_t k = 0; k < c.kernels.size(); ++k)
        if (c.kernels[k] == spec) return static_cast<int>(k);
    c.kernels.push_back(spec);
    return static_cast<int>(c.kernels.size()) - 1;
}

Instruction launch(RankClass& c, double seconds, std::vector<int> waits = {}) {
    Instruction i;
    i.kernel = add_kernel(c, seconds);
    i.waits = std::move(waits);
    return i;
}

Operand operand(int64_t bytes) {
    Operand o;
    o.type = {DType::u8, {bytes}};
    return o;
}

Instruction transfer(Opcode opcode, AxisId axis, int64_t bytes, std::vector<int> waits, int peer = none,
                     int64_t tag = 0) {
    Instruction i;
    i.opcode = opcode;
    i.queue = 1;
    i.axis = axis;
    i.operands = {operand(bytes), operand(bytes)};
    i.waits = std::move(waits);
    i.peer = peer;
    i.tag = tag;
    return i;
}

/// A pipeline's plan with one kernel a fragment: what a stage does to a micro-batch, and the messages between them.
Plan plan_of(const Schedule& schedule, const std::function<double(int rank, const Fragment&)>& seconds) {
    Plan plan;
    const auto ranks = static_cast<int>(schedule.ranks.size());
    plan.mesh = Mesh({{"pp", ranks}});
    plan.schedule = schedule;
    int last_stage = 0;
    std::map<int, int> home;  // rank of a stage
    for (int r = 0; r < ranks; ++r)
        for (const Fragment& f : schedule.ranks[static_cast<size_t>(r)].order) {
            last_stage = std::max(last_stage, schedule.stage_of(r, f.chunk));
            home[schedule.stage_of(r, f.chunk)] = r;
        }
    for (int r = 0; r < ranks; ++r) {
        RankClass c;
        c.ranks = {r};
        c.stage = r;
        std::map<std::tuple<int, int64_t>, int> forward;  // the kernel of F, by stage and micro-batch
        for (const Fragment& f : schedule.ranks[static_cast<size_t>(r)].order) {
            const int stage = schedule.stage_of(r, f.chunk);
            const bool back = f.kind == Fragment::Kind::backward;
            const int from = back ? stage + 1 : stage - 1, to = back ? stage - 1 : stage + 1;
            const auto tag = [&](int sender) { return (f.micro * (last_stage + 1) + sender) * 2 + back; };
            std::vector<int> waits;
            if (f.kind != Fragment::Kind::weight && from >= 0 && from <= last_stage && home[from] != r) {
                waits.push_back(static_cast<int>(c.stream.size()));
                c.stream.push_back(transfer(Opcode::receive, 0, 8, {}, home[from], tag(from)));
            }
            const auto kernel = static_cast<int>(c.stream.size());
            c.stream.push_back(launch(c, seconds(r, f), waits));
            c.stream.back().fragment = f;
            if (f.kind != Fragment::Kind::weight && to >= 0 && to <= last_stage && home[to] != r)
                c.stream.push_back(transfer(Opcode::send, 0, 8, {kernel}, home[to], tag(stage)));
        }
        plan.classes.push_back(std::move(c));
    }
    return plan;
}

double bubble(const Simulated& run) {
    double idle = 0;
    for (const ActorTime& time : run.actors) idle += time.waiting;
    return idle / (run.step_s * static_cast<double>(run.actors.size()));
}

/// Lanes of their own, so that receives posted in the sender's order are no matter here.
Network by_peer() {
    TransportContract contract = queued();
    contract.send = TransportContract::Send::rendezvous;
    contract.lanes = TransportContract::Lanes::peer_and_direction;
    return {{"pp", contract}};
}

}  // namespace

TEST_CASE("simulate: the closed forms of schedules come out exactly") {
    FakeHost host;
    const auto of = [&](const char* name, int64_t p, int64_t m, int v) {
        const Schedule schedule = load_schedule({"pp", name, v, {}}, p, m, {}, host);
        const bool split = splits_weights(schedule);
        Listed prices;
        const Plan plan = plan_of(
            schedule, [&](int, const Fragment& f) { return !split && f.kind == Fragment::Kind::backward ? 2.0 : 1.0; });
        const Simulated run = simulate(plan, by_peer(), prices);
        for (const ActorTime& time : run.actors) {
            CHECK(time.computing == 3.0 * static_cast<double>(v * m));
            CHECK(time.exposed.empty());
        }
        return run;
    };
    for (int64_t p : {2, 3, 4, 8})
        for (int64_t m : {p, 2 * p, 4 * p}) {
            CAPTURE(p, m);
            const auto n = static_cast<double>(m), q = static_cast<double>(p - 1);
            CHECK(of("gpipe", p, m, 1).step_s == 3 * (n + q));
            CHECK(of("1f1b", p, m, 1).step_s == 3 * (n + q));
            CHECK(bubble(of("1f1b", p, m, 1)) == Approx(q / (n + q)).epsilon(1e-12));
            for (int v : {2, 3}) {
                CHECK(of("interleaved", p, m, v).step_s == 3 * (v * n + q));
                CHECK(bubble(of("interleaved", p, m, v)) == Approx(q / (v * n + q)).epsilon(1e-12));
            }
            CHECK(of("zb_h1", p, m, 1).step_s == 3 * n + q);
            CHECK(bubble(of("zb_h1", p, m, 1)) == Approx(q / (3 * n + q)).epsilon(1e-12));
            if (m >= 2 * p - 1) CHECK(of("zbv", p, m, 2).step_s == 6 * n + q);
        }
}

TEST_CASE("simulate: a message takes its time behind the later of both ends, and exposes what kernels wait for") {
    // Rank 0 computes 1 s, sends, computes 1 s; rank 1 waits for the message of 3 s and computes 2 s.
    Plan plan;
    plan.mesh = Mesh({{"pp", 2}});
    RankClass first, second;
    first.ranks = {0};
    first.stream = {launch(first, 1), transfer(Opcode::send, 0, 8, {0}, 1), launch(first, 1)};
    second.ranks = {1};
    second.stream = {transfer(Opcode::receive, 0, 8, {}, 0), launch(second, 2, {0})};
    for (Instruction& i : first.stream) i.fragment.micro = -1;  // outside all fragments
    plan.classes = {first, second};
    Listed prices;
    prices.transfer = [](int64_t) { return Demand{3, {}, 0, "wire"}; };
    SimulateOptions every;
    every.every_launch = true;
    every.lanes = true;
    const Simulated run = simulate(plan, by_peer(), prices, every);
    CHECK(run.step_s == 6);
    REQUIRE(run.actors.size() == 2);
    CHECK(run.actors[0].computing == 2);
    CHECK(run.actors[0].exposed.at(0) == 2);  // the send's end, beside nothing
    CHECK(run.actors[0].waiting == 2);
    CHECK(run.actors[1].computing == 2);
    CHECK(run.actors[1].exposed.at(0) == 3);
    CHECK(run.actors[1].waiting == 1);
    CHECK(run.carried.at({0, "send 8"}) == "wire");
    REQUIRE(run.items.size() == 5);
    using Times = std::vector<std::pair<double, double>>;
    REQUIRE(run.lanes.size() == 4);
    CHECK(run.lanes[0].busy == Times{{0, 2}});  // two kernels without a gap
    CHECK(run.lanes[2].busy.empty());           // kernels of a fragment
    CHECK(run.lanes[1].busy == Times{{1, 4}});
    CHECK(run.lanes[1].exposed == Times{{2, 4}});
    CHECK(run.lanes[3].busy == Times{{1, 4}});
    CHECK(run.lanes[3].exposed == Times{{1, 4}});
    CHECK(run.items[1].partner == 3);
    CHECK(run.items[3].issued == 0);
    CHECK(run.items[3].start == 1);
    CHECK(run.items[3].end == 4);
}

TEST_CASE("simulate: a collective runs beside kernels, and shares its link with another") {
    Plan plan;
    plan.mesh = Mesh({{"dp", 4}, {"tp", 2}});
    RankClass c;
    for (int64_t rank = 0; rank < 8; ++rank) c.ranks.push_back(rank);
    // Both collectives start at 0; a kernel of 2 s beside them; the last one needs both.
    c.stream = {transfer(Opcode::all_reduce, 0, 4, {}), transfer(Opcode::all_gather, 1, 4, {}), launch(c, 2),
                launch(c, 1, {0, 1})};
    for (Instruction& i : c.stream) i.fragment.micro = -1;  // outside all fragments
    plan.classes = {c};
    Listed prices;
    prices.transfer = [](int64_t bytes) { return Demand{0, {{0, static_cast<double>(bytes)}}, 0, ""}; };
    TransportContract own = queued();
    own.lanes = TransportContract::Lanes::peer;
    SimulateOptions options;
    options.lanes = true;
    const Simulated run = simulate(plan, {{"dp", own}, {"tp", own}}, prices, options);
    CHECK(run.step_s == 9);  // 8 bytes over a link of 1 a second, then 1 s
    // Lanes: kernels outside fragments, and both collectives, whose exposed time is what the account says.
    using Times = std::vector<std::pair<double, double>>;
    REQUIRE(run.lanes.size() == 3);
    CHECK(run.lanes[0].axis == none);
    CHECK(run.lanes[0].busy == Times{{0, 2}, {8, 9}});
    for (const SimulatedLane& lane : {run.lanes[1], run.lanes[2]}) {
        CHECK(lane.busy == Times{{0, 8}});
        double waited = 0;
        for (const auto& [begin, end] : lane.exposed) waited += end - begin;
        const auto found = run.actors[0].exposed.find(lane.axis);
        CHECK(waited == (found == run.actors[0].exposed.end() ? 0 : found->second));
    }
    CHECK(simulate(plan, {{"dp", own}, {"tp", own}}, prices).lanes.empty());
    prices.asked.resize(2);
    CHECK(run.actors.size() == 1);
    CHECK(run.actors[0].ranks == 8);
    CHECK(run.actors[0].computing == 3);
    CHECK(run.actors[0].communicating == 8);
    double exposed = 0;
    for (const auto& [axis, s] : run.actors[0].exposed) exposed += s;
    CHECK(exposed == 6);
    CHECK(run.actors[0].waiting == 0);
    CHECK(prices.asked ==
          std::vector<std::string>{"axis 0 4 B, group of 4, 8 alike", "axis 1 4 B, group of 2, 8 alike"});
}

TEST_CASE("simulate: kernels between which nothing waits are one item, with the same times") {
    Plan plan;
    plan.mesh = Mesh({{"dp", 2}});
    RankClass c;
    c.ranks = {0, 1};
    c.stream = {launch(c, 1),       launch(c, 2), transfer(Opcode::all_reduce, 0, 4, {0}), launch(c, 4), launch(c, 8),
                launch(c, 16, {2}), launch(c, 32)};
    plan.classes = {c};
    Listed prices;
    prices.transfer = [](int64_t) { return Demand{100, {}, 0, ""}; };
    const Network network{{"dp", queued()}};
    SimulateOptions every;
    every.every_launch = true;
    const Simulated merged = simulate(plan, network, prices), single = simulate(plan, network, prices, every);
    CHECK(merged.step_s == 101 + 16 + 32);  // behind the first kernel and the collective that waits for it
    CHECK(single.step_s == merged.step_s);
    CHECK(single.events == 7);
    CHECK(merged.events == 5);  // 1 | 2 | all_reduce | 4 8 | 16 32
}

TEST_CASE("simulate: a straggler's groups are told apart from the rest") {
    Plan plan;
    plan.mesh = Mesh({{"pp", 2}, {"dp", 4}, {"tp", 2}});
    for (int stage = 0; stage < 2; ++stage) {
        RankClass c;
        c.stage = stage;
        for (int64_t rank = 0; rank < 8; ++rank) c.ranks.push_back(stage * 8 + rank);
        c.stream = {launch(c, 1), transfer(Opcode::all_reduce, 2, 4, {0}), launch(c, 1, {1}),
                    transfer(Opcode::all_reduce, 1, 4, {2}), launch(c, 1, {3})};
        plan.classes.push_back(c);
    }
    Listed prices;
    const Network network{{"pp", queued()}, {"dp", queued()}, {"tp", queued()}};
    CHECK(simulate(plan, network, prices).step_s == 3);
    SimulateOptions options;
    options.slow = {{5, 2.0}};
    const Simulated run = simulate(plan, network, prices, options);
    // It holds up its tp partner at once, and all of its stage with the all_reduce over dp.
    CHECK(run.step_s == 6);
    // Of its stage: itself, its tp partner, its dp group, the rest; of the other stage pp is in no group's way here,
    // but a line of pp has it in: the same four.
    CHECK(run.actors.size() == 8);
    int64_t ranks = 0;
    for (const ActorTime& time : run.actors) ranks += time.ranks;
    CHECK(ranks == 16);
    // The same as if each rank were played by itself.
    Plan apart = plan;
    apart.classes.clear();
    for (const RankClass& c : plan.classes)
        for (const int64_t rank : c.ranks) {
            RankClass one = c;
            one.ranks = {rank};
            apart.classes.push_back(one);
        }
    const Simulated alone = simulate(apart, network, prices, options);
    CHECK(alone.actors.size() == 16);
    CHECK(alone.step_s == run.step_s);
    for (const ActorTime& time : alone.actors)
        for (const ActorTime& one : run.actors)
            if (one.rank == time.rank) {
                CHECK(one.computing == time.computing);
                CHECK(one.waiting == time.waiting);
            }
}

TEST_CASE("simulate: what takes no time that a step can take is an error") {
    Plan plan;
    plan.mesh = Mesh({{"dp", 2}});
    RankClass c;
    c.ranks = {0, 1};
    c.stream = {launch(c, 1), transfer(Opcode::all_reduce, 0, 8, {0})};
    plan.classes = {c};
    const double inf = std::numeric_limits<double>::infinity();
    for (const Demand& wrong : {Demand{inf, {}, 0, ""}, Demand{std::nan(""), {}, 0, ""}, Demand{1e18, {}, 0, ""},
                                Demand{-1, {}, 0, ""}, Demand{0, {{0, 1e300}}, 0, ""}}) {
        Listed prices;
        prices.transfer = [&](int64_t) { return wrong; };
        CHECK_THROWS_WITH(simulate(plan, {{"dp", queued()}}, prices), Catch::Contains("expected 0 s to 100 days"));
    }
    Listed prices;
    CHECK(simulate(plan, {{"dp", queued()}}, prices).step_s == 1);
    SimulateOptions options;
    options.jitter = std::nan("");
    CHECK_THROWS_WITH(simulate(plan, {{"dp", queued()}}, prices, options), Catch::Contains("takes nan s"));
}

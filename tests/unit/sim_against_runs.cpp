// The simulator and the executor on the same plans: the order of each lane, which send met which receive, and behind
// which messages and collectives an instruction stood. What a message carried tells who met whom in the run.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "base/hash.h"
#include "collective/forwarding_communicator.h"
#include "layout_models.h"
#include "plan/access.h"
#include "plan/repeat.h"
#include "plan_ranks.h"
#include "schedules.h"
#include "sim/simulate.h"

using namespace orrery;
using namespace orrery::test;

namespace {

/// A message as one end of it saw it.
struct Heard {
    int64_t other = 0;  ///< rank
    int64_t tag = 0;
    std::string digest;
};
/// Of one rank, in the order of its calls.
struct Calls {
    std::vector<Heard> sent, received;
};

/// Listens to the messages of a communicator; of what it carries it keeps digests.
class Listening final : public ForwardingCommunicator {
public:
    Listening(std::unique_ptr<Communicator> inner, Calls& calls)
        : ForwardingCommunicator(std::move(inner)), calls_(calls) {}

    Event send(const Tensor& tensor, int peer, int64_t tag, const Event& after) override {
        calls_.sent.push_back({rank_of(peer), tag, digest_of(tensor)});
        return inner_->send(tensor, peer, tag, after);
    }
    Event receive(const Tensor& tensor, int peer, int64_t tag, const Event& after) override {
        Event done = inner_->receive(tensor, peer, tag, after);
        done.wait();
        calls_.received.push_back({rank_of(peer), tag, digest_of(tensor)});
        return done;
    }

private:
    int64_t rank_of(int peer) const { return group().ranks[static_cast<size_t>(peer)]; }
    static std::string digest_of(const Tensor& tensor) {
        return sha256(std::string_view(static_cast<const char*>(tensor.data), static_cast<size_t>(tensor.bytes())));
    }

    Calls& calls_;
};

class ListeningTransport final : public Transport {
public:
    explicit ListeningTransport(std::vector<Calls>& by_rank) : inner_(threads_transport()), by_rank_(by_rank) {}
    TransportContract contract() const override { return inner_->contract(); }
    std::unique_ptr<Communicator> make(const Group& group, Rendezvous& rendezvous, std::span<const Memory> arenas,
                                       std::chrono::milliseconds timeout) override {
        const auto rank = static_cast<size_t>(group.ranks[static_cast<size_t>(group.me)]);
        return std::make_unique<Listening>(inner_->make(group, rendezvous, arenas, timeout), by_rank_[rank]);
    }

private:
    const std::unique_ptr<Transport> inner_;
    std::vector<Calls>& by_rank_;
};

/// A kernel takes as long as its place in the list says, so that ranks and kernels differ; messages a little.
class Uneven final : public Prices {
public:
    Demand kernel(const KernelSpec& spec, int64_t rank) override {
        double bytes = 0;
        for (const TensorType& type : spec.inputs) bytes += static_cast<double>(type.bytes());
        return {.fixed_s = (1 + bytes * 1e-3) * (1 + 0.1 * static_cast<double>(rank)), .loads = {}, .how = ""};
    }
    Demand copy(int64_t, int64_t) override { return {.fixed_s = 0.5, .loads = {}, .how = ""}; }
    Demand collective(Opcode, AxisId, int64_t bytes, const std::vector<int64_t>&,
                      const std::vector<int64_t>&) override {
        return {.fixed_s = 0.1 + 1e-4 * static_cast<double>(bytes), .loads = {}, .how = ""};
    }
    Demand message(AxisId, int64_t bytes, int64_t, int64_t, const std::vector<int64_t>&) override {
        return {.fixed_s = 0.2 + 1e-4 * static_cast<double>(bytes), .loads = {}, .how = ""};
    }
    double capacity(ResourceId) const override { return 1; }
};

/// An axis, of messages with the peer and the direction; `none`, 0, 0 computes.
using Lane = std::tuple<AxisId, int, int>;
/// By lane of one rank: positions, in the order of their start.
using Lanes = std::map<Lane, std::vector<int64_t>>;

Lane lane_of(const RankClass& c, int64_t position) {
    const Instruction& i = c.stream[static_cast<size_t>(issued_at(c, position).index)];
    if (!is_message(i.opcode)) return {i.axis, 0, 0};
    return {i.axis, i.peer, static_cast<int>(i.opcode)};
}

/// What was played, by rank.
struct Played {
    Simulated run;
    std::vector<std::map<int64_t, const SimulatedItem*>> at;  ///< [rank], by position
    std::vector<Lanes> lanes;
};

Played played(const Plan& plan, const Network& contracts) {
    Uneven prices;
    SimulateOptions options;
    options.each_rank = options.every_launch = true;
    Played out{simulate(plan, contracts, prices, options), {}, {}};
    const auto ranks = static_cast<size_t>(plan.mesh.ranks());
    out.at.resize(ranks);
    out.lanes.resize(ranks);
    std::vector<std::vector<std::pair<double, int64_t>>> order(ranks);
    for (const SimulatedItem& item : out.run.items) {
        const auto rank = static_cast<size_t>(out.run.actors[static_cast<size_t>(item.actor)].rank);
        const int64_t position = position_of(plan.class_of(static_cast<int64_t>(rank)), item.first);
        out.at[rank][position] = &item;
        order[rank].emplace_back(item.issued, position);
    }
    for (size_t rank = 0; rank < ranks; ++rank) {
        std::stable_sort(order[rank].begin(), order[rank].end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
        for (const auto& [start, position] : order[rank])
            out.lanes[rank][lane_of(plan.class_of(static_cast<int64_t>(rank)), position)].push_back(position);
    }
    return out;
}

Lanes recorded_lanes(const RankClass& c, const StepRecord& record) {
    Lanes lanes;
    for (const StepRecord::Span& span : record.spans)
        if (span.what == StepRecord::What::work) lanes[lane_of(c, span.position)].push_back(span.position);
    return lanes;
}

/// Each message of the simulation against what the two ends saw of it. Returns how many.
int64_t compare_messages(const Plan& plan, const Played& sim, const std::vector<Calls>& calls) {
    // Of a rank, the n-th send and receive that it issues.
    std::map<const SimulatedItem*, const Heard*> heard;
    for (size_t rank = 0; rank < calls.size(); ++rank) {
        size_t sent = 0, received = 0;
        const RankClass& c = plan.class_of(static_cast<int64_t>(rank));
        for (const auto& [position, item] : sim.at[rank]) {
            const Opcode opcode = c.stream[static_cast<size_t>(item->first.index)].opcode;
            if (opcode == Opcode::send) heard[item] = &calls[rank].sent.at(sent++);
            if (opcode == Opcode::receive) heard[item] = &calls[rank].received.at(received++);
        }
        CHECK(sent == calls[rank].sent.size());
        CHECK(received == calls[rank].received.size());
    }
    int64_t messages = 0;
    for (const auto& [item, mine] : heard) {
        REQUIRE(item->partner != none);
        const SimulatedItem& partner = sim.run.items[static_cast<size_t>(item->partner)];
        const Heard& other = *heard.at(&partner);
        CHECK(mine->other == sim.run.actors[static_cast<size_t>(partner.actor)].rank);
        CHECK(mine->tag == other.tag);
        CHECK(mine->digest == other.digest);
        ++messages;
    }
    return messages / 2;
}

/// What the executor waited for before an instruction was over before the simulation began it. Returns how many of
/// these were messages and collectives.
int64_t compare_waits(const RankClass& c, const StepRecord& record, const std::map<int64_t, const SimulatedItem*>& at) {
    int64_t transfers = 0;
    for (const StepRecord::Span& span : record.spans) {
        if (span.what != StepRecord::What::wait) continue;
        const Opcode opcode = c.stream[static_cast<size_t>(at.at(span.awaited)->first.index)].opcode;
        const SimulatedItem &awaited = *at.at(span.awaited), &waiting = *at.at(span.position);
        if (opcode != Opcode::send) CHECK(awaited.end <= waiting.start);
        transfers += opcode != Opcode::kernel && opcode != Opcode::copy;
    }
    return transfers;
}

struct Compared {
    int64_t messages = 0, waits = 0;
};

Compared compare(const Lowered& lowered, const Network& contracts) {
    const Plan& plan = lowered.plan;
    std::vector<Calls> calls(static_cast<size_t>(plan.mesh.ranks()));
    Running how;
    how.record = true;
    how.transport = [&] { return std::make_unique<ListeningTransport>(calls); };
    const Ran ran = run_steps(lowered, how);
    const Played sim = played(plan, contracts);
    Compared found;
    for (size_t rank = 0; rank < ran.records.size(); ++rank) {
        INFO("rank " << rank);
        const RankClass& c = plan.class_of(static_cast<int64_t>(rank));
        CHECK(recorded_lanes(c, ran.records[rank]) == sim.lanes[rank]);
        found.waits += compare_waits(c, ran.records[rank], sim.at[rank]);
    }
    found.messages = compare_messages(plan, sim, calls);
    return found;
}

Compared pipelined(const std::vector<int>& stages, const std::vector<Axis>& mesh, int64_t micro,
                   const Schedule& schedule, int chunks = 1, bool tied = false) {
    Model m = network(stages, tied);
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    m.program.pipeline({"pp", schedule.name, chunks, {}});
    CompileOptions options;
    options.schedule = &schedule;
    options.contracts["pp"].lanes = TransportContract::Lanes::peer_and_direction;
    return compare(compile(m.program, Mesh(mesh).with_microbatches(micro), options), options.contracts);
}

}  // namespace

TEST_CASE("simulate: meshes without a pipeline are played as the executor runs them") {
    int64_t plans = 0, waits = 0;
    for (const int64_t micro : {1, 2})
        for (const std::vector<Axis>& axes : {std::vector<Axis>{{"dp", 2}}, {{"tp", 2}}, {{"dp", 2}, {"tp", 2}}}) {
            const Mesh mesh = Mesh(axes).with_microbatches(micro);
            INFO(mesh.text());
            Model perceptron = mlp(8, 4, 12, true, true);
            perceptron.split_names({{"batch", "dp"}, {"mlp", "tp"}});
            Model transformer = block(4, 6, 2, 4, 7, true, true);
            transformer.split_names({{"batch", "dp"}, {"heads", "tp"}, {"mlp", "tp"}});
            for (const Model* m : {&perceptron, &transformer}) {
                const Compared found = compare(compile(m->program, mesh), {});
                CHECK(found.messages == 0);
                waits += found.waits;
                ++plans;
            }
        }
    CHECK(plans == 12);
    CHECK(waits > 12);
}

TEST_CASE("simulate: pipelines are played as the executor runs them, message by message") {
    const Schedule vee = hand_vee(), interleaved = hand_interleaved();
    const std::vector<Axis> two = {{"pp", 2}}, four = {{"pp", 4}}, with_dp = {{"pp", 2}, {"dp", 2}},
                            with_tp = {{"pp", 2}, {"tp", 2}};
    // A micro-batch goes forward over each border of stages and back.
    CHECK(pipelined({0, 1}, two, 4, hand_gpipe(2, 4)).messages == 8);
    CHECK(pipelined({0, 1}, two, 4, hand_1f1b(2, 4)).messages == 8);
    CHECK(pipelined({0, 1}, two, 4, hand_1f1b(2, 4), 1, true).messages > 8);
    CHECK(pipelined({0, 1, 2, 3}, four, 4, hand_gpipe(4, 4)).messages == 24);
    CHECK(pipelined({0, 1, 2, 3}, four, 4, hand_1f1b(4, 4)).messages == 24);
    CHECK(pipelined({0, 1, 2, 3}, two, 4, interleaved, 2).messages == 24);
    CHECK(pipelined({0, 1, 2, 3}, two, 4, vee, 2).messages == 16);
    CHECK(pipelined({0, 1}, with_dp, 4, hand_1f1b(2, 4)).messages == 16);
    CHECK(pipelined({0, 1}, with_tp, 4, hand_gpipe(2, 4)).messages == 16);
    CHECK(pipelined({0, 1}, with_dp, 1, hand_gpipe(2, 1)).waits > 0);
}

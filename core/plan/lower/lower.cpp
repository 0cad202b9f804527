#include "plan/lower/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "base/processors.h"
#include "base/text.h"
#include "layout/stages.h"
#include "plan/check/check_schedule.h"
#include "plan/lower/buffers.h"
#include "plan/lower/emit.h"
#include "plan/opening.h"
#include "plan/print.h"

namespace orrery {

int64_t Persistent::place(std::string_view name, int64_t bytes, int part) {
    Part& arena = parts_[part];
    auto found = arena.places.find(name);
    if (found != arena.places.end()) {
        if (found->second.bytes != bytes)
            throw Error("'" + std::string(name) + "' takes " + std::to_string(found->second.bytes) +
                        " bytes per rank in one program and " + std::to_string(bytes) +
                        " in another; programs that share a parameter must split it alike");
        return found->second.offset;
    }
    const int64_t offset = arena.bytes;
    arena.places.emplace(std::string(name), Place{offset, bytes});
    arena.bytes += aligned(bytes);
    return offset;
}

void Persistent::open(int parts) {
    for (int part = 0; part < parts; ++part) parts_[part];
}

int64_t Persistent::bytes(int part) const {
    const auto found = parts_.find(part);
    return found == parts_.end() ? 64 : std::max<int64_t>(64, found->second.bytes);
}

int64_t Persistent::place_block(std::string_view name, int64_t bytes, int part) {
    std::string key = "block of " + std::string(name);
    Part& arena = parts_[part];
    for (auto at = arena.places.find(key); at != arena.places.end(); at = arena.places.find(key)) {
        if (at->second.bytes >= bytes) return at->second.offset;
        key += '+';
    }
    return place(key, bytes, part);
}

namespace {

std::vector<int64_t> ranks_at(const Mesh& mesh, AxisId axis, int64_t place) {
    int64_t stride = 1;
    for (size_t a = mesh.axes().size(); axis != none && a-- > static_cast<size_t>(axis) + 1;)
        if (!mesh.axes()[a].sequential) stride *= mesh.axes()[a].size;
    std::vector<int64_t> ranks;
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
        if (axis == none || rank / stride % mesh.size(axis) == place) ranks.push_back(rank);
    return ranks;
}

lowering::Messages messages(const lowering::StagePlacement& spread, const Mesh& mesh, const LowerOptions& options) {
    using lowering::Messages;
    if (spread.axis == none) return Messages::apart;
    const TransportContract& contract = options.contracts.of(mesh.axis(spread.axis).name);
    if (contract.groups_messages()) return Messages::grouped;
    return contract.lanes == TransportContract::Lanes::communicator ? Messages::together : Messages::apart;
}

/// By AxisId: the prefetch depth that strategies request, else one layer if the transport queues gathers, else none.
std::vector<PrefetchDepth> run_ahead(const Program& program, const Mesh& mesh, const LowerOptions& options) {
    std::vector<PrefetchDepth> ahead;
    for (const Axis& axis : mesh.axes()) {
        PrefetchDepth own{!axis.sequential && options.contracts.of(axis.name).queued ? 1 : 0, 0};
        own = program.prefetch_depth(axis.name).value_or(own);
        const PrefetchDepth& most = options.prefetch_at_most;
        ahead.push_back({std::min(own.layers, most.layers), std::min(own.bytes, most.bytes)});
    }
    return ahead;
}

/// Records in the plan the prefetch depth of each axis that has moved messages.
void note_ahead(Plan& plan, const std::vector<lowering::Order>& orders, const std::vector<PrefetchDepth>& ahead) {
    for (const lowering::Order& order : orders)
        for (const lowering::Step& step : order.steps) {
            using Part = lowering::Step::Part;
            if (step.part != Part::begin && step.part != Part::held) continue;
            const size_t axis = *plan.mesh.find(plan.program.op(step.op).attributes.text("axis"));
            plan.ahead.resize(ahead.size());
            plan.ahead[axis] = ahead[axis];
        }
}

/// Max number of additional runs that find_steady retains before the stream stores all micro-batches instead.
constexpr int64_t most_more = 5;

/// Whether a rank collects values of all micro-batches until the end of the step, so that its stream cannot repeat.
bool gathers(const lowering::LoopAnalysis& share) {
    for (size_t i = 0; i < share.values.size(); ++i)
        if (share.values[i].gathered && share.program.values[i].op != none) return true;
    return false;
}

/// Writes the streams of all classes of ranks. Returns false if one does not repeat as its schedule does.
bool write_classes(Plan& plan, const lowering::StagePlacement& spread, Persistent& persistent,
                   const LowerOptions& options, const lowering::Steady* steady) {
    const int64_t written = steady ? steady->written : plan.mesh.microbatches();
    const lowering::LoopAnalysis whole(plan.program, plan.mesh, spread, written);
    std::vector<lowering::LoopAnalysis> shares;
    for (int rank = 0; rank < spread.ranks(); ++rank) shares.emplace_back(whole, rank);
    if (steady && std::any_of(shares.begin(), shares.end(), gathers)) return false;
    const std::vector<PrefetchDepth> ahead = run_ahead(plan.program, plan.mesh, options);
    std::vector<lowering::Order> orders = lowering::order_steps(shares, steady ? steady->schedule : plan.schedule,
                                                                messages(spread, plan.mesh, options), ahead);
    plan.ahead.clear();
    note_ahead(plan, orders, ahead);
    plan.classes.assign(shares.size(), {});
    persistent.open(spread.ranks());
    LowerOptions own = options;
    std::mutex one_asks;  // serializes calls of options.workspace, which asks a device
    if (options.workspace)
        own.workspace = [&](const KernelSpec& spec) {
            const std::lock_guard lock(one_asks);
            return options.workspace(spec);
        };
    std::vector<char> done(shares.size());
    in_parallel(shares.size(), [&](size_t r) {
        RankClass& c = plan.classes[r];
        c.stage = r;
        if (spread.axis != none) c.stages = spread.stages[r];
        c.ranks = ranks_at(plan.mesh, spread.axis, c.stage);
        done[r] = lowering::Emitter(shares[r], std::move(orders[r]), persistent, own, steady, c).run() &&
                  lowering::insert_waits(c);
    });
    return std::count(done.begin(), done.end(), 0) == 0;
}

}  // namespace

Plan lower(Program fused, const Mesh& mesh, Persistent& persistent, const LowerOptions& options) {
    Plan plan;
    plan.program = std::move(fused);
    plan.mesh = mesh;
    plan.threads_per_rank = options.threads_per_rank;
    plan.schedule = options.schedule ? *options.schedule : sequential_schedule(mesh.microbatches());
    const bool backward = std::any_of(plan.program.ops.begin(), plan.program.ops.end(),
                                      [](const Op& op) { return op.phase == Phase::backward; });
    const int stages = stage_count(plan.program, mesh);
    if (stages > 1 && !options.schedule)
        throw Error(plan.program.pipeline().origin,
                    "a program of " + std::to_string(stages) + " pipeline stages needs a schedule");
    if (stages > 1 && !backward) plan.schedule = forward_only(plan.schedule, mesh.microbatches());
    try {
        check_schedule(plan.schedule, mesh.microbatches(), stages, backward || stages == 1);
    } catch (const Error& error) {
        const Pipeline& pipeline = plan.program.pipeline();
        const std::string asked = pipeline.origin.text();
        throw Error(fmt::format("{}\n  {}requested: {}, {} a rank, and {}", error.what(),
                                asked.empty() ? "" : asked + ": ", plural(stages, "stage"), pipeline.chunks,
                                plural(mesh.microbatches(), "micro-batch")));
    }

    const lowering::StagePlacement spread = lowering::insert_transfers(plan.program, mesh, plan.schedule);
    plan.stage_axis = spread.axis;
    bool written = false;
    for (int64_t more = 0; mesh.microbatches() > options.written_micros && !written && more <= most_more; ++more) {
        const auto steady = lowering::find_steady(plan.schedule, mesh.microbatches(), more);
        if (!steady) break;
        written = write_classes(plan, spread, persistent, options, &*steady);
    }
    if (!written) write_classes(plan, spread, persistent, options, nullptr);
    if (options.fingerprinted) plan.fingerprint = fingerprint(plan);
    return plan;
}

std::vector<ArenaBytes> arena_bytes(const Persistent& persistent, const std::vector<const Plan*>& plans) {
    std::vector<ArenaBytes> all(plans.front()->classes.size());
    for (size_t k = 0; k < all.size(); ++k)
        all[k] = {persistent.bytes(plans.front()->classes[k].stage), scratch_places(plans, k).back()};
    return all;
}

}  // namespace orrery

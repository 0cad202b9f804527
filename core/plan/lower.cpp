#include "plan/lower.h"

#include <numeric>
#include <set>
#include <tuple>

#include "plan/buffers.h"
#include "plan/emit.h"
#include "plan/print.h"
#include "plan/queues.h"

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

int64_t Persistent::bytes(int part) const {
    const auto found = parts_.find(part);
    return found == parts_.end() ? 0 : found->second.bytes;
}

namespace {

[[noreturn]] void refuse(const Schedule& schedule, const std::string& why) {
    throw Error("schedule '" + schedule.name + "' " + why);
}

/// Every micro-batch goes forward and then backward exactly once; W, where there is any, follows its B.
void check_schedule(const Schedule& schedule, int64_t micros) {
    for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
        std::set<std::tuple<Fragment::Kind, int64_t, int>> seen;
        const std::string whose = " on pipeline rank " + std::to_string(rank);
        bool weights = false;
        int chunks = 1;
        for (const Fragment& f : schedule.ranks[rank].order) {
            const std::string text = RankSchedule{{f}}.text();
            if (f.micro >= micros)
                refuse(schedule,
                       "runs " + text + whose + ", but there are " + std::to_string(micros) + " micro-batches");
            if (!seen.emplace(f.kind, f.micro, f.chunk).second) refuse(schedule, "runs " + text + " twice" + whose);
            weights |= f.kind == Fragment::Kind::weight;
            chunks = std::max(chunks, f.chunk + 1);
            const auto needs = f.kind == Fragment::Kind::weight ? Fragment::Kind::backward : Fragment::Kind::forward;
            if (f.kind != Fragment::Kind::forward && !seen.count({needs, f.micro, f.chunk}))
                refuse(schedule,
                       "runs " + text + " before " + RankSchedule{{{needs, f.micro, f.chunk}}}.text() + whose);
        }
        for (int64_t micro = 0; micro < micros; ++micro)
            for (int chunk = 0; chunk < chunks; ++chunk)
                for (auto kind : {Fragment::Kind::forward, Fragment::Kind::backward, Fragment::Kind::weight})
                    if ((weights || kind != Fragment::Kind::weight) && !seen.count({kind, micro, chunk}))
                        refuse(schedule, "never runs " + RankSchedule{{{kind, micro, chunk}}}.text() + whose);
    }
}

}  // namespace

Plan lower(Program propagated, const Mesh& mesh, Persistent& persistent, const LowerOptions& options) {
    Plan plan;
    plan.program = std::move(propagated);
    plan.mesh = mesh;
    plan.threads_per_rank = options.threads_per_rank;
    plan.schedule = options.schedule ? *options.schedule : sequential_schedule(mesh.microbatches());
    check_schedule(plan.schedule, mesh.microbatches());
    for (const Op& op : plan.program.ops)
        if (op.stage > 0)
            throw Error(op.origin, "pipeline stages are not lowered yet: leave the pipeline strategy out");
    if (plan.schedule.ranks.size() != 1)
        throw Error("schedule '" + plan.schedule.name + "' is for " + std::to_string(plan.schedule.ranks.size()) +
                    " pipeline ranks, but the program has one stage");

    const lowering::Roles roles(plan.program, plan.mesh);
    RankClass& only = plan.classes.emplace_back();
    only.ranks.resize(static_cast<size_t>(mesh.ranks()));
    std::iota(only.ranks.begin(), only.ranks.end(), int64_t{0});
    lowering::Order order = lowering::order_steps(roles, plan.schedule.ranks[0]);
    lowering::Emitter(roles, std::move(order), persistent, options, only).run();
    lowering::find_waits(only);
    plan.fingerprint = fingerprint(plan);
    return plan;
}

}  // namespace orrery

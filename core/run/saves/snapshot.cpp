#include "run/saves/snapshot.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "plan/lower/buffers.h"
#include "run/checkpoint/saved_state.h"
#include "run/overlap.h"

namespace orrery {
namespace {

const SnapshotPlan& plan_of(const Plan& plan, const std::vector<SnapshotPlan>& snapshots, int64_t rank) {
    const auto k = static_cast<size_t>(&plan.class_of(rank) - plan.classes.data());
    if (k >= snapshots.size())
        throw Error("program " + plan.program.name + " was not proved: it has no plan of a snapshot", Fault::failed);
    return snapshots[k];
}

const SnapshotPlan& plan_of(const Session& session) {
    const CompiledProgram& main = session.compiled().programs.front();
    return plan_of(main.plan, main.snapshots, session.job().rank);
}

}  // namespace

Snapshot::Snapshot(Session& session)
    : session_(session),
      spare_(has_spare_processors(session.settings(), session.job())),
      queued_(!session.device().limits().host_visible),
      memory_(session.device(), std::max<int64_t>(1, plan_of(session).bytes)) {
    std::memset(memory_.data(), 0, static_cast<size_t>(memory_.bytes()));  // no page is new in the first copy
    const Program& program = session.compiled().train().program;
    const Program& now = session.main().plan().program;  // a smaller step of a ramp has the same places
    for (const CopiedValue& value : plan_of(session).values) {
        const std::string& name = program.value(value.value).name;
        const void* from = session.main().tensor(now.find(name).value()).data;
        parts_.push_back({name, static_cast<const std::byte*>(from), memory_.data() + value.offset, value.bytes});
    }
    if (queued_) lay_out();
    std::map<ValueId, const Part*> by_value;
    for (const Part& part : parts_) by_value[*program.find(part.name)] = &part;
    std::vector<std::vector<int64_t>> stages = stages_of(session.compiled().train());
    for (const auto& [id, part] : by_value) {
        const Value& value = program.value(id);
        Tensor local = session.main().tensor(now.find(value.name).value());
        local.data = part->to;
        values_.push_back({value.name, value.type, value.layout, local, std::move(stages[static_cast<size_t>(id)]),
                           is_fixed(program, id)});
    }
}

/// One copy of many MiB instead of one for each value: the queue has one gate, so that their order says nothing.
void Snapshot::lay_out() {
    std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) { return a.from < b.from; });
    std::byte* to = memory_.data();
    for (Part& part : parts_) {
        part.to = std::exchange(to, to + aligned(part.bytes));
        const bool beside = !pieces_.empty() && part.from - pieces_.back().from == part.to - pieces_.back().to;
        if (beside)
            pieces_.back().bytes = part.from + part.bytes - pieces_.back().from;
        else
            pieces_.push_back(part);
    }
    gate_ = session_.device().gate(copies);
}

void Snapshot::guard(Executor& executor, const std::vector<SnapshotPlan>& plans) {
    const Plan& plan = executor.plan();
    std::vector<int64_t> parts_before(plan.class_of(session_.job().rank).stream.size(), 0);
    std::map<std::string_view, int64_t> until;
    for (size_t i = 0; i < parts_.size(); ++i) until[parts_[i].name] = static_cast<int64_t>(i) + 1;
    for (const CopiedValue& value : plan_of(plan, plans, session_.job().rank).values) {
        if (value.written == none) continue;
        int64_t& parts = parts_before[static_cast<size_t>(value.written)];
        parts = std::max(parts, until.at(plan.program.value(value.value).name));
    }
    if (queued_)
        executor.copied_beside(gate_, std::move(parts_before));
    else
        executor.copied_beside(progress_, std::move(parts_before));
}

void Snapshot::take() {
    if (!queued_) return progress_.begin();
    for (const Part& piece : pieces_) session_.device().copy(copies, piece.to, piece.from, piece.bytes);
    gate_ = session_.device().gate(copies);
}

void Snapshot::copy() {
    if (queued_) return gate_.wait();
    for (size_t i = 0; i < parts_.size(); ++i) {
        std::memcpy(parts_[i].to, parts_[i].from, static_cast<size_t>(parts_[i].bytes));
        progress_.reach(static_cast<int64_t>(i) + 1);
    }
    progress_.reach_end();
}

std::string Snapshot::how() const {
    if (queued_) return "beside the next step, by the device's queue of copies";
    return spare_ ? "beside the next step, on a spare processor" : "beside the next step";
}

}  // namespace orrery

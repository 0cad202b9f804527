#include "run/saves/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/processors.h"
#include "base/text.h"
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
      beside_(spare_ && session.device().limits().host_visible && !session.device().captures()),
      memory_(session.device(), std::max<int64_t>(1, plan_of(session).bytes)),
      threads_(static_cast<size_t>(std::max(1, session.compiled().train().threads_per_rank))) {
    std::memset(memory_.data(), 0, static_cast<size_t>(memory_.bytes()));  // no page is new in the first copy
    const Program& program = session.compiled().train().program;
    const Program& now = session.main().plan().program;  // a smaller step of a ramp has the same places
    for (const CopiedValue& value : plan_of(session).values) {
        const std::string& name = program.value(value.value).name;
        parts_.push_back(
            {name, session.main().tensor(now.find(name).value()).data, memory_.data() + value.offset, value.bytes});
    }
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

void Snapshot::guard(Executor& executor, const std::vector<SnapshotPlan>& plans) {
    if (!beside_) return;
    const Plan& plan = executor.plan();
    std::vector<int64_t> parts_before(plan.class_of(session_.job().rank).stream.size(), 0);
    std::map<std::string_view, int64_t> until;
    for (size_t i = 0; i < parts_.size(); ++i) until[parts_[i].name] = static_cast<int64_t>(i) + 1;
    for (const CopiedValue& value : plan_of(plan, plans, session_.job().rank).values) {
        if (value.written == none) continue;
        int64_t& parts = parts_before[static_cast<size_t>(value.written)];
        parts = std::max(parts, until.at(plan.program.value(value.value).name));
    }
    executor.copied_beside(progress_, std::move(parts_before));
}

void Snapshot::take() {
    if (beside_) return progress_.begin();
    if (!session_.device().limits().host_visible) {
        for (const Part& part : parts_) session_.device().copy(0, part.to, part.from, part.bytes);
        return session_.device().synchronize(0);
    }
    int64_t all = 0;
    for (const Part& part : parts_) all += part.bytes;
    if (threads_ == 1) return copy_in(0, all);
    const auto count = static_cast<int64_t>(threads_);
    in_parallel(threads_, threads_, [&](size_t, size_t i) {
        const auto share = static_cast<int64_t>(i);
        copy_in(all * share / count, all * (share + 1) / count);
    });
}

/// Bytes [begin, end) of all parts, one after the other.
void Snapshot::copy_in(int64_t begin, int64_t end) const {
    int64_t first = 0;
    for (const Part& part : parts_) {
        const int64_t from = std::max(begin - first, int64_t{0}), to = std::min(end - first, part.bytes);
        if (from < to)
            std::memcpy(part.to + from, static_cast<const std::byte*>(part.from) + from,
                        static_cast<size_t>(to - from));
        first += part.bytes;
    }
}

void Snapshot::copy() {
    for (size_t i = 0; i < parts_.size(); ++i) {
        std::memcpy(parts_[i].to, parts_[i].from, static_cast<size_t>(parts_[i].bytes));
        progress_.reach(static_cast<int64_t>(i) + 1);
    }
    progress_.reach_end();
}

std::string Snapshot::how() const {
    if (beside_) return "beside the next step, on a spare processor";
    if (!session_.device().limits().host_visible) return "at the end of the step, by a download";
    return fmt::format("at the end of the step, by {}", plural(static_cast<int64_t>(threads_), "thread"));
}

}  // namespace orrery

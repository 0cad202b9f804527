#include "run/checkpoint/save/snapshot.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <map>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/processors.h"
#include "plan/access.h"
#include "plan/lower/buffers.h"
#include "run/checkpoint/save/saved_state.h"
#include "run/overlap.h"

namespace orrery {
namespace {

constexpr int64_t most_by_thread = int64_t{8} << 20;  ///< max bytes of a copy by a thread with its own processor
constexpr int64_t most_by_turns = int64_t{1} << 20;   ///< max bytes of a low-priority copy; a step may wait for it
constexpr int64_t most_by_queue = int64_t{64} << 20;  ///< max bytes of a copy by the device; a download may wait

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
      queued_(!session.device().limits().host_visible || session.device().captures()),
      threads_(static_cast<size_t>(std::max(1, session.compiled().train().threads_per_rank))),
      memory_(session.device(), std::max<int64_t>(1, plan_of(session).bytes)) {
    std::memset(memory_.data(), 0, static_cast<size_t>(memory_.bytes()));  // page faults now, not in the first copy
    const Program& program = session.compiled().train().program;
    const Program& now = session.main().plan().program;  // programs of a batch ramp share the values' addresses
    for (const CopiedValue& value : plan_of(session).values) {
        const std::string& name = program.value(value.value).name;
        const void* from = session.main().tensor(now.find(name).value()).data;
        parts_.push_back({name, static_cast<const std::byte*>(from), memory_.data() + value.offset, value.bytes});
    }
    if (queued_)
        lay_out();
    else
        cut();
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

Snapshot::~Snapshot() {
    if (queued_) try {
            session_.device().synchronize(Device::copy_queue);  // no copy may write to memory that is freed
        } catch (const std::exception&) {                       // the error was reported where the copy was queued
        }
}

/// Cuts the values into stretches of bytes, so that several threads can copy one value.
void Snapshot::cut() {
    const int64_t most = spare_ ? most_by_thread : most_by_turns;
    for (Part& part : parts_) {
        for (int64_t at = 0; at < part.bytes; at += most)
            stretches_.push_back({part.from + at, part.to + at, std::min(most, part.bytes - at)});
        part.stretches_before = static_cast<int64_t>(stretches_.size());
    }
    copied_.assign(stretches_.size(), 0);
    progress_.helped_by([this](int64_t stretches) { help(stretches); });
}

/// Copies the first `stretches` stretches for a step that waits for them; with several threads, all stretches.
void Snapshot::help(int64_t stretches) {
    const auto all = static_cast<int64_t>(stretches_.size());
    if (threads_ > 1 && all - next_.load(std::memory_order_relaxed) > 1) try {
            in_parallel(threads_, threads_, [&](size_t, size_t) { copy_until(all); });
        } catch (const std::system_error&) {  // no thread can be started: the current one copies alone
        }
    copy_until(stretches);
}

/// Sorts the values by address and merges adjacent ones, padding included, to few large stretches for the copy queue.
/// The order of copies does not matter, because executors wait for all of them.
void Snapshot::lay_out() {
    std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) { return a.from < b.from; });
    std::byte* to = memory_.data();
    for (Part& part : parts_) {
        part.to = std::exchange(to, to + aligned(part.bytes));
        Stretch* const last = stretches_.empty() ? nullptr : &stretches_.back();
        const int64_t bytes = last ? part.from + part.bytes - last->from : 0;
        if (last && part.from - last->from == part.to - last->to && bytes <= most_by_queue) {
            last->bytes = bytes;
            continue;
        }
        for (int64_t at = 0; at < part.bytes; at += most_by_queue)
            stretches_.push_back({part.from + at, part.to + at, std::min(most_by_queue, part.bytes - at)});
    }
    assert(to <= memory_.data() + memory_.bytes());
    gate_ = session_.device().gate(Device::copy_queue);
}

void Snapshot::guard(Executor& executor, const std::vector<SnapshotPlan>& plans) {
    const Plan& plan = executor.plan();
    const RankClass& c = plan.class_of(session_.job().rank);
    const std::vector<CopiedValue>& values = plan_of(plan, plans, session_.job().rank).values;
    if (queued_) {
        if (!gate_.owner) return;
        std::set<int> buffers;
        for (const CopiedValue& value : values) buffers.insert(value.buffer);
        std::vector<bool> writes_copied(c.stream.size(), false);
        for (size_t i = 0; i < c.stream.size(); ++i)
            for_each_access(c, c.stream[i], [&](const Operand& operand, bool, bool writes) {
                if (writes && buffers.count(operand.buffer) > 0) writes_copied[i] = true;
            });
        return executor.copied_beside(gate_, std::move(writes_copied));
    }
    std::vector<int64_t> stretches_before(c.stream.size(), 0);
    std::map<std::string_view, int64_t> until;
    for (const Part& part : parts_) until[part.name] = part.stretches_before;
    for (const CopiedValue& value : values) {
        if (value.written == none) continue;
        int64_t& stretches = stretches_before[static_cast<size_t>(value.written)];
        stretches = std::max(stretches, until.at(plan.program.value(value.value).name));
    }
    executor.copied_beside(progress_, std::move(stretches_before));
}

void Snapshot::take() {
    if (!queued_) {
        std::fill(copied_.begin(), copied_.end(), char{0});
        all_before_ = 0;
        next_.store(0, std::memory_order_relaxed);
        return progress_.begin();
    }
    for (const Stretch& stretch : stretches_)
        session_.device().copy(Device::copy_queue, stretch.to, stretch.from, stretch.bytes);
    gate_ = session_.device().gate(Device::copy_queue);
    if (!gate_.owner) session_.device().synchronize(Device::copy_queue);
}

/// Copies stretches before number `end` that no thread has begun yet.
void Snapshot::copy_until(int64_t end) {
    for (;;) {
        int64_t mine = next_.load(std::memory_order_relaxed);
        while (mine < end && !next_.compare_exchange_weak(mine, mine + 1, std::memory_order_relaxed)) {
        }
        if (mine >= end) return;
        const Stretch& stretch = stretches_[static_cast<size_t>(mine)];
        std::memcpy(stretch.to, stretch.from, static_cast<size_t>(stretch.bytes));
        const std::lock_guard lock(order_);
        copied_[static_cast<size_t>(mine)] = 1;
        while (all_before_ < copied_.size() && copied_[all_before_]) ++all_before_;
        progress_.reach(static_cast<int64_t>(all_before_));
    }
}

/// Copies on a low-priority thread, so that the step gets the processor first. A step that must wait copies the rest.
void Snapshot::copy_behind_steps() {
    const auto all = static_cast<int64_t>(stretches_.size());
    copied_s_ = 0;
    try {
        const std::jthread copier([&] {
            constexpr int tenth = 10;  // nice value that leaves the thread 1/10 of a busy processor
            ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), tenth);
            copy_until(all);
            copied_s_ = processor_s();
        });
    } catch (const std::system_error&) {  // no thread can be started: copy here, at normal priority
        copy_until(all);
    }
}

void Snapshot::copy() {
    if (queued_) return gate_.wait();
    const auto all = static_cast<int64_t>(stretches_.size());
    if (spare_)
        copy_until(all);
    else
        copy_behind_steps();
    progress_.join(all);
}

std::string Snapshot::how() const {
    if (queued_)
        return gate_.owner ? "during the next step, by the device's queue of copies"
                           : "at the end of the step, by a download";
    return spare_ ? "during the next step, on a spare processor" : "during the next step";
}

}  // namespace orrery

// SavedState: saves beside the steps, on a thread of their own and from a copy of the state.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/json.h"
#include "base/limits.h"
#include "base/processors.h"
#include "base/seconds.h"
#include "base/text.h"
#include "run/checkpoint/saved_state.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;

/// A save lets the step beside it go first for so many mean steps at most, as that one may hang. None where a mean is
/// not known yet.
constexpr double most_steps_of_pause = 2;
/// Of a step: a save that took no longer, as the last one did, is hardly seen beside it.
constexpr double short_part = 0.1;

int64_t number_of(const std::string& text) {
    int64_t number = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (problem != std::errc() || end != text.data() + text.size() || number < 1)
        throw Error(fmt::format("protocol error: rank 0 says that the next save comes after {} steps", quote(text)),
                    Fault::peer);
    return number;
}

}  // namespace

void SavedState::save_beside() {
    snapshot_.emplace(session_);
    exchange_ = session_.exchange_beside("saves");
    thread_ = std::make_unique<SaveThread>();
}

void SavedState::guard(Executor& executor, const std::vector<SnapshotPlan>& plans) {
    if (snapshot_) snapshot_->guard(executor, plans);
}

std::string SavedState::told_of_copy() const {
    return snapshot_ ? fmt::format("saves run beside the steps, from a copy of {}, made {}",
                                   bytes_text(snapshot_->bytes()), snapshot_->how())
                     : "";
}

void SavedState::begin(int64_t step, uint64_t seed, const Dataset& data, int64_t samples, double loss,
                       std::optional<double> eval_loss, const Pace& pace) {
    const auto began = Clock::now();
    saved_ = {step, -snapshot_->waited_s()};
    {
        const std::lock_guard lock(order_);
        late_.clear();
        closed_ = false;
    }
    std::function<void()> work = [this, step, host = host_of(seed, data, samples, loss, eval_loss), pace, began] {
        save_here(step, host, pace, began);
    };
    snapshot_->take();
    begun_ = step;
    judge_.saved(step);
    saved_.held_s += seconds_since(began);
    thread_->begin(std::move(work));
}

/// On the save thread.
void SavedState::save_here(int64_t step, const Json& host, const Pace& pace, Clock::time_point began) {
    const double given = processor_s();
    snapshot_->copy();
    // A device's queue has the time of forward and backward, nearly all of a step's, where that is known.
    if (snapshot_->unseen() && pace.step_s > 0) saved_.held_s += std::max(0.0, seconds_since(began) - pace.step_s);
    if (snapshot_->by_turns() && (worked_s_ == 0 || worked_s_ > short_part * pace.step_s))
        thread_->pause(std::chrono::duration<double>(most_steps_of_pause * pace.step_s));
    gathers_ = exchange_.get();
    commit(step, snapshot_->values(), host);
    saved_.whole_s = seconds_since(began);
    worked_s_ = saved_.whole_s - paused_s();
    saved_.held_s += snapshot_->waited_s();
    saved_.said = checkpoints_.notes();
    if (pace.between_failures_s > 0) {
        const double slower = snapshot_->hidden() ? 0 : processor_s() - given + snapshot_->copied_s();
        saved_.interval = interval({saved_.held_s + slower, saved_.whole_s, pace.step_s}, pace.between_failures_s);
    }
    gathers_ = nullptr;
    std::string late;
    {
        const std::lock_guard lock(order_);
        closed_ = true;
        late = late_;
    }
    if (late.empty()) return;
    store_.mark(step, late);
    saved_.said.push_back(fmt::format("the checkpoint of step {} is marked as suspect: {}", step, late));
}

int64_t SavedState::interval(const SaveCost& cost, double between_failures_s) {
    costs_.add(cost);
    return number_of(hear("interval", std::to_string(steps_between_saves(costs_.median(), between_failures_s))));
}

/// Leaves the mark to the save thread; "": that has ended.
std::string SavedState::mark_late(int64_t step, const std::string& why) {
    const std::lock_guard lock(order_);
    if (closed_) return "";
    late_ = why;
    return fmt::format("the checkpoint of step {} will be marked as suspect when it is committed: {}", step, why);
}

void SavedState::step_ended() {
    if (thread_) thread_->go_on();
}

double SavedState::paused_s() const { return thread_ ? thread_->paused_s() : 0; }

void SavedState::wait() const {
    if (thread_) thread_->wait();
}

Status SavedState::status() const {
    if (begun_ < 0) return Status::go_on;
    if (thread_->busy()) return Status::saving;
    return thread_->failure() ? Status::save_failed : Status::go_on;
}

std::string SavedState::failure() const {
    if (begun_ < 0 || thread_->busy() || !thread_->failure()) return "";
    try {
        std::rethrow_exception(thread_->failure());
    } catch (const std::exception& problem) {
        return fmt::format("rank {}: the save of step {}, beside the steps, failed: {}", session_.job().rank, begun_,
                           explain(problem));
    }
}

std::optional<SavedState::Saved> SavedState::finished() {
    if (begun_ < 0 || thread_->busy()) return std::nullopt;
    if (const std::string why = failure(); !why.empty()) {
        const std::exception_ptr failed = thread_->failure();
        begun_ = -1;
        try {
            std::rethrow_exception(failed);
        } catch (const std::exception& problem) {
            throw Error(why, fault_of(problem));
        }
    }
    begun_ = -1;
    return std::move(saved_);
}

std::optional<SavedState::Saved> SavedState::finish() {
    if (thread_) thread_->wait();
    return finished();
}

}  // namespace orrery

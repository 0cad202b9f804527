#include "run/checkpoint/save/saved_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <set>

#include "base/json.h"
#include "base/limits.h"
#include "base/processors.h"
#include "base/seconds.h"
#include "base/text.h"
#include "run/checkpoint/format/manifest.h"
#include "run/checkpoint/save/saved_islands.h"
#include "run/checkpoint/save/saved_round.h"
#include "run/metrics/step_metrics.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;

/// Max time that a save pauses for the concurrent step, in mean step times. It is limited because the step may hang.
constexpr double most_steps_of_pause = 2;
/// A save does not pause if the last save took less than this fraction of a step's time.
constexpr double short_part = 0.1;

int64_t number_of(const std::string& text) {
    int64_t number = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (problem != std::errc() || end != text.data() + text.size() || number < 1)
        throw Error(
            fmt::format("protocol error: rank 0 sent an invalid number of steps until the next save: {}", quote(text)),
            Fault::peer);
    return number;
}

/// The number under a key of a manifest's JSON; 0 if the key is missing, as in older checkpoints.
double number_of(const Json& host, const char* key) {
    return host.contains(key) && host[key].is_number() ? host[key].get<double>() : 0;
}

/// The integer under a key of a manifest's JSON; -1 if the key is missing.
int64_t integer_of(const Json& host, const char* key) {
    return host.contains(key) && host[key].is_number_integer() ? host[key].get<int64_t>() : -1;
}

/// The state of the LossJudge that a manifest stores; empty for older checkpoints, which lack it.
LossJudge::Kept judged_before(const Json& host) {
    LossJudge::Kept kept{
        {}, number_of(host, "highest_median"), number_of(host, "pending_loss"), integer_of(host, "pending_steps")};
    if (host.contains("recent_losses") && host["recent_losses"].is_array())
        for (const Json& loss : host["recent_losses"])
            if (loss.is_number()) kept.losses.push_back(loss.get<double>());
    return kept;
}

/// The choice of capacities that a manifest stores; nullopt: its run had none.
std::optional<CapacityChoice::Saved> capacity_in(const Json& host) {
    if (!host.contains("capacity") || !host["capacity"].is_number()) return std::nullopt;
    const auto count = [&](const char* key) { return std::max<int64_t>(0, integer_of(host, key)); };
    return CapacityChoice::Saved{number_of(host, "capacity"), count("capacity_unneeded"), count("again")};
}

/// Names the checkpoint's params that the program lacks; "" if there are none, or for older checkpoints. Loading params
/// needs this, because a program without an optimizer may lack tensors of the checkpoint; resume compares all.
std::string params_beyond(const Program& program, const Json& host) {
    std::vector<std::string> more;
    if (host.is_object() && host.contains("published") && host["published"].contains("params"))
        for (const Json& param : host["published"]["params"])
            if (const auto name = param.at("param").get<std::string>(); !program.find(name))
                more.push_back(quote(name));
    return more.empty() ? "" : join_few(more, 5);
}

bool is_of_loss_scale(std::string_view name) {
    return std::find(loss_scale_states.begin(), loss_scale_states.end(), name) != loss_scale_states.end();
}

/// Sets the states of a loss scale for a run that resumes from step `step`, saved without one: all its steps made an
/// update.
void begin_loss_scale(const std::vector<StateValue>& state, const LossScale& scale, int64_t step) {
    for (const StateValue& value : state) {
        if (!is_of_loss_scale(value.name)) continue;
        const auto first = static_cast<float>(value.name == "loss_scale"         ? scale.initial
                                              : value.name == "loss_scale.steps" ? static_cast<double>(step)
                                                                                 : 0);
        std::memcpy(value.local.data, &first, sizeof first);
    }
}

/// A message if only one of the checkpoint and the run has a loss scale; "" otherwise.
std::string change_of_scale(const Restored& restored, const Program& program, const std::optional<LossScale>& scale) {
    const bool begins = scale && !restored.loss_scale;
    const bool drops = !scale && restored.loss_scale && !program.find(std::string(loss_scale_states[0]));
    if (!begins && !drops) return "";
    const std::string change =
        begins ? fmt::format("no loss scale: the scale begins at {:g}, and all {} steps count as updates",
                             scale->initial, restored.step)
               : "a loss scale, this run has none: its states are dropped, and skipped steps count as updates";
    return fmt::format("the checkpoint of step {} has {}", restored.step, change);
}

}  // namespace

std::vector<std::vector<int64_t>> stages_of(const Plan& plan) {
    std::vector<std::vector<int64_t>> stages(plan.program.values.size());
    if (plan.stage_axis == none) return stages;
    for (const RankClass& one : plan.classes) {
        // All ranks of a rank class are on the same pipeline stage.
        const int64_t stage = plan.mesh.coordinates(one.ranks.front())[static_cast<size_t>(plan.stage_axis)];
        for (const Operand& place : one.places)
            if (place.value != none) stages[static_cast<size_t>(place.value)].push_back(stage);
    }
    for (std::vector<int64_t>& of : stages) {
        std::sort(of.begin(), of.end());
        of.erase(std::unique(of.begin(), of.end()), of.end());
        if (static_cast<int64_t>(of.size()) == plan.mesh.size(plan.stage_axis)) of.clear();
    }
    return stages;
}

bool is_fixed(const Program& program, ValueId value) {
    return std::none_of(program.updates.begin(), program.updates.end(),
                        [&](const Update& update) { return update.target == value; });
}

Json identity_of(uint64_t seed, const BatchRamp& ramp, const Dataset& data) {
    const DataSpec& spec = data.spec();
    Json identity = {{"seed", seed},
                     {"data_digest", data.digest()},
                     {"data_seed", spec.seed},
                     {"sequences_per_step", spec.sequences_per_step},
                     {"ramp", {ramp.start, ramp.increment, ramp.samples}},
                     {"validation", spec.validation}};
    for (const auto& [name, number] : data.source().identity()) identity[name] = number;
    return identity;
}

std::string difference_of(const Json& saved, const Json& now) {
    for (const auto& [key, value] : now.items())
        if (!saved.contains(key) || saved[key] != value)
            return fmt::format("the saved {} is {}, but this run's is {}", key,
                               saved.contains(key) ? saved[key].dump() : "unknown", value.dump());
    return "";
}

/// The objects that a save uses. During an asynchronous save only the save thread uses them, else the training thread.
struct SavedState::Saver {
    Session& session;
    const std::string published;
    std::set<std::string> params;             ///< names of the params, which are checked more strictly than states
    std::unique_ptr<Exchange> exchange = {};  ///< communication of the save thread; nullptr: the job has one rank
    bool on_thread = false;                   ///< whether the save thread uses this object now
    Checkpoints checkpoints;
    RecentCosts costs = {};
    double worked_s = 0;  ///< seconds of the last asynchronous save without its pause; 0: there was none

    Saver(Session& session_, CheckpointStore& store, RetentionPolicy keep, std::string published_,
          std::vector<std::string> drop)
        : session(session_),
          published(std::move(published_)),
          checkpoints(
              store, session.main().plan().mesh, session.job().rank,
              [this](const std::string& topic, const std::string& mine) {
                  return own() ? exchange->all(topic, mine, WaitLimit::files)
                               : session.exchange(topic, mine, WaitLimit::files);
              },
              CheckpointOptions{.keep = keep,
                                .stage_axis = session.main().plan().stage_axis,
                                .diverged = [this](std::span<const StateValue> state) { return diverged(state); },
                                .drop = std::move(drop)},
              [this](const std::string& topic, const std::string& mine) {
                  return own() ? exchange->to_first(topic, mine, WaitLimit::files)
                               : session.to_first(topic, mine, WaitLimit::files);
              },
              [this](const std::string& topic, const std::string& mine) { return hear(topic, mine); }) {
        for (const Value& value : session.main().plan().program.values)
            if (value.role == Role::param) params.insert(value.name);
    }

    bool own() const { return on_thread && exchange; }
    std::string hear(const std::string& topic, const std::string& mine) {
        return own() ? exchange->from_first(topic, mine, WaitLimit::files)
                     : session.from_first(topic, mine, WaitLimit::files);
    }
    /// Describes the first value that has diverged; "": none. A diverged state must not be saved.
    std::string diverged(std::span<const StateValue> state) const {
        for (const StateValue& value : state)
            if (const int64_t bad = count_diverged(value.local, params.count(value.name) > 0); bad > 0)
                return fmt::format("{} of {} elements of {}", bad, value.local.count(), value.name);
        return "";
    }
    void commit(int64_t step, std::span<const StateValue> state, Json host) {
        if (!published.empty()) host["published"] = parse_json(published, {"", "the model as it is published"});
        checkpoints.save(step, state, host.dump());
    }
    int64_t interval(const SaveCost& cost, double between_failures_s) {
        costs.add(cost);
        return number_of(hear("interval", std::to_string(steps_between_saves(costs.median(), between_failures_s))));
    }
};

struct SavedState::Job {
    std::unique_ptr<Saver> saver;
    Snapshot& snapshot;
    LateMark& late;
    CheckpointStore& store;
    Json host;
    Pace pace;
    Clock::time_point began;
    Saved saved;
    std::exception_ptr failure = {};

    void run(SaveThread<Job>& thread);
};

SavedState::SavedState(Session& session, CheckpointStore& store, RetentionPolicy keep, std::string published,
                       double suspect_factor, std::vector<std::string> drop)
    : session_(session),
      store_(store),
      saver_(std::make_unique<Saver>(session, store, keep, std::move(published), std::move(drop))),
      judge_(suspect_factor) {}

SavedState::~SavedState() = default;

std::vector<StateValue> SavedState::views() {
    const Program& program = session_.main().plan().program;
    Executor& executor = session_.main();
    const bool direct = session_.device().limits().host_visible;
    std::vector<std::vector<int64_t>> stages = stages_of(session_.main().plan());
    const std::optional<OtherRows> islands = from_other_rows(session_.compiled());
    std::vector<StateValue> state;
    for (size_t id = 0; id < program.values.size(); ++id) {
        const Value& value = program.values[id];
        const bool saves = value.role == Role::param || value.role == Role::state;
        if (!saves || !executor.holds(static_cast<ValueId>(id))) continue;
        StateValue saved{value.name,
                         value.type,
                         value.layout,
                         executor.tensor(static_cast<ValueId>(id)),
                         std::move(stages[id]),
                         is_fixed(program, static_cast<ValueId>(id)),
                         (session_.compiled().loss_scale && is_of_loss_scale(value.name)) ||
                             value.init.flag("rows_add") || value.init.flag("rows_copy"),
                         islands                        ? of_islands(value, *islands)
                         : value.init.flag("rows_add")  ? std::optional(OtherRows::sum)
                         : value.init.flag("rows_copy") ? std::optional(OtherRows::hints)
                                                        : std::nullopt};
        if (!direct) {
            staging_.resize(std::max(staging_.size(), state.size() + 1));
            staging_[state.size()].resize(static_cast<size_t>(saved.local.bytes()));
            saved.local.data = staging_[state.size()].data();
        }
        state.push_back(std::move(saved));
    }
    return state;
}

void SavedState::fetch(std::vector<StateValue>& state) {
    if (session_.device().limits().host_visible) return;
    const Program& program = session_.main().plan().program;
    for (StateValue& value : state)
        session_.download(value.local.data, session_.main().tensor(*program.find(value.name)));
}

void SavedState::put_back(const std::vector<StateValue>& state) {
    if (session_.device().limits().host_visible) return;
    const Program& program = session_.main().plan().program;
    Executor& executor = session_.main();
    for (const StateValue& value : state) session_.upload(executor.tensor(*program.find(value.name)), value.local.data);
}

SavedState::Resumed SavedState::told(int64_t step, std::vector<std::string> passed_over) {
    for (std::string& note : saver_->checkpoints.notes()) passed_over.push_back(std::move(note));
    return {step, std::move(passed_over)};
}

namespace {

std::string left_behind(int64_t from) { return fmt::format("the run went on from step {}", from); }

/// When a step was saved, and by which run; empty if the step's manifest lacks that or cannot be read.
struct SavedAt {
    std::optional<double> time = {};   ///< when the step was saved, seconds since 1970
    std::optional<int64_t> from = {};  ///< the last --from-step of the run that saved it
};

SavedAt saved_at(CheckpointStore& store, int64_t step) try {
    const Json host = parse_json(Manifest::root_of(store, step).host, {"", store.place() + ": manifest"});
    SavedAt saved;
    if (host.contains("time") && host["time"].is_number()) saved.time = host["time"].get<double>();
    if (host.contains("from_step") && host["from_step"].is_number_integer())
        saved.from = host["from_step"].get<int64_t>();
    return saved;
} catch (const Error&) {
    return {};
}

}  // namespace

/// Compares the save times of the steps that --from-step marked with those of later saves. Marks alone do not suffice,
/// because a start may have died between two marks; times alone do not, because the clock may have been set back.
std::string went_on_before(CheckpointStore& store, int64_t from, bool same) {
    std::optional<double> left_at, since_at;
    int64_t left = -1, since = -1, known = -1;  // known: newest step whose manifest records --from-step
    int64_t newest = -1;                        // newest step without a mark
    for (const int64_t step : store.steps()) {
        if (step <= from) continue;
        const std::string mark(trim(store.mark_of(step)));
        const bool old = mark == left_behind(from);
        if (!old && !mark.empty()) continue;
        const SavedAt at = saved_at(store, step);
        if (!old) newest = std::max(newest, step);
        if (!old && at.from == from) known = std::max(known, step);
        std::optional<double>& latest = old ? left_at : since_at;
        if (!at.time || (latest && *latest >= *at.time)) continue;
        latest = at.time;
        (old ? left : since) = step;
    }
    if (!left_at && same && known >= 0 && known == newest)
        return fmt::format(
            "--from-step {}: the run did so before, with the same settings, and has saved step {} since: it resumes "
            "from the newest; with another setting it would go back once more",
            from, known);
    if (!left_at || (known < 0 && (!since_at || *since_at <= *left_at))) return "";
    return fmt::format(
        "--from-step {}: an earlier start did this (step {} is marked: {}), and step {} was saved since: the run "
        "resumes from the newest step; to go back again, remove the mark with `orrery checkpoints unmark`",
        from, left, left_behind(from), known < 0 ? since : known);
}

/// Marks the steps `newer` as suspect, because the run resumes from the older step `from`. Returns a message.
std::string SavedState::leave_behind(int64_t from, const std::vector<int64_t>& newer) {
    std::string problem;
    if (session_.job().rank == 0) try {
            for (const int64_t step : newer) store_.mark(step, left_behind(from));
        } catch (const std::exception& failure) {
            problem = failure.what();
        }
    problem = session_.exchange("from-step", problem, WaitLimit::files)[0];
    if (!problem.empty())
        throw Error(fmt::format("--from-step {}: later checkpoints cannot be marked as suspect: {}", from, problem),
                    Fault::failed);
    std::vector<std::string> names;
    for (const int64_t step : newer) names.push_back(std::to_string(step));
    return fmt::format("later checkpoints, marked as suspect until they are overwritten: {} {}",
                       newer.size() == 1 ? "step" : "steps", join_few(names, 12));
}

SavedState::Resumed SavedState::resume(uint64_t seed, const Dataset& data, int64_t from, std::string before) {
    auto state = views();
    if (from >= 0) before = session_.from_first("went on before", before, WaitLimit::files);
    const auto restored = saver_->checkpoints.restore(state, false, before.empty() ? from : -1);
    if (!restored) {
        session_.initialize(seed);
        return told(0, {});
    }
    const Json host = parse_json(restored->host, {"", store_.place() + ": manifest"});
    if (const std::string other = difference_of(host, identity_of(seed, session_.compiled().ramp, data));
        !other.empty())
        throw Error(fmt::format(
            "cannot resume from {}: {}\n  restore it, choose another run.folder, or start over with --fresh",
            store_.place(), other));
    SavedRound round = saved_round(host, session_.compiled().round, restored->step, store_.place());
    const std::string islands = said_of_islands(*restored, session_.compiled(), round.after);
    const std::optional<LossScale>& scale = session_.compiled().loss_scale;
    if (scale && !restored->loss_scale) begin_loss_scale(state, *scale, restored->step);
    put_back(state);
    judge_.resume(restored->step, judged_before(host));
    from_ = from >= 0 && before.empty() ? from : integer_of(host, "from_step");
    Resumed resumed = told(restored->step, restored->passed_over);
    if (!before.empty()) resumed.said.push_back(before);
    if (std::string change = change_of_scale(*restored, session_.main().plan().program, scale); !change.empty())
        resumed.said.push_back(change);
    if (!restored->newer.empty()) resumed.said.push_back(leave_behind(restored->step, restored->newer));
    resumed.capacity = capacity_in(host);
    resumed.round_after = round_after_ = round.after;
    if (!round.message.empty()) resumed.said.push_back(std::move(round.message));
    if (!islands.empty()) resumed.said.push_back(islands);
    if (host.contains("bits")) resumed.bits = saved_bits(host["bits"]);
    if (resumed.bits && host.contains("products") && host["products"].is_string())  // in older checkpoints
        resumed.bits->push_back({"products", host["products"].get<std::string>()});
    return resumed;
}

SavedState::Resumed SavedState::load_params(const Program& train) {
    auto state = views();
    if (session_.compiled().islands.any()) take_means(state);
    const auto restored = saver_->checkpoints.restore(state, true);
    if (!restored) throw Error(fmt::format("no checkpoint in {}: train first", store_.place()));
    const Json host = parse_json(restored->host, {"", store_.place() + ": manifest"});
    if (const std::string more = params_beyond(train, host); !more.empty())
        throw Error(
            fmt::format("the checkpoint of step {} in {} is from another program: it has params that this program "
                        "lacks: {}\n  use the script and the settings that made it",
                        restored->step, store_.place(), more));
    put_back(state);
    return told(restored->step, restored->passed_over);
}

std::vector<std::string> SavedState::save(int64_t step, uint64_t seed, const Dataset& data, int64_t samples,
                                          double loss, std::optional<double> eval_loss) {
    auto state = views();
    fetch(state);
    saver_->commit(step, state, host_of(step, seed, data, samples, loss, eval_loss));
    judge_.saved(step);
    return saver_->checkpoints.notes();
}

Json SavedState::host_of(int64_t step, uint64_t seed, const Dataset& data, int64_t samples, double loss,
                         std::optional<double> eval_loss) const {
    Json host = identity_of(seed, session_.compiled().ramp, data);
    host["samples"] = samples;
    host["loss"] = loss;
    host["time"] = wall_time();
    if (eval_loss) host["eval_loss"] = *eval_loss;
    const LossJudge::Kept judged = judge_.kept();
    host["recent_losses"] = judged.losses;
    host["highest_median"] = judged.highest;
    if (judged.pending > 0) host["pending_loss"] = judged.pending;
    if (judged.high > 0) host["pending_steps"] = judged.high;
    if (from_ >= 0) host["from_step"] = from_;
    if (capacity_) {
        host["capacity"] = capacity_->capacity;
        host["capacity_unneeded"] = capacity_->unneeded;
        host["again"] = capacity_->again;
    }
    save_round(host, session_.compiled().round, round_after_, step);
    if (!session_.bits().empty()) host["bits"] = to_json(session_.bits());
    return host;
}

std::string SavedState::judge(int64_t step, double loss) {
    const int64_t saved = judge_.step();
    const std::string why = judge_.judge(step, loss);
    return why.empty() ? "" : mark(saved, why, !std::isfinite(loss));
}

std::string SavedState::mark(int64_t step, const std::string& why, bool wait) {
    if (begun_ == step && !wait) {
        if (session_.job().rank != 0) return "";  // only rank 0 marks steps and reports them
        if (std::string said = mark_late(step, why); !said.empty()) return said;
    }
    if (thread_) {
        thread_->wait();
        if (const Job* done = thread_->done(); done && done->failure) finish();  // throws the save's failure
    }
    std::string problem;
    if (session_.job().rank == 0) try {
            store_.mark(step, why);
        } catch (const std::exception& failure) {
            problem = failure.what();
        }
    if (wait) problem = session_.exchange("suspect", problem, WaitLimit::files)[0];
    if (!problem.empty())
        throw Error(
            fmt::format("the checkpoint of step {} is suspect ({}), but cannot be marked: {}", step, why, problem),
            Fault::failed);
    return fmt::format("the checkpoint of step {} is marked as suspect: {}", step, why);
}

void SavedState::save_beside() {
    snapshot_.emplace(session_);
    saver_->exchange = session_.exchange_beside("saves");
    thread_ = std::make_unique<SaveThread<Job>>([](Job& job, SaveThread<Job>& thread) {
        try {
            job.run(thread);
        } catch (...) {
            job.failure = std::current_exception();
        }
        job.saver->on_thread = false;
    });
}

void SavedState::guard(Executor& executor, const std::vector<SnapshotPlan>& plans) {
    if (snapshot_) snapshot_->guard(executor, plans);
}

std::string SavedState::told_of_copy() const {
    return snapshot_ ? fmt::format("checkpoints are saved asynchronously, from a copy of {}, made {}",
                                   bytes_text(snapshot_->bytes()), snapshot_->how())
                     : "";
}

void SavedState::begin(int64_t step, uint64_t seed, const Dataset& data, int64_t samples, double loss,
                       std::optional<double> eval_loss, const Pace& pace) {
    const auto began = Clock::now();
    const double waited_s = snapshot_->waited_s();
    {
        const std::lock_guard lock(late_.order);
        late_.why.clear();
        late_.closed = false;
    }
    Json host = host_of(step, seed, data, samples, loss, eval_loss);
    snapshot_->take();
    begun_ = step;
    judge_.saved(step);
    saver_->on_thread = true;
    thread_->begin({std::move(saver_),
                    *snapshot_,
                    late_,
                    store_,
                    std::move(host),
                    pace,
                    began,
                    {step, seconds_since(began) - waited_s}});
}

void SavedState::Job::run(SaveThread<Job>& thread) {
    const double given = processor_s();
    snapshot.copy();
    // A device's copy queue can overlap nearly a whole step. A copy that takes longer delays the next step.
    if (snapshot.unseen() && pace.step_s > 0) saved.held_s += std::max(0.0, seconds_since(began) - pace.step_s);
    if (snapshot.by_turns() && (saver->worked_s == 0 || saver->worked_s > short_part * pace.step_s))
        thread.pause(std::chrono::duration<double>(most_steps_of_pause * pace.step_s));
    saver->commit(saved.step, snapshot.values(), std::move(host));
    saved.whole_s = seconds_since(began);
    saver->worked_s = saved.whole_s - thread.paused_s();
    saved.held_s += snapshot.waited_s();
    saved.said = saver->checkpoints.notes();
    if (pace.between_failures_s > 0) {
        const double slower = snapshot.hidden() ? 0 : processor_s() - given + snapshot.copied_s();
        saved.interval = saver->interval({saved.held_s + slower, saved.whole_s, pace.step_s}, pace.between_failures_s);
    }
    std::string why;
    {
        const std::lock_guard lock(late.order);
        late.closed = true;
        why = late.why;
    }
    if (why.empty()) return;
    store.mark(saved.step, why);
    saved.said.push_back(fmt::format("the checkpoint of step {} is marked as suspect: {}", saved.step, why));
}

int64_t SavedState::interval(const SaveCost& cost, double between_failures_s) {
    return saver_->interval(cost, between_failures_s);
}

/// Lets the save thread mark the step as suspect after the commit. Returns a message; "" if the save has ended already.
std::string SavedState::mark_late(int64_t step, const std::string& why) {
    const std::lock_guard lock(late_.order);
    if (late_.closed) return "";
    late_.why = why;
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
    const Job* done = thread_->done();
    return !done ? Status::saving : done->failure ? Status::save_failed : Status::go_on;
}

std::string SavedState::failure() const {
    const Job* done = begun_ < 0 ? nullptr : thread_->done();
    if (!done || !done->failure) return "";
    try {
        std::rethrow_exception(done->failure);
    } catch (const std::exception& problem) {
        return fmt::format("rank {}: the asynchronous save of step {} failed: {}", session_.job().rank, begun_,
                           explain(problem));
    }
}

std::optional<SavedState::Saved> SavedState::finished() {
    Job* const done = begun_ < 0 ? nullptr : thread_->done();
    if (!done) return std::nullopt;
    saver_ = std::move(done->saver);
    const std::string why = failure();
    begun_ = -1;
    if (done->failure) try {
            std::rethrow_exception(done->failure);
        } catch (const std::exception& problem) {
            throw Error(why, fault_of(problem));
        }
    return std::move(done->saved);
}

std::optional<SavedState::Saved> SavedState::finish() {
    if (thread_) thread_->wait();
    return finished();
}

}  // namespace orrery

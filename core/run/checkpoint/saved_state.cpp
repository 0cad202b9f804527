#include "run/checkpoint/saved_state.h"

#include <fmt/format.h>

#include <cmath>

#include "base/json.h"

namespace orrery {
namespace {

/// What a checkpoint must agree with to be resumed: the trajectory depends on it.
Json identity_of(Session& session, uint64_t seed, const Dataset& data) {
    const DataSpec& spec = data.spec();
    const BatchRamp& ramp = session.compiled().ramp;
    Json identity = {{"seed", seed},
                     {"data_digest", data.digest()},
                     {"data_seed", spec.seed},
                     {"sequences_per_step", spec.sequences_per_step},
                     {"ramp", {ramp.start, ramp.increment, ramp.samples}},
                     {"validation", spec.validation}};
    for (const auto& [name, number] : data.source().identity()) identity[name] = number;
    return identity;
}

/// 0 when it is not there: older checkpoints lack it.
double number_of(const Json& host, const char* key) {
    return host.contains(key) && host[key].is_number() ? host[key].get<double>() : 0;
}

/// "" when it is not there.
std::string text_of(const Json& host, const char* key) {
    return host.contains(key) && host[key].is_string() ? host[key].get<std::string>() : "";
}

void compare(const Json& saved, const Json& now, const std::string& place) {
    for (const auto& [key, value] : now.items())
        if (!saved.contains(key) || saved[key] != value)
            throw Error(
                fmt::format("cannot resume from {}: its {} is {}, this run's is {}\n"
                            "  put it back, choose another run.folder, or start over with --fresh",
                            place, key, saved.contains(key) ? saved[key].dump() : "unknown", value.dump()));
}

}  // namespace

SavedState::SavedState(Session& session, CheckpointStore& store, int64_t keep)
    : session_(session),
      store_(store),
      checkpoints_(
          store, session.main().plan().mesh, session.job().rank,
          [&session](const std::string& topic, const std::string& mine) {
              return session.exchange(topic, mine, WaitLimit::files);
          },
          CheckpointOptions{.keep = keep},
          [&session](const std::string& topic, const std::string& mine) {
              return session.to_first(topic, mine, WaitLimit::files);
          }) {}

std::vector<StateValue> SavedState::views() {
    const Program& program = session_.main().plan().program;
    Executor& executor = session_.main();
    const bool direct = session_.device().limits().host_visible;
    std::vector<StateValue> state;
    for (size_t id = 0; id < program.values.size(); ++id) {
        const Value& value = program.values[id];
        if (value.role != Role::param && value.role != Role::state) continue;
        if (!executor.holds(static_cast<ValueId>(id))) continue;
        StateValue saved{value.name, value.type, value.layout, executor.tensor(static_cast<ValueId>(id))};
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
    for (std::string& note : checkpoints_.notes()) passed_over.push_back(std::move(note));
    return {step, std::move(passed_over), ""};
}

SavedState::Resumed SavedState::resume(uint64_t seed, const Dataset& data) {
    auto state = views();
    const auto restored = checkpoints_.restore(state);
    if (!restored) {
        session_.initialize(seed);
        return told(0, {});
    }
    const Json host = parse_json(restored->host, {"", store_.place() + ": manifest"});
    compare(host, identity_of(session_, seed, data), store_.place());
    put_back(state);
    judge_ = {restored->step, number_of(host, "loss"), number_of(host, "first_loss"), number_of(host, "sound_loss")};
    Resumed resumed = told(restored->step, restored->passed_over);
    resumed.products = text_of(host, "products");
    return resumed;
}

SavedState::Resumed SavedState::load_params() {
    auto state = views();
    const auto restored = checkpoints_.restore(state, true);
    if (!restored) throw Error(fmt::format("no checkpoint in {}: train first", store_.place()));
    put_back(state);
    return told(restored->step, restored->passed_over);
}

/// A state that has diverged would poison each resume: it is no checkpoint. Judged together, so that all ranks stop.
void SavedState::require_sound(int64_t step, const std::vector<StateValue>& state) {
    const Program& program = session_.main().plan().program;
    std::string problem;
    for (const StateValue& value : state) {
        const bool param = program.value(*program.find(value.name)).role == Role::param;
        const int64_t bad = count_diverged(value.local, param);
        if (bad == 0) continue;
        problem = fmt::format("{} of {} elements of {}", bad, value.local.count(), value.name);
        break;
    }
    const auto problems = session_.exchange("sound", problem, WaitLimit::files);
    for (size_t rank = 0; rank < problems.size(); ++rank) {
        if (problems[rank].empty()) continue;
        const auto steps = store_.steps();
        throw Error(fmt::format("step {}: {} on rank {} are infinite, NaN or beyond 2^64; this state is not saved, "
                                "{}\n  lower the learning rate, clip the gradient norm or look at the data",
                                step, problems[rank], rank,
                                steps.empty() ? "and there is no checkpoint before it"
                                              : fmt::format("the newest checkpoint is of step {}", steps.front())),
                    Fault::failed);
    }
}

std::vector<std::string> SavedState::save(int64_t step, uint64_t seed, const Dataset& data, int64_t samples,
                                          double loss) {
    auto state = views();
    fetch(state);
    require_sound(step, state);
    Json host = identity_of(session_, seed, data);
    host["samples"] = samples;
    host["loss"] = loss;
    host["first_loss"] = judge_.first;
    host["sound_loss"] = judge_.sound;
    if (const std::string& kind = session_.products().name; !kind.empty()) host["products"] = kind;
    checkpoints_.save(step, state, host.dump());
    judge_.step = step;
    judge_.loss = loss;
    return checkpoints_.notes();
}

std::string SavedState::judge(int64_t step, double loss) {
    const int64_t saved = judge_.step;
    const std::string why = judge_.judge(step, loss);
    return why.empty() ? "" : mark(saved, why, !std::isfinite(loss));
}

std::string SavedState::mark(int64_t step, const std::string& why, bool wait) {
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

}  // namespace orrery

// A small run's saves on two ranks, as the sweeps drive and judge them.
#pragma once
#include <fmt/format.h>

#include "run/checkpoint/format/manifest.h"
#include "store/states.h"

namespace orrery::sweeps {

/// What changes with each step, and what never does: an incremental save links that.
inline std::vector<Variable> variables(const Mesh& mesh) {
    std::vector<Variable> all = model(mesh);
    all.push_back({"frozen.w", {DType::f32, {24, 16}}, layout_of(mesh, {{"dp", 0}}, 2)});
    return all;
}

inline int seed_of(const Variable& variable, int64_t step) {
    return variable.name.starts_with("frozen") ? 1 : static_cast<int>(step % 199);
}

/// A rank's part of the variables at a step.
struct State {
    std::vector<std::vector<uint8_t>> memory;
    std::vector<StateValue> values;

    State(const Mesh& mesh, int64_t rank, int64_t step) {
        for (const Variable& variable : variables(mesh)) {
            auto& bytes = memory.emplace_back(RankState::expected(variable, mesh, rank, seed_of(variable, step)));
            values.push_back(
                {variable.name,
                 variable.type,
                 variable.layout,
                 {bytes.data(), variable.type.dtype, variable.layout.local_shape(variable.type.shape, mesh)}});
        }
    }
};

inline const CheckpointOptions options{2, 900, 64, true};

inline std::string host_of(int64_t step) { return fmt::format(R"({{"step_of_host":{}}})", step); }

/// Fills a state from the newest checkpoint on one rank of a mesh; throws Error where it is not what was saved then.
inline int64_t restore_newest(CheckpointStore& store, const Mesh& mesh, int64_t rank, const Gather& gather) {
    State state(mesh, rank, 0);
    for (auto& bytes : state.memory) std::fill(bytes.begin(), bytes.end(), uint8_t{0xee});
    Checkpoints reader(store, mesh, rank, gather, options);
    const auto restored = reader.restore(state.values);
    if (!restored) return -1;
    if (restored->host != host_of(restored->step))
        throw Error(fmt::format("step {} has the host's part of another", restored->step));
    const State expected(mesh, rank, restored->step);
    for (size_t i = 0; i < state.values.size(); ++i)
        if (state.memory[i] != expected.memory[i])
            throw Error(fmt::format("step {}: {} is not what was saved", restored->step, state.values[i].name));
    return restored->step;
}

/// What must be there at the least: a step as new as this, and so many steps. Older ones are retired.
struct Promise {
    int64_t newest = -1;
    size_t count = 0;
};

/// What is wrong with what a crash has left, "" when nothing is: every visible step is whole, and the promise is kept.
inline std::string judge(CheckpointStore& store, const Promise& promise) {
    const std::vector<int64_t> steps = store.steps();
    for (const int64_t step : steps) {
        if (const std::string damage = damage_of(store, step); !damage.empty())
            return fmt::format("step {} is visible and damaged: {}", step, damage);
    }
    if (steps.size() >= promise.count && (steps.empty() ? -1 : steps.front()) >= promise.newest) return "";
    return fmt::format("{} steps up to {} were committed, there are [{}]", promise.count, promise.newest,
                       fmt::join(steps, " "));
}

/// Runs `work(rank, gather)` on a thread for each of two ranks; what they threw, joined.
template <class Work>
std::string on_two(Work work) {
    Meeting meeting(2);
    std::string problems[2];
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < 2; ++rank)
        threads.emplace_back([&, rank] {
            try {
                work(rank, [&, rank](const std::string& topic, const std::string& mine) {
                    return meeting.gather(rank, topic, mine);
                });
            } catch (const std::exception& problem) {
                problems[rank] = fmt::format("rank {}: {}\n", rank, problem.what());
            }
        });
    for (std::thread& thread : threads) thread.join();
    return problems[0] + problems[1];
}

/// The next start: two ranks restore what is newest and save the step behind it. Throws Error where they cannot.
inline void save_again(const TestStore& stores, const std::string& place) {
    const std::string problems = on_two([&](int64_t rank, const Gather& gather) {
        const auto store = stores.open(place);
        const int64_t step = std::max<int64_t>(restore_newest(*store, dp2, rank, gather), 0) + 10;
        const State state(dp2, rank, step);
        Checkpoints(*store, dp2, rank, gather, options).save(step, state.values, host_of(step));
        if (restore_newest(*store, dp2, rank, gather) != step) throw Error("the step just saved is not the newest");
    });
    if (!problems.empty()) throw Error("the next start: " + problems);
}

}  // namespace orrery::sweeps

// States of a small model that ranks save and restore.
#pragma once
#include "meeting.h"
#include "run/checkpoint/save/checkpoints.h"
#include "stores.h"

namespace orrery {

struct Variable {
    std::string name;
    TensorType type;
    Layout layout;
    std::vector<int64_t> stages = {};
    bool fixed = false;
};

inline uint8_t byte_at(const std::string& name, int64_t index, int seed) {
    return static_cast<uint8_t>(index * 131 + static_cast<int64_t>(name.size()) * 17 + name.back() + seed * 89);
}

/// A rank's part of some variables. Byte b of global element e of a variable follows from (name, e, b, seed).
struct RankState {
    std::vector<std::vector<uint8_t>> memory;
    std::vector<StateValue> values;

    RankState(const std::vector<Variable>& variables, const Mesh& mesh, int64_t rank, int seed, bool filled) {
        for (const Variable& variable : variables) {
            const Shape local = variable.layout.local_shape(variable.type.shape, mesh);
            const int64_t size = size_of(variable.type.dtype);
            auto& bytes = memory.emplace_back(static_cast<size_t>(count_of(local) * size), uint8_t{0xee});
            if (filled) bytes = expected(variable, mesh, rank, seed);
            values.push_back({variable.name,
                              variable.type,
                              variable.layout,
                              {bytes.data(), variable.type.dtype, local},
                              variable.stages,
                              variable.fixed});
        }
    }

    static std::vector<uint8_t> expected(const Variable& variable, const Mesh& mesh, int64_t rank, int seed) {
        const Shape& global = variable.type.shape;
        const Shape local = variable.layout.local_shape(global, mesh),
                    offset = variable.layout.offset(global, mesh, rank);
        const int64_t size = size_of(variable.type.dtype);
        std::vector<uint8_t> bytes;
        for (int64_t i = 0; i < count_of(local); ++i) {
            int64_t rest = i, element = 0, stride = 1;
            for (size_t dim = global.size(); dim-- > 0;) {
                element += (offset[dim] + rest % local[dim]) * stride;
                rest /= local[dim];
                stride *= global[dim];
            }
            for (int64_t b = 0; b < size; ++b) bytes.push_back(byte_at(variable.name, element * size + b, seed));
        }
        return bytes;
    }

    bool is(const std::vector<Variable>& variables, const Mesh& mesh, int64_t rank, int seed) const {
        for (size_t i = 0; i < variables.size(); ++i) {
            if (memory[i] != expected(variables[i], mesh, rank, seed)) return false;
        }
        return true;
    }
};

inline const CheckpointOptions small{2, 700, 64, true};

inline std::vector<std::string> save(const TestStore& stores, const std::string& place,
                                     const std::vector<Variable>& variables, const Mesh& mesh, int64_t step, int seed,
                                     const CheckpointOptions& options = small) {
    return on_ranks(mesh, [&](int64_t rank, const Gather& gather) {
        const auto store = stores.open(place);
        const RankState state(variables, mesh, rank, seed, true);
        Checkpoints(*store, mesh, rank, gather, options)
            .save(step, state.values, R"({"seed":)" + std::to_string(seed) + "}");
    });
}

struct Outcome {
    std::vector<std::string> problems;
    int64_t step = -1;
    std::vector<std::string> passed_over;
    std::vector<std::string> notes;
    int seed = 0;       ///< that the checkpoint names
    bool equal = true;  ///< every rank holds what was saved with the seed that the checkpoint names
};

inline Outcome restore(const TestStore& stores, const std::string& place, const std::vector<Variable>& variables,
                       const Mesh& mesh, bool some = false) {
    Outcome outcome;
    std::mutex mutex;
    outcome.problems = on_ranks(mesh, [&](int64_t rank, const Gather& gather) {
        const auto store = stores.open(place);
        RankState state(variables, mesh, rank, 0, false);
        Checkpoints checkpoints(*store, mesh, rank, gather, small);
        const auto restored = checkpoints.restore(state.values, some);
        const std::lock_guard lock(mutex);
        outcome.notes = checkpoints.notes();
        if (!restored) return;
        outcome.step = restored->step;
        outcome.passed_over = restored->passed_over;
        const int seed = outcome.seed = std::stoi(restored->host.substr(restored->host.find(':') + 1));
        outcome.equal = outcome.equal && state.is(variables, mesh, rank, seed);
    });
    return outcome;
}

inline Layout layout_of(const Mesh& mesh, std::vector<std::pair<std::string, int>> splits, size_t dims) {
    Layout layout(dims);
    for (const auto& [axis, dim] : splits) {
        if (const auto id = mesh.find(axis)) layout.set(*id, Placement::split(dim));
    }
    return layout;
}

/// Two matrices, a vector and a scalar, spread in the manner of data and tensor parallelism.
inline std::vector<Variable> model(const Mesh& mesh) {
    std::vector<Variable> all;
    all.push_back({"up.w", {DType::f32, {12, 24}}, layout_of(mesh, {{"tp", 1}}, 2)});
    all.push_back({"down.w", {DType::bf16, {24, 12}}, layout_of(mesh, {{"tp", 0}, {"dp", 0}}, 2)});
    all.push_back({"norm.g", {DType::f32, {12}}, layout_of(mesh, {}, 1)});
    all.push_back({"step", {DType::i64, {}}, layout_of(mesh, {}, 0)});
    return all;
}

inline const Mesh single, dp2({{"dp", 2, false}}), tp3({{"tp", 3, false}}),
    dp2tp2({{"dp", 2, false}, {"tp", 2, false}});

}  // namespace orrery

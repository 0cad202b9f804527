// Runs plans with ranks as threads: the CPU device with reference kernels, the threads transport. Contents of sources
// are functions of name and global index, so that every mesh starts alike.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>

#include "folders.h"
#include "layout/propagate.h"
#include "layout/shards.h"
#include "orrery/registry.h"
#include "plan/check.h"
#include "plan/lower.h"
#include "plugin/loader.h"
#include "ranks.h"
#include "run/executor.h"
#include "run/group.h"

namespace orrery::test {

struct Lowered {
    Persistent persistent;
    Plan plan;
};

/// Propagated, lowered and proved.
inline Lowered compile(const Program& annotated, const Mesh& mesh, const LowerOptions& options = {}) {
    Lowered lowered;
    lowered.plan = lower(propagate(annotated, mesh), mesh, lowered.persistent, options);
    check(lowered.plan, options.contracts);
    return lowered;
}

inline const Registry& registry() {
    static const Registry all = [] {
        Registry r;
        const Loader loader({in_build("plugins")});
        loader.load("device", "cpu", r, {});
        loader.load("transport", "threads", r, {});
        return r;
    }();
    return all;
}

/// Whole contents of a source. Params are small, inputs of integers below 5, "step" counts from 1.
inline std::vector<char> contents(const Value& value, int64_t step) {
    std::vector<char> bytes(static_cast<size_t>(value.type.bytes()), 0);
    if (value.role == Role::state) return bytes;
    uint32_t state = 2166136261u;
    for (char c : value.name) state = (state ^ static_cast<uint32_t>(c)) * 16777619u;
    if (value.role == Role::input) state += static_cast<uint32_t>(step);
    for (int64_t i = 0; i < value.type.count(); ++i) {
        state = state * 1664525u + 1013904223u;
        const uint32_t draw = state >> 16;
        const auto small = static_cast<float>(static_cast<int>(draw % 61) - 30) / 64.0f;
        if (value.type.dtype == DType::f32) std::memcpy(&bytes[static_cast<size_t>(i) * 4], &small, 4);
        const uint32_t integer = draw % 5;
        if (value.type.dtype != DType::f32 && size_of(value.type.dtype) == 4)
            std::memcpy(&bytes[static_cast<size_t>(i) * 4], &integer, 4);
    }
    const auto number = value.name == "step" ? static_cast<float>(step) : 0.01f;
    if (value.name == "step" || value.name == "lr") std::memcpy(bytes.data(), &number, 4);
    return bytes;
}

using Contents = std::map<std::string, std::vector<float>>;

/// The layout without micro: how a rank holds all micro-batches of a value.
inline Layout at_rest(const Value& value, const Mesh& mesh) {
    Layout layout = value.layout;
    for (size_t i = 0; i < mesh.axes().size(); ++i)
        if (mesh.axes()[i].sequential) layout.set(static_cast<AxisId>(i), Placement::replicated());
    return layout;
}

/// How to run a plan: what sources hold, which kernels, whether to look at every step.
struct Running {
    int64_t steps = 1;
    bool reference = true;
    std::function<std::vector<char>(const Value&, int64_t step)> contents = test::contents;
    bool every_step = false;
};

struct Ran {
    Contents values;                            ///< params, states and results (global), by name, after the last step
    std::vector<Contents> steps;                ///< every_step: the same after each step
    std::vector<std::vector<Traffic>> traffic;  ///< per rank and axis
    std::vector<std::vector<Executor::Time>> times;
};

/// What one rank holds, by value.
using HeldBlocks = std::map<ValueId, std::vector<char>>;

/// What the ranks hold as global arrays. Of a pipeline, the ranks at one place of its axis hold a value together.
/// Throws when two ranks hold one block with different bits.
inline Contents gather(const Plan& plan, const std::vector<HeldBlocks>& held) {
    Contents values;
    std::set<ValueId> all;
    for (const HeldBlocks& rank : held)
        for (const auto& [id, bytes] : rank) all.insert(id);
    for (ValueId id : all) {
        const Value& v = plan.program.value(id);
        if (v.type.dtype != DType::f32 || v.role == Role::input) continue;
        // A rank without the value lends the block of the first that has the same coordinates otherwise.
        std::vector<const void*> locals;
        for (size_t rank = 0; rank < held.size(); ++rank) {
            std::vector<int64_t> group{static_cast<int64_t>(rank)};
            if (!held[rank].count(id) && plan.stage_axis != none)
                group = plan.mesh.group(static_cast<int64_t>(rank), plan.stage_axis);
            for (int64_t other : group)
                if (held[static_cast<size_t>(other)].count(id)) {
                    locals.push_back(held[static_cast<size_t>(other)].at(id).data());
                    break;
                }
        }
        if (locals.size() != held.size()) throw std::runtime_error(v.name + " is on some ranks only");
        std::string name = v.name;
        for (const Result& result : plan.program.results)
            if (result.value == id) name = "result " + result.name;
        std::vector<float>& whole = values[name];
        whole.resize(static_cast<size_t>(v.type.count()));
        const Layout layout = at_rest(v, plan.mesh);
        assemble(whole.data(), v.type.shape, layout, plan.mesh, 4, locals);
        for (size_t rank = 0; rank < held.size(); ++rank) {
            if (!held[rank].count(id)) continue;
            const std::vector<char>& own = held[rank].at(id);
            std::vector<char> block(own.size());
            slice(whole.data(), v.type.shape, block_of(layout, v.type.shape, plan.mesh, static_cast<int64_t>(rank)), 4,
                  block.data());
            if (block != own)
                throw std::runtime_error("rank " + std::to_string(rank) + " holds " + name +
                                         " with other bits than its replica");
        }
    }
    return values;
}

/// Runs the steps on every rank and gathers what they leave behind.
inline Ran run_steps(const Lowered& lowered, const Running& how) {
    const Plan& plan = lowered.plan;
    const int64_t ranks = plan.mesh.ranks();
    const auto looks = static_cast<size_t>(how.every_step ? how.steps : 1);
    std::vector<std::vector<HeldBlocks>> held(looks);  // [step][rank]
    for (auto& step : held) step.resize(static_cast<size_t>(ranks));
    Ran ran;
    ran.traffic.resize(static_cast<size_t>(ranks));
    ran.times.resize(static_cast<size_t>(ranks));
    const Registry& plugins = registry();
    run_ranks(ranks, [&](int64_t rank, Rendezvous& rendezvous) {
        Config device_config, transport_config;
        device_config.set("reference", {how.reference, {}, false});
        device_config.set("threads", {int64_t{1}, {}, false});
        const auto device = plugins.device("cpu", {})(device_config);
        const auto transport = plugins.transport("threads", {})(transport_config);
        const RankClass& c = plan.class_of(rank);
        std::vector<Memory> arenas{
            device->allocate(std::max<int64_t>(64, lowered.persistent.most()), MemoryKind::device),
            device->allocate(std::max<int64_t>(64, c.scratch_bytes), MemoryKind::device)};
        // What lowering forgets to write shows as NaN.
        for (const Memory& arena : arenas) std::memset(arena.data, 0xff, static_cast<size_t>(arena.bytes));
        {
            std::vector<std::unique_ptr<Communicator>> communicators;
            std::vector<Communicator*> by_axis;
            for (size_t axis = 0; axis < plan.mesh.axes().size(); ++axis) {
                const Axis& a = plan.mesh.axes()[axis];
                by_axis.push_back(nullptr);
                if (a.sequential || a.size == 1) continue;
                const Group group = group_along(plan.mesh, rank, static_cast<AxisId>(axis));
                communicators.push_back(transport->make(group, rendezvous, arenas, std::chrono::seconds(20)));
                by_axis.back() = communicators.back().get();
            }
            Executor executor(plan, rank, *device, by_axis, arenas[0].data, arenas[1].data);
            const auto hold = [&](int64_t look) {
                for (const Operand& place : c.places) {
                    const Tensor local = executor.tensor(place.value);
                    const char* data = static_cast<const char*>(local.data);
                    held[static_cast<size_t>(look)][static_cast<size_t>(rank)][place.value].assign(
                        data, data + local.bytes());
                }
            };
            for (int64_t step = 1; step <= how.steps; ++step) {
                for (const Operand& place : c.places) {
                    const Value& v = plan.program.value(place.value);
                    if (v.role == Role::temporary || (v.role != Role::input && step > 1)) continue;
                    const std::vector<char> whole = how.contents(v, step);
                    const Tensor local = executor.tensor(place.value);
                    slice(whole.data(), v.type.shape, block_of(at_rest(v, plan.mesh), v.type.shape, plan.mesh, rank),
                          size_of(v.type.dtype), local.data);
                }
                executor.run();
                if (how.every_step) hold(step - 1);
            }
            if (!how.every_step) hold(0);  // also after no step at all
            for (Communicator* communicator : by_axis)
                ran.traffic[static_cast<size_t>(rank)].push_back(communicator ? communicator->traffic() : Traffic{});
            ran.times[static_cast<size_t>(rank)] = executor.times();
        }
        for (Memory& arena : arenas) device->release(arena);
    });
    for (const auto& step : held) ran.steps.push_back(gather(plan, step));
    if (!ran.steps.empty()) ran.values = ran.steps.back();
    return ran;
}

inline Ran run_steps(const Lowered& lowered, int64_t steps = 1, bool reference = true) {
    Running how;
    how.steps = steps;
    how.reference = reference;
    return run_steps(lowered, how);
}

/// "" when both hold the same names with the same numbers, up to `tolerance` of the largest of each array.
inline std::string difference(const Contents& a, const Contents& b, double tolerance) {
    for (const auto& [name, values] : a)
        if (!b.count(name)) return name + " is missing";
    for (const auto& [name, values] : b) {
        const auto found = a.find(name);
        if (found == a.end()) return name + " is missing";
        if (found->second.size() != values.size()) return name + " has another size";
        double most = 1e-30;
        for (float x : values) most = std::max(most, std::abs(static_cast<double>(x)));
        for (size_t i = 0; i < values.size(); ++i) {
            const double x = found->second[i], y = values[i];
            if (std::isnan(x) || std::isnan(y) || std::abs(x - y) > tolerance * most)
                return name + "[" + std::to_string(i) + "]: " + std::to_string(x) + " is not " + std::to_string(y);
        }
    }
    return "";
}

}  // namespace orrery::test

// Runs plans with ranks as threads: by default the CPU device with reference kernels, the threads transport. Contents
// of sources are functions of name and global index, so that every mesh starts alike. All of them go by way of the
// device's copies: the host may not touch every device's memory.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>

#include "assemble.h"
#include "check_passes.h"
#include "compile/pipeline.h"
#include "folders.h"
#include "layout/shards.h"
#include "one_transport.h"
#include "orrery/registry.h"
#include "plan/check/check.h"
#include "plugin/loader.h"
#include "ranks.h"
#include "run/rank_context.h"

namespace orrery::test {

struct Lowered {
    Persistent persistent;
    Plan plan;
};

/// Propagated, lowered and proved.
inline Lowered compile(const Program& annotated, const Mesh& mesh, CompileOptions options = {}) {
    Lowered lowered;
    options.look = check_passes();
    lowered.plan = plan_of(distribute(annotated, mesh, options), mesh, lowered.persistent, options);
    prove(lowered.plan, options);
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

inline std::unique_ptr<Device> cpu_device(bool reference = true) {
    Config config;
    config.set("reference", {reference, {}, false});
    config.set("threads", {int64_t{1}, {}, false});
    return registry().device("cpu", {})(config);
}

inline std::unique_ptr<Transport> threads_transport() {
    Config config;
    return registry().transport("threads", {})(config);
}

/// How to run a plan: what sources hold, which kernels, whether to look at every step, on what.
struct Running {
    int64_t steps = 1;
    bool reference = true;  ///< of the CPU device
    std::function<std::vector<char>(const Value&, int64_t step)> contents = test::contents;
    bool every_step = false;
    bool record = false;  ///< the last step
    std::string kind = "cpu";                                          ///< of the device
    std::function<std::unique_ptr<Device>(int64_t rank)> device = {};  ///< empty: the CPU
    std::function<std::unique_ptr<Transport>()> transport = threads_transport;
};

struct Ran {
    Contents values;                            ///< params, states and results (global), by name, after the last step
    std::vector<Contents> steps;                ///< every_step: the same after each step
    std::vector<std::vector<Traffic>> traffic;  ///< per rank and AxisId
    std::vector<std::vector<Executor::Time>> times;
    std::vector<std::vector<Executor::Cost>> costs;
    std::vector<StepRecord> records;  ///< record: by rank
    int64_t captured = 0;  ///< ranks whose step was
    std::string why;       ///< of a rank whose step was not
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

/// A rank's context for one plan.
inline RankSetting setting_of(const Lowered& lowered, int64_t rank, Device& device, Rendezvous* rendezvous) {
    RankSetting setting{rank, device, "cpu", lowered.persistent, {&lowered.plan}};
    setting.rendezvous = rendezvous;
    setting.transport = [](const Axis&) { return threads_transport(); };
    return setting;
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
    ran.costs.resize(static_cast<size_t>(ranks));
    ran.records.resize(static_cast<size_t>(ranks));
    std::mutex mutex;
    registry();  // made before the ranks' threads ask for it
    run_ranks(ranks, [&](int64_t rank, Rendezvous& rendezvous) {
        const auto r = static_cast<size_t>(rank);
        const auto device = how.device ? how.device(rank) : cpu_device(how.reference);
        RankSetting setting = setting_of(lowered, rank, *device, &rendezvous);
        setting.device_kind = how.kind;
        const std::shared_ptr<Transport> transport = ranks > 1 ? how.transport() : nullptr;
        setting.transport = [&](const Axis&) { return transport; };
        setting.vote = [&](const std::string& mine) {
            const auto key = [](int64_t other) { return "captured/" + std::to_string(other); };
            rendezvous.set(key(rank), mine);
            std::vector<std::string> all;
            for (int64_t other = 0; other < ranks; ++other)
                all.push_back(rendezvous.get(key(other), std::chrono::seconds(20)));
            return all;
        };
        RankContext context(setting);
        const auto copy = [&](void* to, const void* from, int64_t bytes) {
            device->copy(0, to, from, bytes);
            device->synchronize(0);
        };
        for (const Memory& arena : context.arenas()) {  // what lowering forgets to write shows as NaN
            const std::vector<char> unwritten(static_cast<size_t>(arena.bytes), '\xff');
            copy(arena.data, unwritten.data(), arena.bytes);
        }
        const auto executor = context.executor(plan);
        const std::vector<Operand>& places = plan.class_of(rank).places;
        const auto hold = [&](int64_t look) {
            for (const Operand& place : places) {
                const Tensor local = executor->tensor(place.value);
                std::vector<char>& block = held[static_cast<size_t>(look)][r][place.value];
                block.resize(static_cast<size_t>(local.bytes()));
                copy(block.data(), local.data, local.bytes());
            }
        };
        for (int64_t step = 1; step <= how.steps; ++step) {
            for (const Operand& place : places) {
                const Value& v = plan.program.value(place.value);
                if (v.role == Role::temporary || (v.role != Role::input && step > 1)) continue;
                const std::vector<char> whole = how.contents(v, step);
                const Tensor local = executor->tensor(place.value);
                std::vector<char> block(static_cast<size_t>(local.bytes()));
                slice(whole.data(), v.type.shape, block_of(at_rest(v, plan.mesh), v.type.shape, plan.mesh, rank),
                      size_of(v.type.dtype), block.data());
                copy(local.data, block.data(), local.bytes());
            }
            if (how.record && step == how.steps) executor->record(ran.records[r]);
            executor->run();
            if (how.every_step) hold(step - 1);
        }
        if (!how.every_step) hold(0);  // also after no step at all
        for (AxisId axis = 0; axis < plan.mesh.ids(); ++axis) {
            const Communicator* communicator = context.along(axis);
            ran.traffic[r].push_back(communicator ? communicator->traffic() : Traffic{});
        }
        ran.times[r] = executor->times();
        ran.costs[r] = executor->costs();
        const std::lock_guard lock(mutex);
        ran.captured += executor->captured();
        if (!executor->captured()) ran.why = executor->not_captured();
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

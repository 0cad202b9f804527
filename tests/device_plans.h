// Runs plans on a device whose memory the host may not touch: all contents go by way of its copies.
#pragma once
#include <mutex>

#include "plan_ranks.h"
#include "run/group.h"
#include "run/staged_communicator.h"

namespace orrery::test {

/// How the ranks, which are threads, get a device and a transport each.
struct OnDevice {
    std::function<std::unique_ptr<Device>(int64_t rank)> device;
    std::function<std::unique_ptr<Transport>()> transport;
    bool staged = false;  ///< the transport does not reach the device's memory
    int64_t steps = 1;
};

struct DeviceRan {
    Contents values;       ///< params, states and results (global), by name, after the last step
    bool captured = true;  ///< on every rank
    bool none_captured = true;
    std::string why;  ///< of a rank whose step is not
};

/// As run_steps().
inline DeviceRan run_on_device(const Lowered& lowered, const OnDevice& how) {
    const Plan& plan = lowered.plan;
    std::vector<HeldBlocks> held(static_cast<size_t>(plan.mesh.ranks()));
    DeviceRan ran;
    std::mutex mutex;
    run_ranks(plan.mesh.ranks(), [&](int64_t rank, Rendezvous& rendezvous) {
        const auto device = how.device(rank);
        const auto transport = plan.mesh.ranks() > 1 ? how.transport() : nullptr;
        const RankClass& c = plan.class_of(rank);
        const auto arena = [&](int64_t bytes) {
            return device->allocate(std::max<int64_t>(64, bytes), MemoryKind::device);
        };
        std::vector<Memory> arenas{arena(lowered.persistent.most()), arena(c.scratch_bytes)};
        {
            std::vector<std::unique_ptr<Communicator>> communicators;
            std::vector<Communicator*> by_axis;
            for (size_t axis = 0; axis < plan.mesh.axes().size(); ++axis) {
                const Axis& a = plan.mesh.axes()[axis];
                by_axis.push_back(nullptr);
                if (a.sequential || a.size == 1) continue;
                const Group group = group_along(plan.mesh, rank, static_cast<AxisId>(axis));
                communicators.push_back(transport->make(group, rendezvous, arenas, std::chrono::seconds(20)));
                if (how.staged)
                    communicators.back() =
                        std::make_unique<StagedCommunicator>(std::move(communicators.back()), *device);
                by_axis.back() = communicators.back().get();
            }
            Executor executor(plan, rank, *device, by_axis, arenas[0].data, arenas[1].data);
            executor.capture_together([&](const std::string& mine) {
                const auto key = [](int64_t r) { return "captured/" + std::to_string(r); };
                rendezvous.set(key(rank), mine);
                std::vector<std::string> all;
                for (int64_t r = 0; r < plan.mesh.ranks(); ++r)
                    all.push_back(rendezvous.get(key(r), std::chrono::seconds(20)));
                return all;
            });
            for (int64_t step = 1; step <= how.steps; ++step) {
                for (const Operand& place : c.places) {
                    const Value& v = plan.program.value(place.value);
                    if (v.role == Role::temporary || (v.role != Role::input && step > 1)) continue;
                    const std::vector<char> whole = contents(v, step);
                    const Tensor local = executor.tensor(place.value);
                    std::vector<char> block(static_cast<size_t>(local.bytes()));
                    slice(whole.data(), v.type.shape, block_of(at_rest(v, plan.mesh), v.type.shape, plan.mesh, rank),
                          size_of(v.type.dtype), block.data());
                    device->copy(0, local.data, block.data(), local.bytes());
                    device->synchronize(0);
                }
                executor.run();
            }
            for (const Operand& place : c.places) {
                const Tensor local = executor.tensor(place.value);
                std::vector<char>& block = held[static_cast<size_t>(rank)][place.value];
                block.resize(static_cast<size_t>(local.bytes()));
                device->copy(0, block.data(), local.data, local.bytes());
                device->synchronize(0);
            }
            const std::lock_guard lock(mutex);
            ran.captured &= executor.captured();
            ran.none_captured &= !executor.captured();
            if (!executor.captured()) ran.why = executor.not_captured();
        }
        for (Memory& memory : arenas) device->release(memory);
    });
    ran.values = gather(plan, held);
    return ran;
}

}  // namespace orrery::test

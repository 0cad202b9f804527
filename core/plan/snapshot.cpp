#include "plan/snapshot.h"

#include <algorithm>
#include <climits>

#include "plan/access.h"
#include "plan/lower/buffers.h"

namespace orrery {
namespace {

SnapshotPlan snapshot_of(const Program& program, const RankClass& c) {
    std::vector<int> written(c.buffers.size(), none);
    for (int index = std::ssize(c.stream) - 1; index >= 0; --index)
        for_each_access(c, c.stream[index], [&](const Operand& operand, bool, bool writes) {
            if (writes) written[operand.buffer] = index;
        });
    SnapshotPlan plan;
    for (const Operand& place : c.places) {
        const Role role = program.value(place.value).role;
        if (role != Role::param && role != Role::state) continue;
        plan.values.push_back({place.value, place.buffer, place.type.bytes(), 0, written[place.buffer]});
    }
    std::stable_sort(plan.values.begin(), plan.values.end(), [](const CopiedValue& a, const CopiedValue& b) {
        const auto when = [](const CopiedValue& v) { return v.written == none ? INT_MAX : v.written; };
        return when(a) < when(b);
    });
    for (CopiedValue& value : plan.values) {
        value.offset = plan.bytes;
        plan.bytes += aligned(value.bytes);
    }
    return plan;
}

}  // namespace

std::vector<SnapshotPlan> snapshots_of(const Plan& plan) {
    std::vector<SnapshotPlan> all;
    for (const RankClass& c : plan.classes) all.push_back(snapshot_of(plan.program, c));
    return all;
}

}  // namespace orrery

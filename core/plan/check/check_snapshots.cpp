// Proves that no instruction overwrites a param or state before it is copied to the snapshot.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "plan/access.h"
#include "plan/check/check.h"
#include "plan/lower/buffers.h"
#include "plan/print.h"
#include "plan/repeat.h"
#include "plan/snapshot.h"

namespace orrery {
namespace {

class Snapshots {
public:
    Snapshots(const Plan& plan, const RankClass& c, const SnapshotPlan& snapshot)
        : plan_(plan), class_(c), snapshot_(snapshot) {}

    void run() {
        complete();
        apart();
        for (int index = 0; index < std::ssize(class_.stream); ++index)
            for_each_access(class_, class_.stream[index], [&](const Operand& operand, bool, bool writes) {
                if (writes && arena(class_, operand) == Arena::persistent) written(index, operand);
            });
        for (const CopiedValue& value : snapshot_.values)
            if (value.written != none && found_.count(value.value) == 0)
                fail(value, fmt::format("copy must end before {}, an instruction that does not write the value",
                                        at(value.written)));
    }

private:
    struct Bytes {
        int64_t end;
        const CopiedValue* value;
    };

    std::string at(int index) const {
        if (index < 0 || index >= std::ssize(class_.stream)) return fmt::format("instruction {}", index);
        return describe(plan_, class_, index);
    }
    [[noreturn]] void fail(const CopiedValue& value, const std::string& why) const {
        throw Error(fmt::format("class {}: snapshot of {}: the {}", &class_ - plan_.classes.data(),
                                quote(plan_.program.value(value.value).name), why));
    }

    /// Checks that the snapshot copies every param and state once, in the order in which the step writes them.
    void complete() {
        std::map<ValueId, const Operand*> wanted;
        for (const Operand& place : class_.places) {
            const Role role = plan_.program.value(place.value).role;
            if (role == Role::param || role == Role::state) wanted.emplace(place.value, &place);
        }
        int last = 0;
        for (const CopiedValue& value : snapshot_.values) {
            const auto place = wanted.find(value.value);
            if (place == wanted.end()) fail(value, "value is not a param or state of this class, or is a duplicate");
            const Operand& lies = *place->second;
            if (value.buffer != lies.buffer || value.bytes != lies.type.bytes())
                fail(value, fmt::format("copy has {} bytes of buffer b{}, but the value has {} in b{}", value.bytes,
                                        value.buffer, lies.type.bytes(), lies.buffer));
            const int bound = value.written == none ? std::ssize(class_.stream) : value.written;
            if (bound < last) fail(value, "copy must end earlier than the previous copy: copies are out of order");
            last = bound;
            const int64_t begin = address(class_, lies);
            if (value.bytes > 0) lies_.emplace(begin, Bytes{begin + value.bytes, &value});
            wanted.erase(place);
        }
        if (!wanted.empty())
            throw Error(fmt::format("class {}: no snapshot of {}", &class_ - plan_.classes.data(),
                                    quote(plan_.program.value(wanted.begin()->first).name)));
    }

    void apart() const {
        int64_t end = 0;
        for (const CopiedValue& value : snapshot_.values) {
            if (value.offset < end || value.offset % arena_alignment != 0)
                fail(value,
                     fmt::format("copy at offset {} is misaligned or overlaps the previous copy, which ends at {}",
                                 value.offset, end));
            end = value.offset + value.bytes;
            if (end > snapshot_.bytes)
                fail(value, fmt::format("copy is out of bounds: it ends at {}, the snapshot has {} bytes", end,
                                        snapshot_.bytes));
        }
    }

    /// Checks that an instruction overwrites no value before its copy, in any run (addresses move evenly over runs).
    void written(int index, const Operand& operand) {
        const bool repeated = times_of(class_, index) > 1;
        const int64_t first = address(class_, operand,
                                      repeated                     ? 0
                                      : index >= class_.repeat.end ? last_run(class_)
                                                                   : 0);
        const int64_t last = repeated ? address(class_, operand, last_run(class_)) : first;
        const int64_t begin = std::min(first, last), end = std::max(first, last) + operand.type.bytes();
        auto at_or_behind = lies_.upper_bound(begin);
        if (at_or_behind != lies_.begin()) --at_or_behind;
        for (; at_or_behind != lies_.end() && at_or_behind->first < end; ++at_or_behind) {
            if (at_or_behind->second.end <= begin) continue;
            const CopiedValue& value = *at_or_behind->second.value;
            if (value.written == none || index < value.written)
                fail(value, fmt::format("copy must end before {}, but {} writes the value",
                                        value.written == none ? "the end of the step" : at(value.written), at(index)));
            if (index == value.written) found_.insert(value.value);
        }
    }

    const Plan& plan_;
    const RankClass& class_;
    const SnapshotPlan& snapshot_;
    std::map<int64_t, Bytes> lies_;  ///< by address in the persistent arena: the copied values
    std::set<ValueId> found_;        ///< values that the instruction CopiedValue::written really writes
};

}  // namespace

void check_snapshots(const Plan& plan, const std::vector<SnapshotPlan>& snapshots) {
    if (snapshots.size() != plan.classes.size())
        throw Error(fmt::format("{} snapshots for {} classes of ranks, expected one for each", snapshots.size(),
                                plan.classes.size()));
    for (size_t k = 0; k < plan.classes.size(); ++k) Snapshots(plan, plan.classes[k], snapshots[k]).run();
}

}  // namespace orrery

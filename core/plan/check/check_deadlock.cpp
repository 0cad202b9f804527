// Proves that every rank reaches the end of the step.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "plan/access.h"
#include "plan/check/check.h"
#include "plan/print.h"
#include "plan/replay/plan_view.h"

namespace orrery {

namespace {

constexpr size_t shown_links = 24;  // max number of instructions that a message prints of a cycle

/// Replays the plan with zero cost. One execution suffices, since its outcome does not depend on timing (README.md).
class DeadlockProof final : public ReplayPolicy {
public:
    DeadlockProof(const Plan& plan, const Network& contracts, int64_t members)
        : plan_(plan), played_(plan, contracts, classes_of_ranks(plan), members), replay_(played_.view(), *this) {}

    void run() {
        replay_.run();
        const ReplayView& view = played_.view();
        for (int i = 0; i < view.size(); ++i)
            if (!replay_.done(i) && played_.instruction(i).axis != none)
                throw Error(
                    plan_.schedule.origin,
                    "deadlock: the plan never ends, ranks wait for each other:" + chain(i) + relied_on() +
                        "\n  change the schedule, or choose another transport for the axis in [transport.axis]");
        for (const auto& [ends, channel] : played_.channels())
            if (const auto send = replay_.unmet_send(channel))
                throw Error(plan_.schedule.origin, text(*send) + ": is sent but never received");
        for (int actor = 0; actor < view.actors(); ++actor)
            if (replay_.next(actor) < view.end(actor))
                throw Error(plan_.schedule.origin, text(replay_.next(actor)) + ": is never reached");
    }

    void met(int send, int receive) override {
        const Instruction &s = played_.instruction(send), &r = played_.instruction(receive);
        const int64_t sent = played_.view().at(send).tag, received = played_.view().at(receive).tag;
        if (sent != received || s.operands[0].type.bytes() != r.operands[0].type.bytes())
            throw Error(fmt::format("send and receive do not match: {} (tag {}, {}) and {} (tag {}, {})", text(send),
                                    sent, s.operands[0].type.text(), text(receive), received,
                                    r.operands[0].type.text()));
    }

private:
    std::string text(int item) const {
        return describe(plan_, plan_.classes[played_.class_of(item)], played_.issued(item)) + played_.place(item);
    }

    /// Why a blocked item waits, as text: the cycle of waits that it leads to, or the missing partner.
    std::string chain(int item) const {
        std::vector<int> seen;
        while (std::find(seen.begin(), seen.end(), item) == seen.end()) {
            seen.push_back(item);
            const auto next = replay_.blocker(item);
            if (!next) return "\n  " + text(item) + "\n  waits for a partner that never comes";
            item = *next;
        }
        if (seen.back() == item && seen.size() == 1) return "\n  " + text(item) + "\n  waits for itself";
        std::string cycle;
        const auto begin = std::find(seen.begin(), seen.end(), item);
        const size_t links = seen.end() - begin;
        for (size_t i = 0; i < links; ++i) {
            const bool left_out = links > shown_links + 1 && i + 1 >= shown_links && i + 1 < links;
            if (left_out && i + 1 > shown_links) continue;
            cycle += cycle.empty() ? "\n  " : ", which waits for\n  ";
            cycle += left_out ? fmt::format("{} more", links - shown_links) : text(begin[static_cast<int64_t>(i)]);
        }
        return cycle + ", which waits for the first of these";
    }

    /// The transport contracts that the proof relies on, as text: "axis pp: rendezvous sends, a lane per peer ...".
    std::string relied_on() const {
        std::set<AxisId> axes;
        for (int i = 0; i < played_.view().size(); ++i)
            if (replay_.started(i) && is_message(played_.instruction(i).opcode))
                axes.insert(played_.instruction(i).axis);
        std::string all;
        for (const AxisId axis : axes)
            all += fmt::format("{}axis {}: {}", all.empty() ? "" : "; ", plan_.mesh.axis(axis).name,
                               played_.contract(axis).text());
        return all.empty() ? "" : "\n  relied on: " + all;
    }

    const Plan& plan_;
    const PlanView played_;
    Replay replay_;
};

}  // namespace

void check_deadlock(const Plan& plan, const Network& contracts, int64_t members) {
    if (plan.classes.size() == 1) {
        const auto& stream = plan.classes[0].stream;
        if (std::none_of(stream.begin(), stream.end(), [](const Instruction& i) { return is_message(i.opcode); }))
            return;  // no deadlock: all ranks run the same collectives in the same order
    }
    DeadlockProof(plan, contracts, members).run();
}

}  // namespace orrery

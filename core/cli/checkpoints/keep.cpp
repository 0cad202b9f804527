// Implements `orrery checkpoints pin`, `unpin`, `unmark` and `prune`.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "base/json.h"
#include "base/text.h"
#include "cli/checkpoints/subcommands.h"
#include "run/checkpoint/restore/chosen_step.h"
#include "run/checkpoint/retain/retire.h"

namespace orrery {
namespace {

RetentionPolicy policy_of(const StorePlace& place, const CheckpointsCommand& command) {
    RetentionPolicy policy = place.policy();
    policy.newest = command.keep.value_or(policy.newest);
    policy.every_steps = command.every_steps.value_or(policy.every_steps);
    policy.hourly = command.hourly.value_or(policy.hourly);
    policy.daily = command.daily.value_or(policy.daily);
    policy.best = command.best.value_or(policy.best);
    return policy;
}

std::string why_of(const Verdict& verdict) {
    if (!verdict.failed) return verdict.why;
    return verdict.goes ? fmt::format("no rule keeps it; its removal may be lost in a power failure: {}", verdict.why)
                        : fmt::format("no rule keeps it, but it cannot be removed: {}", verdict.why);
}

/// Sets or removes a step's mark or pin. `what`: what cannot be done if the store refuses: "pinned".
void change(CheckpointStore& store, int64_t step, const char* what, const std::function<void()>& work) {
    try {
        work();
    } catch (const Error& error) {
        if (!has_step(store, step)) throw;
        throw Error(
            fmt::format("step {} in {} cannot be {}: {}\n  give this user write permission there, or copy the step to "
                        "another place: orrery checkpoints copy",
                        step, store.place(), what, error.what()),
            error.fault());
    }
}

}  // namespace

int pin_checkpoint(StorePlace& place, const CheckpointsCommand& command) {
    CheckpointStore& store = place.store();
    place.require(command.step);
    const std::string text(trim(command.text));
    if (text.empty() || text.find('\n') != std::string::npos || text.size() > 200)
        throw Error(fmt::format("pin: {}: expected the reason, one line of at most 200 bytes", quote(text)));
    if (const std::string bad = not_utf8(text); !bad.empty()) throw Error("pin: " + bad);
    change(store, command.step, "pinned", [&] { store.pin(command.step, text); });
    if (!has_step(store, command.step) || trim(store.pin_of(command.step)) != text)
        throw Error(fmt::format("step {} in {} was removed before it could be pinned\n"
                                "  a running job removes old steps there; pin a newer step",
                                command.step, store.place()),
                    Fault::failed);
    std::printf("step %lld is pinned: %s\n", static_cast<long long>(command.step), printable(text).c_str());
    return 0;
}

int unpin_checkpoint(StorePlace& place, const CheckpointsCommand& command) {
    place.require(command.step);
    const std::string text(trim(place.store().pin_of(command.step)));
    if (text.empty()) throw Error(fmt::format("step {} in {} is not pinned", command.step, place.store().place()));
    change(place.store(), command.step, "unpinned", [&] { place.store().unpin(command.step); });
    std::printf("step %lld is no longer pinned; the reason was: %s\n", static_cast<long long>(command.step),
                printable(text).c_str());
    return 0;
}

int unmark_checkpoint(StorePlace& place, const CheckpointsCommand& command) {
    CheckpointStore& store = place.store();
    place.require(command.step);
    const std::string text(trim(store.mark_of(command.step)));
    if (text.empty()) throw Error(fmt::format("step {} in {} is not marked as suspect", command.step, store.place()));
    change(store, command.step, "unmarked", [&] { store.unmark(command.step); });
    std::printf("step %lld is no longer marked as suspect; the reason was: %s\n", static_cast<long long>(command.step),
                printable(text).c_str());
    return 0;
}

int prune_checkpoints(StorePlace& place, const CheckpointsCommand& command) {
    CheckpointStore& store = place.store();
    const RetentionPolicy policy = policy_of(place, command);
    std::unique_ptr<WholeFolderLock> lock;
    if (!command.dry_run) lock = place.lock();
    const int64_t rests = store.finish_removals(command.dry_run);
    const int64_t unfinished = command.dry_run ? 0 : store.finish_removals(true);
    Retirement retirement(store, policy);
    const std::vector<Verdict> verdicts = command.dry_run ? retirement.look() : retirement.retire();
    int64_t removed = 0, failed = unfinished;
    for (const Verdict& verdict : verdicts) removed += verdict.goes, failed += verdict.failed;
    if (command.json) {
        Json answer = about(place);
        answer["policy"] = policy.text();
        answer["dry_run"] = command.dry_run;
        answer["interrupted_removals"] = rests;
        answer["unfinished_removals"] = unfinished;
        answer["steps"] = Json::array();
        for (const Verdict& verdict : verdicts)
            answer["steps"].push_back(
                {{"step", verdict.step}, {"goes", verdict.goes}, {"failed", verdict.failed}, {"why", why_of(verdict)}});
        print_json(answer);
        return failed > 0 ? 1 : 0;
    }
    std::printf("%s keeps %s\n", store.place().c_str(), policy.text().c_str());
    if (unfinished > 0)
        std::printf("%s could not be finished; orrery checkpoints list names what is left\n",
                    plural(unfinished, "interrupted removal").c_str());
    const char* const goes = command.dry_run ? "would go" : "removed";
    for (const Verdict& verdict : verdicts)
        std::printf("  step %lld %s: %s\n", static_cast<long long>(verdict.step), verdict.goes ? goes : "stays",
                    printable(why_of(verdict), 4000).c_str());
    if (rests > 0)
        std::printf("  %s %s\n", plural(rests, "interrupted removal").c_str(),
                    command.dry_run ? "would be finished" : "finished");
    std::printf("%s %s, %s stay\n", plural(removed, "checkpoint").c_str(), goes,
                count_text(static_cast<int64_t>(verdicts.size()) - removed).c_str());
    return failed > 0 ? 1 : 0;
}

}  // namespace orrery

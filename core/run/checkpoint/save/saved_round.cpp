#include "run/checkpoint/save/saved_round.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/text.h"

namespace orrery {

void save_round(Json& host, const Round& round, int64_t after, int64_t step) {
    if (round.plain()) return;
    host["round"] = {{"text", round.order()}, {"after", after}, {"ends", round.ends_with(step - after)}};
}

SavedRound saved_round(const Json& host, const Round& round, int64_t step, const std::string& place) {
    std::string text = Round().text();
    int64_t after = 0;
    bool ends = true;
    if (host.contains("round")) {
        const Json& saved = host["round"];
        const bool valid = saved.is_object() && saved.contains("text") && saved["text"].is_string() &&
                           saved.contains("after") && saved["after"].is_number_integer() && saved.contains("ends") &&
                           saved["ends"].is_boolean();
        if (valid) after = saved["after"].get<int64_t>();
        if (!valid || after < 0 || after > step)
            throw Error(
                fmt::format("{}: the manifest of step {} has an invalid round {}\n  restore the checkpoint, or "
                            "resume from another with --from-step",
                            place, step, quote(saved.dump())));
        text = saved["text"].get<std::string>();
        ends = saved["ends"].get<bool>();
    }
    if (text == round.order()) return {after};
    if (!ends)
        throw Error(fmt::format(
            "cannot resume from {}: step {} is within the round {}, but this run has the round {}\n  resume "
            "with the saved round until it ends (train.steps), then change it; resume from a step that "
            "ends a round (--from-step); or start over with --fresh",
            place, step, quote(text), quote(round.order())));
    return {step, fmt::format("round changed after step {}: from {} to {}", step, quote(text), quote(round.text()))};
}

}  // namespace orrery

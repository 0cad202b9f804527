#include "run/checkpoint/restore/chosen_step.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "run/checkpoint/format/manifest.h"

namespace orrery {

std::string printable(std::string_view line, size_t longest) {
    const auto inside = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
    line = trim(line);
    std::string_view kept = line.substr(0, longest);
    while (kept.size() < line.size() && !kept.empty() && inside(line[kept.size()])) kept.remove_suffix(1);
    const bool utf8 = not_utf8(std::string(kept)).empty();
    std::string out;
    for (size_t i = 0; i < kept.size(); ++i) {
        const auto c = static_cast<unsigned char>(kept[i]);
        const auto next = i + 1 < kept.size() ? static_cast<unsigned char>(kept[i + 1]) : 0;
        // U+0080 to U+009F are control characters too.
        const bool control = c < 0x20 || c == 0x7f || (c == 0xc2 && next < 0xa0);
        if (control || (c >= 0x80 && !utf8))
            out += c == '\n' ? "\\n" : fmt::format("\\x{:02x}", c);
        else
            out += kept[i];
        if (control && c == 0xc2 && utf8) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(kept[++i]));
    }
    return kept.size() < line.size() ? out + "..." : out;
}

bool takes_a_place(const Stray& stray, std::span<const int64_t> steps) {
    return stray.step >= 0 && std::find(steps.begin(), steps.end(), stray.step) == steps.end();
}

void refuse_step(const std::string& flag, int64_t step, const std::string& why, const std::string& place,
                 const std::vector<int64_t>& there) {
    std::vector<std::string> names;
    for (const int64_t other : there) names.push_back(std::to_string(other));
    throw Error(fmt::format("{} {}: {} in {}\n  {}", flag, step, why, place,
                            names.empty() ? "there is no checkpoint at all" : "there are " + join_few(names, 12)));
}

void require_way(const std::string& flag, int64_t step, CheckpointStore& store, const TrainOptions& options) {
    if (options.steps <= step)
        throw Error(
            fmt::format("{} {}: train.steps is {}, so no step is left to run after it\n  increase train.steps, "
                        "or resume from an earlier step",
                        flag, step, options.steps));
    const auto saves = [&](int64_t other) {
        if (other <= step || other > options.steps) return false;
        return options.checkpoint_mtbf_s > 0 || (options.checkpoint_final && other == options.steps) ||
               (options.checkpoint_every > 0 && other % options.checkpoint_every == 0);
    };
    for (const int64_t other : store.steps()) {
        if (!saves(other)) continue;
        const std::string pin = store.pin_of(other);
        if (pin.empty()) continue;
        throw Error(
            fmt::format("{} {}: step {} in {} is pinned ({}), but this run would overwrite it\n  remove the pin "
                        "with `orrery checkpoints unpin`, or copy step {} to another folder with `orrery "
                        "checkpoints copy` and resume there",
                        flag, step, other, store.place(), printable(pin), step));
    }
}

void require_there(const std::string& flag, int64_t step, CheckpointStore& store) {
    if (!has_step(store, step)) refuse_step(flag, step, "there is no such checkpoint", store.place(), store.steps());
}

void require_step(const std::string& flag, int64_t step, CheckpointStore& store) {
    require_there(flag, step, store);
    if (const std::string mark = store.mark_of(step); !mark.empty())
        refuse_step(flag, step, "it is marked as suspect (" + printable(mark) + ")", store.place(), store.steps());
}

}  // namespace orrery

#include "run/checkpoint/save/saved_islands.h"

#include <fmt/format.h>

#include "base/text.h"

namespace orrery {
namespace {

/// The option `resume` of the strategy; "": it has none.
std::string how_of(const Compiled& compiled) {
    const Attributes options = compiled.train().program.edge(compiled.islands.axis, Phase::update);
    return options.has("resume") ? options.text("resume") : "";
}

}  // namespace

std::optional<OtherRows> from_other_rows(const Compiled& compiled) {
    if (!compiled.islands.any()) return std::nullopt;
    const std::string how = how_of(compiled);
    return how.empty() ? OtherRows::refused : how == "copies" ? OtherRows::copies : OtherRows::mean;
}

OtherRows of_islands(const Value& value, OtherRows how) {
    return value.init.flag(islands_add) && how != OtherRows::refused ? OtherRows::sum : how;
}

void take_means(std::vector<StateValue>& state) {
    for (StateValue& value : state) value.other_rows = OtherRows::mean;
}

std::string said_of_islands(const Restored& restored, const Compiled& compiled, int64_t after) {
    if (restored.islands == 0) return "";
    const std::string how = how_of(compiled);
    if (how == "round" && !compiled.round.ends_with(restored.step - after))
        throw Error(compiled.islands.origin,
                    fmt::format("step {} is within the round {}, and islands resume from another number of them only "
                                "at the end of a round (resume = \"round\")\n  resume with {} until the round ends "
                                "(train.steps), or from a step that ends one (--from-step)",
                                restored.step, quote(compiled.round.text()), plural(restored.islands, "island")));
    return fmt::format("{} resume from {}: each has {}", plural(compiled.islands.count, "island"), restored.islands,
                       how == "copies" ? "a copy of one" : "the mean of their params and states");
}

}  // namespace orrery

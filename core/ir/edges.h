#pragma once
#include <span>
#include <string>
#include <string_view>

#include "orrery/op.h"

namespace orrery {

/// A communication option of a mesh axis ("bucket"). To add one, add a row to `edge_options` and a pass that reads it.
struct EdgeOption {
    std::string_view name;
    AttributeDef::Kind kind;
    std::optional<Phase> phase = {};  ///< only phase in which the option applies; nullopt: all phases
    bool by_phase = false;            ///< whether a script may set the option for a single phase
    /// Throws Error at `origin` if the value of the option is invalid.
    void (*check)(std::string_view axis, const Attribute& value, const Origin& origin);
    /// The remark that a second value is ignored: "bucket of 5 bytes over dp is not taken: an earlier ...".
    std::string (*refused)(std::string_view axis, const Attribute& asked, const Attribute& taken);
};

/// All communication options, in the order in which programs print them.
std::span<const EdgeOption> edge_options();
const EdgeOption* find_edge_option(std::string_view name);

std::string_view name_of(Phase phase);

}  // namespace orrery

#pragma once
#include <span>
#include <string>
#include <string_view>

#include "orrery/op.h"

namespace orrery {

/// An option of a mesh axis: of its messages ("bucket"), or of the inputs that it splits ("order"). To add one, add a
/// row to `edge_options` and a pass, or another reader.
struct EdgeOption {
    std::string_view name;
    AttributeDef::Kind kind;
    std::optional<Phase> phase = {};  ///< only phase in which the option applies; nullopt: all phases
    bool by_phase = false;            ///< whether a script may set the option for a single phase
    bool of_one_axis = false;         ///< whether a program may have it for one axis only
    /// Throws Error at `origin` if the value of the option is invalid.
    void (*check)(const Program&, std::string_view axis, const Attribute& value, const Origin& origin);
    /// The remark that a second value is ignored: "bucket of 5 bytes over dp is not taken: an earlier ...".
    std::string (*refused)(std::string_view axis, const Attribute& asked, const Attribute& taken);
};

/// All options, in the order in which programs print them.
std::span<const EdgeOption> edge_options();
const EdgeOption* find_edge_option(std::string_view name);

std::string_view name_of(Phase phase);

}  // namespace orrery

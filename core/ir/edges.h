#pragma once
#include <span>
#include <string>
#include <string_view>

#include "orrery/op.h"

namespace orrery {

/// A communication option of a mesh axis. To add one, add a row to `edge_options` and a pass that reads it.
struct EdgeOption {
    std::string_view name;
    AttributeDef::Kind kind;
    std::optional<Phase> phase = {};  ///< the only phase that the option applies to; nullopt: all phases
    bool by_phase = false;            ///< whether the option may be set for a single phase
    /// Throws Error at `origin` if the value of the option is invalid.
    void (*check)(std::string_view axis, const Attribute& value, const Origin& origin);
    /// The remark that another value was set before: "bucket of 5 bytes over dp is not taken: an earlier ...".
    std::string (*refused)(std::string_view axis, const Attribute& asked, const Attribute& taken);
};

/// All communication options, in the order in which programs print them.
std::span<const EdgeOption> edge_options();
/// Finds a communication option by name; nullptr if there is none.
const EdgeOption* find_edge_option(std::string_view name);

std::string_view name_of(Phase phase);

}  // namespace orrery

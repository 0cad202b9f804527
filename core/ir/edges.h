#pragma once
#include <span>
#include <string>
#include <string_view>

#include "orrery/op.h"

namespace orrery {

/// An option of what is sent over an axis. A new one is a row of `edge_options`, its reader a pass.
struct EdgeOption {
    std::string_view name;
    AttributeDef::Kind kind;
    std::optional<Phase> phase = {};  ///< it concerns this phase alone
    bool by_phase = false;            ///< it may be given for one phase
    /// Throws Error at `origin` for a value that the option cannot have.
    void (*check)(std::string_view axis, const Attribute& value, const Origin& origin);
    /// "bucket of 5 bytes over dp is not taken: an earlier strategy chose 9".
    std::string (*refused)(std::string_view axis, const Attribute& asked, const Attribute& taken);
};

/// In the order of the text form.
std::span<const EdgeOption> edge_options();
/// nullptr when there is none.
const EdgeOption* find_edge_option(std::string_view name);

std::string_view name_of(Phase phase);

}  // namespace orrery

#pragma once
#include <string_view>

namespace orrery {

/// Ends the name of a result that o.result declares without a count: an f32 value of the whole step, which calls do not
/// add up, such as the largest load of each layer. Reports have it without this ending; a step's line shows its largest
/// element.
constexpr std::string_view step_value_ending = ".step";

}  // namespace orrery

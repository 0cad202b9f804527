#pragma once
#include <string_view>

#include "orrery/program.h"

namespace orrery {

/// Attribute of a state's initial value: one program of a round sends the state when it sets it, and another one waits
/// for the message; no third program reads or sets it.
inline constexpr std::string_view sent_mark = "sent";

inline bool is_sent(const Value& value) { return value.role == Role::state && value.init.flag(sent_mark); }

}  // namespace orrery

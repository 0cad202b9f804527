#pragma once
#include <string>
#include <string_view>
#include <utility>

namespace orrery {

/// In a handler: throws on what is handled where a plugin may throw it (an Error, or what the system refuses this
/// process: memory, threads). Anything else becomes an Error of Fault::failed, "plugin data/tape: read threw an int".
[[noreturn]] void throw_of_plugin(std::string_view plugin, std::string_view function);

/// The plugin of the data source that this thread has called `read` of last, "" at first: where one source reads
/// others, the innermost. Those who read clear it before.
std::string& last_read_of();

/// Calls a plugin's function; what it throws names the plugin.
template <class Call>
decltype(auto) call_plugin(std::string_view plugin, std::string_view function, Call&& call) {
    try {
        return std::forward<Call>(call)();
    } catch (...) {
        throw_of_plugin(plugin, function);
    }
}

}  // namespace orrery

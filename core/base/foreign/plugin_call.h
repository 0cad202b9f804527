#pragma once
#include <string>
#include <string_view>
#include <utility>

namespace orrery {

/// Call it in a catch block. Rethrows exceptions that a plugin may throw (an Error, or failed allocations of memory or
/// threads), and turns others into an Error of Fault::failed: "plugin data/tape: read threw an int".
[[noreturn]] void throw_of_plugin(std::string_view plugin, std::string_view function);

/// The data source plugin whose `read` this thread called last; the innermost one if sources read from other sources.
/// "" until the first call. Readers set it to "" before a read.
std::string& last_read_of();

/// Calls a plugin's function; its exceptions then name the plugin.
template <class Call>
decltype(auto) call_plugin(std::string_view plugin, std::string_view function, Call&& call) {
    try {
        return std::forward<Call>(call)();
    } catch (...) {
        throw_of_plugin(plugin, function);
    }
}

}  // namespace orrery

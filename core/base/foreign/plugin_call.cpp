#include "base/foreign/plugin_call.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <typeinfo>

#include "orrery/error.h"

namespace orrery {
namespace {

/// Returns the type of the current exception: "std::out_of_range", "int".
std::string handled_type() {
    const std::type_info* type = abi::__cxa_current_exception_type();
    if (!type) return "something unknown";
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(type->name(), nullptr, nullptr, &status),
                                                      std::free);
    return status == 0 ? name.get() : type->name();
}

bool refused_by_system(const std::system_error& error) {
    return error.code() == std::errc::resource_unavailable_try_again || error.code() == std::errc::not_enough_memory;
}

}  // namespace

std::string& last_read_of() {
    static thread_local std::string plugin;
    return plugin;
}

void throw_of_plugin(std::string_view plugin, std::string_view function) {
    std::string said;
    const std::string type = handled_type();
    try {
        throw;
    } catch (const Error&) {
        throw;
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::system_error& error) {
        if (refused_by_system(error)) throw;
        said = error.what();
    } catch (const std::exception& error) {
        said = error.what();
    } catch (...) {  // not an std::exception: only the type is known
    }
    throw Error(fmt::format("plugin {}: {} threw {}{}\n  plugins throw orrery::Error only: fix the plugin", plugin,
                            function, type, said.empty() ? "" : ": " + said),
                Fault::failed);
}

}  // namespace orrery

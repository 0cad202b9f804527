#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plugin/library_file.h"

namespace orrery {

/// Facts of a device that core needs before it creates the device.
struct DeviceFacts {
    bool host_memory = false;     ///< the device's memory is the host's (DeviceLimits::host_visible)
    std::string memory = {};      ///< name of the device's memory in the `devices` of transports; "": the device's name
    bool leaves_nothing = false;  ///< making and destroying one leaves no state in the process, unlike on a GPU
};

/// Facts of a transport; the loader copies them to its contract.
struct TransportFacts {
    std::vector<std::string> devices;
    bool same_process = false, pins_ranks = false;
};

/// The facts of a plugin (ORRERY_FACTS): names in the order of the text, each with its values.
class PluginFacts {
public:
    /// Throws Error for a malformed text, or for a name that is not a fact of this kind.
    PluginFacts(std::string_view kind, std::string_view text);

    bool has(std::string_view name) const;
    std::vector<std::string> values(std::string_view name) const;  ///< values of a fact; empty when absent
    std::string text() const;                                      ///< the text as it was written; "": no facts

    DeviceFacts of_device() const;
    /// Throws Error when `devices` is missing.
    TransportFacts of_transport() const;

private:
    std::vector<std::pair<std::string, std::vector<std::string>>> facts_;
};

/// Returns the text of ORRERY_FACTS; "" when the file has none. Throws Error when it exceeds 4096 bytes or does not end
/// with a zero byte.
std::string facts_text(const LibraryFile& file);

}  // namespace orrery

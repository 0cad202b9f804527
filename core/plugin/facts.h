#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plugin/library_file.h"

namespace orrery {

/// Facts in a device plugin's file: what core must know before it creates the device.
struct DeviceFacts {
    bool host_memory = false;     ///< device memory is host memory (DeviceLimits::host_visible)
    std::string memory = {};      ///< name of the device's memory in the `devices` of transports; "": the device's name
    bool leaves_nothing = false;  ///< true: a destroyed device leaves no state in the process, unlike a GPU
};

/// Facts in a transport plugin's file; the loader copies them to its TransportContract.
struct TransportFacts {
    std::vector<std::string> devices;
    bool same_process = false, pins_ranks = false;
};

/// The facts that a plugin declares in ORRERY_FACTS: names in the order of the text, each with its values.
class PluginFacts {
public:
    /// Throws Error for a malformed text, or for a name that is not a fact of plugins of this kind.
    PluginFacts(std::string_view kind, std::string_view text);

    bool has(std::string_view name) const;
    std::vector<std::string> values(std::string_view name) const;  ///< values of a fact; empty if it is not declared
    std::string text() const;                                      ///< the text as it was written; "": no facts

    DeviceFacts of_device() const;
    /// Returns the facts of a transport. Throws Error when `devices` is missing.
    TransportFacts of_transport() const;

private:
    std::vector<std::pair<std::string, std::vector<std::string>>> facts_;
};

/// Returns the text of ORRERY_FACTS in a plugin's file; "" when the file has none. Throws Error when the text exceeds
/// 4096 bytes or has no zero byte at its end.
std::string facts_text(const LibraryFile& file);

}  // namespace orrery

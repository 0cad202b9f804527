#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plugin/library_file.h"

namespace orrery {

/// Facts of a device: what core asks before it makes one.
struct DeviceFacts {
    bool host_memory = false;     ///< its memory is the host's (DeviceLimits::host_visible)
    std::string memory = {};      ///< the name that transports give it in `devices`; "": the device's name
    bool leaves_nothing = false;  ///< making and destroying one leaves nothing in the process, unlike a GPU's context
};

/// Facts of a transport, those of its contract.
struct TransportFacts {
    std::vector<std::string> devices;
    bool same_process = false, pins_ranks = false;
};

/// The facts of a plugin (ORRERY_FACTS): names in the order of the text, each with its values.
class PluginFacts {
public:
    /// Throws Error for a text that breaks the form, or has a name that its kind does not know.
    PluginFacts(std::string_view kind, std::string_view text);

    bool has(std::string_view name) const;
    std::vector<std::string> values(std::string_view name) const;  ///< empty where it is not there
    std::string text() const;                                      ///< as it was written, "" for none

    DeviceFacts of_device() const;
    /// Throws Error when it names no device.
    TransportFacts of_transport() const;

private:
    std::vector<std::pair<std::string, std::vector<std::string>>> facts_;
};

/// The text of ORRERY_FACTS, "" when the file has none. Throws Error when that is no text.
std::string facts_text(const LibraryFile& file);

}  // namespace orrery

#pragma once
#include <string>
#include <vector>

#include "run/script_interface.h"

namespace orrery {

/// Configuration keys that calls of the script set.
class GivenKeys {
public:
    /// Adds a key. Returns a message if a configuration file sets the key to a value that is not used, otherwise "".
    /// Throws Error at a --set that would have no effect. Both texts name the script line.
    std::string add(Config& config, const GivenKey& key);

    /// Returns `config` with the values that the script set and their lines; [run] `given` lists the values before.
    Config over(const Config& config) const;

private:
    void keep(GivenKey key);
    std::vector<GivenKey> keys_;  ///< the newest value of each key
};

}  // namespace orrery

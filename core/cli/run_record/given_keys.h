#pragma once
#include <string>
#include <vector>

#include "run/script_interface.h"

namespace orrery {

/// Configuration keys that calls of the script set.
class GivenKeys {
public:
    /// Adds a key. Returns a line if a value of a file is not used, "" otherwise. Throws Error at a --set that would
    /// have no effect; both name the script line.
    std::string add(Config& config, const GivenKey& key);

    /// The configuration with the values used, each with its line; [run] `given` lists the configuration's own values.
    Config over(const Config& config) const;

private:
    void keep(GivenKey key);
    std::vector<GivenKey> keys_;  ///< the newest entry of each key
};

}  // namespace orrery

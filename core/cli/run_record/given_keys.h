#pragma once
#include <string>
#include <vector>

#include "run/script_interface.h"

namespace orrery {

/// The configuration keys that calls of the script set, with the values before and after.
class GivenKeys {
public:
    /// Adds a key. Returns a warning if a configuration file sets the key to a value that thus has no effect, else "".
    /// Throws Error at a --set without effect. Both texts name the script line.
    std::string add(Config& config, const GivenKey& key);

    /// Returns `config` with the values that the script set and their lines; the values before are in run.given.
    Config over(const Config& config) const;

private:
    void keep(GivenKey key);
    std::vector<GivenKey> keys_;  ///< by key: the value set last
};

}  // namespace orrery

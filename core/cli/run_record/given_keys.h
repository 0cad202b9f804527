#pragma once
#include <string>
#include <vector>

#include "run/script_interface.h"

namespace orrery {

/// Keys of the configuration whose values the calls of a script give.
class GivenKeys {
public:
    /// Returns a line where a value of a file is not used, "" where nothing is lost. Throws Error at a --set that would
    /// change nothing; both name the line of the script.
    std::string add(Config& config, const GivenKey& key);

    /// The configuration with what runs, each value with its line; [run] lists in `given` what it said before.
    Config over(const Config& config) const;

private:
    void keep(GivenKey key);
    std::vector<GivenKey> keys_;  ///< the newest of each
};

}  // namespace orrery

#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

struct Host {
    std::string name;    ///< as ssh takes it: "n1", "anna@n1", "fe80::1%eth0"
    int64_t slots = -1;  ///< max ranks; -1: not given
    int line = 0;        ///< the first line that names it
};

/// Reads the hosts of a text in order: a line is `host` or `host slots=N`; "#" begins a comment. The slots of a host
/// that several lines name add up, and a line without slots then counts as one, as in $PBS_NODEFILE. Throws Error at
/// the line of `file` that is wrong.
std::vector<Host> parse_hostfile(std::string_view text, const std::string& file);

}  // namespace orrery

#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace orrery {

/// Seconds of a run by what they were spent on, for the closing table.
struct TimeShare {
    std::string what;  ///< "compute: matmul", "communication", "waiting"
    double seconds = 0;
    std::string part = "the rest";  ///< what it is counted as: "compute", "communication dp", "waiting"
};
/// A table, largest first, shares of the total.
std::string breakdown_text(std::vector<TimeShare> shares, double total_seconds);
/// Seconds by part; what no share names is of "the rest".
std::map<std::string, double> parts_of(const std::vector<TimeShare>& shares, double total_seconds);

/// Resident set of this process, read from one open file: a few microseconds, no allocation.
class ResidentSet {
public:
    ResidentSet();
    ~ResidentSet();
    ResidentSet(const ResidentSet&) = delete;
    int64_t bytes() const;  ///< 0 where the system does not say

private:
    int file_;
};

}  // namespace orrery

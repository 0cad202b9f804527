#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace orrery {

/// Seconds of a run spent on one thing, a row of the closing table.
struct TimeShare {
    std::string what;  ///< "compute: matmul", "communication", "waiting"
    double seconds = 0;
    std::string part = "the rest";  ///< the group that it counts under: "compute", "communication dp", "waiting"
};
/// The table as text, largest row first, each with its share of the total.
std::string breakdown_text(std::vector<TimeShare> shares, double total_seconds);
/// Seconds by part; time that no share covers counts as "the rest".
std::map<std::string, double> parts_of(const std::vector<TimeShare>& shares, double total_seconds);

/// Resident memory of this process, read from one open file: a few microseconds, no allocation.
class ResidentSet {
public:
    ResidentSet();
    ~ResidentSet();
    ResidentSet(const ResidentSet&) = delete;
    int64_t bytes() const;  ///< 0 if the system does not report it

private:
    int file_;
};

}  // namespace orrery

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
    std::string part = "the rest";  ///< group of the row: "compute", "communication dp", "waiting"
};
/// Formats the table, largest row first, each row with its share of the total.
std::string breakdown_text(std::vector<TimeShare> shares, double total_seconds);
/// Seconds by part. Time without a row counts as "the rest".
std::map<std::string, double> parts_of(const std::vector<TimeShare>& shares, double total_seconds);

/// Resident memory of this process, read from one open file: takes a few microseconds and allocates nothing.
class ResidentSet {
public:
    ResidentSet();
    ~ResidentSet();
    ResidentSet(const ResidentSet&) = delete;
    int64_t bytes() const;  ///< bytes; 0 if the system does not report them

private:
    int file_;
};

}  // namespace orrery

#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace orrery {

/// Seconds that a run spent on one thing: a row of the closing table "where the time went".
struct TimeShare {
    std::string what;  ///< what took the time: "compute: matmul", "communication", "waiting"
    double seconds = 0;
    std::string part = "the rest";  ///< group of rows: "compute", "communication dp", "waiting"
};
/// Formats rows as the closing table, largest first, each with its share of the run's time.
std::string breakdown_text(std::vector<TimeShare> shares, double total_seconds);
/// Adds up the seconds of rows by `part`. Time that no row covers counts as "the rest".
std::map<std::string, double> parts_of(const std::vector<TimeShare>& shares, double total_seconds);

/// Resident memory of this process, read from one open file: takes a few microseconds and allocates nothing.
class ResidentSet {
public:
    ResidentSet();
    ~ResidentSet();
    ResidentSet(const ResidentSet&) = delete;
    int64_t bytes() const;  ///< resident memory in bytes; 0 if the system does not report it

private:
    int file_;
};

}  // namespace orrery

#pragma once
#include <cstdint>
#include <string>

namespace orrery {

/// Returns the newest file of a rank's output in a run's folder, logs/gG-rankR.txt: that of the last generation, or of
/// generation 0 if a start failed after it; "": there is none.
std::string newest_log(const std::string& run, int64_t rank);

/// Prints a rank's newest log. `follow`: also what is added to it and to logs of later generations, until a signal.
int show_logs(const std::string& run, int64_t rank, bool follow);

}  // namespace orrery

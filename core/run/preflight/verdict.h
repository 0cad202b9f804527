#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "run/preflight/expected.h"
#include "run/preflight/figures.h"

namespace orrery {

/// What was looked at.
enum class Checked : uint8_t { matrix, copy, storage, link, collective, data };

/// Something that is not fit, with who or what it is.
struct PreflightFinding {
    Checked checked;
    std::string what;            ///< "matrix rate of bf16", "bandwidth"
    std::vector<int64_t> ranks;  ///< one, or the two ends of a link, or a group; those that may be to blame
    std::string subject;         ///< "rank 3 (host n2)", "link rank 1 (host a) -> rank 2 (host b)"
    std::string reason;          ///< "12.1 GFLOP/s, 24 % of the other ranks' median of 50.3 GFLOP/s"
    double found = 0;            ///< in the unit of the figures
    double wanted = 0;           ///< the bar, or the others' median
    bool again = true;           ///< a second measurement may find otherwise

    std::string text() const { return subject + ": " + what + ": " + reason; }
};

/// Judges figures by what is expected, where nothing is said by what is known of each rank's device, and by the others'
/// median: a rank all of whose links are slow is named, and
/// not its links; else each slow link with both ends and its direction; nodes by their collectives. Links inside nodes
/// and between them are judged apart, and so are hosts' names. The worst come first in their kind.
std::vector<PreflightFinding> judge(const PreflightFigures& figures, const ExpectedFigures& expected,
                                    const PreflightBars& bars);

/// Rates for people: "52.1 GFLOP/s", "11.2 GB/s".
std::string flops_text(double flops_per_s);
std::string bandwidth_text(double bytes_per_s);
/// "rank 3 (host n2)"
std::string rank_name(const PreflightFigures& figures, int64_t rank);

}  // namespace orrery

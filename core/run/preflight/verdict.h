#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "run/preflight/expected.h"
#include "run/preflight/figures.h"

namespace orrery {

enum class Checked : uint8_t { matrix, copy, storage, link, collective, data };

/// A part of the cluster that is not fit, and the ranks that it concerns.
struct PreflightFinding {
    Checked checked;
    std::string what;            ///< the figure: "matrix rate of bf16", "bandwidth"
    std::vector<int64_t> ranks;  ///< one rank, the two ends of a link, or a group
    std::string subject;         ///< "rank 3 (host n2)", "link rank 1 (host a) -> rank 2 (host b)"
    std::string reason;          ///< "12.1 GFLOP/s, 24 % of the other ranks' median of 50.3 GFLOP/s"
    double found = 0;            ///< the measured value, in the unit of PreflightFigures
    double wanted = 0;           ///< the min value, or the other ranks' median, in the unit of PreflightFigures
    bool again = true;           ///< whether a second measurement may give another result

    std::string text() const { return subject + ": " + what + ": " + reason; }
};

/// Judges figures by the expected ones, by data sheets of known devices, and by the others' median. If all links of a
/// rank are slow, the rank is named instead of its links; otherwise each slow link is named with its ends and
/// direction; nodes are named by their collectives. Links inside nodes and between nodes are judged separately. Within
/// each kind the worst finding comes first.
std::vector<PreflightFinding> judge(const PreflightFigures& figures, const ExpectedFigures& expected,
                                    const PreflightBars& bars);

/// Formats rates: "52.1 GFLOP/s", "11.2 GB/s".
std::string flops_text(double flops_per_s);
std::string bandwidth_text(double bytes_per_s);
/// Names a rank: "rank 3 (host n2)".
std::string rank_name(const PreflightFigures& figures, int64_t rank);

}  // namespace orrery

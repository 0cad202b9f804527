#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "orrery/communicator.h"
#include "run/preflight/collective_checks.h"
#include "run/preflight/expected.h"
#include "run/preflight/figures.h"
#include "run/preflight/pair_checks.h"
#include "run/preflight/rank_checks.h"
#include "run/preflight/verdict.h"

namespace orrery {

struct PreflightOptions {
    RankCheckOptions rank;
    PairCheckOptions pair;
    CollectiveCheckOptions collective;
    int64_t message_bytes = 0;  ///< max bytes of a message or tensor; 0: 16 MiB on hosts, 256 MiB on devices
    int again = 3;              ///< how often unfit parts are measured again before they are reported
};

/// Options for shorter measurements, for a first check or before each start.
PreflightOptions quick_preflight();

/// A rank that takes part in preflight, with its resources.
struct PreflightRank {
    Device& device;
    std::string memory;              ///< the device memory's name for transports: "cpu", "cuda"
    Transport* transport = nullptr;  ///< transport to measure; nullptr in a job of one rank
    Rendezvous* rendezvous = nullptr;
    int64_t rank = 0, ranks = 1;
    int64_t local_rank = 0;  ///< index among the ranks of its host
    int64_t at_once = 0;     ///< ranks of a host that can compute at once on their own processors; 0: all
    std::chrono::milliseconds timeout{60'000};           ///< max wait for another rank
    std::function<void(const std::string&)> stage = {};  ///< called with each stage's name as it begins; may be empty
};

struct PreflightReport {
    PreflightFigures figures;
    std::vector<PreflightFinding> findings;  ///< parts that are not fit; empty: everything is fit
    int measured = 1;                        ///< number of measurements, including repeated ones
    double seconds = 0;
    ExpectedFigures expected;  ///< figures that the user expects, without data sheets of known devices
    PreflightBars bars;
    std::string expected_from;  ///< source of `expected`: "h100.toml, --expect"; "": none

    bool fit() const { return findings.empty(); }
};

/// Measures each rank by itself, on all ranks at once or, if there are more ranks than processors, in turns; then pairs
/// and collectives. Judges the figures and measures unfit parts again, up to `again` times, keeping the better figure,
/// so that a single disturbance is not reported. Collective; all ranks get the same report. Throws Fault::peer naming a
/// rank that does not arrive or is lost.
PreflightReport preflight(const PreflightRank& rank, const PreflightOptions& options, const ExpectedFigures& expected,
                          const PreflightBars& bars);

/// The node of each rank: ranks with the same host name share a node, unless two of them have the same local rank.
std::vector<int64_t> nodes_of(const std::vector<std::string>& hosts, const std::vector<int64_t>& local_ranks);

}  // namespace orrery

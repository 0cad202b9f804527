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
    int64_t message_bytes = 0;  ///< most of a message or tensor; 0: 16 MiB of host memory, 256 MiB of a device's own
    int again = 3;              ///< how often what is not fit is measured again before it is named
};

/// Shorter pieces of everything: for a first look, or before each start.
PreflightOptions quick_preflight();

/// One rank of those that are looked at.
struct PreflightRank {
    Device& device;
    std::string memory;              ///< the name that transports give the device's memory: "cpu", "cuda"
    Transport* transport = nullptr;  ///< nullptr in a job of one rank
    Rendezvous* rendezvous = nullptr;
    int64_t rank = 0, ranks = 1;
    int64_t local_rank = 0;  ///< among the ranks of its host
    int64_t at_once = 0;     ///< ranks of a host that have what they compute with for themselves; 0: all
    std::chrono::milliseconds timeout{60'000};           ///< of a wait for another rank
    std::function<void(const std::string&)> stage = {};  ///< told what begins; may be empty
};

struct PreflightReport {
    PreflightFigures figures;
    std::vector<PreflightFinding> findings;  ///< what is not fit; none: all is
    int measured = 1;                        ///< 1, and how often something was measured again
    double seconds = 0;
    ExpectedFigures expected;  ///< what was said, before what is known of devices
    PreflightBars bars;
    std::string expected_from;  ///< who said it: "h100.toml, --expect"; "": nobody

    bool fit() const { return findings.empty(); }
};

/// Measures what a rank has by itself, all ranks at the same time, or where they are more than processors in turns;
/// then pairs and collectives; judges; and measures what is not fit again, up to `again` times, keeping the
/// better figure: what was disturbed once is not named. Collective; the same report on all ranks. Throws Fault::peer
/// naming a rank that does not come or is lost.
PreflightReport preflight(const PreflightRank& rank, const PreflightOptions& options, const ExpectedFigures& expected,
                          const PreflightBars& bars);

/// By rank, which host it is on: those of one name share it, unless two of them have the same place there.
std::vector<int64_t> nodes_of(const std::vector<std::string>& hosts, const std::vector<int64_t>& local_ranks);

}  // namespace orrery

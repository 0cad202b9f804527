#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "run/compile.h"
#include "run/executor.h"

namespace orrery {

/// Where a rank is, as it tells the rendezvous with each heartbeat.
struct Position {
    int64_t steps = 0;  ///< steps begun, of all programs
    int index = 0;      ///< instruction of its stream
    int of = 0;         ///< instructions of its stream; 0: between two steps
    double here_s = 0;  ///< for so long
    double bound_s = 0;
    std::vector<int64_t> waits_for;  ///< ranks without which this instruction cannot end
    std::string text;                ///< op, values, script line

    /// Longer than a sound plan takes to bring the others here.
    bool late() const { return !waits_for.empty() && here_s > bound_s; }
    std::string encode() const;
    /// An empty text is a rank that has told nothing yet.
    static Position decode(std::string_view text);
};

/// One rank as the rendezvous knows it.
struct Standing {
    int64_t rank = 0;
    Position position;
    double silent_s = 0;
    std::string process;  ///< "its process is stopped (SIGSTOP)", "" when it cannot be known
};

/// Why `late` waits: follows who waits for whom to the ranks that wait for nobody, or are silent, and says what they
/// do; or that all wait for each other. "rank 1 (its process is stopped (SIGSTOP)), last seen 3.2 s ago in ..., is
/// behind: ..."
std::string explain_wait(int64_t late, const std::vector<Standing>& all);

/// Longest time that a rank of the plan may have to wait for another in one step: four times its flops at 1 GFLOP/s and
/// its bytes at 50 MB/s, 30 s at least.
std::chrono::milliseconds generous_bound(const Compiled& compiled);

/// Looks at a rank's executors from another thread, by their relaxed stores alone.
class StepWatch {
public:
    StepWatch(const Compiled& compiled, int64_t rank, std::vector<const Executor*> executors,
              std::chrono::milliseconds bound);
    /// Called by one thread, with each heartbeat.
    Position look();

private:
    using Clock = std::chrono::steady_clock;
    const Compiled& compiled_;
    const int64_t rank_;
    const std::vector<const Executor*> executors_;
    const double bound_s_;
    Clock::time_point since_ = Clock::now();
    int64_t steps_ = -1;
    int index_ = -1, of_ = -1;
};

}  // namespace orrery

#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "compile/compile.h"
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

/// Longest time that a rank of the plan may have to wait for another in one step, while no step has shown what it
/// takes: four times its bytes at 50 MB/s and its flops at 1/25 of the device's rate of matrix products (at 1 GFLOP/s
/// where that is not known, or less); 30 s at least.
std::chrono::milliseconds generous_bound(const Compiled& compiled, double matrix_flops);

/// The bound of a wait inside a step: what is given first, and from the third step on, where it `learns`, five times
/// the longest step so far, with what lay between it and the next; 30 s at least, and never more than the first.
class StepBound {
public:
    StepBound(std::chrono::milliseconds first, bool learns)
        : first_s_(std::chrono::duration<double>(first).count()), learns_(learns) {}

    /// At `now_s`, `steps` steps have begun.
    void see(int64_t steps, double now_s);
    double seconds() const;

private:
    double first_s_;
    bool learns_;
    int64_t steps_ = 0;
    double begun_s_ = 0, longest_s_ = 0;
};

/// Looks at a rank's executors from another thread, by their relaxed stores alone.
class StepWatch {
public:
    StepWatch(int64_t rank, std::vector<const Executor*> executors, const StepBound& bound);
    /// One executor takes another's place, whose steps stay counted; neither is in a step.
    void replace(const Executor& old, const Executor& by);
    /// Called by one thread, with each heartbeat.
    Position look();

private:
    using Clock = std::chrono::steady_clock;
    const int64_t rank_;
    std::mutex mutex_;  ///< of the two below
    std::vector<const Executor*> executors_;
    int64_t steps_before_ = 0;  ///< of executors that are gone
    StepBound bound_;
    const Clock::time_point made_ = Clock::now();
    Clock::time_point since_ = Clock::now();
    int64_t steps_ = -1;
    int index_ = -1, of_ = -1;
};

}  // namespace orrery

#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "run/control/standing.h"
#include "run/executor.h"

namespace orrery {

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

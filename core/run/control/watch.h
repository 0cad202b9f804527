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

/// Max time in a valid plan that a rank waits for another within one step, before any step is timed: four times the
/// time of its messages at 50 MB/s and of its flops at 1/25 of the device's matrix rate (at 1 GFLOP/s if that is
/// unknown or lower); at least 30 s.
std::chrono::milliseconds generous_bound(const Compiled& compiled, double matrix_flops);

/// Max time of a wait within a step: `first` at the start. If `learns`, from the third step on it is five times the
/// longest step so far, including the time between steps; at least 30 s and at most `first`.
class StepBound {
public:
    StepBound(std::chrono::milliseconds first, bool learns)
        : first_s_(std::chrono::duration<double>(first).count()), learns_(learns) {}

    void see(int64_t steps, double now_s);
    double seconds() const;

private:
    double first_s_;
    bool learns_;
    int64_t steps_ = 0;
    double begun_s_ = 0, longest_s_ = 0;
};

/// Finds a rank's position in its plan from another thread, by reading only atomics that its executors write.
class StepWatch {
public:
    StepWatch(int64_t rank, std::vector<const Executor*> executors, const StepBound& bound);
    /// Replaces an executor that is not in a step by another; the steps of both are counted.
    void replace(const Executor& old, const Executor& by);
    /// Returns the rank's position; called by one thread, with each heartbeat. Time in which this process did not run
    /// does not count as time at the position.
    Position look();

private:
    using Clock = std::chrono::steady_clock;
    const int64_t rank_;
    std::mutex mutex_;  ///< guards `executors_` and `steps_before_`
    std::vector<const Executor*> executors_;
    int64_t steps_before_ = 0;  ///< steps of executors that were replaced
    StepBound bound_;
    const Clock::time_point made_ = Clock::now();
    Clock::time_point since_ = made_, looked_ = made_;
    int64_t steps_ = -1;
    int index_ = -1, of_ = -1;
};

}  // namespace orrery

#pragma once
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "run/data/input_feed.h"
#include "run/host_side.h"
#include "run/session.h"

namespace orrery {

/// A size of a ramp that some rank could not make.
class NotMade : public Error {
    using Error::Error;
};

/// The train step at the batch of every step. While one size of a ramp trains, the next is compiled on a thread of its
/// own, so that one plan and one executor live beside the full step's plan, however many sizes there are.
class StepPrograms {
public:
    /// Makes a program that the session was not compiled with. Called on one thread at a time.
    using Compile = std::function<CompiledProgram(const ProgramEntry&)>;

    /// `last_step`: sizes of steps behind it are not made. `data` must outlive it.
    StepPrograms(Session& session, const Dataset& data, int64_t last_step, Compile compile);
    /// Waits for what is being compiled.
    ~StepPrograms();
    StepPrograms(const StepPrograms&) = delete;

    struct Step {
        const Program& program;
        Executor& executor;
        const InputFeed& feed;
        const HostResults& results;
        const std::vector<SnapshotPlan>& snapshots;
    };
    /// The program of a step: of the first, of the one before again, or of the one behind that. Collective where its
    /// batch is another one than before: compiles it if it must, and ranks agree on its fingerprint. Throws NotMade on
    /// every rank where one of them could not make it: the state is that of the step before.
    Step at(int64_t step);
    /// Of the step that `at` was called for last.
    const HostResults& results() const { return *results_; }
    /// The batch of a step that `at` was called for, or of the one behind it. From another thread than the rest.
    void fill(int64_t step, std::byte* batch);
    /// Of the memory that `fill` writes: no step needs more.
    int64_t batch_bytes() const;
    /// Seconds that the steps have waited for programs being compiled.
    double waited_s() const { return waited_s_; }
    /// What the executors that are gone have spent.
    const std::vector<Executor::Time>& spent() const { return spent_; }

private:
    struct Sized {
        std::shared_ptr<const CompiledProgram> program;
        InputFeed feed;
    };
    using Made = std::shared_ptr<const Sized>;

    Made make(int64_t batch) const;
    Made take_next(int64_t step);
    int64_t batch_behind(int64_t step) const;

    Session& session_;
    const Dataset& data_;
    const BatchSizes& sizes_;
    const int64_t last_step_;
    const Compile compile_;
    std::mutex mutex_;  ///< of the two below
    Made now_;
    std::shared_future<Made> next_;       ///< of the size behind now_; invalid: there is none
    std::optional<HostResults> results_;  ///< of the step at hand
    double waited_s_ = 0;
    std::vector<Executor::Time> spent_;
};

}  // namespace orrery

#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compile/compile.h"
#include "orrery/registry.h"
#include "run/bits.h"
#include "run/control/agreement.h"
#include "run/control/exchange.h"
#include "run/control/job.h"
#include "run/control/rendezvous.h"
#include "run/control/stop_request.h"
#include "run/control/watch.h"
#include "run/rank_context.h"
#include "run/settings.h"

namespace orrery {

/// Compile options for the programs of a rank with these settings. `device` tells which
/// kernels it has and how much scratch memory they need; nullptr: scratch is not counted.
CompileOptions compile_options(const Settings& settings, const Job& job, Device* device, const Network& contracts,
                               const std::map<std::string, std::vector<ChunkTable>>& collectives);

/// One rank of a running job, for programs compiled for one mesh. A process may create sessions one after the other;
/// training state moves from one mesh to the next through a checkpoint store. Owns, in order: rendezvous, device,
/// context, executors; they are destroyed in reverse. Construction is collective over all ranks of the job.
class Session {
public:
    /// `device`: a device made by make_device() for this job; nullptr: the session makes one. Throws Fault::peer naming
    /// a rank that does not join or whose plan differs. `met`: set to true once this session can report to the other
    /// ranks why this rank ends. `end`: set to this rank's failure (end_by) if the constructor throws.
    Session(const Settings& settings, Config& config, const Registry& registry, const Job& job, Compiled compiled,
            std::unique_ptr<Device> device = nullptr, bool* met = nullptr, Loss* end = nullptr);
    ~Session();
    Session(const Session&) = delete;

    const Job& job() const { return job_; }
    const Settings& settings() const { return settings_; }
    const Compiled& compiled() const { return compiled_; }
    Device& device() { return *device_; }
    /// The executor of a compiled plan. Of the sizes of a step (batches, capacities) only one has an executor.
    Executor& executor(const Plan& plan);
    /// The executor of the program whose params and states a checkpoint holds: a train step, or logits if the session
    /// only samples.
    Executor& main() { return *executors_.front(); }
    /// The executor of a step of the round, in its current size.
    Executor& step_executor(const ProgramEntry& step) { return *executor_slot(step); }
    /// Replaces the executor of a step by one of `program`, another size of it; params and states stay.
    Executor& train_with(const CompiledProgram& program);
    /// Adds the executor of a program compiled later over the same params; the session owns both. Only in a job of one
    /// rank.
    Executor& add(std::shared_ptr<const CompiledProgram> program);
    /// This rank's connection to the rendezvous; nullptr in a job of one rank.
    Rendezvous* rendezvous() { return rendezvous_.get(); }
    std::chrono::milliseconds timeout() const { return settings_.timeout; }
    /// What affects the last bits of results, as found by settle_bits().
    const BitSources& bits() const { return bits_; }
    /// Compares what affects the last bits of results between ranks, and with the checkpoint of step `step` that the
    /// run resumes from (0: none), which records `saved`. `code`: libraries whose code the rank runs. Returns on rank 0
    /// a line for each host that differs, and one for the checkpoint. Collective.
    std::vector<std::string> settle_bits(const BitSources& code, const std::optional<BitSources>& saved, int64_t step);
    /// Lines to print about the run's transports and the collectives that overlap with kernels; may be empty.
    const std::vector<std::string>& notes() const { return notes_; }

    /// Draws each param from the seed, the param's name and the element's global index; clears every state.
    void initialize(uint64_t seed);
    /// Copies host memory to a local tensor of the device; `download` copies back. Both block until done.
    void upload(const Tensor& to, const void* from);
    void download(void* to, const Tensor& from);

    /// Returns the texts of all ranks in rank order. Collective. `topic` names the exchange in error messages.
    std::vector<std::string> exchange(const std::string& topic, const std::string& text,
                                      WaitLimit limit = WaitLimit::step);
    /// Throws Fault::usage if named values of a rank differ from rank 0's, with the rank and both values. Collective.
    void agree(const std::string& topic, const Agreement& parts);
    /// Returns the texts of all ranks on rank 0, nothing on the other ranks. Collective.
    std::vector<std::string> to_first(const std::string& topic, const std::string& text, WaitLimit limit);
    /// Returns rank 0's text on every rank. Collective.
    std::string from_first(const std::string& topic, const std::string& text, WaitLimit limit);
    /// Makes another Exchange between the ranks, for a second thread; its rounds do not mix with the session's. nullptr
    /// in a job of one rank.
    std::unique_ptr<Exchange> exchange_beside(const std::string& name);
    /// Aborts the communicators and reports to the other ranks why this rank ends.
    void fail(const std::string& why, Fault fault = Fault::failed);
    /// Sets the name of the current phase of the run, which later failures report as Loss::site.
    void at(const char* site) { site_ = site; }
    /// The failure that this rank reports to its launcher for `error`: its own, or that of another rank that caused it.
    Loss end_by(const std::exception& error) const;
    /// Waits until all ranks end the session. After that, a closed connection does not count as a lost rank.
    void leave();
    /// Must be called before the first step. From then on a stop signal takes effect after a step, when the ranks vote.
    void keep() { answer_->keep(); }
    /// Whether this rank failed because another rank was stopped before it had anything to save. Waits up to 0.3 s for
    /// the other rank's report.
    bool other_stopped() const;

private:
    std::unique_ptr<Executor>& executor_slot(const ProgramEntry& step);
    void meet(Config& config, const Registry& registry);
    void tell_stopped();
    void start(Config& config, const Registry& registry, std::unique_ptr<Device> device);
    void assemble(Config& config, const Registry& registry);
    void watch();

    Settings settings_;
    Job job_;
    Compiled compiled_;
    std::chrono::milliseconds bound_{0};  ///< max time of a wait within a step
    std::unique_ptr<RendezvousBackend> backend_;
    std::unique_ptr<RendezvousService> server_;
    std::unique_ptr<Member> rendezvous_;
    std::optional<Exchange> exchange_;
    std::unique_ptr<Device> device_;
    BitSources bits_;
    std::vector<std::string> notes_;
    std::optional<RankContext> context_;
    std::vector<std::unique_ptr<Executor>> executors_;  ///< in the order of Compiled::plans(), main() first
    std::vector<std::pair<std::shared_ptr<const CompiledProgram>, std::unique_ptr<Executor>>> added_;
    std::unique_ptr<StepWatch> watch_;
    std::optional<StopAnswer> answer_;
    std::atomic<const char*> site_ = "setup";  ///< current phase; a thread that ends a hanging process reads it too
};

}  // namespace orrery

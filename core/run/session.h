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

/// What the programs of a rank of these settings are compiled with. `device` counts scratch and says which kernels it
/// has; it may be nullptr: nothing is counted.
CompileOptions compile_options(const Settings& settings, const Job& job, Device* device, const Network& contracts,
                               const std::map<std::string, std::vector<ChunkTable>>& collectives);

/// One rank of a running job. What it is follows from the job, and from what was compiled of a recipe for a mesh: a
/// process may make one after the other, and state goes from mesh to mesh through a store. Owns everything, in order:
/// rendezvous, device, context, executors; destroyed in reverse. Construction is collective: every rank of the job must
/// come.
class Session {
public:
    /// `device`: one that make_device() has made for this job, as to count scratch; nullptr: makes it. Throws
    /// Fault::peer naming a rank that does not come, or whose plan differs.
    /// `met`: set once this session can report to the other ranks why this rank ends. `end`: if the constructor throws,
    /// end_by() of its exception.
    Session(const Settings& settings, Config& config, const Registry& registry, const Job& job, Compiled compiled,
            std::unique_ptr<Device> device = nullptr, bool* met = nullptr, Loss* end = nullptr);
    ~Session();
    Session(const Session&) = delete;

    const Job& job() const { return job_; }
    const Settings& settings() const { return settings_; }
    const Compiled& compiled() const { return compiled_; }
    Device& device() { return *device_; }
    /// The executor of a compiled plan. Of the train steps only the one in main() has an executor.
    Executor& executor(const Plan& plan);
    /// Of the program whose params and states a checkpoint holds: a train step, or logits where it is only sampled.
    Executor& main() { return *executors_.front(); }
    /// From here on main() runs this train step of compiled(); the executor before it is gone, params and states stay.
    Executor& train_with(const CompiledProgram& program);
    /// Of a program that was compiled later, over the same params; the session keeps both. In a job of one rank.
    Executor& add(std::shared_ptr<const CompiledProgram> program);
    /// nullptr in a job of one rank.
    Rendezvous* rendezvous() { return rendezvous_.get(); }
    std::chrono::milliseconds timeout() const { return settings_.timeout; }
    /// What the last bits of its numbers depend on, as settle_bits() found it.
    const BitSources& bits() const { return bits_; }
    /// `code`: the libraries whose code it runs. Of a run that resumes from a checkpoint of `step` (0: it does not)
    /// which records `saved`. Returns, on rank 0, a line for each host that differs, and one where the checkpoint does.
    /// Collective.
    std::vector<std::string> settle_bits(const BitSources& code, const std::optional<BitSources>& saved, int64_t step);
    /// What a run says of how it communicates; may be none.
    const std::vector<std::string>& notes() const { return notes_; }

    /// Draws every param from (seed, its name, global element index); clears every state.
    void initialize(uint64_t seed);
    /// Copies between host memory and a local tensor of the device; returns when done.
    void upload(const Tensor& to, const void* from);
    void download(void* to, const Tensor& from);

    /// Every rank's text in rank order. Collective; `topic` is for messages.
    std::vector<std::string> exchange(const std::string& topic, const std::string& text,
                                      WaitLimit limit = WaitLimit::step);
    /// Throws Fault::peer naming a rank that has another value, and of which part. Collective.
    void agree(const std::string& topic, const Agreement& parts);
    /// The same on rank 0, nothing elsewhere.
    std::vector<std::string> to_first(const std::string& topic, const std::string& text, WaitLimit limit);
    /// Rank 0's text on every rank. Collective.
    std::string from_first(const std::string& topic, const std::string& text, WaitLimit limit);
    /// Another one, whose rounds do not mix with the session's: for one further thread. nullptr in a job of one rank.
    std::unique_ptr<Exchange> exchange_beside(const std::string& name);
    /// Tells the others why this rank gives up.
    void fail(const std::string& why, Fault fault = Fault::failed);
    /// Where in its work this rank is, a word as Loss::site has it; what fails from here on has failed there.
    void at(const char* site) { site_ = site; }
    /// How this rank ends by `error`: by its own, or by what it has heard of another.
    Loss end_by(const std::exception& error) const;
    /// Ends in agreement: from here on, a closing connection is no loss.
    void leave();
    /// A step is about to begin: from here on a signal waits for the vote after it.
    void keep() { answer_->keep(); }
    /// What went wrong is that another rank was stopped with nothing to save. May wait for that news, for a third of a
    /// second.
    bool other_stopped() const;

private:
    void meet(Config& config, const Registry& registry);
    void tell_stopped();
    void start(Config& config, const Registry& registry, std::unique_ptr<Device> device);
    void assemble(Config& config, const Registry& registry);
    void watch();

    Settings settings_;
    Job job_;
    Compiled compiled_;
    std::chrono::milliseconds bound_{0};  ///< of a wait inside a step
    std::unique_ptr<RendezvousBackend> backend_;
    std::unique_ptr<RendezvousService> server_;
    std::unique_ptr<Member> rendezvous_;
    std::optional<Exchange> exchange_;
    std::unique_ptr<Device> device_;
    BitSources bits_;
    std::vector<std::string> notes_;
    std::optional<RankContext> context_;
    std::vector<std::unique_ptr<Executor>> executors_;  ///< as Compiled::plans(), main() first
    std::vector<std::pair<std::shared_ptr<const CompiledProgram>, std::unique_ptr<Executor>>> added_;
    std::unique_ptr<StepWatch> watch_;
    std::optional<StopAnswer> answer_;
    std::atomic<const char*> site_ = "setup";  ///< read by who gives up a call that does not return
};

}  // namespace orrery

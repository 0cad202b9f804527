#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orrery/registry.h"
#include "run/communication_thread.h"
#include "run/compile.h"
#include "run/exchange.h"
#include "run/executor.h"
#include "run/job.h"
#include "run/rendezvous.h"
#include "run/settings.h"
#include "run/stop_request.h"
#include "run/watch.h"

namespace orrery {

/// One rank of a running job. Owns everything, in order: rendezvous, device, arenas, transports, communicators,
/// executors; destroyed in reverse. Construction is collective: every rank of the job must come.
class Session {
public:
    /// `device`: one that make_device() has made for this job, as to count scratch; nullptr: makes it. Throws
    /// Fault::peer naming a rank that does not come, or whose plan differs.
    /// `met`: set as soon as the others learn from this session why this rank ends.
    Session(const Settings& settings, Config& config, const Registry& registry, const Job& job, Compiled compiled,
            std::unique_ptr<Device> device = nullptr, bool* met = nullptr);
    ~Session();
    Session(const Session&) = delete;

    const Job& job() const { return job_; }
    const Compiled& compiled() const { return compiled_; }
    Device& device() { return *device_; }
    Executor* train() { return train_.get(); }
    /// The train step at another size of the ramp, by its place in Compiled::smaller.
    Executor* smaller(size_t i) { return smaller_[i].get(); }
    Executor* eval() { return eval_.get(); }
    Executor* logits() { return logits_.get(); }
    /// nullptr in a job of one rank.
    Rendezvous* rendezvous() { return rendezvous_.get(); }
    std::chrono::milliseconds timeout() const { return settings_.timeout; }
    /// What a run says of how it communicates; may be none.
    const std::vector<std::string>& notes() const { return notes_; }

    /// Draws every param from (seed, its name, global element index); clears every state.
    void initialize(uint64_t seed);
    /// Copies between host memory and a local tensor of the device; returns when done.
    void upload(const Tensor& to, const void* from);
    void download(void* to, const Tensor& from);
    /// A scalar result of an executor's last step.
    double scalar(Executor& executor, const Program& program, std::string_view result);

    /// Every rank's text in rank order. Collective; `topic` is for messages.
    std::vector<std::string> exchange(const std::string& topic, const std::string& text,
                                      Patience patience = Patience::step);
    /// Throws Fault::peer naming a rank that has another value, and of which part. Collective.
    void agree(const std::string& topic, const Agreement& parts);
    /// The same on rank 0, nothing elsewhere.
    std::vector<std::string> to_first(const std::string& topic, const std::string& text, Patience patience);
    /// Tells the others why this rank gives up.
    void fail(const std::string& why);
    /// Ends in agreement: from here on, a closing connection is no loss.
    void leave();
    /// A step is about to begin: from here on a signal waits for the vote after it.
    void keep() { answer_->keep(); }
    /// What went wrong is that another rank was stopped with nothing to save. May wait for that news, for a third of a
    /// second.
    bool other_stopped() const;

private:
    void meet();
    void tell_stopped();
    void start(Config& config, const Registry& registry, std::unique_ptr<Device> device);
    void allocate();
    void connect(Config& config, const Registry& registry);
    void watch();
    std::unique_ptr<Executor> executor(const Plan& plan);
    void fill(const Program& program, ValueId id, uint64_t seed);

    Settings settings_;
    Job job_;
    Compiled compiled_;
    std::chrono::milliseconds bound_{0};  ///< of a wait inside a step
    std::unique_ptr<RendezvousServer> server_;
    std::unique_ptr<TcpRendezvous> rendezvous_;
    std::optional<Exchange> exchange_;
    std::unique_ptr<Device> device_;
    std::vector<Memory> arenas_;  ///< persistent, scratch
    std::map<std::string, std::unique_ptr<Transport>> transports_;
    std::unique_ptr<CommunicationThread> thread_;
    std::vector<std::string> notes_;
    std::vector<std::unique_ptr<Communicator>> communicators_;  ///< by axis, null for axes of size 1
    std::unique_ptr<Executor> train_, eval_, logits_;
    std::vector<std::unique_ptr<Executor>> smaller_;
    std::unique_ptr<StepWatch> watch_;
    std::optional<StopAnswer> answer_;
};

}  // namespace orrery

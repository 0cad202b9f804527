#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collective/communication_thread.h"
#include "orrery/communicator.h"
#include "orrery/plan.h"
#include "plan/host_places.h"
#include "plan/repeat.h"
#include "run/capture_vote.h"
#include "run/copy_progress.h"

namespace orrery {

/// When a rank's step did what, by the clock of its own thread: gaps are none, since each span begins where the last
/// one ended. Of work that a device queues it says when the host did so.
struct StepRecord {
    enum class What : uint8_t {
        inputs,    ///< the host's inputs copied in
        work,      ///< the instruction: a launch, a copy, a call of a communicator
        wait,      ///< before `position`, until what `awaited` does was done
        end,       ///< for the last messages, for sends and for the device; results copied out
        captured,  ///< the whole step, launched at once
        copied,    ///< until what the next instruction writes was copied for a save
    };
    struct Span {
        What what = What::work;
        int64_t position = none;  ///< of the instruction among all that a step issues
        int64_t awaited = none;
        Interval time;
    };
    std::vector<Span> spans;
    std::vector<Interval> beside;  ///< by position: when a CommunicationThread ran it
};

/// Looks at a rank's step while it runs, on that rank's thread.
class Observer {
public:
    virtual ~Observer() = default;
    virtual bool looks(int) const { return true; }  ///< false: the instruction runs as in a step without an observer
    virtual void before(int index) = 0;  ///< the instruction's waits are over, nothing of it has run
    virtual void after(int index) = 0;   ///< what it writes is complete; a send is handed over
};

/// Runs one rank's stream of a plan on a device and its communicators. Everything is resolved when it is made: kernels
/// prepared with this rank's attributes, operands as tensors at their addresses. One thread drives it.
class Executor {
public:
    /// `by_axis`: communicators by AxisId, nullptr where the plan does not communicate. `persistent`: an arena of
    /// Persistent::bytes(); `scratch`: one of RankClass::scratch_bytes. The plan, device, communicators and arenas must
    /// outlive the executor. Throws Error naming op and script line when the device cannot run a kernel.
    Executor(const Plan& plan, int64_t rank, Device& device, std::vector<Communicator*> by_axis, void* persistent,
             void* scratch);
    ~Executor();
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;

    /// One step; blocks until all its work is done, on the device by one synchronize. `inputs`: of inputs().bytes, host
    /// memory that the arena takes its inputs from, `results`: of results().bytes, what they are copied to; one copy
    /// each, none for nullptr. Allocates nothing and looks nothing up. A failure is rethrown with its fault, naming
    /// rank, instruction, values and script line; the contents of the arenas are then undefined. Where the device can,
    /// the second step is captured, and from then on a step is one launch between the copies.
    void run(const void* inputs = nullptr, void* results = nullptr);
    /// This rank's inputs, and its results of at most small_result_bytes, as they lie side by side.
    const HostPlaces& inputs() const { return inputs_; }
    const HostPlaces& results() const { return results_; }
    bool captured() const { return graph_ != nullptr; }
    /// Why a device that captures steps could not capture this one, or which other rank's could not; "" otherwise.
    const std::string& not_captured() const { return not_captured_; }
    /// With it ranks capture their steps all or none; all of them call it at the same step. See capture_vote.h.
    void capture_together(TextExchange exchange) { exchange_ = std::move(exchange); }
    /// Whose thread runs the collectives beside this one.
    void collectives_by(CommunicationThread& thread) { thread_ = &thread; }
    /// "attention (2): cuDNN" for each op whose kernels had a choice, by what was chosen: the text, and how many specs.
    std::vector<std::string> choices() const;
    /// The same, showing the observer every instruction; nothing overlaps then. Costs a step without one nothing.
    void run(Observer& observer);
    /// One instruction with its waits, until what it writes is complete (a send: handed over). `finish` ends a step
    /// that was issued so. For a twin that follows another executor's step.
    void issue(int index);
    void finish();
    /// Operand `which` of an instruction, at its address.
    /// Of a repeated stretch in the run at hand.
    const Tensor& operand(int index, size_t which) const;

    /// Whether this rank has the value after a step: with a pipeline, others have the rest.
    bool holds(ValueId value) const;
    /// The local part of an input, param, state or result. Throws Error for any other value.
    Tensor tensor(ValueId value) const;

    /// From here on waits, before it issues instruction i, until parts_before[i] parts of the copy are made. Not where
    /// steps are captured.
    void copied_beside(CopyProgress& copy, std::vector<int64_t> parts_before);
    /// The same of a copy that a queue of the device makes: no instruction with writes[i] begins before the gate
    /// (Device::gate) is done, in captured steps, too. The host does not wait. To be called before the first step.
    void copied_beside(const Event& gate, std::vector<bool> writes);

    /// Fills it in the next call of run(inputs, results), and only in that: room is made now, not inside the step.
    void record(StepRecord& record);

    /// Where the steps' time went, in host time: by kernel, by collective ("all_reduce dp"), waiting.
    struct Time {
        std::string name;
        enum class Kind : uint8_t { compute, communication, waiting } kind = Kind::compute;
        double seconds = 0;
        int64_t count = 0;
        std::string axis = {};  ///< of communication
    };
    std::vector<Time> times() const;
    /// The same by what its duration depends on.
    struct Cost {
        std::string name;  ///< as Time has it
        Time::Kind kind = Time::Kind::compute;
        int kernel = none;                         ///< of RankClass::kernels
        Opcode opcode = Opcode::kernel;            ///< communication, and copies
        AxisId axis = none;                        ///< communication
        int64_t bytes = 0;                         ///< copies, messages; collectives: of the larger tensor
        CallTimes all = {}, first = {};            ///< on the rank's thread; of these in the first step
        CallTimes beside = {}, first_beside = {};  ///< the same of collectives that a CommunicationThread ran
    };
    const std::vector<Cost>& costs() const { return costs_; }
    /// Where ranks take turns on processors a kernel's time says little of it: counts what the rank's thread was given,
    /// too. A system call an instruction.
    void count_processor_time() { counts_processor_ = true; }
    /// Of all kernels and copies but the first step's, in seconds; 0: not counted.
    double processor_seconds() const { return processor_s_ - first_processor_s_; }
    /// The instruction at hand, by its number among all that a step issues, and where that is a wait for a collective
    /// beside the kernels the collective that runs; any thread may ask, for a report about a hang.
    int position() const;
    bool running() const { return running_.load(std::memory_order_relaxed); }
    int64_t steps_begun() const { return steps_.load(std::memory_order_relaxed); }
    const Plan& plan() const { return plan_; }
    /// Bytes of kernel scratch that the plan does not know of: allocated beside the arenas.
    int64_t kernel_scratch_bytes() const { return kernel_scratch_.bytes; }

private:
    struct Launch;
    struct Machine;
    struct ObservedMachine;

    void prepare_kernels();
    template <class Walked>
    void guarded(Walked walked);
    std::string place(Fault fault) const;
    void complete(int index);
    void capture();
    void vote();
    void replay(void* results);
    void end(void* results);
    void copy_out(void* results);
    void require_native_events() const;
    void resolve(const Instruction& instruction, int index);
    void resolve_waits();
    void resolve_runs(int index);
    void begin_run(int64_t run);
    Event& event(const Issued& issued);
    /// The last time that the instruction is issued in a step.
    Issued of_last_run(int index) const { return {index, index >= class_.repeat.begin ? last_run(class_) : 0}; }
    bool repeated(int index) const { return index >= class_.repeat.begin && index < class_.repeat.end; }
    Tensor at(const Operand& operand, int64_t run) const;
    Kernel* kernel_of(const Instruction& instruction, int64_t run);
    int cost_id(Cost cost);
    void keep_first();

    const Plan& plan_;
    const RankClass& class_;
    int64_t rank_;
    Device& device_;
    std::vector<Communicator*> by_axis_;
    char* arenas_[2];
    const HostPlaces inputs_, results_;
    Memory kernel_scratch_;
    std::vector<std::unique_ptr<Kernel>> kernels_;
    std::map<std::pair<int, int64_t>, std::unique_ptr<Kernel>> by_micro_;  ///< those that depend on the micro-batch
    std::vector<char> depends_;                                            ///< by kernel: it does
    std::vector<Tensor> tensors_;   ///< operands of all instructions, one after the other
    std::vector<Launch> launches_;  ///< one per instruction
    std::vector<Event> events_;     ///< one per instruction: its completion, of messages and what they wait for
    /// Of a repeated stretch: of the last runs that something waits for, in turn; of its sends, of all runs.
    std::vector<Event> events_of_runs_, sends_of_runs_;
    int64_t runs_kept_ = 1;
    int64_t run_ = 0;
    std::vector<std::pair<size_t, Operand>> moving_;                     ///< tensors of the stretch, by what moves them
    std::vector<std::pair<int, std::vector<Kernel*>>> kernels_of_runs_;  ///< by instruction
    std::vector<Event> joins_;                                           ///< what the next message waits for
    std::vector<char> begun_;         ///< by axis: the step's first message has been issued
    std::vector<int> last_of_queue_;  ///< last communication instruction of each queue
    std::vector<Issued> sends_;       ///< all of them: a transport keeps something of each until it is waited for
    std::unique_ptr<Kernel> graph_;   ///< the whole step
    TextExchange exchange_;
    bool tried_capture_ = false;
    bool replays_ = false;  ///< the step at hand is one launch
    std::string not_captured_;
    std::vector<Cost> costs_;
    bool counts_processor_ = false;
    double processor_s_ = 0, first_processor_s_ = 0;
    StepRecord* record_ = nullptr;  ///< of the step at hand
    CopyProgress* copy_ = nullptr;
    std::vector<int64_t> parts_before_;  ///< by instruction, of the copy
    Event gate_;                         ///< of a copy by the device
    std::vector<bool> gated_;            ///< by instruction: behind it
    int gate_at_ = none;                 ///< the compute queue's first one
    std::atomic<int> position_{0};
    CommunicationThread* thread_ = nullptr;
    std::atomic<bool> running_{false};
    std::atomic<int64_t> steps_{0};
};

}  // namespace orrery

// This header is longer than 200 lines: it is one class with its state and timing records.
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

/// The timeline of one step on a rank's thread, without gaps: each span begins where the last one ended. For work that
/// a device queues, a span is the time in which the host queued it.
struct StepRecord {
    enum class What : uint8_t {
        inputs,    ///< inputs copied from the host
        work,      ///< an instruction: a launch, a copy, a call of a communicator
        wait,      ///< a wait before `position`, until instruction `awaited` was done
        end,       ///< waits for the last messages, for sends and for the device; results copied out
        captured,  ///< the whole step, launched at once
        copied,    ///< a wait until a save had copied what the next instruction overwrites
    };
    struct Span {
        What what = What::work;
        int64_t position = none;  ///< position of the instruction among all that a step issues
        int64_t awaited = none;   ///< for `wait`: position of the awaited instruction
        Interval time;
    };
    std::vector<Span> spans;
    std::vector<Interval> beside;  ///< when a CommunicationThread ran each instruction, by position
};

/// Observes a rank's step while it runs, on that rank's thread.
class Observer {
public:
    virtual ~Observer() = default;
    virtual bool looks(int) const { return true; }  ///< false: the instruction runs as without an observer
    virtual void before(int index) = 0;             ///< its waits are over, none of its work has run
    virtual void after(int index) = 0;  ///< its outputs are complete; a send has been handed to the transport
};

/// Runs one rank's stream of a plan on a device and its communicators. The constructor resolves everything: it prepares
/// kernels with this rank's attributes and binds operands to addresses. Driven by one thread.
class Executor {
public:
    /// `by_axis`: communicators by AxisId, nullptr for axes without communication. `persistent`: an arena of
    /// Persistent::bytes(); `scratch`: one of RankClass::scratch_bytes. Plan, device, communicators and arenas must
    /// outlive the executor. Throws Error naming op and script line if the device cannot run a kernel.
    Executor(const Plan& plan, int64_t rank, Device& device, std::vector<Communicator*> by_axis, void* persistent,
             void* scratch);
    ~Executor();
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;

    /// Runs one step; blocks until all its work is done, with one synchronize of the device. `inputs`: host memory of
    /// inputs().bytes, copied to the arena in one copy; `results`: host memory of results().bytes that receives the
    /// results in one copy; nullptr: no copy. Allocates nothing. A failure is rethrown with its fault, naming rank,
    /// instruction, values and script line; the arenas' contents are then undefined. If the device can capture, the
    /// second step is captured, and later steps are one launch each between the copies.
    void run(const void* inputs = nullptr, void* results = nullptr);
    /// Layout of this rank's inputs, and of its results of at most small_result_bytes, in contiguous host memory.
    const HostPlaces& inputs() const { return inputs_; }
    const HostPlaces& results() const { return results_; }
    bool captured() const { return graph_ != nullptr; }
    /// Why the step was not captured, on this rank or another, although the device captures steps; "" otherwise.
    const std::string& not_captured() const { return not_captured_; }
    /// Makes all ranks capture their step or none; `exchange` is called on all ranks at the same step. See
    /// capture_vote.h.
    void capture_together(TextExchange exchange) { exchange_ = std::move(exchange); }
    /// Runs collectives on `thread`, alongside kernels.
    void collectives_by(CommunicationThread& thread) { thread_ = &thread; }
    /// Which implementations kernels use if there was a choice, with the number of specs: "attention (2): cuDNN".
    std::vector<std::string> choices() const;
    /// Runs one step without overlap and shows the observer every instruction.
    void run(Observer& observer);
    /// Runs one instruction with its waits, until its outputs are complete (a send: handed over). Call `finish` after
    /// the last instruction of the step. For an executor that repeats another one's step, instruction by instruction.
    void issue(int index);
    void finish();
    /// Operand `which` of an instruction, with its address in the current repetition if it is in a repeated stretch.
    const Tensor& operand(int index, size_t which) const;

    /// Whether this rank holds the value after a step; in a pipeline, other ranks hold the rest.
    bool holds(ValueId value) const;
    /// The local part of an input, param, state or result. Throws Error for other values.
    Tensor tensor(ValueId value) const;

    /// Makes each later step wait before instruction i until parts_before[i] parts of the copy are done. Not for
    /// captured steps.
    void copied_beside(CopyProgress& copy, std::vector<int64_t> parts_before);
    /// Makes each instruction i with writes[i] wait for a copy made by a queue of the device, until the gate
    /// (Device::gate) is done; also in captured steps. The host does not wait. Call it before the first step.
    void copied_beside(const Event& gate, std::vector<bool> writes);

    /// Records the next call of run(inputs, results) only. Allocates memory now, so that the step does not.
    void record(StepRecord& record);

    /// Host time that all steps spent in one kernel, one kind of collective ("all_reduce dp"), or waiting.
    struct Time {
        std::string name;
        enum class Kind : uint8_t { compute, communication, waiting } kind = Kind::compute;
        double seconds = 0;
        int64_t count = 0;
        std::string axis = {};  ///< for communication: the mesh axis
    };
    std::vector<Time> times() const;
    /// Host time of all instructions whose duration depends on the same things: kernel, axis, bytes.
    struct Cost {
        std::string name;  ///< of the kernel or collective, as in Time
        Time::Kind kind = Time::Kind::compute;
        int kernel = none;                         ///< index into RankClass::kernels
        Opcode opcode = Opcode::kernel;            ///< for communication and copies
        AxisId axis = none;                        ///< for communication: the mesh axis
        int64_t bytes = 0;                         ///< of copies and messages; for collectives, of the larger tensor
        CallTimes all = {}, first = {};            ///< on the rank's thread: in all steps, in the first step
        CallTimes beside = {}, first_beside = {};  ///< on a CommunicationThread: in all steps, in the first step
    };
    const std::vector<Cost>& costs() const { return costs_; }
    /// Enables processor_seconds(), because wall time says little if ranks share processors. Costs a system call per
    /// instruction.
    void count_processor_time() { counts_processor_ = true; }
    /// Processor time of all kernels and copies except in the first step, in seconds; 0: not counted.
    double processor_seconds() const { return processor_s_ - first_processor_s_; }
    /// The current instruction's position among all that a step issues. If it waits for a collective on the
    /// communication thread, that collective's position. Any thread may call it, to report hangs.
    int position() const;
    bool running() const { return running_.load(std::memory_order_relaxed); }
    int64_t steps_begun() const { return steps_.load(std::memory_order_relaxed); }
    const Plan& plan() const { return plan_; }
    /// Bytes of kernel scratch that the plan does not include: allocated in addition to the arenas.
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
    /// The instruction as issued for the last time in a step.
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
    std::map<std::pair<int, int64_t>, std::unique_ptr<Kernel>> by_micro_;  ///< kernels that depend on the micro-batch
    std::vector<char> depends_;     ///< whether each kernel depends on the micro-batch
    std::vector<Tensor> tensors_;   ///< operands of all instructions, concatenated
    std::vector<Launch> launches_;  ///< resolved launch of each instruction
    std::vector<Event> events_;     ///< by instruction: completion of messages and of what they wait for
    /// For a repeated stretch: further events, so that each of the last runs_kept_ repetitions has its own; and one for
    /// each send of each repetition.
    std::vector<Event> events_of_runs_, sends_of_runs_;
    int64_t runs_kept_ = 1;                           ///< number of repetitions with events of their own
    int64_t run_ = 0;                                 ///< the current repetition
    std::vector<std::pair<size_t, Operand>> moving_;  ///< tensors whose address changes with the repetition
    std::vector<std::pair<int, std::vector<Kernel*>>> kernels_of_runs_;  ///< by instruction: its kernel per repetition
    std::vector<Event> joins_;                                           ///< events that the next message waits for
    std::vector<char> begun_;         ///< by axis: whether the step's first message has been issued
    std::vector<int> last_of_queue_;  ///< last communication instruction of each queue
    std::vector<Issued> sends_;       ///< all sends: a transport keeps state for each until it is waited for
    std::unique_ptr<Kernel> graph_;   ///< the captured step
    TextExchange exchange_;
    bool tried_capture_ = false;
    bool replays_ = false;  ///< whether the current step is one launch of the captured step
    std::string not_captured_;
    std::vector<Cost> costs_;
    bool counts_processor_ = false;
    double processor_s_ = 0, first_processor_s_ = 0;
    StepRecord* record_ = nullptr;  ///< record of the current step
    CopyProgress* copy_ = nullptr;
    std::vector<int64_t> parts_before_;  ///< by instruction: parts of the copy that it waits for
    Event gate_;                         ///< completion of a copy made by the device
    std::vector<bool> gated_;            ///< by instruction: whether it waits for gate_
    int gate_at_ = none;                 ///< the first instruction of the compute queue that waits for gate_
    std::atomic<int> position_{0};
    CommunicationThread* thread_ = nullptr;
    std::atomic<bool> running_{false};
    std::atomic<int64_t> steps_{0};
};

}  // namespace orrery

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
        wait,      ///< instruction `position` waited until instruction `awaited` was done
        end,       ///< the end of the step: waits for messages and the device, results copied out
        captured,  ///< the whole captured step, launched as one graph
        copied,    ///< a wait until a save had copied memory that the next instruction overwrites
    };
    struct Span {
        What what = What::work;
        int64_t position = none;  ///< position of the instruction among all that a step issues
        int64_t awaited = none;   ///< for `wait`: position of the awaited instruction
        Interval time;
    };
    std::vector<Span> spans;
    std::vector<Interval> beside;  ///< by position: when the communication thread ran the instruction
};

/// Observes a rank's step while it runs, on that rank's thread.
class Observer {
public:
    virtual ~Observer() = default;
    virtual bool looks(int) const { return true; }  ///< whether before() and after() are called for the instruction
    virtual void before(int index) = 0;             ///< instruction `index` has ended its waits and begins its work
    virtual void after(int index) = 0;              ///< instruction `index` is done; for a send, the transport took it
};

/// Runs one rank's instructions of a plan on a device and its communicators. The constructor prepares all kernels with
/// this rank's attributes and binds operands to addresses. Driven by one thread.
class Executor {
public:
    /// `by_axis`: communicators by AxisId, nullptr for axes without communication. `persistent`: memory of
    /// Persistent::bytes(); `scratch`: memory of RankClass::scratch_bytes. Plan, device, communicators and memory must
    /// outlive the executor. Throws Error naming op and script line if the device cannot run a kernel.
    /// `opening`: communicators of the plan's opening (plan/opening.h), in place of those of `by_axis`.
    Executor(const Plan& plan, int64_t rank, Device& device, std::vector<Communicator*> by_axis, void* persistent,
             void* scratch, std::vector<Communicator*> opening = {});
    ~Executor();
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;

    /// Runs one step; blocks until all its work is done, with one synchronize of the device. `inputs`: host memory of
    /// inputs().bytes, copied to the device before the step; `results`: host memory of results().bytes, filled after
    /// the step; nullptr: no copy. Allocates nothing. Rethrows a failure with its fault, naming rank, instruction,
    /// values and script line; values on the device are then undefined. If the device can capture, the second step is
    /// captured, and each later step replays it with one launch.
    void run(const void* inputs = nullptr, void* results = nullptr);
    /// Begins the plan's opening: its messages are on their way when this returns, and the next run() does the rest. No
    /// effect without an opening.
    void start();
    /// Waits until the messages that start() began have arrived.
    void settle();
    /// Offsets of inputs, and of results of at most small_result_bytes, in the host memory that run() is given.
    const HostPlaces& inputs() const { return inputs_; }
    const HostPlaces& results() const { return results_; }
    bool captured() const { return graph_ != nullptr; }
    /// Why the step was not captured, on this rank or another, although the device captures steps; "" otherwise.
    const std::string& not_captured() const { return not_captured_; }
    /// Makes either all ranks or none capture the step. `exchange` gathers the ranks' votes; all ranks call it at the
    /// same step (see capture_vote.h).
    void capture_together(TextExchange exchange) { exchange_ = std::move(exchange); }
    /// Runs collectives on `thread`, alongside kernels.
    void collectives_by(CommunicationThread& thread) { thread_ = &thread; }
    /// Runs the collectives of the plan's opening on `thread`.
    void opening_by(CommunicationThread& thread) { opening_thread_ = &thread; }
    /// Implementations that the device chose for kernels, with the number of kernel specs: "attention (2): cuDNN".
    std::vector<std::string> choices() const;
    /// Runs one step, each instruction to its end before the next one, and calls the observer before and after each.
    void run(Observer& observer);
    /// Runs one instruction after its waits, until its outputs are complete (a send: until the transport has taken it),
    /// to repeat another executor's step. Call finish() after the step's last instruction.
    void issue(int index);
    void finish();
    /// Operand number `which` of an instruction. If a step repeats the instruction, the current repetition's address.
    const Tensor& operand(int index, size_t which) const;

    /// Whether this rank holds the value after a step. In a pipeline, each stage holds only some of the values.
    bool holds(ValueId value) const;
    /// The local part of an input, param, state or result. Throws Error for other values.
    Tensor tensor(ValueId value) const;

    /// Makes later steps wait before each instruction i until the first parts_before[i] parts of `copy` are done. Not
    /// for captured steps.
    void copied_beside(CopyProgress& copy, std::vector<int64_t> parts_before);
    /// Makes each instruction i with writes[i] wait for `gate` (Device::gate), which ends a copy that a queue of the
    /// device makes; also in captured steps. The host does not wait. Call it before the first step.
    void copied_beside(const Event& gate, std::vector<bool> writes);

    /// Records the timeline of the next run(inputs, results), not of later ones. Allocates memory now, not in the step.
    void record(StepRecord& record);

    /// Host time that all steps spent in one kernel, one kind of collective ("all_reduce dp"), or waiting.
    struct Time {
        std::string name;
        enum class Kind : uint8_t { compute, communication, waiting } kind = Kind::compute;
        double seconds = 0;
        int64_t count = 0;
        std::string axis = {};
    };
    std::vector<Time> times() const;
    /// Host time summed over all instructions with the same kernel or opcode, mesh axis and number of bytes.
    struct Cost {
        std::string name;  ///< the kernel's op, or the collective: "all_reduce dp"
        Time::Kind kind = Time::Kind::compute;
        int kernel = none;               ///< index of the kernel in RankClass::kernels
        Opcode opcode = Opcode::kernel;  ///< for communication and copies: their opcode
        AxisId axis = none;
        int64_t bytes = 0;                         ///< bytes copied or sent; for a collective, of its larger tensor
        CallTimes all = {}, first = {};            ///< times on the rank's thread: in all steps, in the first step
        CallTimes beside = {}, first_beside = {};  ///< times on a CommunicationThread: in all steps, in the first step
    };
    const std::vector<Cost>& costs() const { return costs_; }
    /// Enables processor_seconds(), because wall time says little if ranks share processors. Costs a system call per
    /// instruction.
    void count_processor_time() { counts_processor_ = true; }
    /// Processor time of all kernels and copies except in the first step, in seconds; 0: not counted.
    double processor_seconds() const { return processor_s_ - first_processor_s_; }
    /// Position, among all instructions that a step issues, of the current instruction; while that waits for a
    /// collective on the communication thread, the collective's position. Any thread may call it, to report hangs.
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
    /// Instruction `index` in its last repetition within a step.
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
    std::vector<Communicator*> by_axis_, opening_by_axis_;
    const int opening_;     ///< number of instructions of the plan's opening
    bool started_ = false;  ///< whether the opening runs or has run, and the rest has not
    char* arenas_[2];
    const HostPlaces inputs_, results_;
    Memory kernel_scratch_;
    std::vector<std::unique_ptr<Kernel>> kernels_;
    std::map<std::pair<int, int64_t>, std::unique_ptr<Kernel>> by_micro_;  ///< kernels made for one micro-batch
    std::vector<char> depends_;     ///< whether each kernel depends on the micro-batch
    std::vector<Tensor> tensors_;   ///< operands of all instructions, concatenated
    std::vector<Launch> launches_;  ///< operands, kernel and communicator of each instruction
    std::vector<Event> events_;     ///< by instruction: event of a message, or of work that a message waits for
    /// Events of instructions that a step repeats: a set for each of the last runs_kept_ repetitions but one, which
    /// uses events_. `sends_of_runs_`: an event for each send in each repetition.
    std::vector<Event> events_of_runs_, sends_of_runs_;
    int64_t runs_kept_ = 1;                           ///< number of repetitions with events of their own
    int64_t run_ = 0;                                 ///< number of the current repetition within the step
    std::vector<std::pair<size_t, Operand>> moving_;  ///< tensors whose address changes with the repetition
    std::vector<std::pair<int, std::vector<Kernel*>>> kernels_of_runs_;  ///< by instruction: kernel of each repetition
    std::vector<Event> joins_;                                           ///< events that the next message waits for
    std::vector<char> begun_;         ///< by axis: whether the step's first message has been issued
    std::vector<int> last_of_queue_;  ///< last communication instruction of each queue
    std::vector<Issued> sends_;       ///< sends to wait for at the end: until then a transport keeps state for each
    std::unique_ptr<Kernel> graph_;   ///< the captured step
    TextExchange exchange_;
    bool tried_capture_ = false;
    bool replays_ = false;  ///< whether the current step is one launch of the captured step
    std::string not_captured_;
    std::vector<Cost> costs_;
    bool counts_processor_ = false;
    double processor_s_ = 0, first_processor_s_ = 0;
    StepRecord* record_ = nullptr;  ///< timeline of the current step; nullptr: not recorded
    CopyProgress* copy_ = nullptr;
    std::vector<int64_t> parts_before_;  ///< by instruction: number of copied parts that it waits for
    Event gate_;                         ///< completion of a copy made by the device
    std::vector<bool> gated_;            ///< by instruction: whether it waits for gate_
    int gate_at_ = none;                 ///< the first instruction of the compute queue that waits for gate_
    std::atomic<int> position_{0};
    CommunicationThread *thread_ = nullptr, *opening_thread_ = nullptr;
    std::atomic<bool> running_{false};
    std::atomic<int64_t> steps_{0};
};

}  // namespace orrery

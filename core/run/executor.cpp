#include "run/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <span>

#include "base/processors.h"
#include "plan/access.h"
#include "plan/opening.h"
#include "plan/print.h"
#include "plan/walk.h"
#include "run/capture_vote.h"

namespace orrery {

struct Executor::Launch {
    size_t first = 0;  ///< index of the first operand in tensors_
    size_t count = 0;
    Kernel* kernel = nullptr;
    void* workspace = nullptr;
    Communicator* communicator = nullptr;
    int cost = 0;
    int peer = none;                                ///< send, receive: the other member's index on the axis
    bool begins_group = false, ends_group = false;  ///< first, last of consecutive sends and receives over one axis
    bool marked = false;                            ///< whether a message waits for this kernel or copy
    int send = none;                                ///< for a repeated send: index of its first event in sends_of_runs_
};

/// Executes each instruction that walk() visits, on the device's compute queue or a communicator.
struct Executor::Machine {
    using Clock = std::chrono::steady_clock;

    explicit Machine(Executor& executor, bool captures = false) : e(executor), captures(captures), last(Clock::now()) {
        if (e.counts_processor_) given = processor_s();
        e.joins_.clear();
        std::fill(e.begun_.begin(), e.begun_.end(), char{0});
        begin = e.device_.record(0);
    }

    Executor& e;
    const bool captures;  ///< whether the step is being captured: the host must not wait then, events order all work
    Event begin;          ///< event after the inputs are copied, for which the first message on each axis waits
    Clock::time_point last;
    double given = 0;  ///< processor seconds of this thread at time `last`; 0: not counted

    const Instruction& instruction(int index) const { return e.class_.stream[index]; }
    Launch& launch(int index) const { return e.launches_[index]; }
    const Tensor& tensor(int index, size_t operand) const { return e.tensors_[launch(index).first + operand]; }

    void spend(int cost, const StepRecord::Span& span) {
        if (captures) return;
        const auto now = Clock::now();
        e.costs_[cost].all.add(std::chrono::duration<double>(now - last).count());
        if (e.record_) e.record_->spans.push_back({span.what, span.position, span.awaited, {last, now}});
        last = now;
        if (!e.counts_processor_) return;
        const double until = processor_s();
        if (e.costs_[cost].kind == Time::Kind::compute) e.processor_s_ += until - given;
        given = until;
    }
    /// Adds the host time since the last call to the cost of this instruction's kernel, copy or message.
    void charge(int index) {
        StepRecord::Span span;
        if (e.record_) span.position = position_of(e.class_, {index, e.run_});
        spend(launch(index).cost, span);
    }

    void begin_run(int64_t run) { e.begin_run(run); }

    void at_hand(const Issued& issued) const {
        e.position_.store(static_cast<int>(position_of(e.class_, issued)), std::memory_order_relaxed);
    }
    void at_hand(int index) const { at_hand({index, e.run_}); }

    void wait(int index, int earlier) {
        const Issued awaited = waited_for(e.class_, {index, e.run_}, earlier);
        const Instruction& before = instruction(awaited.index);
        at_hand(before.queue == 0 ? Issued{index, e.run_} : awaited);
        const Event& event = e.event(awaited);
        if (instruction(index).queue == 0)
            e.device_.wait(0, event);
        else if (before.queue == 0 || event.native() != nullptr)
            return e.joins_.push_back(event);
        else
            event.wait();
        StepRecord::Span span{StepRecord::What::wait};
        if (e.record_) {
            span.position = position_of(e.class_, {index, e.run_});
            span.awaited = position_of(e.class_, awaited);
        }
        spend(0, span);
    }

    /// Waits until a save has copied what the instruction overwrites.
    void copied(int index) {
        if (index == e.gate_at_) e.device_.wait(0, e.gate_);
        if (!e.copy_ || !e.copy_->wait_for(e.parts_before_[index])) return;
        spend(0, {StepRecord::What::copied});
    }

    /// Records an event if a message on another queue waits for the instruction.
    void mark(int index) {
        if (launch(index).marked) e.event({index, e.run_}) = e.device_.record(0);
    }

    void kernel(int index) {
        at_hand(index);
        copied(index);
        const Launch& l = launch(index);
        e.device_.launch(0, *l.kernel, std::span<const Tensor>(e.tensors_.data() + l.first, l.count), l.workspace);
        mark(index);
        charge(index);
    }

    void copy(int index) {
        at_hand(index);
        copied(index);
        const Tensor& from = tensor(index, 0);
        e.device_.copy(0, tensor(index, 1).data, from.data, from.bytes());
        mark(index);
        charge(index);
    }

    int64_t tag(int index) const { return instruction(index).tag + e.run_ * e.class_.repeat.micros; }

    /// The event that the message at `index` must wait for. Several events are joined on a separate queue.
    Event after(int index) {
        at_hand(index);
        copied(index);
        const Instruction& i = instruction(index);
        Event all;
        if (e.gate_.owner && e.gated_[index]) {
            if (e.joins_.empty()) e.joins_.push_back(begin);
            e.joins_.push_back(e.gate_);
        }
        if (e.joins_.size() == 1) {
            all = e.joins_.front();
        } else if (!e.joins_.empty()) {
            const int beside = Device::first_free_queue + i.queue;
            for (const Event& event : e.joins_) e.device_.wait(beside, event);
            all = e.device_.record(beside);
        }
        e.joins_.clear();
        char& begun = e.begun_[i.axis];
        const bool first = begun == 0;
        begun = 1;
        return first && !all.owner ? begin : all;
    }

    void collective(int index) {
        const Event ready = after(index);
        const Instruction& i = instruction(index);
        Communicator& c = *launch(index).communicator;
        if (CommunicationThread* const thread = index < e.opening_ ? e.opening_thread_ : e.thread_) {
            const int64_t position = position_of(e.class_, {index, e.run_});
            thread->mark(position, &e.costs_[launch(index).cost].beside,
                         e.record_ ? &e.record_->beside[position] : nullptr);
        }
        e.event({index, e.run_}) = call_collective(c, i.opcode, tensor(index, 0), tensor(index, 1), i.reduce, ready);
        charge(index);
    }

    void send(int index) {
        const Event ready = after(index);
        const Launch& l = launch(index);
        if (l.begins_group) l.communicator->begin_group();
        e.event({index, e.run_}) = l.communicator->send(tensor(index, 0), l.peer, tag(index), ready);
        if (l.ends_group) l.communicator->end_group();
        charge(index);
    }

    void receive(int index) {
        const Event ready = after(index);
        const Launch& l = launch(index);
        if (l.begins_group) l.communicator->begin_group();
        e.event({index, e.run_}) = l.communicator->receive(tensor(index, 0), l.peer, tag(index), ready);
        if (l.ends_group) l.communicator->end_group();
        charge(index);
    }
};

/// Runs each instruction to its end, and calls the observer before and after it.
struct Executor::ObservedMachine {
    Machine& machine;
    Observer& observer;

    template <class Instructed>
    void shown(int index, Instructed instructed) {
        if (!observer.looks(index)) return instructed();
        observer.before(index);
        instructed();
        machine.e.complete(index);
        observer.after(index);
    }
    void begin_run(int64_t run) { machine.begin_run(run); }
    void wait(int index, int earlier) { machine.wait(index, earlier); }
    void kernel(int index) {
        shown(index, [&] { machine.kernel(index); });
    }
    void copy(int index) {
        shown(index, [&] { machine.copy(index); });
    }
    void collective(int index) {
        shown(index, [&] { machine.collective(index); });
    }
    void send(int index) {
        shown(index, [&] { machine.send(index); });
    }
    void receive(int index) {
        shown(index, [&] { machine.receive(index); });
    }
};

Executor::Executor(const Plan& plan, int64_t rank, Device& device, std::vector<Communicator*> by_axis, void* persistent,
                   void* scratch, std::vector<Communicator*> opening)
    : plan_(plan),
      class_(plan.class_of(rank)),
      rank_(rank),
      device_(device),
      by_axis_(std::move(by_axis)),
      opening_by_axis_(std::move(opening)),
      opening_(orrery::opening(plan.program, class_)),
      arenas_{static_cast<char*>(persistent), static_cast<char*>(scratch)},
      inputs_(host_inputs(plan.program, class_)),
      results_(host_results(plan.program, class_)) {
    if (plan.fingerprint == for_prices_alone)
        throw Error("this plan is for cost estimates only (sim/software): it has no memory addresses and cannot run",
                    Fault::failed);
    by_axis_.resize(plan.mesh.ids(), nullptr);
    opening_by_axis_.resize(plan.mesh.ids(), nullptr);
    begun_.resize(by_axis_.size(), 0);
    cost_id({"waiting", Time::Kind::waiting});
    prepare_kernels();
    launches_.reserve(class_.stream.size());
    events_.resize(class_.stream.size());
    for (size_t i = 0; i < class_.stream.size(); ++i) resolve(class_.stream[i], i);
    resolve_waits();
    size_t most = 0;
    for (const Instruction& instruction : class_.stream) most = std::max(most, instruction.waits.size());
    joins_.reserve(most + 2);
}

Executor::~Executor() {
    if (kernel_scratch_.data) device_.release(kernel_scratch_);
}

void Executor::prepare_kernels() {
    std::vector<int> first_use(class_.kernels.size(), none);
    for (size_t i = 0; i < class_.stream.size(); ++i) {
        const Instruction& instruction = class_.stream[i];
        if (instruction.opcode != Opcode::kernel) continue;
        int& use = first_use[instruction.kernel];
        if (use == none) use = i;
    }
    kernels_.resize(class_.kernels.size());
    for (size_t k = 0; k < kernels_.size(); ++k) {
        if (first_use[k] == none) continue;
        try {
            kernels_[k] = device_.prepare(kernel_for(class_, static_cast<int>(k), plan_.mesh, rank_));
        } catch (const Error& error) {
            throw Error(describe(plan_, class_, first_use[k]) + ": " + error.what(), error.fault());
        }
    }
    depends_.assign(kernels_.size(), 0);
    for (const PerRank& p : class_.per_rank) depends_[p.kernel] |= plan_.mesh.axis(p.axis).sequential;
    int64_t beside = 0;  // max scratch bytes of kernels without a workspace in the plan
    for (size_t i = 0; i < class_.stream.size(); ++i) {
        const Instruction& instruction = class_.stream[i];
        if (instruction.opcode != Opcode::kernel) continue;
        const int64_t needs = kernels_[instruction.kernel]->scratch_bytes();
        if (instruction.workspace == none) {
            beside = std::max(beside, needs);
        } else if (const int64_t has = class_.buffers[instruction.workspace].bytes; has < needs) {
            throw Error(fmt::format("{}: its kernel has {} bytes of workspace in the plan, but the device needs {}",
                                    describe(plan_, class_, i), has, needs),
                        Fault::failed);
        }
    }
    if (beside > 0) kernel_scratch_ = device_.allocate(beside, MemoryKind::device);
}

Tensor Executor::at(const Operand& operand, int64_t run) const {
    const Buffer& buffer = class_.buffers.at(operand.buffer);
    char* arena = arenas_[buffer.arena == Arena::scratch];
    return {arena + address(class_, operand, run), operand.type.dtype, operand.type.shape};
}

/// The kernel of an instruction in repetition `run`. Kernels that depend on the micro-batch are prepared for each
/// micro-batch.
Kernel* Executor::kernel_of(const Instruction& instruction, int64_t run) {
    const int index = instruction.kernel;
    if (!depends_[index]) return kernels_[index].get();
    const int64_t micro = instruction.fragment.micro + run * class_.repeat.micros;
    std::unique_ptr<Kernel>& kernel = by_micro_[{index, micro}];
    if (!kernel) kernel = device_.prepare(kernel_for(class_, index, plan_.mesh, rank_, micro));
    return kernel.get();
}

void Executor::resolve(const Instruction& instruction, int index) {
    Launch launch;
    launch.first = tensors_.size();
    launch.count = instruction.operands.size();
    const int64_t run = index >= class_.repeat.end ? last_run(class_) : 0;
    for (const Operand& operand : instruction.operands) tensors_.push_back(at(operand, run));
    if (instruction.opcode == Opcode::kernel) {
        launch.kernel = kernel_of(instruction, run);
        const int own = instruction.workspace;
        launch.workspace = own == none ? kernel_scratch_.data : arenas_[1] + class_.buffers[own].offset;
        const std::string& op = class_.kernels[instruction.kernel].op;
        launch.cost = cost_id({op, Time::Kind::compute, instruction.kernel});
    } else if (instruction.opcode == Opcode::copy) {
        const int64_t bytes = instruction.operands.front().type.bytes();
        launch.cost = cost_id({"copy", Time::Kind::compute, none, instruction.opcode, none, bytes});
    } else {
        const std::string& axis = plan_.mesh.axis(instruction.axis).name;
        launch.communicator = (index < opening_ ? opening_by_axis_ : by_axis_)[instruction.axis];
        if (!launch.communicator)
            throw Error(describe(plan_, class_, index) + ": there is no communicator for axis " + axis, Fault::failed);
        int64_t bytes = instruction.operands.front().type.bytes();
        if (instruction.opcode == Opcode::all_gather) bytes = instruction.operands[1].type.bytes();
        launch.cost = cost_id({fmt::format("{} {}", name_of(instruction.opcode), axis), Time::Kind::communication, none,
                               instruction.opcode, instruction.axis, bytes});
        const auto pairs = [&](size_t i) {
            if (i >= class_.stream.size()) return false;
            const Instruction& other = class_.stream[i];
            return (other.opcode == Opcode::send || other.opcode == Opcode::receive) && other.axis == instruction.axis;
        };
        if (pairs(index)) {
            const int64_t own = plan_.mesh.coordinates(rank_)[instruction.axis];
            launch.peer = instruction.peer_of(own, plan_.mesh.size(instruction.axis));
            launch.begins_group = index == 0 || !pairs(index - 1);
            launch.ends_group = !pairs(index + 1);
        }
        if (instruction.opcode == Opcode::send) {
            const int64_t times = times_of(class_, index);
            if (times > 1) {
                launch.send = sends_of_runs_.size();
                sends_of_runs_.resize(sends_of_runs_.size() + times);
            }
            for (int64_t k = 0; k < times; ++k) sends_.push_back({index, times > 1 ? k : run});
        }
        if (instruction.queue >= std::ssize(last_of_queue_)) last_of_queue_.resize(instruction.queue + 1, none);
        last_of_queue_[instruction.queue] = index;
    }
    launches_.push_back(launch);
    if (repeats(class_) && repeated(index)) resolve_runs(index);
}

/// Collects those operands and kernels of an instruction that change with each repetition in a step.
void Executor::resolve_runs(int index) {
    const Instruction& instruction = class_.stream[index];
    for (size_t o = 0; o < instruction.operands.size(); ++o) {
        const Operand& operand = instruction.operands[o];
        if (operand.step != 0 || class_.buffers[operand.buffer].frames != none)
            moving_.emplace_back(launches_.back().first + o, operand);
    }
    if (instruction.opcode != Opcode::kernel || !depends_[instruction.kernel]) return;
    auto& [at, kernels] = kernels_of_runs_.emplace_back(index, std::vector<Kernel*>());
    for (int64_t run = 0; run <= last_run(class_); ++run) kernels.push_back(kernel_of(instruction, run));
}

/// Marks the instructions that messages wait for, and sets the number of repetitions that need events of their own.
void Executor::resolve_waits() {
    const Repeat& r = class_.repeat;
    for (const Instruction& instruction : class_.stream)
        for (const int wait : instruction.waits) {
            if (repeats(class_) && wait >= r.from() && wait < r.begin) runs_kept_ = 2;
            if (instruction.queue == 0 || class_.stream[wait].queue != 0) continue;
            launches_[wait].marked = true;
            for (int like = wait; repeats(class_) && wait >= r.from() && like < r.end; like += r.length())
                launches_[like].marked = true;
        }
    events_of_runs_.resize((runs_kept_ - 1) * r.length());
}

void Executor::begin_run(int64_t run) {
    run_ = run;
    if (!repeats(class_)) return;
    for (const auto& [tensor, operand] : moving_)
        tensors_[tensor].data =
            arenas_[class_.buffers[operand.buffer].arena == Arena::scratch] + address(class_, operand, run);
    for (const auto& [index, kernels] : kernels_of_runs_) launches_[index].kernel = kernels[run];
}

Event& Executor::event(const Issued& issued) {
    const size_t index = issued.index;
    if (!repeats(class_) || !repeated(issued.index)) return events_[index];
    if (const int send = launches_[index].send; send != none) return sends_of_runs_[send + issued.run];
    const int64_t turn = issued.run % runs_kept_;
    if (turn == 0) return events_[index];
    return events_of_runs_[(turn - 1) * class_.repeat.length() + issued.index - class_.repeat.begin];
}

int Executor::position() const {
    const int here = position_.load(std::memory_order_relaxed), beside = thread_ ? thread_->at_hand() : none;
    if (beside == none || beside >= issues(class_)) return here;
    return class_.stream[issued_at(class_, here).index].queue != 0 ? beside : here;
}

/// Describes the instruction at which a step failed; for a captured step, which is one launch, the whole step.
std::string Executor::place(Fault fault) const {
    if (!replays_) return "in " + describe(plan_, class_, issued_at(class_, position()));
    const std::string hint = fault == Fault::failed ? graph_->how() : "";
    return "in the captured step" + (hint.empty() ? "" : " (" + hint + ")");
}

/// Calls `walked`. Adds the rank and the current instruction to the message of an error that it throws.
template <class Walked>
void Executor::guarded(Walked walked) {
    try {
        walked();
    } catch (const Error& error) {
        throw Error(fmt::format("rank {}: {}\n  {}", rank_, error.what(), place(error.fault())), error.fault());
    } catch (const std::exception& error) {  // plugins may throw other exception types
        throw Error(fmt::format("rank {}: {}\n  {}", rank_, error.what(), place(Fault::failed)), Fault::failed);
    }
}

void Executor::copied_beside(CopyProgress& copy, std::vector<int64_t> parts_before) {
    assert(!device_.captures() && parts_before.size() == class_.stream.size());
    copy_ = &copy;
    parts_before_ = std::move(parts_before);
}

void Executor::copied_beside(const Event& gate, std::vector<bool> writes) {
    assert(gate.owner && writes.size() == class_.stream.size());
    gate_ = gate;
    gated_ = std::move(writes);
    gate_at_ = none;
    for (size_t i = class_.stream.size(); i-- > 0;)
        if (class_.stream[i].queue == 0 && gated_[i]) gate_at_ = i;
}

void Executor::start() {
    if (opening_ == 0) return;
    assert(!started_);
    started_ = true;
    running_.store(true, std::memory_order_relaxed);
    guarded([&] {
        Machine machine(*this);
        for (int i = 0; i < opening_; ++i) visit(class_, i, machine);
    });
    running_.store(false, std::memory_order_relaxed);
}

void Executor::settle() {
    if (!started_) return;
    guarded([&] {
        for (int i = 0; i < opening_; ++i)
            if (is_collective(class_.stream[i].opcode)) event({i, 0}).wait();
    });
}

void Executor::run(const void* inputs, void* results) {
    const bool first = steps_.fetch_add(1, std::memory_order_relaxed) == 0;
    running_.store(true, std::memory_order_relaxed);
    if (!first && !tried_capture_ && opening_ == 0 && device_.captures()) {
        guarded([&] { capture(); });
        if (exchange_) vote();
        if (graph_) cost_id({"captured step", Time::Kind::compute});
    }
    replays_ = graph_ != nullptr;
    guarded([&] {
        position_.store(0, std::memory_order_relaxed);
        const auto begin = Machine::Clock::now();
        if (inputs && inputs_.bytes > 0) device_.copy(0, arenas_[0] + inputs_.begin, inputs, inputs_.bytes);
        if (record_) record_->spans.push_back({StepRecord::What::inputs, none, none, {begin, Machine::Clock::now()}});
        if (replays_) return replay(results);
        Machine machine(*this);
        if (started_)
            for (int i = opening_; i < std::ssize(class_.stream); ++i) visit(class_, i, machine);
        else
            walk(class_, machine);
        started_ = false;
        end(results);
        machine.spend(0, {StepRecord::What::end});
        if (first) keep_first();
    });
    record_ = nullptr;
    running_.store(false, std::memory_order_relaxed);
}

/// Throws Error if only the host can see that a message is complete, because such a message cannot be captured.
void Executor::require_native_events() const {
    const auto require = [&](const Event& event, const Issued& of) {
        if (event.owner && !event.native())
            throw Error(
                fmt::format("{}: cannot be captured in a graph: its transport needs calls of the host to progress",
                            describe(plan_, class_, of)));
    };
    for (size_t i = 0; i < events_.size(); ++i) require(events_[i], {static_cast<int>(i), 0});
    for (const Issued& send : sends_) require(const_cast<Executor*>(this)->event(send), send);
}

/// Captures the step, after a step that ran uncaptured and so initialised all libraries.
void Executor::capture() {
    tried_capture_ = true;
    graph_ = device_.capture(
        [&] {
            require_native_events();
            Machine machine(*this, true);
            walk(class_, machine);
            for (int last : last_of_queue_)
                if (last != none) device_.wait(0, event(of_last_run(last)));
        },
        not_captured_);
}

void Executor::vote() {
    running_.store(false, std::memory_order_relaxed);  // so that the hang watch ignores this wait
    const std::string others = agree_on_capture(graph_ != nullptr, not_captured_, exchange_);
    running_.store(true, std::memory_order_relaxed);
    if (others.empty()) return;
    graph_.reset();
    not_captured_ = others;
}

void Executor::replay(void* results) {
    Machine machine(*this);
    device_.launch(0, *graph_, {}, nullptr);
    copy_out(results);
    Event end = device_.record(0);
    for (int last : last_of_queue_) {
        if (last == none) continue;
        position_.store(static_cast<int>(position_of(class_, of_last_run(last))), std::memory_order_relaxed);
        end = launches_[last].communicator->guard(end);
    }
    end.wait();
    device_.synchronize(0);
    machine.spend(std::ssize(costs_) - 1, {StepRecord::What::captured});
}

void Executor::run(Observer& observer) {
    replays_ = false;
    guarded([&] {
        Machine machine(*this);
        ObservedMachine observed{machine, observer};
        walk(class_, observed);
        finish();
    });
}

void Executor::issue(int index) {
    replays_ = false;
    guarded([&] {
        Machine machine(*this);
        visit(class_, index, machine);
        complete(index);
    });
}

void Executor::finish() { end(nullptr); }

void Executor::end(void* results) {
    for (int last : last_of_queue_)
        if (last != none) {
            position_.store(static_cast<int>(position_of(class_, of_last_run(last))), std::memory_order_relaxed);
            event(of_last_run(last)).wait();
        }
    for (const Issued& send : sends_) {  // a transport frees a send's state only when the send is waited for
        const Event& sent = event(send);
        if (sent.native()) continue;
        position_.store(static_cast<int>(position_of(class_, send)), std::memory_order_relaxed);
        sent.wait();
    }
    copy_out(results);
    device_.synchronize(0);
}

/// Copies results to the host after the work of queue 0. Messages are complete already, or part of the captured step.
void Executor::copy_out(void* results) {
    if (results && results_.bytes > 0) device_.copy(0, results, arenas_[0] + results_.begin, results_.bytes);
}

void Executor::complete(int index) {
    const Instruction& instruction = class_.stream[index];
    if (instruction.opcode == Opcode::send) return;
    if (instruction.queue == 0)
        device_.synchronize(0);
    else
        event({index, run_}).wait();
}

const Tensor& Executor::operand(int index, size_t which) const { return tensors_[launches_[index].first + which]; }

}  // namespace orrery

#include "run/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <span>

#include "collective/communication_thread.h"
#include "plan/print.h"
#include "plan/walk.h"
#include "run/capture_vote.h"

namespace orrery {

struct Executor::Launch {
    size_t first = 0;  ///< in tensors_
    size_t count = 0;
    Kernel* kernel = nullptr;
    void* workspace = nullptr;
    Communicator* communicator = nullptr;
    int time = 0;
    int peer = none;                                ///< send, receive: the other member
    bool begins_group = false, ends_group = false;  ///< a run of sends and receives of one axis
    bool marked = false;                            ///< of the compute queue: a message waits for it
};

/// What the walk drives: the device's compute queue and the communicators.
struct Executor::Machine {
    using Clock = std::chrono::steady_clock;

    explicit Machine(Executor& executor, bool captures = false) : e(executor), captures(captures), last(Clock::now()) {
        e.joins_.clear();
        std::fill(e.begun_.begin(), e.begun_.end(), char{0});
        begin = e.device_.record(0);
    }

    Executor& e;
    const bool captures;  ///< nothing runs: all work must hang together by events, and nothing may wait here
    Event begin;          ///< of the step, behind the inputs' copy: what each communicator's first message goes behind
    Clock::time_point last;

    const Instruction& instruction(int index) const { return e.class_.stream[static_cast<size_t>(index)]; }
    Launch& launch(int index) const { return e.launches_[static_cast<size_t>(index)]; }
    const Tensor& tensor(int index, size_t operand) const { return e.tensors_[launch(index).first + operand]; }

    void charge(int time) {
        if (captures) return;
        const auto now = Clock::now();
        Time& t = e.times_[static_cast<size_t>(time)];
        t.seconds += std::chrono::duration<double>(now - last).count();
        ++t.count;
        last = now;
    }

    void wait(int index, int earlier) {
        const Instruction& before = instruction(earlier);
        e.position_.store(before.queue == 0 ? index : earlier, std::memory_order_relaxed);
        const Event& event = e.events_[static_cast<size_t>(earlier)];
        if (instruction(index).queue == 0)
            e.device_.wait(0, event);
        else if (before.queue == 0 || event.native() != nullptr)
            return e.joins_.push_back(event);  // the message goes behind it
        else
            event.wait();
        charge(0);
    }

    /// A message that goes to another queue may wait for it.
    void mark(int index) {
        if (launch(index).marked) e.events_[static_cast<size_t>(index)] = e.device_.record(0);
    }

    void kernel(int index) {
        e.position_.store(index, std::memory_order_relaxed);
        const Launch& l = launch(index);
        e.device_.launch(0, *l.kernel, std::span<const Tensor>(e.tensors_.data() + l.first, l.count), l.workspace);
        mark(index);
        charge(l.time);
    }

    void copy(int index) {
        e.position_.store(index, std::memory_order_relaxed);
        const Tensor& from = tensor(index, 0);
        e.device_.copy(0, tensor(index, 1).data, from.data, from.bytes());
        mark(index);
        charge(launch(index).time);
    }

    /// What the message goes behind, and nothing else. Several events are joined on a queue beside its own.
    Event after(int index) {
        e.position_.store(index, std::memory_order_relaxed);
        const Instruction& i = instruction(index);
        Event all;
        if (e.joins_.size() == 1) {
            all = e.joins_.front();
        } else if (!e.joins_.empty()) {
            const int beside = Device::first_free_queue + i.queue;
            for (const Event& event : e.joins_) e.device_.wait(beside, event);
            all = e.device_.record(beside);
        }
        e.joins_.clear();
        char& begun = e.begun_[static_cast<size_t>(i.axis)];
        const bool first = begun == 0;
        begun = 1;
        return first && !all.owner ? begin : all;
    }

    void collective(int index) {
        const Event ready = after(index);
        const Instruction& i = instruction(index);
        Communicator& c = *launch(index).communicator;
        if (e.thread_) e.thread_->mark(index);
        const Tensor& in = tensor(index, 0);
        Event& done = e.events_[static_cast<size_t>(index)];
        switch (i.opcode) {
            case Opcode::all_reduce: done = c.all_reduce(in, tensor(index, 1), i.reduce, ready); break;
            case Opcode::all_gather: done = c.all_gather(in, tensor(index, 1), ready); break;
            case Opcode::reduce_scatter: done = c.reduce_scatter(in, tensor(index, 1), i.reduce, ready); break;
            case Opcode::all_to_all: done = c.all_to_all(in, tensor(index, 1), ready); break;
            default: assert(false);
        }
        charge(launch(index).time);
    }

    void send(int index) {
        const Event ready = after(index);
        const Launch& l = launch(index);
        if (l.begins_group) l.communicator->begin_group();
        e.events_[static_cast<size_t>(index)] =
            l.communicator->send(tensor(index, 0), l.peer, instruction(index).tag, ready);
        if (l.ends_group) l.communicator->end_group();
        charge(l.time);
    }

    void receive(int index) {
        const Event ready = after(index);
        const Launch& l = launch(index);
        if (l.begins_group) l.communicator->begin_group();
        e.events_[static_cast<size_t>(index)] =
            l.communicator->receive(tensor(index, 0), l.peer, instruction(index).tag, ready);
        if (l.ends_group) l.communicator->end_group();
        charge(l.time);
    }
};

/// Completes each instruction before the next one and shows it.
struct Executor::ObservedMachine {
    Machine& machine;
    Observer& observer;

    template <class Instructed>
    void shown(int index, Instructed instructed) {
        observer.before(index);
        instructed();
        machine.e.complete(index);
        observer.after(index);
    }
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
                   void* scratch)
    : plan_(plan),
      class_(plan.class_of(rank)),
      rank_(rank),
      device_(device),
      by_axis_(std::move(by_axis)),
      arenas_{static_cast<char*>(persistent), static_cast<char*>(scratch)},
      inputs_(host_inputs(plan.program, class_)),
      results_(host_results(plan.program, class_)) {
    by_axis_.resize(static_cast<size_t>(plan.mesh.ids()), nullptr);
    begun_.resize(by_axis_.size(), 0);
    times_.push_back({"waiting", Time::Kind::waiting, 0, 0});
    prepare_kernels();
    launches_.reserve(class_.stream.size());
    events_.resize(class_.stream.size());
    for (size_t i = 0; i < class_.stream.size(); ++i) resolve(class_.stream[i], static_cast<int>(i));
    size_t most = 0;
    for (const Instruction& instruction : class_.stream) most = std::max(most, instruction.waits.size());
    joins_.reserve(most);
}

Executor::~Executor() {
    if (kernel_scratch_.data) device_.release(kernel_scratch_);
}

void Executor::prepare_kernels() {
    std::vector<int> first_use(class_.kernels.size(), none);
    for (size_t i = 0; i < class_.stream.size(); ++i) {
        const Instruction& instruction = class_.stream[i];
        if (instruction.opcode != Opcode::kernel) continue;
        int& use = first_use[static_cast<size_t>(instruction.kernel)];
        if (use == none) use = static_cast<int>(i);
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
    int64_t beside = 0;  // of kernels that the plan gives no workspace
    for (size_t i = 0; i < class_.stream.size(); ++i) {
        const Instruction& instruction = class_.stream[i];
        if (instruction.opcode != Opcode::kernel) continue;
        const int64_t needs = kernels_[static_cast<size_t>(instruction.kernel)]->scratch_bytes();
        if (instruction.workspace == none) {
            beside = std::max(beside, needs);
        } else if (const int64_t has = class_.buffers[static_cast<size_t>(instruction.workspace)].bytes; has < needs) {
            throw Error(fmt::format("{}: the plan gives its kernel {} bytes of workspace, the device needs {}",
                                    describe(plan_, class_, static_cast<int>(i)), has, needs),
                        Fault::failed);
        }
    }
    if (beside > 0) kernel_scratch_ = device_.allocate(beside, MemoryKind::device);
}

Tensor Executor::at(const Operand& operand) const {
    const Buffer& buffer = class_.buffers.at(static_cast<size_t>(operand.buffer));
    char* arena = arenas_[buffer.arena == Arena::scratch];
    return {arena + buffer.offset + operand.offset, operand.type.dtype, operand.type.shape};
}

int Executor::time_id(const std::string& name, Time::Kind kind) {
    for (size_t i = 0; i < times_.size(); ++i)
        if (times_[i].name == name && times_[i].kind == kind) return static_cast<int>(i);
    times_.push_back({name, kind, 0, 0});
    return static_cast<int>(times_.size()) - 1;
}

void Executor::resolve(const Instruction& instruction, int index) {
    Launch launch;
    launch.first = tensors_.size();
    launch.count = instruction.operands.size();
    for (const Operand& operand : instruction.operands) tensors_.push_back(at(operand));
    if (instruction.opcode == Opcode::kernel) {
        launch.kernel = kernels_[static_cast<size_t>(instruction.kernel)].get();
        const int own = instruction.workspace;
        launch.workspace =
            own == none ? kernel_scratch_.data : arenas_[1] + class_.buffers[static_cast<size_t>(own)].offset;
        launch.time = time_id(class_.kernels[static_cast<size_t>(instruction.kernel)].op, Time::Kind::compute);
    } else if (instruction.opcode == Opcode::copy) {
        launch.time = time_id("copy", Time::Kind::compute);
    } else {
        const std::string& axis = plan_.mesh.axis(instruction.axis).name;
        launch.communicator = by_axis_[static_cast<size_t>(instruction.axis)];
        if (!launch.communicator)
            throw Error(describe(plan_, class_, index) + ": there is no communicator for axis " + axis, Fault::failed);
        launch.time = time_id(fmt::format("{} {}", name_of(instruction.opcode), axis), Time::Kind::communication);
        for (int wait : instruction.waits)
            if (class_.stream[static_cast<size_t>(wait)].queue == 0) launches_[static_cast<size_t>(wait)].marked = true;
        const auto pairs = [&](size_t i) {
            if (i >= class_.stream.size()) return false;
            const Instruction& other = class_.stream[i];
            return (other.opcode == Opcode::send || other.opcode == Opcode::receive) && other.axis == instruction.axis;
        };
        const auto here = static_cast<size_t>(index);
        if (pairs(here)) {
            const int64_t own = plan_.mesh.coordinates(rank_)[static_cast<size_t>(instruction.axis)];
            launch.peer = instruction.peer_of(own, plan_.mesh.size(instruction.axis));
            launch.begins_group = index == 0 || !pairs(here - 1);
            launch.ends_group = !pairs(here + 1);
        }
        if (instruction.opcode == Opcode::send) sends_.push_back(index);
        if (static_cast<size_t>(instruction.queue) >= last_of_queue_.size())
            last_of_queue_.resize(static_cast<size_t>(instruction.queue) + 1, none);
        last_of_queue_[static_cast<size_t>(instruction.queue)] = index;
    }
    launches_.push_back(launch);
}

int Executor::position() const {
    const int here = position_.load(std::memory_order_relaxed), beside = thread_ ? thread_->at_hand() : none;
    if (beside == none || static_cast<size_t>(beside) >= class_.stream.size()) return here;
    return class_.stream[static_cast<size_t>(here)].queue != 0 ? beside : here;
}

/// Where a failure was: of a captured step, not which of its kernels.
std::string Executor::place(Fault fault) const {
    if (!replays_) return "in " + describe(plan_, class_, position());
    const std::string hint = fault == Fault::failed ? graph_->how() : "";
    return "in the captured step" + (hint.empty() ? "" : " (" + hint + ")");
}

/// What the walk does, with errors that say why and where it was.
template <class Walked>
void Executor::guarded(Walked walked) {
    try {
        walked();
    } catch (const Error& error) {
        throw Error(fmt::format("rank {}: {}\n  {}", rank_, error.what(), place(error.fault())), error.fault());
    } catch (const std::exception& error) {  // a plugin's own kind
        throw Error(fmt::format("rank {}: {}\n  {}", rank_, error.what(), place(Fault::failed)), Fault::failed);
    }
}

void Executor::run(const void* inputs, void* results) {
    const bool first = steps_.fetch_add(1, std::memory_order_relaxed) == 0;
    running_.store(true, std::memory_order_relaxed);
    if (!first && !tried_capture_ && device_.captures()) {
        guarded([&] { capture(); });
        if (exchange_) vote();
        if (graph_) times_.push_back({"captured step", Time::Kind::compute, 0, 0});
    }
    replays_ = graph_ != nullptr;
    guarded([&] {
        position_.store(0, std::memory_order_relaxed);
        if (inputs && inputs_.bytes > 0) device_.copy(0, arenas_[0] + inputs_.begin, inputs, inputs_.bytes);
        if (replays_) return replay(results);
        Machine machine(*this);
        walk(class_, machine);
        end(results);
        machine.charge(0);
    });
    running_.store(false, std::memory_order_relaxed);
}

/// A message whose end only the host can see cannot be captured.
void Executor::require_native_events() const {
    for (size_t i = 0; i < events_.size(); ++i)
        if (events_[i].owner && !events_[i].native())
            throw Error(fmt::format("{}: its transport moves data when the host asks it to",
                                    describe(plan_, class_, static_cast<int>(i))));
}

/// After a step that ran as it was issued, so that every vendor's library has made what it makes at first use.
void Executor::capture() {
    tried_capture_ = true;
    graph_ = device_.capture(
        [&] {
            require_native_events();
            Machine machine(*this, true);
            walk(class_, machine);
            for (int last : last_of_queue_)
                if (last != none) device_.wait(0, events_[static_cast<size_t>(last)]);
        },
        not_captured_);
}

void Executor::vote() {
    running_.store(false, std::memory_order_relaxed);  // who waits here waits for no instruction
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
        position_.store(last, std::memory_order_relaxed);
        end = launches_[static_cast<size_t>(last)].communicator->guard(end);
    }
    end.wait();
    device_.synchronize(0);
    machine.charge(static_cast<int>(times_.size()) - 1);
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
            position_.store(last, std::memory_order_relaxed);
            events_[static_cast<size_t>(last)].wait();
        }
    for (int send : sends_) {  // most are over by now; none may leave anything behind with each step
        const Event& sent = events_[static_cast<size_t>(send)];
        if (sent.native()) continue;
        position_.store(send, std::memory_order_relaxed);
        sent.wait();
    }
    copy_out(results);
    device_.synchronize(0);
}

/// Behind all that queue 0 was given; messages are over, or in the graph.
void Executor::copy_out(void* results) {
    if (results && results_.bytes > 0) device_.copy(0, results, arenas_[0] + results_.begin, results_.bytes);
}

void Executor::complete(int index) {
    const Instruction& instruction = class_.stream[static_cast<size_t>(index)];
    if (instruction.opcode == Opcode::send) return;
    if (instruction.queue == 0)
        device_.synchronize(0);
    else
        events_[static_cast<size_t>(index)].wait();
}

const Tensor& Executor::operand(int index, size_t which) const {
    return tensors_[launches_[static_cast<size_t>(index)].first + which];
}

}  // namespace orrery

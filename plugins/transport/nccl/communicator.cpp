#include "communicator.h"

#include <algorithm>
#include <thread>

#include "orrery/p2p.h"

namespace orrery::nccl_transport {

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t ring_size = 1024;
constexpr uint64_t guard_mark = 1ull << 63;

}  // namespace

NcclCommunicator::NcclCommunicator(Group group, int device, const ncclUniqueId& id, Rendezvous& rendezvous,
                                   const std::string& key, std::chrono::milliseconds timeout)
    : group_(std::move(group)), device_(device), timeout_(timeout), ring_(ring_size), guarded_(16) {
    require(cudaSetDevice(device_), "choosing the GPU");
    int least = 0, greatest = 0;
    require(cudaDeviceGetStreamPriorityRange(&least, &greatest), "reading the priorities of streams");
    // High priority for messages: kernels that wait for them have nothing else to do.
    cudaStream_t stream = nullptr;
    require(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest), "making a stream");
    stream_.reset(stream);
    for (Slot& one : ring_) {
        cudaEvent_t event = nullptr;
        require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making events");
        one.event.reset(event);
    }
    handle_ = std::make_unique<Handle>(device_, group_, id, rendezvous, key, timeout);
}

std::string NcclCommunicator::what(const char* op, int64_t sequence) const {
    return std::string(op) + " #" + std::to_string(sequence) + " of " + group_.name;
}

/// Makes the stream wait for the work before it, or the host when that work has no CUDA event.
void NcclCommunicator::follow(const char* op, const Event& after) {
    if (const std::string why = handle_->over(); !why.empty())
        throw Error(what(op, sequence_ + 1) + ": " + why, Fault::peer);
    if (auto* const event = static_cast<cudaEvent_t>(after.native()))
        require(cudaStreamWaitEvent(stream_.get(), event, 0), "waiting for other work");
    else
        after.wait();
}

/// A ticket for the work just queued; its event is recorded when the group ends.
Event NcclCommunicator::mark(const char* op, int64_t collective, int peer) {
    Slot& mine = slot(++last_);
    mine.op = op;
    mine.sequence = sequence_;
    mine.collective = collective;
    mine.peer = peer;
    if (!in_group_) record();
    return {this, last_};
}

void NcclCommunicator::record() {
    for (; recorded_ < last_; ++recorded_)
        require(cudaEventRecord(slot(recorded_ + 1).event.get(), stream_.get()), "recording an event");
}

/// Throws for work of an open group, which has no event yet: the slot's event is an older one, so a wait would return
/// too early.
void NcclCommunicator::require_recorded(uint64_t ticket) {
    if (ticket <= recorded_) return;
    const Slot& mine = slot(ticket);
    throw Error(what(mine.op, mine.sequence) + ": waited for before its group of messages was closed", Fault::failed);
}

/// Queues a collective, which is never part of a group: an open group was left by an error, and would delay its event.
template <class Calls>
Event NcclCommunicator::queue(const char* op, const Event& after, Calls calls) {
    if (in_group_) drop_group();
    follow(op, after);
    ++sequence_;
    handle_->at(++collectives_);
    handle_->call(what(op, sequence_), calls, [this] { return handle_->behind(collectives_); });
    return mark(op, collectives_, 0);
}

/// Names the peers of messages: "its other side is rank 1".
std::string NcclCommunicator::other_sides(std::span<const Message> messages) const {
    std::vector<int> peers;
    for (const Message& m : messages)
        if (std::find(peers.begin(), peers.end(), m.peer) == peers.end()) peers.push_back(m.peer);
    std::string text;
    for (const int peer : peers)
        text += (text.empty() ? "rank " : ", rank ") + std::to_string(group_.ranks[static_cast<size_t>(peer)]);
    return "its other side is " + text;
}

/// Issues messages as one NCCL group, which is open only inside this call: an error between begin_group and end_group
/// leaves none open.
ncclResult_t NcclCommunicator::together(ncclComm_t comm, std::span<const Message> messages) const {
    ncclResult_t worst = ncclGroupStart();
    if (worst != ncclSuccess) return worst;
    for (const Message& m : messages) {
        const auto bytes = static_cast<size_t>(m.bytes);
        const ncclResult_t status = m.sends ? ncclSend(m.data, bytes, ncclUint8, m.peer, comm, stream_.get())
                                            : ncclRecv(m.data, bytes, ncclUint8, m.peer, comm, stream_.get());
        if (worst == ncclSuccess && status != ncclInProgress) worst = status;
    }
    const ncclResult_t ended = ncclGroupEnd();
    return worst == ncclSuccess ? ended : worst;
}

/// Issues the message, or adds it to the open group.
Event NcclCommunicator::message(const char* op, const Event& after, const Message& message) {
    follow(op, after);
    ++sequence_;
    if (in_group_)
        open_.push_back(message);
    else
        handle_->call(
            what(op, sequence_), [&](ncclComm_t comm) { return together(comm, std::span(&message, 1)); },
            [&] { return other_sides(std::span(&message, 1)); });
    return mark(op, 0, message.peer);
}

void NcclCommunicator::count(int64_t messages, int64_t bytes) {
    ++traffic_.collectives;
    traffic_.messages += messages;
    traffic_.bytes_sent += bytes;
}

Event NcclCommunicator::all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) {
    require_match(group_, "all_reduce", in, out);
    const ncclDataType_t type = reducible(in.dtype);
    // Blocks differ when the count is not divisible: all members together send 2 S (P-1).
    const int64_t mine = part_of(in.count(), group_.size(), group_.me).count * size_of(in.dtype);
    count(2 * (group_.size() - 1), in.bytes() + (group_.size() - 2) * mine);
    return queue("all_reduce", after, [&](ncclComm_t comm) {
        return ncclAllReduce(in.data, out.data, static_cast<size_t>(in.count()), type, operation(op), comm,
                             stream_.get());
    });
}

Event NcclCommunicator::all_gather(const Tensor& in, const Tensor& out, const Event& after) {
    require_match(group_, "all_gather", in, out, 1, group_.size());
    count(group_.size() - 1, in.bytes() * (group_.size() - 1));
    return queue("all_gather", after, [&](ncclComm_t comm) {
        return ncclAllGather(in.data, out.data, static_cast<size_t>(in.bytes()), ncclUint8, comm, stream_.get());
    });
}

Event NcclCommunicator::reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) {
    require_match(group_, "reduce_scatter", in, out, group_.size(), 1);
    const ncclDataType_t type = reducible(in.dtype);
    count(group_.size() - 1, out.bytes() * (group_.size() - 1));
    return queue("reduce_scatter", after, [&](ncclComm_t comm) {
        return ncclReduceScatter(in.data, out.data, static_cast<size_t>(out.count()), type, operation(op), comm,
                                 stream_.get());
    });
}

/// Memory of the communicator. It grows in the first steps. A captured step continues to use its memory after a larger
/// one is allocated for another step, so none is freed before the communicator ends.
void* NcclCommunicator::room(int64_t bytes) {
    if (bytes > room_bytes_) {
        void* larger = nullptr;
        require(cudaMalloc(&larger, static_cast<size_t>(bytes)), "allocating memory for all_to_all in place");
        rooms_.emplace_back(larger);
        room_bytes_ = bytes;
    }
    return rooms_.back().get();
}

Event NcclCommunicator::all_to_all(const Tensor& in, const Tensor& out, const Event& after) {
    require_match(group_, "all_to_all", in, out);
    require_split(group_, "all_to_all", in);
    const int size = group_.size();
    const int64_t block = in.bytes() / size;
    count(size - 1, block * (size - 1));
    follow("all_to_all", after);
    auto* from = static_cast<char*>(in.data);
    if (in.data == out.data && in.bytes() > 0) {  // NCCL's messages may not overlap
        void* const copy = room(in.bytes());
        require(
            // in.data may be pinned host memory.
            cudaMemcpyAsync(copy, in.data, static_cast<size_t>(in.bytes()), cudaMemcpyDefault, stream_.get()),
            "copying the input of all_to_all");
        from = static_cast<char*>(copy);
    }
    auto* const to = static_cast<char*>(out.data);
    blocks_.clear();
    for (int i = 0; i < size; ++i) {
        blocks_.push_back({true, from + i * block, block, i});
        blocks_.push_back({false, to + i * block, block, i});
    }
    return queue("all_to_all", {}, [&](ncclComm_t comm) { return together(comm, blocks_); });
}

Event NcclCommunicator::broadcast(const Tensor& tensor, int root, const Event& after) {
    require_member(group_, "broadcast", root);
    const bool mine = root == group_.me;
    count(mine ? group_.size() - 1 : 0, mine ? tensor.bytes() * (group_.size() - 1) : 0);
    return queue("broadcast", after, [&](ncclComm_t comm) {
        return ncclBroadcast(tensor.data, tensor.data, static_cast<size_t>(tensor.bytes()), ncclUint8, root, comm,
                             stream_.get());
    });
}

Event NcclCommunicator::send(const Tensor& tensor, int peer, int64_t, const Event& after) {
    require_member(group_, "send", peer);
    ++traffic_.messages;
    traffic_.bytes_sent += tensor.bytes();
    return message("send", after, {true, static_cast<char*>(tensor.data), tensor.bytes(), peer});
}

Event NcclCommunicator::receive(const Tensor& tensor, int peer, int64_t, const Event& after) {
    require_member(group_, "receive", peer);
    return message("receive", after, {false, static_cast<char*>(tensor.data), tensor.bytes(), peer});
}

void NcclCommunicator::begin_group() {
    drop_group();
    in_group_ = true;
}

/// Drops a group that an error has left open; its tickets complete with the stream's current work.
void NcclCommunicator::drop_group() {
    open_.clear();
    if (in_group_) record();
    in_group_ = false;
}

void NcclCommunicator::end_group() {
    in_group_ = false;
    if (open_.empty()) return;
    handle_->call(
        what("group", sequence_), [this](ncclComm_t comm) { return together(comm, open_); },
        [this] { return other_sides(open_); });
    open_.clear();
    record();
}

Event NcclCommunicator::guard(const Event& work) {
    const uint64_t ticket = guards_++;
    guarded_[ticket % guarded_.size()] = work;
    return {this, guard_mark | ticket};
}

void* NcclCommunicator::native(uint64_t ticket) {
    if (ticket & guard_mark) return guarded_[(ticket & ~guard_mark) % guarded_.size()].native();
    require_recorded(ticket);
    return slot(ticket).event.get();
}

bool NcclCommunicator::done(uint64_t ticket) {
    const bool guards = (ticket & guard_mark) != 0;
    const Slot& mine = slot(ticket);
    if (const std::string why = handle_->over(); !why.empty())
        throw Error((guards ? "a step with messages of " + group_.name : what(mine.op, mine.sequence)) + ": " + why,
                    Fault::peer);
    if (guards) return guarded_[(ticket & ~guard_mark) % guarded_.size()].done();
    require_recorded(ticket);
    // the event was reused by a later point of the same stream
    if (recorded_ - ticket >= ring_.size()) return done(recorded_);
    const cudaError_t status = cudaEventQuery(mine.event.get());
    if (status == cudaErrorNotReady) return false;
    require(status, mine.op);
    return true;
}

void NcclCommunicator::wait(uint64_t ticket) {
    const auto begin = Clock::now();
    for (int round = 0; !done(ticket); ++round) {
        if (round < 2000) continue;  // spin for work that is almost done
        if (Clock::now() - begin > timeout_) end_late(ticket);
        if (round % 64 == 0)
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        else
            std::this_thread::yield();
    }
}

/// Ends the communicator after a wait that took too long, and names the ranks that it waited for as far as they are
/// known.
void NcclCommunicator::end_late(uint64_t ticket) {
    const bool guards = (ticket & guard_mark) != 0;
    const Slot& mine = slot(ticket);
    const Message message{false, nullptr, 0, mine.peer};
    const std::string who = guards || mine.collective > 0 ? handle_->behind(guards ? collectives_ : mine.collective)
                                                          : other_sides(std::span(&message, 1));
    handle_->end("timed out: no answer within " + std::to_string(timeout_.count()) + " ms; " + who, true);
}

void NcclCommunicator::abort(std::string_view reason) {
    handle_->end(
        "rank " + std::to_string(group_.ranks[static_cast<size_t>(group_.me)]) + " gave up: " + std::string(reason),
        true);
}

}  // namespace orrery::nccl_transport

#include "communicator.h"

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
    require(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities");
    // Messages go first: kernels that wait for them have nothing else to do.
    require(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "making a stream");
    for (Slot& one : ring_) require(cudaEventCreateWithFlags(&one.event, cudaEventDisableTiming), "making events");
    handle_ = std::make_unique<Handle>(device_, group_.size(), group_.me, id, rendezvous, key, timeout);
}

NcclCommunicator::~NcclCommunicator() {
    handle_.reset();
    for (Slot& one : ring_)
        if (one.event) cudaEventDestroy(one.event);
    if (room_) cudaFree(room_);
    if (stream_) cudaStreamDestroy(stream_);
}

std::string NcclCommunicator::what(const char* op, int64_t sequence) const {
    return std::string(op) + " #" + std::to_string(sequence) + " of " + group_.name;
}

/// The stream waits for the work before it, or the host does where that work has no event of CUDA's.
void NcclCommunicator::follow(const char* op, const Event& after) {
    if (const std::string why = handle_->over(); !why.empty())
        throw Error(what(op, sequence_ + 1) + ": " + why, Fault::peer);
    if (auto* const event = static_cast<cudaEvent_t>(after.native()))
        require(cudaStreamWaitEvent(stream_, event, 0), "waiting for other work");
    else
        after.wait();
}

/// A ticket for what has just been queued; its event follows when the group ends.
Event NcclCommunicator::mark(const char* op) {
    Slot& mine = slot(++last_);
    mine.op = op;
    mine.sequence = sequence_;
    if (!in_group_) record();
    return {this, last_};
}

void NcclCommunicator::record() {
    for (; recorded_ < last_; ++recorded_)
        require(cudaEventRecord(slot(recorded_ + 1).event, stream_), "recording an event");
}

template <class Calls>
Event NcclCommunicator::queue(const char* op, const Event& after, Calls calls) {
    follow(op, after);
    ++sequence_;
    handle_->call(what(op, sequence_), calls);
    return mark(op);
}

/// A send or receive: by itself, or in the group that is open.
template <class Call>
Event NcclCommunicator::message(const char* op, const Event& after, Call call) {
    follow(op, after);
    ++sequence_;
    if (in_group_)
        handle_->call(what(op, sequence_), [&](ncclComm_t comm) {
            const ncclResult_t status = call(comm);
            // Taken when the group ends.
            return status == ncclInProgress ? ncclSuccess : status;
        });
    else
        handle_->call(what(op, sequence_), call);
    return mark(op);
}

void NcclCommunicator::count(int64_t messages, int64_t bytes) {
    ++traffic_.collectives;
    traffic_.messages += messages;
    traffic_.bytes_sent += bytes;
}

Event NcclCommunicator::all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) {
    require_match(group_, "all_reduce", in, out);
    const ncclDataType_t type = reducible(in.dtype);
    count(2 * (group_.size() - 1), 2 * in.bytes() * (group_.size() - 1) / group_.size());
    return queue("all_reduce", after, [&](ncclComm_t comm) {
        return ncclAllReduce(in.data, out.data, static_cast<size_t>(in.count()), type, operation(op), comm, stream_);
    });
}

Event NcclCommunicator::all_gather(const Tensor& in, const Tensor& out, const Event& after) {
    require_match(group_, "all_gather", in, out, 1, group_.size());
    count(group_.size() - 1, in.bytes() * (group_.size() - 1));
    return queue("all_gather", after, [&](ncclComm_t comm) {
        return ncclAllGather(in.data, out.data, static_cast<size_t>(in.bytes()), ncclUint8, comm, stream_);
    });
}

Event NcclCommunicator::reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) {
    require_match(group_, "reduce_scatter", in, out, group_.size(), 1);
    const ncclDataType_t type = reducible(in.dtype);
    count(group_.size() - 1, out.bytes() * (group_.size() - 1));
    return queue("reduce_scatter", after, [&](ncclComm_t comm) {
        return ncclReduceScatter(in.data, out.data, static_cast<size_t>(out.count()), type, operation(op), comm,
                                 stream_);
    });
}

/// Memory of the communicator's own. Grows in the first step; a captured one finds it there.
void* NcclCommunicator::room(int64_t bytes) {
    if (bytes > room_bytes_) {
        require(cudaStreamSynchronize(stream_), "waiting for earlier messages");
        if (room_) cudaFree(room_);
        room_ = nullptr, room_bytes_ = 0;
        require(cudaMalloc(&room_, static_cast<size_t>(bytes)), "allocating room for all_to_all in place");
        room_bytes_ = bytes;
    }
    return room_;
}

Event NcclCommunicator::all_to_all(const Tensor& in, const Tensor& out, const Event& after) {
    require_match(group_, "all_to_all", in, out);
    require_split(group_, "all_to_all", in);
    const int size = group_.size();
    const int64_t block = in.bytes() / size;
    count(size - 1, block * (size - 1));
    follow("all_to_all", after);
    const char* from = static_cast<const char*>(in.data);
    if (in.data == out.data && in.bytes() > 0) {  // NCCL's messages may not overlap
        void* const copy = room(in.bytes());
        require(cudaMemcpyAsync(copy, in.data, static_cast<size_t>(in.bytes()), cudaMemcpyDeviceToDevice, stream_),
                "copying what all_to_all sends");
        from = static_cast<const char*>(copy);
    }
    auto* const to = static_cast<char*>(out.data);
    return queue("all_to_all", {}, [&](ncclComm_t comm) {
        ncclGroupStart();
        for (int i = 0; i < size; ++i) {
            ncclSend(from + i * block, static_cast<size_t>(block), ncclUint8, i, comm, stream_);
            ncclRecv(to + i * block, static_cast<size_t>(block), ncclUint8, i, comm, stream_);
        }
        return ncclGroupEnd();  // says what went wrong in the group
    });
}

Event NcclCommunicator::broadcast(const Tensor& tensor, int root, const Event& after) {
    require_member(group_, "broadcast", root);
    const bool mine = root == group_.me;
    count(mine ? group_.size() - 1 : 0, mine ? tensor.bytes() * (group_.size() - 1) : 0);
    return queue("broadcast", after, [&](ncclComm_t comm) {
        return ncclBroadcast(tensor.data, tensor.data, static_cast<size_t>(tensor.bytes()), ncclUint8, root, comm,
                             stream_);
    });
}

Event NcclCommunicator::send(const Tensor& tensor, int peer, int64_t, const Event& after) {
    require_member(group_, "send", peer);
    ++traffic_.messages;
    traffic_.bytes_sent += tensor.bytes();
    return message("send", after, [&](ncclComm_t comm) {
        return ncclSend(tensor.data, static_cast<size_t>(tensor.bytes()), ncclUint8, peer, comm, stream_);
    });
}

Event NcclCommunicator::receive(const Tensor& tensor, int peer, int64_t, const Event& after) {
    require_member(group_, "receive", peer);
    return message("receive", after, [&](ncclComm_t comm) {
        return ncclRecv(tensor.data, static_cast<size_t>(tensor.bytes()), ncclUint8, peer, comm, stream_);
    });
}

void NcclCommunicator::begin_group() {
    require(ncclGroupStart(), "beginning a group");
    in_group_ = true;
}

void NcclCommunicator::end_group() {
    in_group_ = false;
    handle_->call(what("group", sequence_), [](ncclComm_t) { return ncclGroupEnd(); });
    record();
}

Event NcclCommunicator::guard(const Event& work) {
    const uint64_t ticket = guards_++;
    guarded_[ticket % guarded_.size()] = work;
    return {this, guard_mark | ticket};
}

void* NcclCommunicator::native(uint64_t ticket) {
    if (ticket & guard_mark) return guarded_[(ticket & ~guard_mark) % guarded_.size()].native();
    return slot(ticket).event;
}

bool NcclCommunicator::done(uint64_t ticket) {
    const bool guards = (ticket & guard_mark) != 0;
    const Slot& mine = slot(ticket);
    if (const std::string why = handle_->over(); !why.empty())
        throw Error((guards ? "a step with messages of " + group_.name : what(mine.op, mine.sequence)) + ": " + why,
                    Fault::peer);
    if (guards) return guarded_[(ticket & ~guard_mark) % guarded_.size()].done();
    if (last_ - ticket >= ring_.size()) return done(last_);  // a later point of the same stream
    const cudaError_t status = cudaEventQuery(mine.event);
    if (status == cudaErrorNotReady) return false;
    require(status, mine.op);
    return true;
}

void NcclCommunicator::wait(uint64_t ticket) {
    const auto begin = Clock::now();
    for (int round = 0; !done(ticket); ++round) {
        if (round < 2000) continue;  // spins for what is nearly there
        if (Clock::now() - begin > timeout_)
            handle_->end(
                "no answer within " + std::to_string(timeout_.count()) + " ms; NCCL does not tell which rank is behind",
                true);
        if (round % 64 == 0)
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        else
            std::this_thread::yield();
    }
}

void NcclCommunicator::abort(std::string_view reason) {
    handle_->end(
        "rank " + std::to_string(group_.ranks[static_cast<size_t>(group_.me)]) + " gave up: " + std::string(reason),
        true);
}

}  // namespace orrery::nccl_transport

#include "collective/staged_communicator.h"

#include <algorithm>

namespace orrery {

StagedCommunicator::StagedCommunicator(std::unique_ptr<Communicator> inner, Device& device)
    : CollectivesCommunicator(std::move(inner)), device_(device) {}

StagedCommunicator::~StagedCommunicator() {
    inner_.reset();  // first, since its transfers may use the buffers
    for (Buffer* buffer : {&from_, &to_})
        if (buffer->memory.data) device_.release(buffer->memory);
    for (const auto& buffer : sends_)
        if (buffer->memory.data) device_.release(buffer->memory);
}

/// Returns a host tensor in the buffer, with the shape of `like`. Waits until the buffer is free.
Tensor StagedCommunicator::in(Buffer& buffer, const Tensor& like) {
    buffer.busy.wait();
    buffer.busy = {};
    if (buffer.memory.bytes < like.bytes()) {
        if (buffer.memory.data) device_.release(buffer.memory);
        buffer.memory = device_.allocate(like.bytes(), MemoryKind::pinned);
    }
    return {buffer.memory.data, like.dtype, like.shape};
}

/// Copies a device tensor to a host buffer once the event `after` is done. Blocks until the copy is done.
Tensor StagedCommunicator::fetch(Buffer& buffer, const Tensor& from, const Event& after) {
    const Tensor host = in(buffer, from);
    device_.wait(0, after);
    device_.copy(0, host.data, from.data, from.bytes());
    device_.synchronize(0);
    return host;
}

Event StagedCommunicator::give(const Tensor& host, const Tensor& to) {
    device_.copy(0, to.data, host.data, to.bytes());
    to_.busy = device_.record(0);
    return {this, 0};
}

Event StagedCommunicator::collective(Opcode which, const Tensor& in, const Tensor& out, ReduceOp op,
                                     const Event& after) {
    const Tensor from = fetch(from_, in, after), to = this->in(to_, out);
    call_collective(*inner_, which, from, to, op).wait();
    return give(to, out);
}

Event StagedCommunicator::broadcast(const Tensor& tensor, int root, const Event& after) {
    const bool mine = root == group().me;
    if (!mine) device_.wait(0, after);
    const Tensor host = mine ? fetch(to_, tensor, after) : in(to_, tensor);
    inner_->broadcast(host, root).wait();
    return mine ? Event{this, 0} : give(host, tensor);
}

StagedCommunicator::Buffer& StagedCommunicator::outgoing() {
    for (const auto& buffer : sends_)
        if (buffer->busy.done()) return *buffer;
    sends_.push_back(std::make_unique<Buffer>());
    return *sends_.back();
}

Event StagedCommunicator::send(const Tensor& tensor, int peer, int64_t tag, const Event& after) {
    Buffer& buffer = outgoing();
    return buffer.busy = inner_->send(fetch(buffer, tensor, after), peer, tag);
}

Event StagedCommunicator::receive(const Tensor& tensor, int peer, int64_t tag, const Event& after) {
    device_.wait(0, after);  // the copy to the device comes after this wait in the queue
    const Tensor host = in(to_, tensor);
    inner_->receive(host, peer, tag).wait();
    return give(host, tensor);
}

}  // namespace orrery

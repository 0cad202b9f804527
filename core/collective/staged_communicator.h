#pragma once
#include <memory>
#include <vector>

#include "collective/forwarding_communicator.h"

namespace orrery {

/// Sends tensors through pinned host memory, for a transport that cannot reach device memory: copies them to the host
/// before sending, and back after receiving. Calls block until the transport is done; only the copy back is queued.
/// Each buffer grows to the largest tensor; each send in flight has its own. Only the device's thread may call it.
class StagedCommunicator : public CollectivesCommunicator {
public:
    /// `device` must outlive the communicator.
    StagedCommunicator(std::unique_ptr<Communicator> inner, Device& device);
    ~StagedCommunicator() override;

    Event broadcast(const Tensor& tensor, int root, const Event& after) override;
    Event send(const Tensor& tensor, int peer, int64_t tag, const Event& after) override;
    Event receive(const Tensor& tensor, int peer, int64_t tag, const Event& after) override;
    // Events are done when the last copy back is, on the device's queue 0; they have no native handle.
    bool done(uint64_t) override { return to_.busy.done(); }
    void wait(uint64_t) override { to_.busy.wait(); }

private:
    Event collective(Opcode which, const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override;
    struct Buffer {
        Memory memory;
        Event busy;
    };
    Tensor in(Buffer& buffer, const Tensor& like);
    Tensor fetch(Buffer& buffer, const Tensor& from, const Event& after);
    Event give(const Tensor& host, const Tensor& to);
    Buffer& outgoing();

    Device& device_;
    Buffer from_, to_;
    std::vector<std::unique_ptr<Buffer>> sends_;
};

}  // namespace orrery

#pragma once
#include <memory>
#include <vector>

#include "collective/forwarding_communicator.h"

namespace orrery {

/// A communicator for memory that its transport cannot reach: what is sent is copied to pinned host memory first, what
/// comes in is copied back. Collectives are done when the call returns, apart from the copy back. Buffers grow to the
/// largest need and stay; a send has its own until it is done. One thread, the device's.
class StagedCommunicator : public CollectivesCommunicator {
public:
    /// The device must outlive the communicator.
    StagedCommunicator(std::unique_ptr<Communicator> inner, Device& device);
    ~StagedCommunicator() override;

    Event broadcast(const Tensor& tensor, int root, const Event& after) override;
    Event send(const Tensor& tensor, int peer, int64_t tag, const Event& after) override;
    Event receive(const Tensor& tensor, int peer, int64_t tag, const Event& after) override;
    // Of the last copy back, which later work of the device's queue 0 follows by itself. No handle: the host did it.
    bool done(uint64_t) override { return to_.busy.done(); }
    void wait(uint64_t) override { to_.busy.wait(); }

private:
    Event collective(Opcode which, const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override;
    /// Host memory and what still uses it.
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

#pragma once
#include <map>
#include <memory>

#include "collective/chunk_runner.h"
#include "collective/forwarding_communicator.h"

namespace orrery {

/// Runs the collectives of an axis that have a chunk table, over any transport that can send and receive. Collectives
/// without a table are forwarded to the transport. Tensors are in host memory; calls complete on the caller's thread.
class ChunkCommunicator : public ForwardingCommunicator {
public:
    /// `tables`: proved chunk tables. Throws Error when a table is made for another number of members.
    ChunkCommunicator(std::unique_ptr<Communicator> inner, const std::vector<ChunkTable>& tables);
    ~ChunkCommunicator() override;

    Event all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override;
    Event all_gather(const Tensor& in, const Tensor& out, const Event& after) override;
    Event reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override;
    Traffic traffic() const override;

private:
    class Wire;
    ChunkRunner* runner(Opcode collective);
    void run(ChunkRunner& runner, DType dtype, ReduceOp op, void* data, int64_t count);

    std::map<Opcode, ChunkRunner> runners_;
    std::unique_ptr<Wire> wire_;
    std::vector<char> whole_;  ///< memory for reduce_scatter: partial sums of all blocks
    int64_t sequence_ = 0;
};

}  // namespace orrery

#pragma once
#include <map>
#include <memory>

#include "collective/chunk_runner.h"
#include "collective/forwarding_communicator.h"

namespace orrery {

/// Runs those collectives of an axis that have a chunk table (a list of moves of chunks, by step) over any transport
/// that can send and receive; the transport runs the others. Tensors are in host memory; calls block their caller.
class ChunkCommunicator : public ForwardingCommunicator {
public:
    /// `tables`: proved chunk tables. Throws Error if one is for a number of members that differs from the axis's.
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
    std::vector<char> whole_;  ///< memory for partial sums of all blocks during a reduce_scatter
    int64_t sequence_ = 0;
};

}  // namespace orrery

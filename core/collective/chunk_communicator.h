#pragma once
#include <map>
#include <memory>

#include "collective/chunk_runner.h"
#include "collective/forwarding_communicator.h"

namespace orrery {

/// The collectives of an axis that tables make, over any transport that can send and receive; the others are the
/// transport's own. Tensors in host memory. Works inline on the caller's thread.
class ChunkCommunicator : public ForwardingCommunicator {
public:
    /// `tables`: proved, for this many members. Throws Error when one is not.
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
    std::vector<char> whole_;  ///< reduce_scatter: sums on their way
    int64_t sequence_ = 0;
};

}  // namespace orrery

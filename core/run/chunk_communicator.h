#pragma once
#include <map>
#include <memory>

#include "run/chunk_runner.h"

namespace orrery {

/// The collectives of an axis that tables make, over any transport that can send and receive; the others are the
/// transport's own. Tensors in host memory. Works inline on the caller's thread.
class ChunkCommunicator : public Communicator {
public:
    /// `tables`: proved, for this many members. Throws Error when one is not.
    ChunkCommunicator(std::unique_ptr<Communicator> inner, const std::vector<ChunkTable>& tables);
    ~ChunkCommunicator() override;

    const Group& group() const override { return inner_->group(); }
    Event all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override;
    Event all_gather(const Tensor& in, const Tensor& out, const Event& after) override;
    Event reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override;
    Event all_to_all(const Tensor& in, const Tensor& out, const Event& after) override;
    Event broadcast(const Tensor& tensor, int root, const Event& after) override;
    Event send(const Tensor& tensor, int peer, int64_t tag, const Event& after) override;
    Event receive(const Tensor& tensor, int peer, int64_t tag, const Event& after) override;
    void begin_group() override { inner_->begin_group(); }
    void end_group() override { inner_->end_group(); }
    void abort(std::string_view reason) override { inner_->abort(reason); }
    Traffic traffic() const override;
    bool done(uint64_t) override { return true; }  // its own calls end inline; a send's event is the transport's
    void wait(uint64_t) override {}

private:
    class Wire;
    ChunkRunner* runner(Do collective);
    void run(ChunkRunner& runner, DType dtype, ReduceOp op, void* data, int64_t count);

    const std::unique_ptr<Communicator> inner_;
    std::map<Do, ChunkRunner> runners_;
    std::unique_ptr<Wire> wire_;
    std::vector<char> whole_;  ///< reduce_scatter: sums on their way
    int64_t sequence_ = 0;
};

}  // namespace orrery

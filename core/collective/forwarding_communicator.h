#pragma once
#include <cassert>
#include <memory>

#include "orrery/communicator.h"
#include "orrery/plan.h"

namespace orrery {

/// Base of communicators that wrap another one, `inner`: calls that a derived class does not override go to `inner`.
class ForwardingCommunicator : public Communicator {
public:
    explicit ForwardingCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

    const Group& group() const override { return inner_->group(); }
    Event all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override {
        return inner_->all_reduce(in, out, op, after);
    }
    Event all_gather(const Tensor& in, const Tensor& out, const Event& after) override {
        return inner_->all_gather(in, out, after);
    }
    Event reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override {
        return inner_->reduce_scatter(in, out, op, after);
    }
    Event all_to_all(const Tensor& in, const Tensor& out, const Event& after) override {
        return inner_->all_to_all(in, out, after);
    }
    Event broadcast(const Tensor& tensor, int root, const Event& after) override {
        return inner_->broadcast(tensor, root, after);
    }
    Event send(const Tensor& tensor, int peer, int64_t tag, const Event& after) override {
        return inner_->send(tensor, peer, tag, after);
    }
    Event receive(const Tensor& tensor, int peer, int64_t tag, const Event& after) override {
        return inner_->receive(tensor, peer, tag, after);
    }
    void begin_group() override { inner_->begin_group(); }
    void end_group() override { inner_->end_group(); }
    Event guard(const Event& work) override { return inner_->guard(work); }
    void abort(std::string_view reason) override { inner_->abort(reason); }
    Traffic traffic() const override { return inner_->traffic(); }
    // A derived class that makes its own events overrides done() and wait(); by default, events are of `inner_`.
    bool done(uint64_t) override { return true; }
    void wait(uint64_t) override {}

protected:
    std::unique_ptr<Communicator> inner_;
};

/// Calls the collective of a plan's instruction. `op`: reduction, unused by all_gather and all_to_all.
inline Event call_collective(Communicator& to, Opcode collective, const Tensor& in, const Tensor& out, ReduceOp op,
                             const Event& after = {}) {
    switch (collective) {
        case Opcode::all_reduce: return to.all_reduce(in, out, op, after);
        case Opcode::all_gather: return to.all_gather(in, out, after);
        case Opcode::reduce_scatter: return to.reduce_scatter(in, out, op, after);
        default: assert(collective == Opcode::all_to_all); return to.all_to_all(in, out, after);
    }
}

/// Base of communicators that handle every collective of a plan in one function, collective().
class CollectivesCommunicator : public ForwardingCommunicator {
public:
    using ForwardingCommunicator::ForwardingCommunicator;

    Event all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override {
        return collective(Opcode::all_reduce, in, out, op, after);
    }
    Event all_gather(const Tensor& in, const Tensor& out, const Event& after) override {
        return collective(Opcode::all_gather, in, out, ReduceOp::sum, after);
    }
    Event reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override {
        return collective(Opcode::reduce_scatter, in, out, op, after);
    }
    Event all_to_all(const Tensor& in, const Tensor& out, const Event& after) override {
        return collective(Opcode::all_to_all, in, out, ReduceOp::sum, after);
    }

protected:
    virtual Event collective(Opcode which, const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) = 0;
};

}  // namespace orrery

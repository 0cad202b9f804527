#include "collective/chunk_communicator.h"

#include <fmt/format.h>

#include "orrery/p2p.h"

namespace orrery {

/// Sends and receives a chunk's messages over the transport. Their tags have bit 62 set; tags of a plan do not.
class ChunkCommunicator::Wire : public ChunkWire {
public:
    explicit Wire(Communicator& inner) : inner_(inner) {}

    void begin(int64_t sequence) {
        base_ = int64_t{1} << 62 | (sequence & 0xffff) << 44;
        events_.clear();
    }
    uint64_t send(int peer, const void* data, int64_t bytes, uint64_t part) override {
        events_.push_back(inner_.send(bytes_at(const_cast<void*>(data), bytes), peer, tag(part)));
        return events_.size() - 1;
    }
    uint64_t receive(int peer, void* data, int64_t bytes, uint64_t part) override {
        events_.push_back(inner_.receive(bytes_at(data, bytes), peer, tag(part)));
        return events_.size() - 1;
    }
    void finish(uint64_t ticket) override { events_[ticket].wait(); }
    void begin_group() override { inner_.begin_group(); }
    void end_group() override { inner_.end_group(); }

private:
    int64_t tag(uint64_t part) const { return base_ | static_cast<int64_t>(part); }
    /// Returns a tensor for the bytes of a message. Tensors are reused, because each new shape would be allocated.
    const Tensor& bytes_at(void* data, int64_t bytes) {
        message_.data = data;
        message_.shape[0] = bytes;
        return message_;
    }

    Communicator& inner_;
    Tensor message_{nullptr, DType::u8, {0}};
    int64_t base_ = 0;
    std::vector<Event> events_;
};

ChunkCommunicator::ChunkCommunicator(std::unique_ptr<Communicator> inner, const std::vector<ChunkTable>& tables)
    : ForwardingCommunicator(std::move(inner)), wire_(std::make_unique<Wire>(*inner_)) {
    for (const ChunkTable& table : tables) {
        if (table.members != group().size())
            throw Error(fmt::format("collective {} is made for {} ranks, but group {} has {}", table.name,
                                    table.members, group().name, group().size()),
                        Fault::failed);
        runners_.emplace(table.collective, ChunkRunner(table, group().me, 0, true));
    }
}

/// Closes the inner communicator first, because until then peers may use this member's buffers.
ChunkCommunicator::~ChunkCommunicator() { inner_.reset(); }

ChunkRunner* ChunkCommunicator::runner(Opcode collective) {
    const auto found = runners_.find(collective);
    return found == runners_.end() ? nullptr : &found->second;
}

void ChunkCommunicator::run(ChunkRunner& runner, DType dtype, ReduceOp op, void* data, int64_t count) {
    wire_->begin(++sequence_);
    try {
        runner.run(*wire_, dtype, op, data, count);
    } catch (const Error& error) {
        throw Error(fmt::format("{} #{} of {} by collective {}: {}", name_of(runner.table().collective), sequence_,
                                group().name, runner.table().name, error.what()),
                    error.fault());
    }
}

Event ChunkCommunicator::all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) {
    ChunkRunner* const mine = runner(Opcode::all_reduce);
    if (!mine) return inner_->all_reduce(in, out, op, after);
    require_match(group(), "all_reduce", in, out);
    after.wait();
    copy(out.data, in.data, in.bytes());
    run(*mine, out.dtype, op, out.data, out.count());
    return {};
}

Event ChunkCommunicator::all_gather(const Tensor& in, const Tensor& out, const Event& after) {
    ChunkRunner* const mine = runner(Opcode::all_gather);
    if (!mine) return inner_->all_gather(in, out, after);
    require_match(group(), "all_gather", in, out, 1, group().size());
    after.wait();
    copy(static_cast<char*>(out.data) + group().me * in.bytes(), in.data, in.bytes());
    run(*mine, out.dtype, ReduceOp::sum, out.data, out.count());
    return {};
}

Event ChunkCommunicator::reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) {
    ChunkRunner* const mine = runner(Opcode::reduce_scatter);
    if (!mine) return inner_->reduce_scatter(in, out, op, after);
    require_match(group(), "reduce_scatter", in, out, group().size(), 1);
    after.wait();
    whole_.resize(std::max(whole_.size(), static_cast<size_t>(in.bytes())));
    copy(whole_.data(), in.data, in.bytes());
    run(*mine, in.dtype, op, whole_.data(), in.count());
    copy(out.data, whole_.data() + group().me * out.bytes(), out.bytes());
    return {};
}

Traffic ChunkCommunicator::traffic() const {
    Traffic all = inner_->traffic();
    all.collectives += sequence_;
    return all;
}

}  // namespace orrery

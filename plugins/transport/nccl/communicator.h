// Collectives of one mesh axis on a stream of its own.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "handle.h"

namespace orrery::nccl_transport {

/// Counts bytes sent as communicator.h defines them, not NCCL's own messages.
class NcclCommunicator : public Communicator {
public:
    NcclCommunicator(Group group, int device, const ncclUniqueId& id, Rendezvous& rendezvous, const std::string& key,
                     std::chrono::milliseconds timeout);

    const Group& group() const override { return group_; }
    Event all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override;
    Event all_gather(const Tensor& in, const Tensor& out, const Event& after) override;
    Event reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override;
    Event all_to_all(const Tensor& in, const Tensor& out, const Event& after) override;
    Event broadcast(const Tensor& tensor, int root, const Event& after) override;
    Event send(const Tensor& tensor, int peer, int64_t tag, const Event& after) override;
    Event receive(const Tensor& tensor, int peer, int64_t tag, const Event& after) override;
    void begin_group() override;
    void end_group() override;
    Event guard(const Event& work) override;
    void abort(std::string_view reason) override;
    Traffic traffic() const override { return traffic_; }

    bool done(uint64_t ticket) override;
    void wait(uint64_t ticket) override;
    void* native(uint64_t ticket) override;

private:
    /// A send or receive of this member.
    struct Message {
        bool sends;
        char* data;
        int64_t bytes;
        int peer;
    };
    struct Slot {
        Mark event;
        const char* op = "";
        int64_t sequence = 0;
        int64_t collective = 0;  ///< number of the collective; 0: a message
        int peer = 0;            ///< the other end of a message
    };
    Slot& slot(uint64_t ticket) { return ring_[ticket % ring_.size()]; }
    std::string what(const char* op, int64_t sequence) const;
    std::string other_sides(std::span<const Message> messages) const;
    void follow(const char* op, const Event& after);
    template <class Calls>
    Event queue(const char* op, const Event& after, Calls calls);
    Event message(const char* op, const Event& after, const Message& message);
    ncclResult_t together(ncclComm_t comm, std::span<const Message> messages) const;
    Event mark(const char* op, int64_t collective, int peer);
    void record();
    void end_late(uint64_t ticket);
    void require_recorded(uint64_t ticket);
    void drop_group();
    void* room(int64_t bytes);
    void count(int64_t messages, int64_t bytes);

    const Group group_;
    const int device_;
    const std::chrono::milliseconds timeout_;
    Stream stream_;
    std::vector<Slot> ring_;
    std::vector<Room> rooms_;         ///< memory for all_to_all in place; the last is the largest
    std::unique_ptr<Handle> handle_;  ///< destroyed first: its kernels use the members above
    uint64_t last_ = 0, recorded_ = 0;
    int64_t sequence_ = 0, collectives_ = 0;
    bool in_group_ = false;
    std::vector<Message> open_;    ///< messages of the open group; reuses its memory
    std::vector<Message> blocks_;  ///< messages of the current all_to_all; reuses its memory
    std::vector<Event> guarded_;
    uint64_t guards_ = 0;
    int64_t room_bytes_ = 0;
    Traffic traffic_;
};

}  // namespace orrery::nccl_transport

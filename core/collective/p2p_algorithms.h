#pragma once
#include <map>
#include <string>
#include <string_view>

#include "collective/chunk_runner.h"
#include "orrery/p2p.h"

namespace orrery {

constexpr int64_t whole_bytes = 64 << 10;     ///< max bytes that two members all-reduce by one message each way
constexpr int64_t doubling_bytes = 16 << 10;  ///< max bytes of an all_reduce by recursive doubling
constexpr int64_t halving_bytes = 256 << 10;  ///< max bytes of an all_reduce by recursive halving and doubling
constexpr int64_t chain_bytes = 512 << 10;    ///< max bytes of a piece that a chain of more than two members broadcasts
constexpr int64_t tree_bytes = 64 << 10;      ///< max bytes of a broadcast by a tree; larger ones use a chain

/// Chooses the algorithm of each collective by its size, and owns the ChunkRunners of algorithms with chunk tables.
class P2pCommunicator::Algorithms {
public:
    Algorithms(P2pCommunicator& owner, P2pOptions options);

    /// Returns the ChunkRunner for an all_reduce of this size; nullptr: the ring algorithm is used.
    ChunkRunner* all_reduce(int64_t bytes);
    /// Whether an all_reduce of this size between two members is done by sending the whole tensor each way.
    bool whole(int64_t bytes) const;
    bool tree_broadcast(int64_t bytes) const;
    ChunkWire& wire() { return wire_; }

private:
    class Wire : public ChunkWire {
    public:
        explicit Wire(P2pCommunicator& owner) : owner_(owner) {}
        uint64_t send(int peer, const void* data, int64_t bytes, uint64_t part) override {
            return owner_.send_part(peer, data, bytes, part);
        }
        uint64_t receive(int peer, void* data, int64_t bytes, uint64_t part) override {
            return owner_.receive_part(peer, data, bytes, part);
        }
        void finish(uint64_t ticket) override { owner_.finish(ticket); }

    private:
        P2pCommunicator& owner_;
    };

    std::string_view by_size(int64_t bytes) const;

    P2pCommunicator& owner_;
    P2pOptions options_;
    bool several_hosts_ = false;  ///< several hosts, with the same number of members, 2 or more, on each
    Wire wire_;
    std::map<std::string, ChunkRunner, std::less<>> runners_;
};

}  // namespace orrery

#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/communicator.h"
#include "orrery/plan.h"

namespace orrery {

/// Sends a chunk to another member, which overwrites its own with it (copy) or adds it (reduce). Copies take effect on
/// arrival, reductions at the end of the step, so that members can exchange sums.
struct ChunkMove {
    enum class Kind : uint8_t { copy, reduce };
    Kind kind = Kind::copy;
    int step = 0;
    int chunk = 0;
    int from = 0;
    int to = 0;
    Origin origin;                                  ///< the script line that requested it
    bool operator==(const ChunkMove& other) const;  ///< ignores `origin`
};

/// A collective as data: which member sends which chunk to which member in each step. An all_reduce cuts the tensor
/// into `chunks` parts. all_gather and reduce_scatter cut each member's block into chunks / members parts.
struct ChunkTable {
    std::string name;                        ///< "ring"
    Opcode collective = Opcode::all_reduce;  ///< or all_gather, reduce_scatter
    int members = 1;
    int chunks = 1;
    std::vector<ChunkMove> moves;  ///< sorted by step
    Origin origin;                 ///< the function that made it
    Origin asked;                  ///< the place that selected it for an axis

    /// First element and number of elements of a chunk of a tensor with `count` elements.
    std::pair<int64_t, int64_t> range(int64_t count, int chunk) const;
    std::string text() const;  ///< one move per line, for fingerprints
};

/// Proves that the table computes its collective, by tracking the contributors to each chunk of each member. At the end
/// every required chunk must contain each contributor once. A member must have what it sends. A copy must not hit a
/// chunk that is sent or written by another move in the same step. Throws Error naming table, rank, chunk and step.
void prove(const ChunkTable& table);

/// Proves that the table cannot deadlock under the contract. Throws Error naming the members that block each other.
void prove_progress(const ChunkTable& table, const TransportContract& contract);

struct ChunkCost {
    int steps = 0;
    int64_t messages = 0;      ///< max over members of messages sent
    int64_t chunks = 0;        ///< max over members of chunks sent
    int of = 1;                ///< chunks of the tensor
    std::string text() const;  ///< "6 steps, at most 6 messages and 1.5 S a rank"
};
ChunkCost cost(const ChunkTable& table);

/// A message of one member: adjacent chunks of a step with the same sender, receiver and kind. All messages of one step
/// and wave proceed concurrently; there is at most one per peer and direction.
struct ChunkMessage {
    int step = 0;
    int wave = 0;
    int peer = 0;
    bool sends = false;
    bool reduces = false;
    bool staged = false;  ///< added when the step ends, by `order`: the step also sends or adds to its chunks
    int first = 0;        ///< first chunk
    int count = 0;
    int order = 0;  ///< index among all messages of the table
    Origin origin;
};
/// The messages of a member by step and wave. Within a wave, sends come first.
std::vector<ChunkMessage> messages_of(const ChunkTable& table, int member);
/// ChunkMessage::order of the message that contains each move.
std::vector<int> orders_of(const ChunkTable& table);

// ---- all_reduce tables that need no script
ChunkTable ring_table(int members);
ChunkTable recursive_doubling_table(int members);
ChunkTable halving_doubling_table(int members);
ChunkTable tree_table(int members);
/// Reduces within each host, then across hosts, then broadcasts within each host. `hosts`: the host of each member.
ChunkTable hierarchical_table(const std::vector<int>& hosts);

}  // namespace orrery

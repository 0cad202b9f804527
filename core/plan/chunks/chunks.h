#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/communicator.h"
#include "orrery/plan.h"

namespace orrery {

/// A transfer of a chunk between members of a collective. The receiver overwrites its chunk (copy) or adds to it
/// (reduce). Copies take effect on arrival, reductions at the end of the step, so that members can exchange sums.
struct ChunkMove {
    enum class Kind : uint8_t { copy, reduce };
    Kind kind = Kind::copy;
    int step = 0;
    int chunk = 0;
    int from = 0;
    int to = 0;
    Origin origin;                                  ///< the script line that requested the move
    bool operator==(const ChunkMove& other) const;  ///< compares all but `origin`
};

/// A collective algorithm as data: which member sends which chunk to which member in each step. An all_reduce cuts the
/// tensor into `chunks` parts; all_gather and reduce_scatter cut each member's block into chunks / members parts.
struct ChunkTable {
    std::string name;                        ///< name of the algorithm: "ring"
    Opcode collective = Opcode::all_reduce;  ///< all_reduce, all_gather or reduce_scatter
    int members = 1;
    int chunks = 1;
    std::vector<ChunkMove> moves;  ///< sorted by step
    Origin origin;                 ///< the function that made the table
    Origin asked;                  ///< the place that selected the table for an axis

    /// The first element and the number of elements of chunk `chunk` of a tensor with `count` elements.
    std::pair<int64_t, int64_t> range(int64_t count, int chunk) const;
    std::string text() const;  ///< the table as text, one move per line, for fingerprints
};

/// Proves that a chunk table computes its collective, by tracking the contributors to each chunk of each member. At the
/// end every required chunk must contain each contributor once. A member must have what it sends. A copy must not hit a
/// chunk that is sent or written by another move of the step. Throws Error naming table, rank, chunk and step.
void prove(const ChunkTable& table);

/// Proves that a chunk table cannot deadlock under the contract. Throws Error naming members that block each other.
void prove_progress(const ChunkTable& table, const TransportContract& contract);

struct ChunkCost {
    int steps = 0;
    int64_t messages = 0;      ///< number of messages that a member sends, max over members
    int64_t chunks = 0;        ///< number of chunks that a member sends, max over members
    int of = 1;                ///< number of chunks in the tensor
    std::string text() const;  ///< as text: "6 steps, at most 6 messages and 1.5 S a rank"
};
ChunkCost cost(const ChunkTable& table);

/// A message that a member of a collective sends or receives: adjacent chunks of a step with equal sender, receiver and
/// kind. All messages of one step and wave proceed concurrently; there is at most one per peer and direction.
struct ChunkMessage {
    int step = 0;
    int wave = 0;
    int peer = 0;
    bool sends = false;
    bool reduces = false;
    bool staged = false;  ///< received chunks are added when the step ends, by `order`: it also sends or changes them
    int first = 0;        ///< index of the first chunk
    int count = 0;
    int order = 0;  ///< index among all messages of the table
    Origin origin;
};
/// The messages that a member of a collective sends and receives, by step and wave. Within a wave, sends come first.
std::vector<ChunkMessage> messages_of(const ChunkTable& table, int member);
/// For each move of a chunk table, ChunkMessage::order of the message that contains it.
std::vector<int> orders_of(const ChunkTable& table);

// ---- chunk tables of the built-in all_reduce algorithms
ChunkTable ring_table(int members);
ChunkTable recursive_doubling_table(int members);
ChunkTable halving_doubling_table(int members);
ChunkTable tree_table(int members);
/// An all_reduce within each host, then across hosts, then a broadcast in each host. `hosts`: the host of each member.
ChunkTable hierarchical_table(const std::vector<int>& hosts);

}  // namespace orrery

#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/communicator.h"
#include "orrery/plan.h"

namespace orrery {

/// A transfer of one chunk between members of a collective. The receiver overwrites its chunk (copy) or adds to it
/// (reduce). Copies take effect on arrival, reductions at the end of the step, so two members can exchange sums.
struct ChunkMove {
    enum class Kind : uint8_t { copy, reduce };
    Kind kind = Kind::copy;
    int step = 0;
    int chunk = 0;
    int from = 0;
    int to = 0;
    Origin origin;
    bool operator==(const ChunkMove& other) const;  ///< compares all but `origin`
};

/// A collective algorithm as data: which member sends which chunk to which member in each step. An all_reduce cuts the
/// tensor into `chunks` parts; all_gather and reduce_scatter cut each member's block into chunks / members parts.
struct ChunkTable {
    std::string name;
    Opcode collective = Opcode::all_reduce;  ///< all_reduce, all_gather or reduce_scatter
    int members = 1;
    int chunks = 1;
    std::vector<ChunkMove> moves;  ///< sorted by step
    Origin origin;                 ///< Lua function that made the table
    Origin asked;                  ///< line of the script or configuration that selected the table for an axis

    /// The part of a tensor of `count` elements that is chunk `chunk`: index of its first element, number of elements.
    std::pair<int64_t, int64_t> range(int64_t count, int chunk) const;
    std::string text() const;  ///< one move per line; equal tables have equal text
};

/// Proves that a chunk table computes its collective, by tracking which members contributed to each chunk. A member
/// must have what it sends; a copy must not hit a chunk that another move of the step sends or writes; in the end, each
/// chunk of the result must contain each contribution once. Throws Error naming table, rank, chunk and step.
void prove(const ChunkTable& table);

/// Proves that a chunk table cannot deadlock under the contract. Throws Error naming the blocked members.
void prove_progress(const ChunkTable& table, const TransportContract& contract);

struct ChunkCost {
    int steps = 0;
    int64_t messages = 0;      ///< messages that a member sends, max over members
    int64_t chunks = 0;        ///< chunks that a member sends, max over members
    int of = 1;                ///< number of chunks in the tensor, to turn `chunks` into bytes
    std::string text() const;  ///< "6 steps, at most 6 messages and 1.5 S a rank", S being the size of the tensor
};
ChunkCost cost(const ChunkTable& table);

/// A message that a member of a collective sends or receives: adjacent chunks of one step with the same peer and kind
/// (copy or reduce). The messages of one wave of a step proceed concurrently, at most one per peer and direction.
struct ChunkMessage {
    int step = 0;
    int wave = 0;
    int peer = 0;
    bool sends = false;
    bool reduces = false;
    bool staged = false;  ///< received chunks are added when the step ends, as the member also sends or changes them
    int first = 0;
    int count = 0;
    int order = 0;  ///< index among all messages of the table; staged chunks are added in this order
    Origin origin;
};
/// The messages that a member of a collective sends and receives, by step and wave. Within a wave, sends come first.
std::vector<ChunkMessage> messages_of(const ChunkTable& table, int member);
/// By move of a chunk table: the index of its message (ChunkMessage::order).
std::vector<int> orders_of(const ChunkTable& table);

// ---- chunk tables of the built-in all_reduce algorithms
ChunkTable ring_table(int members);
ChunkTable recursive_doubling_table(int members);
ChunkTable halving_doubling_table(int members);
ChunkTable tree_table(int members);
/// Reduces within each host, all-reduces across hosts, then broadcasts in each host. `hosts`: the host of each member.
ChunkTable hierarchical_table(const std::vector<int>& hosts);

}  // namespace orrery

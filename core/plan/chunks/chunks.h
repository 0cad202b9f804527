#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/communicator.h"
#include "orrery/plan.h"

namespace orrery {

/// One chunk on its way: copied over what the receiver has, or added to it. A copy lands as it comes; a reduction lands
/// when its step is over, so that members can exchange sums.
struct ChunkMove {
    enum class Kind : uint8_t { copy, reduce };
    Kind kind = Kind::copy;
    int step = 0;
    int chunk = 0;
    int from = 0;
    int to = 0;
    Origin origin;                                  ///< the script line that asked for it
    bool operator==(const ChunkMove& other) const;  ///< but for the origin
};

/// A collective as data: who passes which chunk to whom, in which step. The tensor is cut in `chunks` parts; in
/// all_gather and reduce_scatter each member's block is, in chunks / members parts.
struct ChunkTable {
    std::string name;                        ///< "ring"
    Opcode collective = Opcode::all_reduce;  ///< or all_gather, reduce_scatter
    int members = 1;
    int chunks = 1;
    std::vector<ChunkMove> moves;  ///< by step
    Origin origin;                 ///< the function that made it
    Origin asked;                  ///< who chose it for an axis

    /// First element and number of elements of a chunk, of `count` in all.
    std::pair<int64_t, int64_t> range(int64_t count, int chunk) const;
    std::string text() const;  ///< one move a line, for fingerprints
};

/// Proves by following who contributed to each chunk of each member: in the end every member has each contributor
/// exactly once in each chunk that the collective gives it; nobody sends what it does not have; no copy falls on a
/// chunk that its receiver sends, or that another move writes, in the same step. Throws Error with the script line that
/// names table, rank, chunk and step.
void prove(const ChunkTable& table);

/// Proves that a run of the table ends under the send semantics and lanes of a transport. Throws Error naming who waits
/// for whom.
void prove_progress(const ChunkTable& table, const TransportContract& contract);

struct ChunkCost {
    int steps = 0;
    int64_t messages = 0;      ///< most that one member sends
    int64_t chunks = 0;        ///< most that one member sends
    int of = 1;                ///< the tensor's chunks
    std::string text() const;  ///< "6 steps, at most 6 messages and 1.5 S a rank"
};
ChunkCost cost(const ChunkTable& table);

/// One member's share of a step: neighbouring chunks that go the same way are one message. Messages of one step and
/// wave proceed together, one per peer and direction at most.
struct ChunkMessage {
    int step = 0;
    int wave = 0;
    int peer = 0;
    bool sends = false;
    bool reduces = false;
    bool staged = false;  ///< a reduction of chunks that this step also sends or adds to: lands at its end, in order
    int first = 0;        ///< chunks
    int count = 0;
    int order = 0;  ///< among all messages
    Origin origin;
};
/// By step and wave; in each the sends come first.
std::vector<ChunkMessage> messages_of(const ChunkTable& table, int member);
/// The message that each move is part of: ChunkMessage::order.
std::vector<int> orders_of(const ChunkTable& table);

// ---- tables that need no script: all_reduce
ChunkTable ring_table(int members);
ChunkTable recursive_doubling_table(int members);
ChunkTable halving_doubling_table(int members);
ChunkTable tree_table(int members);
/// Within each host, between hosts, within each host. `hosts`: by member.
ChunkTable hierarchical_table(const std::vector<int>& hosts);

}  // namespace orrery

#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "orrery/plan.h"
#include "plan/network.h"

namespace orrery {

struct ChunkTable;
struct SnapshotPlan;

/// Error: a plan or a session needs more memory than a rank has.
class MemoryError : public Error {
public:
    using Error::Error;
};

/// Proves before any rank starts that a plan runs correctly. Derives everything from the streams and trusts no table of
/// lowering. Throws Error naming class, instruction, op and script line.
///   form      operands fit kernels, buffers and arenas; message sizes fit their op; the transport reduces the dtypes
///             of reductions
///   contents  every byte read holds the expected value of the right micro-batch; updates and results are in place
///             after the step
///   order     accesses of different queues to the same bytes are ordered by waits
///   sums      a sum, also over micro-batches, contains each contribution exactly once when it is read
///   groups    members of an axis run the same collectives on the same values in the same order
///   progress  sends meet receives, and no deadlock occurs when one thread issues each stream in order, under the
///             send semantics, lanes and blocking calls of each transport
///   memory    a rank's arenas fit in `memory_bytes` (0: not checked)
/// Nearly linear in instructions. Loops over ranks only to find the classes in each group.
void check(const Plan& plan, const Network& contracts, int64_t memory_bytes = 0);

void check_form(const Plan& plan, const Network& contracts);
void check_values(const Plan& plan, const Network& contracts = {});
void check_collectives(const Plan& plan);
/// Proves that no rank blocks forever. `members`: max number of ranks of a class that are simulated one by one if they
/// send messages to each other. Of a larger class, one rank represents all, with the same outcome.
void check_deadlock(const Plan& plan, const Network& contracts, int64_t members = 64);
void check_memory(const Plan& plan, int64_t memory_bytes);

/// Proves that messages of collectives with chunk tables (`tables`, by axis) cannot be confused with other messages of
/// the plan, on transports that match in order: both ends must exchange the same messages before the collective. Throws
/// Error at the line that selected the table.
void check_collective_tables(const Plan& plan, const std::map<std::string, std::vector<ChunkTable>>& tables,
                             const Network& contracts);

/// Proves that a snapshot can be copied during a step: every param and state is copied once, copies do not overlap, and
/// no instruction before CopiedValue::written writes the value. Throws Error naming the value and instructions.
void check_snapshots(const Plan& plan, const std::vector<SnapshotPlan>& snapshots);

/// All different groups of ranks along an axis, each as the classes of its members. `class_of`: by rank.
std::set<std::vector<int>> lineups(const Plan& plan, AxisId axis, const std::vector<int>& class_of);
/// By rank: the index of its class. Throws Error if a rank is in no class or in two.
std::vector<int> classes_of_ranks(const Plan& plan);
/// By instruction of a stream: the first instruction of its message group, or none. For a transport with grouped
/// messages, the executor makes one group of adjacent sends and receives of an axis.
std::vector<int> groups_of(const Plan& plan, const RankClass& c, const Network& contracts);

}  // namespace orrery

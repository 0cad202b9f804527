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

/// What a plan or a session needs does not fit in the memory of a rank.
class MemoryError : public Error {
public:
    using Error::Error;
};

/// Proves that a plan runs, before any rank starts; derives everything from the streams again and trusts no table of
/// lowering. Throws Error naming class, instruction, op and script line:
///   form      operands fit kernels, buffers and arenas; messages' sizes fit their op and the transport's dtypes
///   contents  every byte read holds the value that is meant, of the right micro-batch; what the step must leave behind
///             (updates, results) is there
///   order     accesses of different queues to the same bytes are ordered by waits
///   sums      what is summed, over micro-batches too, holds each contribution once when it is read
///   groups    members of an axis run the same collectives of the same values in the same order
///   progress  sends meet receives; no deadlock where one thread issues a stream in order, under each transport's
///             sends, lanes and calls that hold it up
///   memory    a rank's arenas fit in `memory_bytes` (0: not judged)
/// Near-linear in instructions; loops over ranks only to find which classes meet.
void check(const Plan& plan, const Network& contracts, int64_t memory_bytes = 0);

// Its parts.
void check_form(const Plan& plan, const Network& contracts);
void check_values(const Plan& plan, const Network& contracts = {});
void check_collectives(const Plan& plan);
/// `members`: of ranks that share a stream and exchange messages, how many are played one by one; one stands for more,
/// with the same outcome (PlanView).
void check_deadlock(const Plan& plan, const Network& contracts, int64_t members = 64);
void check_memory(const Plan& plan, int64_t memory_bytes);

/// Collectives that tables make of messages, by axis: where the transport matches messages in order, all of the plan's
/// between two members that were sent before a collective have been received when it begins, if its table has a message
/// between the two as well. Throws Error at the line that chose the table otherwise.
void check_collective_tables(const Plan& plan, const std::map<std::string, std::vector<ChunkTable>>& tables,
                             const Network& contracts);

/// What a snapshot copies beside a step (plan/snapshot.h): every param and state once, apart from each other, and, by a
/// walk over the bytes that instructions write, that none is written before its bound, and each at it. Throws Error
/// naming the value, its bound and the instruction that writes it.
void check_snapshots(const Plan& plan, const std::vector<SnapshotPlan>& snapshots);

/// The different line-ups of classes that groups of one axis have, by member. `class_of`: classes_of_ranks().
std::set<std::vector<int>> lineups(const Plan& plan, AxisId axis, const std::vector<int>& class_of);
/// By rank. Throws when a rank is in no class, or in two.
std::vector<int> classes_of_ranks(const Plan& plan);
/// By instruction: the first one of its group, which the executor opens around adjacent sends and receives of an axis;
/// none where the transport's contract is not grouped.
std::vector<int> groups_of(const Plan& plan, const RankClass& c, const Network& contracts);

}  // namespace orrery

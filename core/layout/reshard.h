#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// One redistribution: all_reduce, all_gather, reduce_scatter, all_to_all, or `kernel` (each rank keeps its slice of a
/// replicated value; sends nothing). The op is `op_inserted_for` it.
struct ReshardStep {
    Opcode instruction = Opcode::kernel;
    AxisId axis = 0;
    int from = -1;  ///< all_gather, all_to_all: the dim that was split
    int to = -1;    ///< reduce_scatter, all_to_all, kernel: the dim that is split then
    ReduceOp op = ReduceOp::sum;
    int64_t bytes = 0;  ///< sent by each rank
    Layout layout;      ///< after this step
};

/// Steps from one layout to another; empty when they are equal.
struct ReshardPath {
    std::vector<ReshardStep> steps;
    int64_t bytes = 0;  ///< sent by each rank
    int64_t cost = 0;   ///< bytes, plus a constant per step, so that fewer messages win between equals
};

/// Finds the cheapest path between two layouts of one type: exact (Dijkstra over the layouts that lie between), with
/// costs that are constants of this code, so that every machine derives the same plan. Results are kept: a program
/// asks for few distinct redistributions. Moves touch the innermost axis of a dim only, which keeps blocks contiguous:
///   all_reduce      P -> R      sends 2 S (n-1)/n, S: bytes of the local block
///   reduce_scatter  P -> S(d)   sends S (n-1)/n
///   all_gather      S(d) -> R   sends S (n-1)/n, S: bytes of the gathered block
///   all_to_all      S(d) -> S(e) sends S (n-1)/n
///   shard           R -> S(d)   sends nothing
/// The sequential axis moves no bytes between ranks: P -> R is the accumulation over micro-batches, which needs no
/// step, R -> S(d) is `shard`, and nothing else is possible.
class Resharder {
public:
    explicit Resharder(const Mesh& mesh) : mesh_(mesh) {}

    /// nullptr when there is no path. The pointer stays valid.
    const ReshardPath* path(const TensorType& type, const Layout& from, const Layout& to);

private:
    struct Hash {
        using is_transparent = void;
        size_t operator()(std::string_view key) const { return std::hash<std::string_view>{}(key); }
    };
    const Mesh& mesh_;
    const ReshardPath nothing_;
    std::string key_;  ///< of the query at hand: item size, shape, both layouts
    std::unordered_map<std::string, std::unique_ptr<ReshardPath>, Hash, std::equal_to<>> known_;
};

}  // namespace orrery

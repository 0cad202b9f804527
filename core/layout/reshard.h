#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// One step of a redistribution: a collective over one axis, or `kernel`: each rank then takes its slice of a
/// replicated value and sends nothing. The op for the step is op_inserted_for(instruction).
struct ReshardStep {
    Opcode instruction = Opcode::kernel;
    AxisId axis = 0;
    int from = -1;  ///< all_gather, all_to_all: the dim that is split before the step
    int to = -1;    ///< reduce_scatter, all_to_all, kernel: the dim that is split after the step
    ReduceOp op = ReduceOp::sum;
    int64_t bytes = 0;  ///< bytes that each rank sends in the step
    Layout layout;
};

/// The steps that change a value from one layout to another; none if the layouts are equal.
struct ReshardPath {
    std::vector<ReshardStep> steps;
    int64_t bytes = 0;  ///< bytes that each rank sends in all steps
    int64_t cost = 0;   ///< `bytes` plus a constant per step, so that of equal paths the one with fewer messages wins
};

/// Finds the cheapest steps between two layouts of a value: exact, by Dijkstra's algorithm. The costs are constants, so
/// every machine finds the same steps. Results are cached. A step moves only the innermost axis of a dim, so blocks
/// stay contiguous. With n ranks and S bytes of the larger local block:
///   all_reduce      P -> R        sends 2 S (n-1)/n
///   reduce_scatter  P -> S(d)     sends S (n-1)/n
///   all_gather      S(d) -> R     sends S (n-1)/n
///   all_to_all      S(d) -> S(e)  sends S (n-1)/n
///   shard           R -> S(d)     sends nothing
/// On the sequential axis, P -> R is the accumulation over micro-batches and needs no step, R -> S(d) is `shard`, and
/// other changes are impossible.
class Resharder {
public:
    explicit Resharder(const Mesh& mesh) : mesh_(mesh) {}

    /// Returns the cheapest path; nullptr when there is none. The pointer stays valid.
    const ReshardPath* path(const TensorType& type, const Layout& from, const Layout& to);

private:
    struct Hash {
        using is_transparent = void;
        size_t operator()(std::string_view key) const { return std::hash<std::string_view>{}(key); }
    };
    const Mesh& mesh_;
    const ReshardPath nothing_;
    std::string key_;  ///< cache key of a query: element size, shape and both layouts
    std::unordered_map<std::string, std::unique_ptr<ReshardPath>, Hash, std::equal_to<>> known_;
};

}  // namespace orrery

#include "layout/reshard.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <set>
#include <utility>

namespace orrery {

namespace {

using Kind = Placement::Kind;

// Costs in bytes: of each message, in addition to its size, and of a slice that a rank takes locally.
constexpr int64_t message_cost = 512;
constexpr int64_t shard_cost = 1;

struct LayoutLess {
    static auto key(const Layout::Partial& partial) { return std::make_pair(partial.axis, partial.op); }
    bool operator()(const Layout& a, const Layout& b) const {
        if (a.splits() != b.splits()) return a.splits() < b.splits();
        return std::lexicographical_compare(a.partials().begin(), a.partials().end(), b.partials().begin(),
                                            b.partials().end(),
                                            [](const auto& x, const auto& y) { return key(x) < key(y); });
    }
};

void append(std::string& key, int64_t number) { key.append(reinterpret_cast<const char*>(&number), sizeof(number)); }
void append(std::string& key, const Layout& layout) {
    for (const auto& axes : layout.splits()) {
        for (AxisId axis : axes) key.push_back(static_cast<char>(axis));
        key.push_back('\x7f');
    }
    for (const auto& partial : layout.partials()) {
        key.push_back(static_cast<char>(partial.axis));
        key.push_back(static_cast<char>(partial.op));
    }
    key.push_back('\x7e');
}

/// True when `axis` is the next axis of a dim in the target layout, after the axes that split the dim now.
bool extends_target(const std::vector<AxisId>& have, AxisId axis, const std::vector<AxisId>& want) {
    return have.size() < want.size() && want[have.size()] == axis && std::equal(have.begin(), have.end(), want.begin());
}

/// Dijkstra's algorithm over layouts: a node is a layout, an edge is one step. An axis moves only to its placement in
/// the target layout, or to R on the way. For a tensor of S bytes and n ranks:
///
///   S(0) --- all_gather ---> R --- shard ---> S(1)   S (n-1)/n + 513
///     \______________ all_to_all ______________/     S/n (n-1)/n + 512
class Search {
public:
    Search(const Mesh& mesh, const Shape& shape, int64_t item, const Layout& to)
        : mesh_(mesh), shape_(shape), item_(item), to_(to) {}

    std::unique_ptr<ReshardPath> run(const Layout& from) {
        reach(from, {}, 0, -1);
        while (!open_.empty()) {
            const auto [cost, at] = *open_.begin();
            open_.erase(open_.begin());
            if (cost > nodes_[at].cost) continue;
            if (nodes_[at].step.layout == to_) return trace(at);
            expand(at);
        }
        return nullptr;
    }

private:
    struct Node {
        ReshardStep step;
        int64_t cost = 0;
        int before = -1;
    };

    void reach(Layout layout, ReshardStep step, int64_t cost, int before) {
        step.layout = layout;
        const auto [place, fresh] = found_.try_emplace(std::move(layout), nodes_.size());
        if (fresh) {
            nodes_.push_back({std::move(step), cost, before});
        } else {
            Node& node = nodes_[place->second];
            if (node.cost <= cost) return;
            node = {std::move(step), cost, before};
        }
        open_.emplace(cost, place->second);
    }

    void expand(int at) {
        const Layout layout = nodes_[at].step.layout;
        for (AxisId axis = 0; axis < std::ssize(mesh_.axes()); ++axis)
            if (mesh_.size(axis) > 1) expand(at, layout, axis);
    }

    void expand(int at, const Layout& layout, AxisId axis) {
        const Placement here = layout.at(axis);
        const Placement goal = to_.at(axis);
        const bool sequential = mesh_.axis(axis).sequential;
        if (here == goal && here.kind != Kind::split) return;
        const bool lands = goal.kind == Kind::split && fits(layout, axis, goal.dim);
        switch (here.kind) {
            case Kind::partial:
                if (sequential) return;
                move(at, layout, axis, Opcode::all_reduce, here, Placement::replicated(), 2);
                if (lands) move(at, layout, axis, Opcode::reduce_scatter, here, goal, 1);
                break;
            case Kind::replicate:
                if (lands) move(at, layout, axis, Opcode::kernel, here, goal, 0);
                break;
            case Kind::split:
                if (sequential || layout.splits()[here.dim].back() != axis) return;
                move(at, layout, axis, Opcode::all_gather, here, Placement::replicated(), 1);
                if (lands && goal.dim != here.dim) move(at, layout, axis, Opcode::all_to_all, here, goal, 1);
                break;
        }
    }

    bool fits(const Layout& layout, AxisId axis, int dim) const {
        return extends_target(layout.splits()[dim], axis, to_.splits()[dim]);
    }

    int64_t local_bytes(const Layout& layout) const {
        int64_t bytes = item_;
        for (size_t dim = 0; dim < shape_.size(); ++dim) {
            int64_t parts = 1;
            for (AxisId axis : layout.splits()[dim]) parts *= mesh_.size(axis);
            if (shape_[dim] % parts != 0) return -1;
            bytes *= shape_[dim] / parts;
        }
        return bytes;
    }

    /// Adds a step on one axis, from `here` to `there`. Each rank sends `factor` times the larger block, times (n-1)/n.
    void move(int at, const Layout& layout, AxisId axis, Opcode instruction, Placement here, Placement there,
              int factor) {
        ReshardStep step{instruction, axis, here.dim, there.dim, here.op, 0, {}};
        Layout next = layout;
        next.set(axis, there);
        const int64_t before = local_bytes(layout);
        const int64_t after = local_bytes(next);
        if (after < 0) return;  // the step is impossible, since a dim is not divisible
        const int64_t n = mesh_.size(axis);
        step.bytes = factor * std::max(before, after) * (n - 1) / n;
        const int64_t price = factor > 0 ? step.bytes + message_cost : shard_cost;
        const int64_t cost = nodes_[at].cost + price;
        reach(std::move(next), std::move(step), cost, at);
    }

    std::unique_ptr<ReshardPath> trace(int at) const {
        auto path = std::make_unique<ReshardPath>();
        path->cost = nodes_[at].cost;
        for (; nodes_[at].before >= 0; at = nodes_[at].before) {
            path->steps.push_back(nodes_[at].step);
            path->bytes += path->steps.back().bytes;
        }
        std::reverse(path->steps.begin(), path->steps.end());
        return path;
    }

    const Mesh& mesh_;
    const Shape& shape_;
    int64_t item_;
    const Layout& to_;
    std::vector<Node> nodes_;
    std::map<Layout, int, LayoutLess> found_;
    std::set<std::pair<int64_t, int>> open_;  // by cost, then in order of discovery: every machine finds the same path
};

}  // namespace

const ReshardPath* Resharder::path(const TensorType& type, const Layout& from, const Layout& to) {
    assert(from.splits().size() == to.splits().size());
    if (from == to) return &nothing_;
    key_.clear();
    append(key_, size_of(type.dtype));
    append(key_, type.shape.size());
    for (int64_t size : type.shape) append(key_, size);
    append(key_, from);
    append(key_, to);
    const auto place = known_.find(std::string_view(key_));
    if (place != known_.end()) return place->second.get();
    // Accumulation over micro-batches comes first, so that other steps run once a step, not for each micro-batch.
    Layout start = from;
    for (const auto& partial : from.partials())
        if (mesh_.axis(partial.axis).sequential && to.at(partial.axis).kind == Kind::replicate)
            start.set(partial.axis, Placement::replicated());
    auto path = Search(mesh_, type.shape, size_of(type.dtype), to).run(start);
    return known_.emplace(key_, std::move(path)).first->second.get();
}

}  // namespace orrery

// Expert parallelism: the ranks of some axes share the experts of a mixture (Lepikhin et al. 2020, GShard). A rank has
// the params of its experts, and multiplies the slots that groups of tokens of all ranks have for them. This file only
// marks; propagation derives the all-to-alls that take tokens to their experts and back, or for ranks that have the
// same tokens the sum of their experts' results. scripts/orrery/strategies/expert.lua gives the same marks.
#include <algorithm>
#include <map>
#include <set>

#include "orrery/axes.h"
#include "orrery/plugin.h"
#include "orrery/strategy.h"

namespace orrery {

namespace {

class Expert : public Strategy {
public:
    Expert(Config& options, Origin origin) : axes_(read_axes(options, "axes", "ep")), origin_(std::move(origin)) {
        if (origin_.who.empty()) origin_.who = "expert";
    }

    void annotate(Program& program, const Mesh& mesh) override {
        order_axes(program, mesh);
        if (order_.empty()) return;
        split_params(program, mesh);
        for (const Op& op : program.ops) mark(program, mesh, op);
    }

private:
    static const Shape& shape_of(const Program& program, ValueId id) { return program.value(id).type.shape; }

    /// Whether a value is of tokens: slabs [batch.., experts, slots, width] are, weights of experts are not.
    static bool of_tokens(const Program& program, ValueId id) { return program.dim(id, "batch").has_value(); }

    /// The dim of slabs that is split over ranks: experts, or expert_blocks in rows [batch.., expert_blocks, slots,
    /// width].
    static std::optional<int> shared_dim(const Program& program, ValueId id) {
        if (!of_tokens(program, id)) return std::nullopt;
        const auto experts = program.dim(id, "experts");
        return experts ? experts : program.dim(id, "expert_blocks");
    }

    /// Splits the slabs that an op makes, and what it reads by expert: slabs without names, loads [batch.., experts].
    void mark(Program& program, const Mesh& mesh, const Op& op) const {
        const auto is_slab = [&](ValueId id) { return shared_dim(program, id).has_value(); };
        const auto made = std::ranges::find_if(op.outputs, is_slab);
        if (made == op.outputs.end()) return;
        const int dim = *shared_dim(program, *made);
        require_groups(program, mesh, op, *made);
        require_blocks(mesh, op, shape_of(program, *made)[static_cast<size_t>(dim)]);
        store(program, *made, dim);
        use(program, *made, dim);
        const bool weighed = std::ranges::any_of(
            op.inputs, [&](ValueId id) { return !of_tokens(program, id) && program.dim(id, "experts"); });
        if (!weighed) return;
        const Shape slab = shape_of(program, *made);
        for (const ValueId id : op.inputs) {
            const Shape& shape = shape_of(program, id);
            const bool whole = static_cast<int>(shape.size()) > dim && of_tokens(program, id);
            if (whole && shape[static_cast<size_t>(dim)] == slab[static_cast<size_t>(dim)]) use(program, id, dim);
        }
    }

    void store(Program& program, ValueId id, int dim) const {
        for (const std::string& axis : order_) program.store(id, axis, Placement::split(dim), origin_);
    }

    /// `use` marks a read as split by experts on purpose: lint then does not call the all-to-all to a reader by group
    /// IMPLICIT.
    void use(Program& program, ValueId id, int dim) const {
        for (const std::string& axis : order_) program.use(id, axis, Placement::split(dim), origin_);
    }

    /// Sets `order_`: the axes of more than one rank, in the order in which they split experts. Those that split an
    /// input already (its sequence) are last, innermost first, since an all-to-all takes the innermost axis of a dim
    /// first; propagation orders those that split the batch.
    void order_axes(const Program& program, const Mesh& mesh) {
        std::set<std::string> rest;
        for (const std::string& axis : axes_)
            if (mesh.size(axis) > 1) rest.insert(axis);
        std::vector<std::string> inner;
        for (const ValueId input : program.inputs())
            for (const Mark& mark : program.marks())
                if (mark.value == input && mark.what == Mark::What::store &&
                    mark.placement.kind == Placement::Kind::split && rest.erase(mark.axis) > 0)
                    inner.insert(inner.begin(), mark.axis);
        order_.clear();
        std::ranges::copy_if(axes_, std::back_inserter(order_), [&](const auto& axis) { return rest.contains(axis); });
        order_.insert(order_.end(), inner.begin(), inner.end());
    }

    /// "ep=2", or "dp=2 and cp=4".
    static std::string axes_text(const Mesh& mesh, const std::vector<std::string>& axes) {
        std::string text;
        for (const std::string& axis : axes)
            text += (text.empty() ? "" : " and ") + axis + "=" + std::to_string(mesh.size(axis));
        return text;
    }
    std::string axes_text(const Mesh& mesh) const { return axes_text(mesh, order_); }

    /// Refuses groups of tokens of slabs [batch, seq (groups of a row)?, experts, ..] that earlier splits of the
    /// sequence tear apart.
    void require_groups(const Program& program, const Mesh& mesh, const Op& op, ValueId slabs) const {
        std::vector<std::string> axes;
        int64_t ranks = 1;
        for (const Mark& mark : program.marks())
            if (program.value(mark.value).role == Role::input && mark.what == Mark::What::store &&
                mark.placement == Placement::split(program.dim(mark.value, "seq").value_or(-1)) &&
                std::ranges::count(axes, mark.axis) == 0 && mesh.size(mark.axis) > 1) {
                axes.push_back(mark.axis);
                ranks *= mesh.size(mark.axis);
            }
        const auto seq = program.dim(slabs, "seq");
        const int64_t groups = seq ? shape_of(program, slabs)[static_cast<size_t>(*seq)] : 1;
        if (groups % ranks != 0)
            throw Error(origin_,
                        "strategy expert: " + axes_text(mesh, axes) + (axes.size() == 1 ? " splits" : " split") +
                            " a group of tokens of " + op.scope + " between ranks: rows have " +
                            std::to_string(groups) + (groups == 1 ? " group" : " groups") +
                            ", expected a multiple of " + std::to_string(ranks) +
                            "\n  set parts of nn.moe (script.parts) to a multiple of " + std::to_string(ranks));
    }

    /// Throws unless the number of blocks of experts is a multiple of the number of ranks.
    void require_blocks(const Mesh& mesh, const Op& op, int64_t blocks) const {
        const std::string ranks = std::to_string(ranks_of(mesh));
        if (blocks % ranks_of(mesh) != 0)
            throw Error(origin_, "strategy expert: " + op.scope + " has " + std::to_string(blocks) +
                                     " blocks of experts, expected a multiple of " + ranks + " for " + axes_text(mesh) +
                                     "\n  set blocks of nn.moe (script.expert_blocks) to a multiple of " + ranks);
    }

    int64_t ranks_of(const Mesh& mesh) const {
        int64_t ranks = 1;
        for (const std::string& axis : order_) ranks *= mesh.size(axis);
        return ranks;
    }

    void split_params(Program& program, const Mesh& mesh) const {
        const int64_t ranks = ranks_of(mesh);
        const std::map<ValueId, Mark> earlier = earlier_marks(program);
        bool found = false;
        for (const ValueId param : program.params()) {
            const auto dim = program.dim(param, "experts");
            if (!dim) continue;
            found = true;
            const Value& value = program.value(param);
            const int64_t n = value.type.shape[static_cast<size_t>(*dim)];
            if (n % ranks != 0)
                throw Error(origin_, "strategy expert: cannot split the " + std::to_string(n) + " experts of " +
                                         value.name + " over " + axes_text(mesh) + ": " + std::to_string(n) +
                                         " is not a multiple of " + std::to_string(ranks) + "\n  " + choices(n));
            if (const auto mark = earlier.find(param); mark != earlier.end())
                throw Error(origin_, "strategy expert must come before " + mark->second.origin.who +
                                         " in program:parallel: " + value.name + " is split over " + mark->second.axis +
                                         " already\n  by " + mark->second.origin.text());
            store(program, param, *dim);
        }
        if (!found)
            throw Error(origin_, "strategy expert: the mesh has " + axes_text(mesh) +
                                     ", but the model has no experts (no param has a dim named \"experts\")\n  choose "
                                     "a model with experts, or remove " +
                                     axes_names() + " from the mesh or from the axes of the strategy");
    }

    /// By param: the first mark of an earlier strategy that splits it over one of the axes.
    std::map<ValueId, Mark> earlier_marks(const Program& program) const {
        std::map<ValueId, Mark> earlier;
        for (const Mark& mark : program.marks())
            if (mark.what == Mark::What::store && mark.placement.kind == Placement::Kind::split &&
                std::ranges::count(order_, mark.axis) > 0)
                earlier.emplace(mark.value, mark);
        return earlier;
    }

    /// "ep", or "dp and cp".
    std::string axes_names() const {
        std::string text;
        for (const std::string& axis : order_) text += (text.empty() ? "" : " and ") + axis;
        return text;
    }

    /// "use ep = 2, 4 or 8": numbers of ranks above 1 that divide a number of experts, up to eight of them.
    std::string choices(int64_t experts) const {
        std::vector<int64_t> all;
        for (int64_t n = 2; n <= experts && all.size() < 8; ++n)
            if (experts % n == 0) all.push_back(n);
        std::string text;
        for (size_t i = 0; i < all.size(); ++i)
            text += (i == 0 ? "" : i + 1 == all.size() ? " or " : ", ") + std::to_string(all[i]);
        if (text.empty()) return "remove " + axes_names() + " from the axes of the strategy";
        return order_.size() == 1 ? "use " + axes_names() + " = " + text
                                  : "use " + axes_names() + " of " + text + " ranks together";
    }

    std::vector<std::string> axes_, order_;
    Origin origin_;
};

void add(Registry& registry) {
    registry.add_strategy(
        "expert", [](Config& options, const Origin& origin) { return std::make_unique<Expert>(options, origin); });
}

}  // namespace

}  // namespace orrery

ORRERY_PLUGIN("strategy.expert", "0.1", orrery::add);

// Context parallelism: the ranks of an axis share the sequence of each row. Every op but attention works on a part of
// the sequence alone. Attention reads all keys, by splitting heads instead (Jacobs et al. 2023, Ulysses), by gathering
// keys and values (Llama Team 2024), or by passing them around (Liu et al. 2023, ring attention). With the latter two
// an order of the row's tokens gives all ranks equal work. This file only marks; propagation derives every collective
// and message. scripts/orrery/strategies/context.lua gives the same marks.
#include <algorithm>
#include <set>

#include "orrery/plugin.h"
#include "orrery/strategy.h"

namespace orrery {

namespace {

// Operands and results of attention: q, o and their gradients [B,T,H,D], k, v and theirs [B,S,G,D], statistics of rows
// [B,H,T], documents and positions [B,T] and [B,S].
constexpr int seq_dim = 1, heads_dim = 2;

/// Whether the op is attention, or its gradient: q, k, v, ... -> dq, dk, dv.
bool attention(const Program& program, const Op& op) {
    return op.kind == "attention" ||
           (op.forward != none && program.op(op.forward).kind == "attention" && op.outputs.size() == 3);
}

class Context : public Strategy {
public:
    Context(Config& options, Origin origin)
        : axis_(options.text("axis", "cp")),
          method_(options.text("method", "auto")),
          order_(options.text("order", "natural")),
          keep_(options.flag("keep", false)),
          origin_(std::move(origin)) {
        if (origin_.who.empty()) origin_.who = "context";
        if (order_ != "natural" && order_ != "zigzag" && order_ != "balanced")
            throw Error(options.where("order"), "strategy context: order is \"" + order_ +
                                                    "\"; there are \"natural\", \"zigzag\" and \"balanced\"");
        given_ = method_ != "auto";
        if (!given_) method_ = order_ == "natural" ? "heads" : "gather";
        if (method_ == "heads" && order_ != "natural")
            throw Error(options.where("order"),
                        "strategy context: order applies only to methods that split the queries in attention; with "
                        "method \"heads\" every rank reads whole rows, and does the same work in natural order\n  "
                        "leave order out, or give method = \"gather\" or \"ring\"");
        if (method_ != "heads" && method_ != "gather" && method_ != "ring")
            throw Error(options.where("method"),
                        "strategy context: method is \"" + method_ +
                            "\"; there are \"heads\" (heads are split in attention), \"gather\" (keys and values are "
                            "gathered) and \"ring\" (keys and values are passed around)");
        if (method_ != "gather" && keep_)
            throw Error(options.where("keep"),
                        "strategy context: keep applies only to what method \"gather\" gathers; leave it out, or give "
                        "method = \"gather\"");
    }

    void annotate(Program& program, const Mesh& mesh) override {
        const int64_t n = mesh.size(axis_);
        if (n == 1) return;
        refuse_later(program, mesh);
        if (method_ == "ring") refuse_inside(program, mesh);
        const ValueId split = split_sequence(program, n);
        if (order_ != "natural") program.edge(axis_, std::nullopt, "order", order_, origin_);
        std::vector<std::vector<ValueId>> made(program.values.size());  // by value: results of the ops that read it
        for (const Op& op : program.ops)
            for (const ValueId input : op.inputs)
                if (!attention(program, op))
                    made[static_cast<size_t>(input)].insert(made[static_cast<size_t>(input)].end(), op.outputs.begin(),
                                                            op.outputs.end());
        bool found = false;
        for (const Op& op : program.ops) {
            if (!attention(program, op)) continue;
            found = true;
            if (method_ == "heads")
                split_heads(program, op, n, made);
            else
                read_keys(program, op);
        }
        if (!found && given_)
            throw Error(origin_, "strategy context: method = \"" + method_ +
                                     "\" applies to op attention, which the program lacks; its ops that mix positions "
                                     "would gather the sequence\n  use attention (gpt.lua, llama.lua: script.fused = "
                                     "true), or leave method out");
        if (!found)
            program.note(split,
                         "has no op attention among its readers: method does nothing, and ops that mix positions "
                         "gather the sequence",
                         origin_);
    }

private:
    std::string axis_text(int64_t n) const { return axis_ + "=" + std::to_string(n); }

    /// Refuses to run after strategies that split heads, or the sequence of activations, since the axis of this one is
    /// the outer split of both; and after one that splits the batch over the axis of this one.
    void refuse_later(const Program& program, const Mesh& mesh) const {
        std::set<std::pair<ValueId, std::string>> gathered;
        for (const Mark& mark : program.marks())
            if (mark.what == Mark::What::use) gathered.emplace(mark.value, mark.axis);
        for (const Mark& mark : program.marks()) {
            if (mark.placement.kind != Placement::Kind::split || mesh.size(mark.axis) == 1) continue;
            if (mark.origin.who == origin_.who || gathered.count({mark.value, mark.axis})) continue;
            const Value& value = program.value(mark.value);
            const std::string& dim = value.dims[static_cast<size_t>(mark.placement.dim)];
            const bool forward = value.op != none && program.op(value.op).phase == Phase::forward;
            const bool batch = value.role == Role::input && mark.axis == axis_;
            const bool heads = value.role == Role::param && (dim == "heads" || dim == "kv_heads");
            if (!batch && !heads && !(forward && dim == "seq")) continue;
            const std::string why = batch ? "" : ": seq is split by " + axis_ + " outside, by " + mark.axis + " inside";
            throw Error(origin_, "strategy context must come before " + mark.origin.who + " in program:parallel" + why +
                                     "\n  " + mark.origin.text() + " has split " + dim + " over " + mark.axis +
                                     " already; move context before it");
        }
    }

    /// Refuses a ring inside of another split of the sequence: its ranks would not have blocks of the whole row.
    void refuse_inside(const Program& program, const Mesh& mesh) const {
        for (const Mark& mark : program.marks()) {
            const Value& value = program.value(mark.value);
            if (mark.placement.kind != Placement::Kind::split || mesh.size(mark.axis) == 1 || mark.axis == axis_)
                continue;
            if (value.role != Role::input || value.dims[static_cast<size_t>(mark.placement.dim)] != "seq") continue;
            throw Error(origin_, "strategy context: a ring over " + axis_ + " must split seq outside, but " +
                                     mark.axis + " splits it already\n  " + mark.origin.text() +
                                     " did; list the ring before it");
        }
    }

    /// Splits the dim `seq` of all inputs, and returns the first of them. Other values follow.
    ValueId split_sequence(Program& program, int64_t n) const {
        ValueId first = none;
        for (ValueId input : program.inputs()) {
            const auto dim = program.dim(input, "seq");
            if (!dim) continue;
            if (first == none) first = input;
            const int64_t size = program.value(input).type.shape[static_cast<size_t>(*dim)];
            const int64_t chunks = order_ == "zigzag" ? 2 * n : n;
            if (size % chunks != 0)
                throw Error(origin_, "strategy context: cannot split seq of " + program.value(input).name + " over " +
                                         axis_text(n) + (chunks > n ? " in zigzag order" : "") + ": rows of " +
                                         std::to_string(size) + " tokens are not a multiple of " +
                                         std::to_string(chunks) + "\n  " + choices(size / (chunks / n)) +
                                         ", or rows of " + std::to_string(size / chunks * chunks + chunks) + " tokens");
            program.store(input, axis_, Placement::split(*dim), origin_);
        }
        if (first == none)
            throw Error(origin_, "strategy context: no input has a dim named seq, so that " + axis_text(n) +
                                     " splits nothing\n  name the dim of a row's tokens seq, or remove the axis");
        return first;
    }

    /// "cp of 2, 3 or 6 would divide": the sizes of the axis above 1 that divide a number, up to eight of them.
    std::string choices(int64_t size) const {
        std::vector<int64_t> all;
        for (int64_t n = 2; n <= size && all.size() < 8; ++n)
            if (size % n == 0) all.push_back(n);
        std::string text;
        for (size_t i = 0; i < all.size(); ++i)
            text += (i == 0 ? "" : i + 1 == all.size() ? " or " : ", ") + std::to_string(all[i]);
        return text.empty() ? "no size of " + axis_ + " above 1 divides" : axis_ + " of " + text + " would divide";
    }

    /// Splits the operands and results of attention by heads, and what other ops make from the results by sequence
    /// again. Nothing asks for a split of the queries, so that attention is split by heads even where gathering keys
    /// and values would send less.
    void split_heads(Program& program, const Op& op, int64_t n, const std::vector<std::vector<ValueId>>& made) const {
        const int64_t heads = program.value(op.inputs[0]).type.shape[heads_dim];
        if (heads % n != 0)
            throw Error(origin_, "strategy context: cannot split the " + std::to_string(heads) + " heads of " +
                                     op.scope + " (" + op.origin.text() + ") over " + axis_text(n) + "\n  " +
                                     choices(heads) + ", or give method = \"gather\", which splits no heads");
        const auto mark = [&](ValueId id) {
            const Value& value = program.value(id);
            const size_t rank = value.type.shape.size();
            if (rank == 2) return program.use(id, axis_, Placement::replicated(), origin_);
            const int dim = rank == 3 ? 1 : heads_dim;
            // Fewer key/value heads than ranks: each is repeated, or whole on several ranks, when attention reads it.
            const int64_t size = value.type.shape[static_cast<size_t>(dim)];
            if (size % n == 0) program.store(id, axis_, Placement::split(dim), origin_, size != heads);
        };
        std::for_each(op.inputs.begin(), op.inputs.end(), mark);
        std::for_each(op.outputs.begin(), op.outputs.end(), mark);
        const std::string seq = program.value(op.inputs[0]).dims[seq_dim];
        for (const ValueId output : op.outputs) {
            if (program.value(output).type.shape.size() != 4) continue;
            for (const ValueId next : made[static_cast<size_t>(output)])
                if (const auto dim = program.dim(next, seq); dim && !seq.empty())
                    program.store(next, axis_, Placement::split(*dim), origin_);
        }
    }

    /// Gathers keys and values where attention and its gradient read them, or for a ring leaves them split, which asks
    /// attention to pass them around. The sums of their gradients are scattered.
    void read_keys(Program& program, const Op& op) const {
        const Placement as = method_ == "ring" ? Placement::split(seq_dim) : Placement::replicated();
        for (const ValueId id : op.inputs)
            if (program.value(id).type.shape.size() == 2) program.use(id, axis_, as, origin_);
        for (const size_t i : {1, 2})
            program.use(op.inputs[i], axis_, as, origin_, keep_ ? Keep::step : Keep::fragment);
        if (op.outputs.size() == 3)
            for (const size_t i : {1, 2}) program.store(op.outputs[i], axis_, Placement::split(seq_dim), origin_, true);
    }

    std::string axis_, method_, order_;
    bool given_ = false;  ///< the method is not "auto"
    bool keep_;
    Origin origin_;
};

void add(Registry& registry) {
    registry.add_strategy(
        "context", [](Config& options, const Origin& origin) { return std::make_unique<Context>(options, origin); });
}

}  // namespace

}  // namespace orrery

ORRERY_PLUGIN("strategy.context", "0.1", orrery::add);

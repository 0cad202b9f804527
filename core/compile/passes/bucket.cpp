#include "compile/passes/bucket.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "ir/build.h"
#include "ir/op.h"
#include "orrery/plan.h"

namespace orrery {

namespace {

using Kind = Placement::Kind;

class Bucketing {
public:
    Bucketing(Program& program, const Mesh& mesh) : program_(program), mesh_(mesh) {}

    void run() {
        std::vector<Op> old = std::move(program_.ops);
        program_.ops.clear();
        program_.ops.reserve(old.size());
        waiting_.assign(program_.values.size(), 0);
        find_homes(old);
        std::vector<OpId> moved;
        for (Op& op : old) {
            if (!open_.empty() && op.phase == phase_ && follow(op)) {
                moved.push_back(program_.ops.size());
                continue;
            }
            if (!open_.empty() && (op.phase != phase_ || reads_waiting(op))) flush_before(op);
            phase_ = op.phase;
            moved.push_back(program_.ops.size());
            if (joins(op)) {
                add(std::move(op));
            } else {
                program_.ops.push_back(std::move(op));
            }
        }
        for (auto& [key, bucket] : open_) flush(bucket);
        relink(program_, moved);
    }

private:
    struct Bucket {
        std::vector<Op> members;
        std::vector<Op> followers;  ///< casts of members' outputs
        int64_t bytes = 0;
    };

    /// Finds the stage of updated params: the first stage that reads the param. Ops of the update have no stage yet.
    void find_homes(const std::vector<Op>& ops) {
        std::vector<int> first(program_.values.size(), none);
        for (const Op& op : ops)
            for (ValueId id : op.inputs) {
                int& stage = first[id];
                if (op.stage != none && (stage == none || op.stage < stage)) stage = op.stage;
            }
        for (const Update& update : program_.updates) homes_[update.value] = first[update.target];
    }

    int stage_of(const Op& op) const {
        const auto home = homes_.find(op.outputs[0]);
        return op.stage != none || home == homes_.end() ? op.stage : home->second;
    }

    bool reads_waiting(const Op& op) const {
        return std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId id) { return waiting_[id] != 0; });
    }

    /// Whether the op adds codes of a term (code_factors.h). Lowering cannot join such all-reduces, since ops of the
    /// backward pass read them.
    static bool sums_codes(const Op& op) {
        return collective_of(op) == Opcode::all_reduce && op.attributes.has("codec");
    }

    /// The axes that split the first dims of codes into shards, of one element each; nullopt: another dim is split.
    std::optional<std::vector<AxisId>> shards_of(const Value& codes) const {
        std::vector<AxisId> axes;
        bool whole = false;
        for (size_t dim = 0; dim < codes.type.shape.size(); ++dim) {
            const std::vector<AxisId>& splits = codes.layout.splits()[dim];
            int64_t left = codes.type.shape[dim];
            for (const AxisId axis : splits) left /= mesh_.size(axis);
            if (!splits.empty() && (whole || left > 1)) return std::nullopt;
            whole = whole || splits.empty();
            axes.insert(axes.end(), splits.begin(), splits.end());
        }
        return axes;
    }

    int64_t shards(const std::vector<AxisId>& axes) const {
        int64_t count = 1;
        for (const AxisId axis : axes) count *= mesh_.size(axis);
        return count;
    }

    /// Bytes that the op adds to a message. Of an exchange: those of a part for each member.
    int64_t bytes_of(const Op& op) const {
        const Value& in = program_.value(op.inputs[0]);
        if (collective_of(op) == Opcode::all_to_all) return in.type.bytes() / mesh_.size(op.attributes.text("axis"));
        return sums_codes(op) ? in.type.bytes() / shards(*shards_of(in)) : in.type.bytes();
    }

    /// Whether no axis splits the dims of a value from `dim` on.
    static bool is_whole(const Value& value, int dim = 0) {
        const auto& splits = value.layout.splits();
        return std::all_of(splits.begin() + dim, splits.end(), [](const auto& axes) { return axes.empty(); });
    }

    /// Whether messages of its kind are packed, and no axis splits the whole value. Of exchanges: those of codes alone,
    /// which no other axis splits; of all-reduces, those of codes.
    bool is_packed(const Op& op) const {
        const auto moved = collective_of(op);
        if (!moved) return false;
        const Value& in = program_.value(op.inputs[0]);
        if (sums_codes(op)) return shards_of(in).has_value();
        switch (*moved) {
            case Opcode::all_to_all: return op.attributes.has("codec") && is_whole(in, 1);
            case Opcode::reduce_scatter: return is_whole(in);
            case Opcode::all_gather: return is_whole(program_.value(op.outputs[0]));
            default: return false;
        }
    }

    /// True when the op can be packed, and is at most half a bucket.
    bool joins(const Op& op) const {
        return is_packed(op) && program_.bucket_bytes(op.attributes.text("axis"), op.phase) >= 2 * bytes_of(op);
    }

    std::string key_of(const Op& op) const {
        const Value& in = program_.value(op.inputs[0]);
        const Value& out = program_.value(op.outputs[0]);
        std::string key =
            fmt::format("{} {} {} {} {} {}", op.kind, op.attributes.text("axis"), op.attributes.text("op"),
                        name_of(in.type.dtype), stage_of(op), op.attributes.text("keep"));
        // Codes of arrays are joined along their last dim.
        if (collective_of(op) == Opcode::all_to_all)
            for (size_t dim = 0; dim + 1 < in.type.shape.size(); ++dim) key += fmt::format(" {}", in.type.shape[dim]);
        if (sums_codes(op)) key += fmt::format(" [{}]", fmt::join(*shards_of(in), " "));
        // Members must be partial over the same other axes, such as micro.
        for (const Value* value : {&in, &out})
            for (const auto& partial : value->layout.partials())
                key += fmt::format(" {}{}", partial.axis, name_of(partial.op));
        return key;
    }

    void add(Op op) {
        const int64_t bytes = bytes_of(op);
        Bucket& bucket = open_[key_of(op)];
        if (bucket.bytes + bytes > program_.bucket_bytes(op.attributes.text("axis"), op.phase)) flush(bucket);
        waiting_[op.outputs[0]] = 1;
        bucket.bytes += bytes;
        bucket.members.push_back(std::move(op));
    }

    static bool reads(const Op& op, const std::vector<Op>& makers) {
        return std::any_of(makers.begin(), makers.end(), [&](const Op& maker) {
            return std::find(op.inputs.begin(), op.inputs.end(), maker.outputs[0]) != op.inputs.end();
        });
    }

    /// Delays a cast of a member's output (from encode_edges) to after the message: it does not flush the bucket.
    bool follow(Op& op) {
        if (!op_def(op.kind).casts || !reads_waiting(op)) return false;
        for (auto& [key, bucket] : open_) {
            if (!reads(op, bucket.members) || collective_of(bucket.members.front()) != Opcode::reduce_scatter) continue;
            waiting_[op.outputs[0]] = 1;
            bucket.followers.push_back(std::move(op));
            return true;
        }
        return false;
    }

    void flush_before(const Op& op) {
        for (auto& [key, bucket] : open_)
            if (op.phase != phase_ || reads(op, bucket.members) || reads(op, bucket.followers)) flush(bucket);
    }

    void flush(Bucket& bucket) {
        for (const auto* made : {&bucket.members, &bucket.followers})
            for (const Op& op : *made) waiting_[op.outputs[0]] = 0;
        if (bucket.members.size() > 1 && collective_of(bucket.members[0]) == Opcode::all_to_all)
            emit_exchange(bucket);
        else if (bucket.members.size() > 1 && sums_codes(bucket.members[0]))
            emit_sum(bucket);
        else if (bucket.members.size() > 1)
            emit(bucket);
        else
            for (Op& member : bucket.members) program_.ops.push_back(std::move(member));
        for (Op& op : bucket.followers) program_.ops.push_back(std::move(op));
        bucket = {};
    }

    /// Appends an op with phase, scope and stage of `like`. `out`: its output; none: a new value of `shape`, `layout`.
    ValueId make(const Op& like, std::string kind, std::vector<ValueId> inputs, Attributes attributes, Shape shape,
                 Layout layout, ValueId out = none) {
        if (out == none) {
            Value value;
            value.type = {program_.value(inputs[0]).type.dtype, shape};
            value.dims.resize(shape.size());
            value.layout = std::move(layout);
            value.causes = program_.value(like.outputs[0]).causes;
            value.origin = like.origin;
            out = program_.values.size();
            program_.values.push_back(std::move(value));
            waiting_.push_back(0);
        }
        Op op;
        op.kind = std::move(kind);
        op.attributes = std::move(attributes);
        if (const std::string keep = like.attributes.text("keep"); !keep.empty()) op.attributes.set("keep", keep);
        op.inputs = std::move(inputs);
        op.outputs = {out};
        op.phase = like.phase;
        op.scope = like.scope;
        op.stage = like.stage;
        op.origin = like.origin;
        program_.ops.push_back(std::move(op));
        return out;
    }

    static Attributes perm(size_t rank, size_t dim, bool back) {
        std::vector<int64_t> order(rank);
        std::iota(order.begin(), order.end(), int64_t{0});
        if (back)
            std::rotate(order.begin(), order.begin() + 1, order.begin() + dim + 1);
        else
            std::rotate(order.begin(), order.begin() + dim, order.begin() + dim + 1);
        return {{"perm", order}};
    }

    /// The layout of a packed value: partial as `like` is, and split over `axis` along dim 0 if `split`. When the
    /// message ends the loop over micro-batches (`after` is its output), values are packed after the loop.
    Layout lies(ValueId like, size_t rank, AxisId axis, bool split, ValueId after = none) const {
        Layout layout(rank);
        for (const auto& partial : program_.value(like).layout.partials()) {
            const bool leaves = after != none && mesh_.axis(partial.axis).sequential &&
                                program_.value(after).layout.at(partial.axis).kind == Kind::replicate;
            if (!leaves) layout.set(partial.axis, Placement::partial(partial.op));
        }
        if (split) layout.set(axis, Placement::split(0));
        return layout;
    }

    static std::string cause_of(const Bucket& bucket) {
        const std::string first = bucket.members.front().attributes.text("cause");
        return fmt::format("{} and {} more", first, bucket.members.size() - 1);
    }

    /// Joins exchanges of codes [P, P, 1, n]: along the last dim.
    void emit_exchange(const Bucket& bucket) {
        const Op& last = bucket.members.back();
        const AxisId axis = *mesh_.find(last.attributes.text("axis"));
        const ValueId in = last.inputs[0], out = last.outputs[0];
        Shape joint = program_.value(in).type.shape;
        const int64_t dim = std::ssize(joint) - 1;
        joint.back() = 0;
        std::vector<ValueId> codes;
        for (const Op& member : bucket.members) {
            codes.push_back(member.inputs[0]);
            joint.back() += program_.value(codes.back()).type.shape.back();
        }
        const ValueId packed =
            make(last, "concat", codes, {{"dim", dim}}, joint, lies(in, joint.size(), axis, true, out));
        Attributes attributes = last.attributes;
        attributes.set("cause", cause_of(bucket));
        Layout layout = lies(out, joint.size(), axis, false);
        layout.set(axis, Placement::split(1));
        const ValueId moved = make(last, last.kind, {packed}, attributes, joint, std::move(layout));
        int64_t start = 0;
        for (const Op& member : bucket.members) {
            const ValueId y = member.outputs[0];
            const int64_t size = program_.value(y).type.shape.back();
            make(last, "slice", {moved}, {{"dim", dim}, {"start", start}, {"size", size}}, {}, {}, y);
            start += size;
        }
    }

    /// Joins all-reduces of codes: [shards, elements] along the last dim.
    void emit_sum(const Bucket& bucket) {
        const Op& last = bucket.members.back();
        const AxisId axis = *mesh_.find(last.attributes.text("axis"));
        const std::vector<AxisId> axes = *shards_of(program_.value(last.inputs[0]));
        Shape joint{shards(axes), 0};
        const auto flat = [&](ValueId like) {
            Layout layout = lies(like, 2, axis, false);
            for (const AxisId split : axes) layout.set(split, Placement::split(0));
            return layout;
        };
        std::vector<ValueId> rows;
        for (const Op& member : bucket.members) {
            const ValueId in = member.inputs[0];
            const Shape row{joint[0], program_.value(in).type.count() / joint[0]};
            rows.push_back(make(last, "reshape", {in}, {{"shape", row}}, row, flat(in)));
            joint[1] += row[1];
        }
        const ValueId packed = make(last, "concat", rows, {{"dim", int64_t{1}}}, joint, flat(rows[0]));
        Attributes attributes = last.attributes;
        attributes.set("cause", cause_of(bucket));
        const ValueId moved = make(last, last.kind, {packed}, attributes, joint, flat(last.outputs[0]));
        int64_t start = 0;
        for (size_t i = 0; i < rows.size(); ++i) {
            const ValueId y = bucket.members[i].outputs[0];
            const Shape row = program_.value(rows[i]).type.shape;
            const ValueId own =
                make(last, "slice", {moved}, {{"dim", int64_t{1}}, {"start", start}, {"size", row[1]}}, row, flat(y));
            make(last, "reshape", {own}, {{"shape", program_.value(y).type.shape}}, {}, {}, y);
            start += row[1];
        }
    }

    void emit(const Bucket& bucket) {
        const Op& last = bucket.members.back();
        const bool gathers = collective_of(last) == Opcode::all_gather;
        const AxisId axis = *mesh_.find(last.attributes.text("axis"));
        const int64_t parts = mesh_.size(axis);
        const ValueId in = last.inputs[0], out = last.outputs[0];
        std::vector<ValueId> rows;
        int64_t width = 0, sends = 0;
        for (const Op& member : bucket.members) {
            const ValueId x = member.inputs[0];
            const size_t dim = member.attributes.integer("dim");
            const Shape shape = program_.value(x).type.shape;
            Shape front = shape;
            std::rotate(front.begin(), front.begin() + dim, front.begin() + dim + 1);
            const ValueId turned = dim == 0 ? x
                                            : make(last, "transpose", {x}, perm(shape.size(), dim, false), front,
                                                   lies(in, shape.size(), axis, gathers, out));
            const Shape flat{parts, count_of(shape) / parts};
            rows.push_back(make(last, "reshape", {turned}, {{"shape", flat}}, flat, lies(in, 2, axis, gathers, out)));
            width += flat[1];
            sends += member.attributes.integer("sends");
        }
        const Shape joint{parts, width};
        const ValueId packed =
            make(last, "concat", rows, {{"dim", int64_t{1}}}, joint, lies(in, 2, axis, gathers, out));
        Attributes attributes = bucket.members.front().attributes;
        attributes.set("dim", int64_t{0});
        attributes.set("cause", cause_of(bucket));
        if (sends > 0) attributes.set("sends", sends);
        const ValueId moved = make(last, last.kind, {packed}, attributes, joint, lies(out, 2, axis, !gathers));
        int64_t start = 0;
        for (const Op& member : bucket.members) start = cut_off(last, member, moved, start, axis, parts);
    }

    /// Copies a member's block of the message to the member's output. Returns the start of the next block.
    int64_t cut_off(const Op& last, const Op& member, ValueId moved, int64_t start, AxisId axis, int64_t parts) {
        const ValueId y = member.outputs[0];
        const bool split = collective_of(last) == Opcode::reduce_scatter;
        const size_t dim = member.attributes.integer("dim");
        const Shape shape = program_.value(y).type.shape;
        const Shape flat{parts, count_of(shape) / parts};
        const ValueId row = make(last, "slice", {moved}, {{"dim", int64_t{1}}, {"start", start}, {"size", flat[1]}},
                                 flat, lies(y, 2, axis, split));
        Shape front = shape;
        std::rotate(front.begin(), front.begin() + dim, front.begin() + dim + 1);
        if (dim == 0) {
            make(last, "reshape", {row}, {{"shape", front}}, {}, {}, y);
        } else {
            const ValueId turned =
                make(last, "reshape", {row}, {{"shape", front}}, front, lies(y, shape.size(), axis, split));
            make(last, "transpose", {turned}, perm(shape.size(), dim, true), {}, {}, y);
        }
        return start + flat[1];
    }

    Program& program_;
    const Mesh& mesh_;
    std::map<std::string, Bucket> open_;
    std::map<ValueId, int> homes_;  ///< by updated value of a param or state
    std::vector<char> waiting_;     ///< by value: whether an open bucket will produce it
    Phase phase_ = Phase::forward;
};

}  // namespace

void bucket_collectives(Program& program, const Mesh& mesh) {
    const auto joined = [&](const std::string& axis) {
        const auto bytes = [&](Phase phase) { return program.bucket_bytes(axis, phase); };
        return mesh.size(axis) > 1 &&
               std::max({bytes(Phase::forward), bytes(Phase::backward), bytes(Phase::update)}) > 0;
    };
    const std::vector<std::string> axes = program.axes_with("bucket");
    const bool wanted = std::any_of(axes.begin(), axes.end(), joined);
    if (wanted) Bucketing(program, mesh).run();
}

}  // namespace orrery

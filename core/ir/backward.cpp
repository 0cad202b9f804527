#include "orrery/backward.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ir/build.h"
#include "ir/describe.h"
#include "ir/op.h"

namespace orrery {

void Backward::begin(OpId id) {
    op_ = program_.op(id);  // a copy, because adding ops moves ops in memory
    first_ = program_.values.size();
    given_.clear();
    builder_.set_scope(op_.scope);
    builder_.set_forward(id);
}

std::optional<double> Backward::uniform(size_t o) const {
    const Slot& slot = slots_[out(o)];
    return slot.sum == none && slot.pieces.empty() ? slot.uniform : std::nullopt;
}

ValueId Backward::one(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes) {
    return add(kind, std::move(inputs), std::move(attributes)).at(0);
}

std::vector<ValueId> Backward::add(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes) {
    std::vector<ValueId> outputs = builder_.add(kind, std::move(inputs), std::move(attributes), op_.origin);
    slots_.resize(program_.values.size());
    return outputs;
}

ValueId Backward::append(Value value) {
    program_.values.push_back(std::move(value));
    slots_.resize(program_.values.size());
    return std::ssize(program_.values) - 1;
}

ValueId Backward::scalar(double value, DType dtype) {
    return one("full", {}, {{"shape", Shape{}}, {"value", value}, {"dtype", std::string(name_of(dtype))}});
}

ValueId Backward::cast(ValueId x, DType dtype) {
    return type(x).dtype == dtype ? x : one("cast", {x}, {{"dtype", std::string(name_of(dtype))}});
}

ValueId Backward::reshape_like(ValueId x, ValueId like) {
    if (shape(x) == shape(like)) return x;
    x = one("reshape", {x}, {{"shape", shape(like)}});
    return named_like(x, like);
}

namespace {

/// Whether two lists of dim names differ. An unnamed dim matches every name.
bool differ(const std::vector<std::string>& a, const std::vector<std::string>& b) {
    for (size_t d = 0; d < a.size(); ++d)
        if (!a[d].empty() && !b[d].empty() && a[d] != b[d]) return true;
    return false;
}

}  // namespace

bool Backward::fresh(ValueId value) const {
    return static_cast<size_t>(value) >= first_ && std::find(given_.begin(), given_.end(), value) == given_.end();
}

/// Gives a gradient the dim names of its value. Otherwise it could have those of an operand of a GEMM or broadcast,
/// which would conflict with other gradients of the value. If the gradient also belongs to another value, a reshape
/// renames it, which copies nothing.
ValueId Backward::named_like(ValueId gradient, ValueId like) {
    const std::vector<std::string> names = program_.value(like).dims;
    const std::vector<std::string>& own = program_.value(gradient).dims;
    if (own == names) return gradient;
    if (!fresh(gradient)) {
        if (!differ(own, names)) return gradient;
        gradient = one("reshape", {gradient}, {{"shape", shape(like)}});
    }
    program_.value(gradient).dims = names;
    return gradient;
}

bool Backward::is_weight(ValueId id) const {
    const Value* value = &program_.value(id);
    while (value->op != none) {
        const Op& maker = program_.op(value->op);
        const OpDef& def = op_def(maker.kind);
        if (!def.casts && !is_view(def)) return false;
        value = &program_.value(maker.inputs[0]);
    }
    return value->role == Role::param;
}

bool Backward::only_viewed(ValueId id) const {
    const Value* value = &program_.value(id);
    while (value->op != none) {
        const Op& maker = program_.op(value->op);
        const OpDef& def = op_def(maker.kind);
        if (!def.casts && !def.alias) return false;
        value = &program_.value(maker.inputs[0]);
    }
    return value->role == Role::param;
}

void Backward::expect_no_dy(size_t o, std::string_view name) const {
    if (!has_dy(o)) return;
    throw Error(op_.origin, fmt::format("no gradient flows through the result \"{}\" of {}: the loss must not depend "
                                        "on it",
                                        name, describe(program_, op_)));
}

ValueId Backward::sum_to(ValueId gradient, ValueId like) {
    const Shape& from = shape(gradient);
    const Shape& to = shape(like);
    const size_t skip = from.size() - to.size();
    std::vector<int64_t> dims;
    bool inner = false;
    for (size_t d = 0; d < from.size(); ++d) {
        if (d >= skip && to[d - skip] == from[d]) continue;
        if (d >= skip) inner = true;
        dims.push_back(d);
    }
    if (dims.empty()) return reshape_like(gradient, like);
    Attributes attributes{{"dims", dims}, {"keep", inner}};
    if (is_weight(like)) attributes.set("dtype", std::string("f32"));
    return reshape_like(one("sum", {gradient}, std::move(attributes)), like);
}

void Backward::accumulate(ValueId target, ValueId gradient) {
    // No other op reads the gradient of a param (or of a view of one), so its dims are named only when it is complete.
    const bool read = !only_viewed(target);
    if (read || fresh(gradient)) gradient = named_like(gradient, target);
    given_.push_back(gradient);
    ValueId known = slots_[target].sum;
    if (known != none && !read && differ(program_.value(known).dims, program_.value(gradient).dims)) {
        known = named_like(known, target);
        gradient = named_like(gradient, target);
    }
    if (known == none) {
        slots_[target].sum = gradient;
        return;
    }
    const DType wide = type(known).dtype == type(gradient).dtype ? type(known).dtype : DType::f32;
    const ValueId sum = one("add", {cast(known, wide), cast(gradient, wide)});
    slots_[target].sum = sum;
    given_.push_back(sum);
}

void Backward::give(size_t i, ValueId gradient) {
    if (!wants(i)) return;
    accumulate(in(i), shape(gradient) == shape(in(i)) ? gradient : sum_to(gradient, in(i)));
}

void Backward::give_uniform(size_t i, double value) {
    if (!wants(i)) return;
    Slot& slot = slots_[in(i)];
    slot.uniform = slot.uniform.value_or(0) + value;
}

void Backward::give_piece(size_t i, int dim, int64_t start, ValueId gradient) {
    if (wants(i)) slots_[in(i)].pieces.push_back({dim, start, gradient});
}

namespace {

// Whether the pieces of a gradient cover one dim from 0 to its size, without gap or overlap.
bool tiles(std::vector<Backward::Slot::Piece>& pieces, const Program& program, const Shape& shape) {
    std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.start < b.start; });
    int64_t end = 0;
    for (const auto& piece : pieces) {
        if (piece.dim != pieces[0].dim || piece.start != end) return false;
        end += program.value(piece.value).type.shape[piece.dim];
    }
    return end == shape[pieces[0].dim];
}

}  // namespace

ValueId Backward::total(ValueId id) {
    auto pieces = std::move(slots_[id].pieces);
    slots_[id].pieces.clear();
    if (!pieces.empty() && tiles(pieces, program_, shape(id))) {
        std::vector<ValueId> parts;
        for (const auto& piece : pieces) parts.push_back(piece.value);
        const bool mixed = std::any_of(parts.begin(), parts.end(),
                                       [&](ValueId part) { return type(part).dtype != type(parts[0]).dtype; });
        for (ValueId& part : parts) part = mixed ? cast(part, DType::f32) : part;
        accumulate(id, parts.size() == 1 ? parts[0] : one("concat", parts, {{"dim", int64_t{pieces[0].dim}}}));
    } else {
        for (const auto& piece : pieces) {
            const int64_t after = shape(id)[piece.dim] - piece.start - shape(piece.value)[piece.dim];
            accumulate(id, one("pad", {piece.value},
                               {{"dim", int64_t{piece.dim}}, {"before", piece.start}, {"after", after}}));
        }
    }
    const auto uniform = slots_[id].uniform;
    const ValueId sum = slots_[id].sum;
    if (!uniform) return sum;
    slots_[id].uniform.reset();
    if (sum != none) {
        accumulate(id, scalar(*uniform, type(sum).dtype));
    } else {
        const ValueId full = one(
            "full", {}, {{"shape", shape(id)}, {"value", *uniform}, {"dtype", std::string(name_of(type(id).dtype))}});
        program_.value(full).dims = program_.value(id).dims;
        accumulate(id, full);
    }
    return slots_[id].sum;
}

ValueId Backward::raw_dy(size_t o) { return total(out(o)); }

ValueId Backward::dy(size_t o) {
    if (!has_dy(o)) slots_[out(o)].uniform = 0;
    const ValueId value = cast(total(out(o)), type(out(o)).dtype);
    slots_[out(o)].sum = value;
    given_.push_back(value);
    return value;
}

}  // namespace orrery

#include "ir/op.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>

#include "base/suggest.h"
#include "ir/describe.h"
#include "ir/plugin_ops.h"
#include "ir/signature.h"
#include "orrery/plan.h"

namespace orrery {

Infer::Infer(const Program& program, std::string_view kind, std::span<const ValueId> inputs, Attributes given,
             const Origin& origin)
    : attributes(std::move(given)), program_(program), kind_(kind), inputs_(inputs), origin_(origin) {}

std::string Infer::show(size_t i) const { return describe(program_, inputs_[i]); }

void Infer::fail(const std::string& what, const std::string& remedy) const {
    throw Error(origin_, fmt::format("{}: {}{}{}", kind_, what, remedy.empty() ? "" : "; ", remedy));
}

namespace {
std::string dim_text(const Value& value, int d) {
    const std::string& name = value.dims[d];
    return name.empty() ? fmt::format("{}", value.type.shape[d]) : fmt::format("{}={}", name, value.type.shape[d]);
}
}  // namespace

std::string Infer::unify(size_t i, int di, size_t j, int dj) const {
    const std::string& a = dims(i)[di];
    const std::string& b = dims(j)[dj];
    if (a.empty()) return b;
    if (b.empty() || a == b) return a;
    fail(fmt::format("dim names differ: {} of {} and {} of {}", dim_text(value(i), di), show(i), dim_text(value(j), dj),
                     show(j)),
         "use one name, or rename with reshape");
}

std::string Infer::same_dim(size_t i, int di, size_t j, int dj, std::string_view what) const {
    if (shape(i)[di] != shape(j)[dj]) {
        fail(fmt::format("{} differ: {} and {}", what, show(i), show(j)),
             fmt::format("{} must equal {}", dim_text(value(i), di), dim_text(value(j), dj)));
    }
    return unify(i, di, j, dj);
}

Typed Infer::same_type(size_t i, size_t j) const {
    expect_same_dtype(i, j);
    if (rank(i) != rank(j)) fail(fmt::format("ranks differ: {} and {}", show(i), show(j)));
    Typed result = typed(i);
    for (int d = 0; d < rank(i); ++d) result.dims[d] = same_dim(i, d, j, d, "dims");
    return result;
}

void Infer::expect_float(size_t i) const {
    if (!is_float(dtype(i))) fail(fmt::format("{} is not of a floating-point type", show(i)), "cast it first");
}

void Infer::expect_dtype(size_t i, DType t) const {
    if (dtype(i) != t) fail(fmt::format("{} is not {}", show(i), name_of(t)), fmt::format("cast it to {}", name_of(t)));
}

void Infer::expect_same_dtype(size_t i, size_t j) const {
    if (dtype(i) != dtype(j)) fail(fmt::format("types differ: {} and {}", show(i), show(j)), "cast one of them");
}

void Infer::expect_rank(size_t i, int least, int most) const {
    if (rank(i) >= least && rank(i) <= most) return;
    const std::string expected = least == most ? fmt::format("{}", least)
                                 : most >= 64  ? fmt::format("at least {}", least)
                                               : fmt::format("{} to {}", least, most);
    fail(fmt::format("{} has {} dims, expected {}", show(i), rank(i), expected));
}

int Infer::dim_attribute(std::string_view key, int rank) {
    const int64_t given = attributes.integer(key);
    const int64_t d = given < 0 ? given + rank : given;
    if (d < 0 || d >= rank) {
        fail(fmt::format("{} = {} is not a dim of {}", key, given, show(0)),
             rank == 0 ? "it is a scalar" : fmt::format("give a dim from 0 to {}, or -1 for the last", rank - 1));
    }
    attributes.set(key, d);
    return d;
}

DType Infer::dtype_attribute(DType fallback) const {
    const std::string text = attributes.text("dtype");
    if (text.empty()) return fallback;
    const auto t = parse_dtype(text);
    if (!t) fail(fmt::format("no type \"{}\"", text), "there are f32, bf16, f16, f64, i32, i64, u32, u16, u8, i8");
    return *t;
}

namespace {

bool is_kind(const Attribute& value, AttributeDef::Kind kind) { return value.index() == static_cast<size_t>(kind); }

std::string_view name_of(AttributeDef::Kind kind) {
    constexpr std::string_view names[] = {"a flag", "an integer", "a number", "a text", "a list of integers"};
    return names[static_cast<int>(kind)];
}

void check_known(const Infer& at, const OpDef& def) {
    for (const auto& [key, value] : at.attributes.items()) {
        const bool known = std::any_of(def.attributes.begin(), def.attributes.end(),
                                       [&k = key](const AttributeDef& a) { return a.name == k; });
        if (known || set_by_passes(key)) continue;
        std::vector<std::string> names;
        for (const AttributeDef& a : def.attributes) names.emplace_back(a.name);
        const std::string guess = did_you_mean(key, names);
        at.fail(fmt::format("no attribute \"{}\"", key),
                names.empty() ? "it has none"
                              : fmt::format("{}{}it has {}", guess, guess.empty() ? "" : " ", fmt::join(names, ", ")));
    }
}

// Normalizes an attribute: adds the default, removes a false flag, turns an integer given for a number into a double.
void complete(Infer& at, const AttributeDef& def) {
    const Attribute* given = at.attributes.find(def.name);
    if (!given) {
        if (def.required) at.fail(fmt::format("attribute \"{}\" ({}) is missing", def.name, name_of(def.kind)));
        if (def.fallback) at.attributes.set(def.name, *def.fallback);
        return;
    }
    if (def.kind == AttributeDef::Kind::number && std::holds_alternative<int64_t>(*given)) {
        at.attributes.set(def.name, static_cast<double>(std::get<int64_t>(*given)));
        return;
    }
    if (!is_kind(*given, def.kind)) {
        at.fail(fmt::format("attribute \"{}\" has the wrong type", def.name),
                fmt::format("expected {}", name_of(def.kind)));
    }
    if (def.kind == AttributeDef::Kind::flag && !std::get<bool>(*given)) {
        at.attributes.erase(def.name);
    } else if (!def.choices.empty()) {
        const auto& text = std::get<std::string>(*given);
        if (std::find(def.choices.begin(), def.choices.end(), text) == def.choices.end()) {
            at.fail(fmt::format("{} = \"{}\" is unknown", def.name, text),
                    fmt::format("there are {}", fmt::join(def.choices, ", ")));
        }
    }
}

void check_count(const Infer& at, const OpDef& def) {
    size_t least = 0;
    size_t most = def.operands.size();
    for (std::string_view name : def.operands) {
        if (name.ends_with("...")) most = SIZE_MAX;
        if (!name.ends_with('?')) ++least;
    }
    if (at.count() >= least && at.count() <= most) return;
    at.fail(fmt::format("got {} operands, expected ({})", at.count(), fmt::join(def.operands, ", ")));
}

}  // namespace

bool set_by_passes(std::string_view attribute) {
    constexpr std::string_view names[] = {"accumulate", "global_shape", "offset", "cause", "keep",
                                          "sends",      "axis",         "f8",     "codec"};
    return std::find(std::begin(names), std::end(names), attribute) != std::end(names);
}
bool is_view(const OpDef& def) { return def.moves != Moves::no && def.moves != Moves::joins; }
bool is_sum(const OpDef& def) { return def.combines == ReduceOp::sum; }
std::string_view op_combining(ReduceOp how) {
    const auto& ops = own_ops();
    const auto found = std::find_if(ops.begin(), ops.end(), [&](const OpDef* def) { return def->combines == how; });
    assert(found != ops.end());
    return (*found)->name;
}
int64_t ids_looked_up(const Lookup& lookup, const Shape& shape, const Attributes& attributes) {
    int64_t dim = lookup.dim_attribute.empty() ? lookup.dim : attributes.integer(lookup.dim_attribute);
    if (dim < 0) dim += static_cast<int64_t>(shape.size());
    int64_t ids = 1;
    for (int64_t d = dim; d < dim + lookup.dims; ++d) ids *= shape.at(static_cast<size_t>(d));
    return ids;
}
std::string_view kernel_of(const OpDef& def) { return def.kernel.empty() ? def.name : def.kernel; }
bool communicates(const OpDef& def) { return def.collective.value_or(Opcode::kernel) != Opcode::kernel; }
bool exchanges_blocks(const OpDef& def, const Op& op) { return def.moves == Moves::rolls && op.attributes.has("axis"); }
int64_t exchange_offset(const Program& program, const Op& op, int64_t members) {
    const int64_t size = program.value(op.inputs[0]).type.shape[op.attributes.integer("dim")];
    return op.attributes.integer("by") * members / size;
}
bool is_transfer(const OpDef& def) { return def.collective == Opcode::send; }
bool is_stage_sum(const OpDef& def) { return def.between_stages && def.collective == Opcode::all_reduce; }
std::string_view op_inserted_for(Opcode instruction) {
    const auto& ops = own_ops();
    const auto found = std::find_if(ops.begin(), ops.end(), [&](const OpDef* def) {
        return def->collective == instruction && !def->between_stages;
    });
    assert(found != ops.end());
    return (*found)->name;
}
std::optional<Opcode> collective_of(const Op& op) { return op_def(op.kind).collective; }

FactorRule rule_of(const Program& program, const Op& op) {
    const OpDef& def = op_def(op.kind);
    return call_op(def.name, "rule", [&] { return def.rule(program, op); });
}

std::vector<Typed> infer(const OpDef& def, const Program& program, std::span<const ValueId> inputs,
                         Attributes& attributes, const Origin& origin) {
    for (ValueId id : inputs) {
        if (id < 0 || id >= std::ssize(program.values)) {
            throw Error(origin, fmt::format("{}: operand %{} does not exist", def.name, id));
        }
    }
    Infer at(program, def.name, inputs, std::move(attributes), origin);
    check_count(at, def);
    check_known(at, def);
    for (const AttributeDef& a : def.attributes) complete(at, a);
    check_inputs(at, def);
    std::vector<Typed> result = call_op(def.name, "infer", [&] { return def.infer(at); });
    check_outputs(at, def, result);
    attributes = std::move(at.attributes);
    return result;
}

}  // namespace orrery

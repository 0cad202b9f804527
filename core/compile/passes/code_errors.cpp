#include "compile/passes/code_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/text.h"
#include "compile/islands.h"
#include "ir/codecs.h"

namespace orrery {

namespace {

/// The store marks that split the param over other axes.
std::vector<Mark> splits_of(const Program& program, const Mesh& mesh, ValueId param, std::string_view over) {
    std::vector<Mark> splits;
    for (const Mark& mark : program.marks())
        if (mark.value == param && mark.what == Mark::What::store && mark.axis != over &&
            mark.placement.kind == Placement::Kind::split && mesh.size(mark.axis) > 1)
            splits.push_back(mark);
    return splits;
}

/// What a rank has of a number of elements or bytes that marks split.
int64_t part_of(int64_t whole, std::span<const Mark> splits, const Mesh& mesh) {
    for (const Mark& mark : splits) whole /= mesh.size(mark.axis);
    return whole;
}

/// Whether ranks of the axis have other params, as of experts, so that nothing sums their gradients.
bool has_own(const Program& program, ValueId param, std::string_view over) {
    bool split = false;
    for (const Mark& mark : program.marks()) {
        if (mark.value != param || mark.axis != over) continue;
        if (mark.what == Mark::What::use) return false;  // gathered
        split = split || mark.placement.kind == Placement::Kind::split;
    }
    return split;
}

/// What other axes leave of the last two dims of a param. m = 0: it has only one.
struct Matrix {
    int64_t m = 0, n = 0, shards_of_m = 1;
};

Matrix matrix_of(const Value& param, std::span<const Mark> splits, const Mesh& mesh) {
    const Shape& shape = param.type.shape;
    const int64_t rank = std::ssize(shape);
    if (rank < 2) return {};
    Matrix matrix{shape[rank - 2], shape[rank - 1]};
    for (const Mark& mark : splits) {
        if (mark.placement.dim == rank - 2) matrix.shards_of_m *= mesh.size(mark.axis);
        if (mark.placement.dim == rank - 1) matrix.n /= mesh.size(mark.axis);
    }
    matrix.m /= matrix.shards_of_m;
    return matrix;
}

/// Whether the gradient of a param is sent over an axis as codes. `splits`: of the param, by other axes.
bool sends_codes(const Program& program, const Mesh& mesh, ValueId param, const std::string& axis,
                 std::span<const Mark> splits, const Codec& codec) {
    const Value& own = program.value(param);
    if (program.grad_of(param) == none || has_own(program, param, axis) || own.type.shape.size() < 2) return false;
    if (!codec.rounds.empty()) {
        const Matrix matrix = matrix_of(own, splits, mesh);
        return codec.shortens(matrix.m, matrix.n);
    }
    const int64_t size = part_of(own.type.count(), splits, mesh);
    const int64_t members = mesh.size(axis);
    return (size + members - 1) / members >= codec.block;
}

/// Adds a state for each param with a gradient that is sent over an axis as codes, or finds it: another step of the
/// round may have added it. `make`: (param, its store marks over other axes) -> the state's name, type, dims and
/// initial value; makes the marks those of the state. Returns a text of their number and bytes, with `what` between
/// both.
std::string add_states_of(Program& program, const Mesh& mesh, const std::string& axis, const Codec& codec,
                          std::string_view what, const std::function<Value(const Value&, std::vector<Mark>&)>& make) {
    int64_t count = 0, bytes = 0;
    for (const ValueId param : program.params()) {
        std::vector<Mark> marks = splits_of(program, mesh, param, axis);
        if (!sends_codes(program, mesh, param, axis, marks, codec)) continue;
        Value state = make(Value(program.value(param)), marks);
        state.role = Role::state;
        state.of = param;
        state.origin = program.value(param).origin;
        ++count, bytes += part_of(state.type.bytes(), marks, mesh);
        const std::optional<ValueId> known = program.find(state.name);
        const ValueId id = known.value_or(static_cast<ValueId>(program.values.size()));
        if (!known) program.values.push_back(std::move(state));
        for (const Mark& mark : marks) program.store(id, mark.axis, mark.placement, mark.origin, mark.optional);
    }
    return fmt::format("{} {}, {} a rank", plural(count, "array"), what, bytes_text(bytes));
}

/// The same text of the errors of islands, which update:owed has added.
std::string owed_text(const Program& program, const Mesh& mesh, const std::string& axis) {
    int64_t count = 0, bytes = 0;
    for (ValueId id = 0; id < std::ssize(program.values); ++id) {
        const Value& value = program.value(id);
        if (!value.init.flag(islands_add)) continue;
        std::vector<Mark> marks = splits_of(program, mesh, id, axis);
        for (const Mark& inherited : splits_of(program, mesh, value.of, axis))
            if (std::ranges::find(marks, inherited.axis, &Mark::axis) == marks.end()) marks.push_back(inherited);
        ++count, bytes += part_of(value.type.bytes(), marks, mesh);
    }
    return fmt::format("{} of errors, {} a rank", plural(count, "array"), bytes_text(bytes));
}

}  // namespace

std::string error_name(std::string_view param, std::string_view axis) {
    return fmt::format("{}.error.{}", param, axis);
}

std::string factor_name(std::string_view param, std::string_view axis) {
    return fmt::format("{}.factor.{}", param, axis);
}

void add_errors(Program& program, const Mesh& mesh) {
    for (const std::string& axis : program.axes_with("feedback")) {
        const int64_t members = mesh.size(axis);
        if (members == 1) continue;
        const Codec& codec = codec_named(program, program.codec(axis), {});
        if (codec.sums_in || !codec.encodes())
            throw Error(fmt::format(
                "feedback over {}: the codec {} {}\n  use a codec that is decoded before the sum, as int8, or leave "
                "feedback out",
                axis, codec.name,
                codec.sums_in ? "is summed without decoding, so that nothing is left out" : "leaves nothing out"));
        const auto error = [&](const Value& param, std::vector<Mark>& marks) {
            Value made;
            made.name = error_name(param.name, axis);
            made.type = {DType::f32, param.type.shape};
            made.type.shape.insert(made.type.shape.begin(), members);
            made.dims = param.dims;
            made.dims.insert(made.dims.begin(), axis);
            made.init = {{"kind", std::string("zeros")}, {"rows_add", true}};
            for (Mark& mark : marks) ++mark.placement.dim;
            marks.insert(marks.begin(), {.axis = axis, .placement = Placement::split(0), .origin = param.origin});
            return made;
        };
        const std::string errors = program.edge(axis, Phase::update).flag(islands_option)
                                       ? owed_text(program, mesh, axis)
                                       : add_states_of(program, mesh, axis, codec, "of errors", error);
        program.note(none, fmt::format("feedback of {} over {}: {}", codec.name, axis, errors), {});
    }
}

bool has_factors(const Program& program) {
    return std::ranges::any_of(program.axes_with("codec"), [&](const std::string& axis) {
        return !codec_named(program, program.codec(axis), {}).rounds.empty();
    });
}

void add_factors(Program& program, const Mesh& mesh) {
    for (const std::string& axis : program.axes_with("codec")) {
        const Codec& codec = codec_named(program, program.codec(axis), {});
        if (mesh.size(axis) == 1 || codec.rounds.empty()) continue;
        if (program.edge(axis, Phase::update).flag(islands_option)) continue;  // encode_edges refuses it
        const auto factor = [&](const Value& param, std::vector<Mark>& marks) {
            const Shape& shape = param.type.shape;
            const int rank = static_cast<int>(shape.size());
            Value made;
            made.name = factor_name(param.name, axis);
            made.type = {DType::f32, {matrix_of(param, marks, mesh).shards_of_m}};
            made.type.shape.insert(made.type.shape.end(), shape.begin(), shape.end() - 2);
            made.type.shape.insert(made.type.shape.end(), {shape.back(), codec.columns});
            made.dims.resize(made.type.shape.size());
            made.init = {{"kind", std::string("normal")}, {"rows_copy", true}};
            for (Mark& mark : marks) {
                int& dim = mark.placement.dim;
                dim = dim == rank - 2 ? 0 : dim < rank - 2 ? dim + 1 : dim;
            }
            return made;
        };
        program.note(none,
                     fmt::format("{} over {} keeps {}", codec.name, axis,
                                 add_states_of(program, mesh, axis, codec, "for the next step", factor)),
                     {});
    }
}

}  // namespace orrery

#include "compile/passes/code_errors.h"

#include <fmt/format.h>

#include <algorithm>
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

/// Adds a state of a param with these store marks, or finds it: another step of the round may have added it.
void add_state(Program& program, Value state, std::span<const Mark> marks) {
    const std::optional<ValueId> known = program.find(state.name);
    const ValueId id = known.value_or(static_cast<ValueId>(program.values.size()));
    if (!known) program.values.push_back(std::move(state));
    for (const Mark& mark : marks) program.store(id, mark.axis, mark.placement, mark.origin, mark.optional);
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
    int64_t size = own.type.count();
    for (const Mark& mark : splits) size /= mesh.size(mark.axis);
    const int64_t members = mesh.size(axis);
    return (size + members - 1) / members >= codec.block;
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
        int64_t count = 0, bytes = 0;
        for (const ValueId param : program.params()) {
            const Value own = program.value(param);
            std::vector<Mark> marks = splits_of(program, mesh, param, axis);
            if (!sends_codes(program, mesh, param, axis, marks, codec)) continue;
            Value error;
            error.name = error_name(own.name, axis);
            error.type = {DType::f32, own.type.shape};
            error.type.shape.insert(error.type.shape.begin(), members);
            error.dims = own.dims;
            error.dims.insert(error.dims.begin(), axis);
            error.role = Role::state;
            error.init = {{"kind", std::string("zeros")}, {"rows_add", true}};
            error.of = param;
            error.origin = own.origin;
            int64_t own_bytes = error.type.bytes() / members;
            for (Mark& mark : marks) own_bytes /= mesh.size(mark.axis), ++mark.placement.dim;
            marks.insert(marks.begin(), {.axis = axis, .placement = Placement::split(0), .origin = own.origin});
            ++count;
            bytes += own_bytes;
            add_state(program, std::move(error), marks);
        }
        program.note(none,
                     fmt::format("feedback of {} over {}: {} of errors, {} a rank", codec.name, axis,
                                 plural(count, "array"), bytes_text(bytes)),
                     {});
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
        int64_t count = 0, bytes = 0;
        for (const ValueId param : program.params()) {
            const Value own = program.value(param);
            std::vector<Mark> marks = splits_of(program, mesh, param, axis);
            if (!sends_codes(program, mesh, param, axis, marks, codec)) continue;
            const Shape& shape = own.type.shape;
            const int rank = static_cast<int>(shape.size());
            Value factor;
            factor.name = factor_name(own.name, axis);
            factor.type = {DType::f32, {matrix_of(own, marks, mesh).shards_of_m}};
            factor.type.shape.insert(factor.type.shape.end(), shape.begin(), shape.end() - 2);
            factor.type.shape.insert(factor.type.shape.end(), {shape.back(), codec.columns});
            factor.dims.resize(factor.type.shape.size());
            factor.role = Role::state;
            factor.init = {{"kind", std::string("normal")}, {"rows_copy", true}};
            factor.of = param;
            factor.origin = own.origin;
            int64_t own_bytes = factor.type.bytes();
            for (Mark& mark : marks) {
                own_bytes /= mesh.size(mark.axis);
                int& dim = mark.placement.dim;
                dim = dim == rank - 2 ? 0 : dim < rank - 2 ? dim + 1 : dim;
            }
            ++count;
            bytes += own_bytes;
            add_state(program, std::move(factor), marks);
        }
        program.note(none,
                     fmt::format("{} over {} keeps {} for the next step, {} a rank", codec.name, axis,
                                 plural(count, "array"), bytes_text(bytes)),
                     {});
    }
}

}  // namespace orrery

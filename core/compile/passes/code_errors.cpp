#include "compile/passes/code_errors.h"

#include <fmt/format.h>

#include <optional>

#include "base/text.h"
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

}  // namespace

namespace {

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

}  // namespace

std::string error_name(std::string_view param, std::string_view axis) {
    return fmt::format("{}.error.{}", param, axis);
}

void add_errors(Program& program, const Mesh& mesh) {
    for (const std::string& axis : program.axes_with("feedback")) {
        const int64_t members = mesh.size(axis);
        if (members == 1) continue;
        const Codec& codec = codec_named(program, program.codec(axis), {});
        if (codec.sums_in || !codec.encode)
            throw Error(fmt::format(
                "feedback over {}: the codec {} {}\n  use a codec that is decoded before the sum, as int8, or leave "
                "feedback out",
                axis, codec.name,
                codec.sums_in ? "is summed without decoding, so that nothing is left out" : "leaves nothing out"));
        int64_t count = 0, bytes = 0;
        for (const ValueId param : program.params()) {
            const Value own = program.value(param);
            const std::vector<Mark> splits = splits_of(program, mesh, param, axis);
            int64_t shards = 1;
            for (const Mark& mark : splits) shards *= mesh.size(mark.axis);
            const int64_t size = (own.type.count() / shards + members - 1) / members;
            if (program.grad_of(param) == none || has_own(program, param, axis) || own.type.shape.size() < 2 ||
                size < codec.block)
                continue;
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
            ++count;
            bytes += error.type.bytes() / shards / members;
            const std::optional<ValueId> known = program.find(error.name);  // of another step of the round
            const ValueId id = known.value_or(static_cast<ValueId>(program.values.size()));
            if (!known) program.values.push_back(std::move(error));
            program.store(id, axis, Placement::split(0), own.origin);
            for (const Mark& mark : splits)
                program.store(id, mark.axis, Placement::split(mark.placement.dim + 1), mark.origin, mark.optional);
        }
        program.note(none,
                     fmt::format("feedback of {} over {}: {} of errors, {} a rank", codec.name, axis,
                                 plural(count, "array"), bytes_text(bytes)),
                     {});
    }
}

}  // namespace orrery

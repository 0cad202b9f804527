#include "run/weights.h"

#include <fmt/format.h>

#include <cstring>

#include "base/half.h"
#include "run/safetensors.h"

namespace orrery {
namespace {

float element(const std::byte* data, DType dtype, int64_t i) {
    if (dtype == DType::f32) {
        float value;
        std::memcpy(&value, data + 4 * i, 4);
        return value;
    }
    if (dtype == DType::f64) {
        double value;
        std::memcpy(&value, data + 8 * i, 8);
        return static_cast<float>(value);
    }
    uint16_t half;
    std::memcpy(&half, data + 2 * i, 2);
    return dtype == DType::bf16 ? widen_bf16(half) : widen_f16(half);
}

/// The shape that a source must have in the file, apart from the sliced dim.
Shape stored_shape(const WeightSource& source, const Shape& param) {
    return source.transpose ? Shape(param.rbegin(), param.rend()) : param;
}

void check_one(const SafetensorsFile& file, const Value& param, const WeightSource& source) {
    const Tensor stored = file.tensor(source.tensor);
    const Shape want = stored_shape(source, param.type.shape);
    const auto refuse = [&](const std::string& why) {
        throw Error(
            source.origin,
            fmt::format(
                "{}: tensor {} is {}{}, {}\n  param {} is {}: give the model the sizes of the file, or another file",
                file.path(), source.tensor, name_of(stored.dtype), text_of(stored.shape), why, param.name,
                param.type.text()));
    };
    if (!is_float(stored.dtype)) refuse("no floating type");
    if (stored.shape.size() != want.size()) refuse(fmt::format("expected {}", text_of(want)));
    for (size_t d = 0; d < want.size(); ++d) {
        const bool cut = static_cast<int>(d) == source.dim;
        if (cut ? source.start + source.size > stored.shape[d] || source.size != want[d] : stored.shape[d] != want[d])
            refuse(fmt::format("expected {}{}", text_of(want),
                               cut ? fmt::format(" from {} of dim {}", source.start, d) : ""));
    }
}

const WeightSource& source_of(std::span<const WeightSource> sources, const Value& param, const std::string& path) {
    for (const WeightSource& source : sources)
        if (source.param == param.name) return source;
    throw Error(param.origin,
                fmt::format("checkpoint.load = {}: the model does not say where param {} lies in the file\n"
                            "  add it to the model's tensors()",
                            path, param.name));
}

/// [rows, columns] -> [columns, rows]
std::vector<float> transposed(const std::vector<float>& in, int64_t rows, int64_t columns) {
    std::vector<float> out(in.size());
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
            out[static_cast<size_t>(c * rows + r)] = in[static_cast<size_t>(r * columns + c)];
    return out;
}

}  // namespace

void check_weights(const Program& program, const std::string& path, std::span<const WeightSource> sources) {
    const SafetensorsFile file(path);
    for (ValueId id : program.params()) check_one(file, program.value(id), source_of(sources, program.value(id), path));
}

std::vector<float> read_weights(const SafetensorsFile& file, const Value& param, const WeightSource& source,
                                Shape offset, Shape shape) {
    check_one(file, param, source);
    if (source.transpose) offset = Shape(offset.rbegin(), offset.rend()), shape = Shape(shape.rbegin(), shape.rend());
    if (source.dim >= 0) offset[static_cast<size_t>(source.dim)] += source.start;
    const DType dtype = file.tensor(source.tensor).dtype;
    std::vector<std::byte> raw(static_cast<size_t>(count_of(shape) * size_of(dtype)));
    file.read(source.tensor, offset, {raw.data(), dtype, shape});
    std::vector<float> values(static_cast<size_t>(count_of(shape)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = element(raw.data(), dtype, static_cast<int64_t>(i));
    return source.transpose ? transposed(values, shape[0], shape[1]) : values;
}

void load_weights(Session& session, const std::string& path, std::span<const WeightSource> sources) {
    const SafetensorsFile file(path);
    const Compiled& compiled = session.compiled();
    const Program& program = compiled.train ? compiled.train->program : compiled.logits->program;
    Executor& executor = session.train() ? *session.train() : *session.logits();
    for (ValueId id : program.params()) {
        if (!executor.holds(id)) continue;
        const Value& param = program.value(id);
        const Tensor local = executor.tensor(id);
        const Shape offset = param.layout.offset(param.type.shape, compiled.mesh, session.job().rank);
        session.upload(local, read_weights(file, param, source_of(sources, param, path), offset, local.shape).data());
    }
}

}  // namespace orrery

#include "run/checkpoint/restore/decoded.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "orrery/error.h"
#include "orrery/half.h"

namespace orrery {
namespace {

constexpr int64_t scaled_side = 128;  // rows and columns of a block of F8_E4M3 that has one scale
constexpr int64_t group = 32;         // elements of a row of MXFP4 that have one scale, in 16 bytes
constexpr float e2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

const char* scale_of = "_scale_inv";

float element(const std::byte* data, DType dtype, int64_t i) {
    if (dtype == DType::f8e4m3) return widen_f8e4m3(static_cast<uint8_t>(data[i]));
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

std::vector<std::byte> read_raw(const WeightFiles& files, const std::string& tensor, const Shape& offset,
                                const Shape& shape) {
    const DType dtype = files.tensor(tensor).type.dtype;
    std::vector<std::byte> raw(static_cast<size_t>(byte_count(dtype, shape)));
    files.file_of(tensor).read(tensor, offset, {raw.data(), dtype, shape});
    return raw;
}

bool is_mxfp4(const WeightFiles& files, const std::string& tensor) {
    return !files.has(tensor) && files.has(tensor + "_blocks") && files.has(tensor + "_scales");
}

[[noreturn]] void refuse(const WeightFiles& files, const std::string& tensor, const std::string& why) {
    throw Error(
        fmt::format("{}: tensor {} is {}, {}", files.file_of(tensor).path(), tensor, files.tensor(tensor).text(), why));
}

/// Multiplies a block of an F8_E4M3 tensor by its scales.
void scale(const WeightFiles& files, const std::string& tensor, const Shape& offset, const Shape& shape,
           std::vector<float>& values) {
    const std::string name = tensor + scale_of;
    const StoredTensor& scales = files.tensor(name);
    const std::vector<std::byte> raw = read_raw(files, name, {0, 0}, scales.type.shape);
    size_t at = 0;
    for (int64_t row = offset[0]; row < offset[0] + shape[0]; ++row)
        for (int64_t column = offset[1]; column < offset[1] + shape[1]; ++column)
            values[at++] *=
                element(raw.data(), scales.type.dtype, row / scaled_side * scales.type.shape[1] + column / scaled_side);
}

/// Reads a block [matrices, columns, rows] of MXFP4, all but the last two dims as one.
std::vector<float> read_mxfp4(const WeightFiles& files, const std::string& tensor, const Shape& offset,
                              const Shape& shape) {
    const size_t rank = shape.size();
    const int64_t columns = shape[rank - 2], rows = shape[rank - 1], first = offset[rank - 2] / group;
    const int64_t groups = (offset[rank - 2] + columns + group - 1) / group - first;
    Shape from(offset), part(shape);
    from[rank - 2] = offset[rank - 1], part[rank - 2] = rows;  // the stored matrix is transposed
    from[rank - 1] = first, part[rank - 1] = groups;
    const std::vector<std::byte> scales = read_raw(files, tensor + "_scales", from, part);
    from.push_back(0), part.push_back(group / 2);
    const std::vector<std::byte> blocks = read_raw(files, tensor + "_blocks", from, part);
    std::vector<float> values(static_cast<size_t>(count_of(shape)));
    size_t at = 0;
    for (int64_t matrix = 0; matrix < count_of(shape) / std::max<int64_t>(columns * rows, 1); ++matrix)
        for (int64_t column = offset[rank - 2]; column < offset[rank - 2] + columns; ++column)
            for (int64_t row = 0; row < rows; ++row) {
                const auto of = static_cast<size_t>((matrix * rows + row) * groups + column / group - first);
                const auto byte =
                    static_cast<uint8_t>(blocks[of * (group / 2) + static_cast<size_t>(column % group / 2)]);
                const int exponent = static_cast<int>(scales[of]) - 127;
                values[at++] = std::ldexp(e2m1[column % 2 == 0 ? byte & 15 : byte >> 4], exponent);
            }
    return values;
}

}  // namespace

std::vector<std::string> stored_names_of(const WeightFiles& files, const std::string& tensor) {
    if (is_mxfp4(files, tensor)) return {tensor + "_blocks", tensor + "_scales"};
    if (!files.has(tensor)) return {};
    if (files.tensor(tensor).type.dtype == DType::f8e4m3 && files.has(tensor + scale_of))
        return {tensor, tensor + scale_of};
    return {tensor};
}

TensorType decoded_type(const WeightFiles& files, const std::string& tensor) {
    if (is_mxfp4(files, tensor)) {
        const StoredTensor &blocks = files.tensor(tensor + "_blocks"), &scales = files.tensor(tensor + "_scales");
        const size_t rank = scales.type.shape.size();
        const bool bytes = blocks.foreign.empty() && scales.foreign.empty() && blocks.type.dtype == DType::u8 &&
                           scales.type.dtype == DType::u8;
        Shape expected = scales.type.shape;
        expected.push_back(group / 2);
        if (!bytes || rank < 2 || blocks.type.shape != expected)
            refuse(files, blocks.name,
                   fmt::format("expected U8 [.., rows, G, 16] of MXFP4, with U8 [.., rows, G] in {}, "
                               "which is {}",
                               scales.name, scales.text()));
        TensorType type{DType::bf16, scales.type.shape};
        type.shape[rank - 2] = group * scales.type.shape[rank - 1], type.shape[rank - 1] = scales.type.shape[rank - 2];
        return type;
    }
    const StoredTensor& stored = files.tensor(tensor);
    if (!stored.foreign.empty() || (!is_float(stored.type.dtype) && stored.type.dtype != DType::f8e4m3))
        refuse(files, tensor, "expected a floating-point type");
    if (stored.type.dtype != DType::f8e4m3) return stored.type;
    const std::string name = tensor + scale_of;
    if (stored.type.shape.size() != 2 || !files.has(name))
        refuse(files, tensor, fmt::format("expected a matrix with {}, a scale for each block of 128 x 128", name));
    const auto blocks = [](int64_t size) { return (size + scaled_side - 1) / scaled_side; };
    const Shape expected{blocks(stored.type.shape[0]), blocks(stored.type.shape[1])};
    const StoredTensor& scales = files.tensor(name);
    if (!scales.foreign.empty() || !is_float(scales.type.dtype) || scales.type.shape != expected)
        refuse(files, name,
               fmt::format("expected F32 {}, a scale for each block of 128 x 128 of {}, which is {}", text_of(expected),
                           tensor, stored.text()));
    return stored.type;
}

std::vector<float> read_decoded(const WeightFiles& files, const std::string& tensor, const Shape& offset,
                                const Shape& shape) {
    if (is_mxfp4(files, tensor)) return read_mxfp4(files, tensor, offset, shape);
    const DType dtype = files.tensor(tensor).type.dtype;
    const std::vector<std::byte> raw = read_raw(files, tensor, offset, shape);
    std::vector<float> values(static_cast<size_t>(count_of(shape)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = element(raw.data(), dtype, static_cast<int64_t>(i));
    if (dtype == DType::f8e4m3) scale(files, tensor, offset, shape, values);
    return values;
}

}  // namespace orrery

// Published tensors of 8 and 4 bits: every element is its code times its scale, in any block; what does not fit is
// named.
#include "run/checkpoint/restore/decoded.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "folders.h"
#include "layout/shards.h"
#include "orrery/error.h"
#include "orrery/half.h"
#include "safetensors_bytes.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

struct File {
    explicit File(const std::vector<NamedTensor>& tensors) : path(in_build("decoded.safetensors")) {
        const auto bytes = safetensors_bytes(tensors);
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        files.emplace(path);
    }
    ~File() { std::filesystem::remove(path); }
    const WeightFiles& operator*() const { return *files; }

    std::string path;
    std::optional<WeightFiles> files;
};

std::string said(const File& file, const std::string& tensor) {
    try {
        decoded_type(*file, tensor);
    } catch (const Error& problem) {
        return problem.what();
    }
    return "";
}

/// Whether blocks of the tensor at these offsets, of these shapes, are those of `all`.
bool same_blocks(const File& file, const std::string& tensor, const Shape& shape, const std::vector<float>& all,
                 const std::vector<Block>& blocks) {
    bool same = true;
    for (const Block& block : blocks) {
        const std::vector<float> read = read_decoded(*file, tensor, block.offset, block.shape);
        for_runs(block, whole(shape), block, [&](int64_t from, int64_t to, int64_t count) {
            for (int64_t i = 0; i < count; ++i)
                same = same && read[static_cast<size_t>(to + i)] == all[static_cast<size_t>(from + i)];
        });
    }
    return same;
}

}  // namespace

TEST_CASE("8-bit floats are multiplied by the scale of their block of 128 x 128") {
    const Shape shape{130, 300};
    std::vector<uint8_t> codes(static_cast<size_t>(count_of(shape)));
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 37 % 126 + i % 2 * 128);
    std::vector<float> scales{0.5f, 2, 0.25f, 3, 1, 0.125f}, all;
    for (int64_t row = 0; row < 130; ++row)
        for (int64_t column = 0; column < 300; ++column)
            all.push_back(widen_f8e4m3(codes[static_cast<size_t>(row * 300 + column)]) *
                          scales[static_cast<size_t>(row / 128 * 3 + column / 128)]);
    const File file({{"w", {codes.data(), DType::f8e4m3, shape}},
                     {"w_scale_inv", {scales.data(), DType::f32, {2, 3}}},
                     {"bare", {codes.data(), DType::f8e4m3, {2, 2}}},
                     {"wrong", {codes.data(), DType::f8e4m3, {2, 2}}},
                     {"wrong_scale_inv", {scales.data(), DType::f32, {1, 2}}},
                     {"bytes", {codes.data(), DType::u8, {4}}}});
    CHECK(decoded_type(*file, "w").shape == shape);
    CHECK(stored_names_of(*file, "w") == std::vector<std::string>{"w", "w_scale_inv"});
    CHECK(same_blocks(file, "w", shape, all,
                      {whole(shape), {{0, 127}, {130, 2}}, {{127, 0}, {2, 300}}, {{129, 299}, {1, 1}}}));
    CHECK_THAT(said(file, "bare"), Contains("decoded.safetensors: tensor bare is f8e4m3[2,2], expected a matrix with "
                                            "bare_scale_inv, a scale for each block of 128 x 128"));
    CHECK_THAT(said(file, "wrong"), Contains("tensor wrong_scale_inv is f32[1,2], expected F32 [1,1], a scale for"));
    CHECK_THAT(said(file, "bytes"), Contains("tensor bytes is u8[4], expected a floating-point type"));
    CHECK_THAT(said(file, "none"), Contains("no tensor \"none\""));
}

TEST_CASE("MXFP4 is decoded to its 16 values times a power of two, transposed") {
    constexpr float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const int64_t experts = 2, rows = 5, groups = 3;
    std::vector<uint8_t> blocks(static_cast<size_t>(experts * rows * groups * 16)), scales(blocks.size() / 16);
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<uint8_t>(i * 89 + i / 7);
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<uint8_t>(120 + i % 11);
    const Shape shape{experts, 32 * groups, rows};
    std::vector<float> all;
    for (int64_t expert = 0; expert < experts; ++expert)
        for (int64_t column = 0; column < 32 * groups; ++column)
            for (int64_t row = 0; row < rows; ++row) {
                const auto of = static_cast<size_t>((expert * rows + row) * groups + column / 32);
                const uint8_t byte = blocks[of * 16 + static_cast<size_t>(column % 32 / 2)];
                const int code = column % 2 == 0 ? byte & 15 : byte >> 4;
                all.push_back((code < 8 ? 1.0f : -1.0f) * values[code % 8] *
                              std::exp2(static_cast<float>(scales[of]) - 127));
            }
    const File file({{"w_blocks", {blocks.data(), DType::u8, {experts, rows, groups, 16}}},
                     {"w_scales", {scales.data(), DType::u8, {experts, rows, groups}}},
                     {"v_blocks", {blocks.data(), DType::u8, {experts, rows, 8}}},
                     {"v_scales", {scales.data(), DType::u8, {experts, rows}}}});
    CHECK(decoded_type(*file, "w") == TensorType{DType::bf16, shape});
    CHECK(stored_names_of(*file, "w") == std::vector<std::string>{"w_blocks", "w_scales"});
    CHECK(same_blocks(file, "w", shape, all,
                      {whole(shape), {{1, 0, 0}, {1, 96, 5}}, {{0, 31, 2}, {2, 2, 2}}, {{1, 95, 4}, {1, 1, 1}}}));
    CHECK_THAT(said(file, "v"), Contains("tensor v_blocks is u8[2,5,8], expected U8 [.., rows, G, 16] of MXFP4"));
}

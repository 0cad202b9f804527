#include "run/checkpoint/format/safetensors.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "folders.h"
#include "layout/shards.h"
#include "orrery/error.h"
#include "safetensors_bytes.h"

using namespace orrery;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

namespace {

/// The file with this header and this many bytes of data, parsed; the message when it is refused.
std::string refusal(const std::string& header, size_t data, int64_t header_length = -1) {
    const uint64_t length = header_length < 0 ? header.size() : static_cast<uint64_t>(header_length);
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, 8);
    file += header + std::string(data, 'x');
    try {
        parse_safetensors(std::as_bytes(std::span(file)), static_cast<int64_t>(file.size()), "m.safetensors");
    } catch (const Error& problem) {
        return problem.what();
    }
    return "";
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

}  // namespace

TEST_CASE("safetensors are written and read back, whole and in parts") {
    std::vector<float> matrix(6 * 5);
    std::iota(matrix.begin(), matrix.end(), 0.f);
    int64_t step = 42;
    const std::vector<NamedTensor> tensors{{"w", {matrix.data(), DType::f32, {6, 5}}},
                                           {"step", {&step, DType::i64, {}}},
                                           {"none", {nullptr, DType::bf16, {0, 3}}}};
    const std::vector<std::pair<std::string, std::string>> metadata{{"format", "pt"}};
    const auto bytes = safetensors_bytes(tensors, metadata);
    const std::string path = in_build("written.safetensors");
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    {
        const SafetensorsFile file(path);
        CHECK(file.header().metadata == metadata);
        REQUIRE(file.tensors().size() == 3);
        CHECK(file.tensors()[0].begin % 64 == 0);
        CHECK(file.tensor("w").type.shape == Shape{6, 5});
        CHECK(std::memcmp(file.bytes_of("w").data(), matrix.data(), 120) == 0);
        CHECK(file.bytes_of("step").at(0) == std::byte{42});
        CHECK(file.bytes_of("none").empty());
        CHECK(file.same("w", file, "w"));
        CHECK_FALSE(file.same("w", file, "step"));
        std::vector<float> part(2 * 3);
        file.read("w", {4, 1}, {part.data(), DType::f32, {2, 3}});
        CHECK(part == std::vector<float>{21, 22, 23, 26, 27, 28});
        CHECK_THROWS_WITH(file.read("w", {5, 1}, {part.data(), DType::f32, {2, 3}}),
                          Contains("tensor \"w\" is f32[6,5], which has no part f32[2,3] at offset [5,1]"));
        CHECK_THROWS_WITH(file.read("w", {0, 0}, {part.data(), DType::i32, {2, 3}}),
                          Contains("which has no part i32[2,3]"));
        CHECK_THROWS_WITH(file.tensor("stepp"), Contains("no tensor \"stepp\"") && Contains("did you mean \"step\"?"));
    }
    std::filesystem::remove(path);
}

TEST_CASE("a file that is cut short after it was opened is an error of the tensor") {
    std::vector<float> values(4096, 1.5f);
    const std::vector<NamedTensor> tensors{{"a", {values.data(), DType::f32, {4096}}},
                                           {"b", {values.data(), DType::f32, {64, 64}}}};
    const auto bytes = safetensors_bytes(tensors);
    const std::string path = in_build("cut.safetensors");
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    const SafetensorsFile file(path);
    std::filesystem::resize_file(path, bytes.size() - 100);
    CHECK(file.bytes_of("a").size() == 16384);
    CHECK_THROWS_WITH(file.read("b", {32, 0}, {values.data(), DType::f32, {32, 64}}),
                      Contains(path + ": tensor \"b\" is truncated: bytes ") && Contains("when it was opened"));
    std::filesystem::resize_file(path, 100);
    CHECK_THROWS_WITH(file.bytes_of("a"), Contains("tensor \"a\" is truncated") && Contains("the file ends at "));
    std::filesystem::remove(path);
}

TEST_CASE("files of another library are read") {
    const SafetensorsFile file(in_source("tests/parity/gpt2/model.safetensors"));
    CHECK(file.tensors().size() > 10);
    int64_t count = 0;
    for (const StoredTensor& tensor : file.tensors()) count += tensor.type.count();
    CHECK(count > 1000);
}

TEST_CASE("damaged and hostile safetensors are refused with the reason") {
    CHECK(refusal(one("F32", "[2,3]", "[0,24]"), 24) == "");
    CHECK(refusal("{}", 0) == "");
    for (const char* eighth : {"F8_E4M3", "F8_E5M2"}) CHECK(refusal(one(eighth, "[2]", "[0,2]"), 2) == "");
    CHECK_THAT(refusal("", 0), Equals("m.safetensors: the header is not a JSON object: it is not a safetensors file"));
    CHECK_THAT(refusal("[1]", 0), Contains("not a JSON object"));
    CHECK_THAT(refusal("{", 0), Contains("not valid json"));
    CHECK_THAT(refusal("{}", 0, 3),
               Contains("the header should be 3 bytes long, but the file has 10: it is truncated"));
    CHECK_THAT(refusal("{}", 0, INT64_MAX), Contains("truncated"));
    CHECK_THAT(refusal(R"({"a":1,"a":2})", 0), Contains("has the key \"a\" twice"));
    CHECK_THAT(refusal(R"({"a":1})", 0), Contains("tensor \"a\" must have dtype, shape and two data_offsets"));
    CHECK_THAT(refusal(one("F8 E8M0", "[2]", "[0,2]"), 2), Contains("tensor \"a\" has the dtype \"F8 E8M0\""));
    CHECK_THAT(refusal(one("F32", "[-1]", "[0,4]"), 4), Contains("is -1, expected an integer that is not negative"));
    CHECK_THAT(refusal(one("F32", "[1.5]", "[0,4]"), 4), Contains("is 1.5, expected an integer"));
    CHECK_THAT(refusal(one("F32", "[18446744073709551615]", "[0,4]"), 4), Contains("expected an integer"));
    CHECK_THAT(refusal(one("F32", "[4294967296,4294967296]", "[0,0]"), 0), Contains("beyond 64 bits"));
    CHECK_THAT(refusal(one("F32", "[2]", "[0,4]"), 4),
               Contains("is f32[2], which is 8 bytes, but its data_offsets span 4"));
    CHECK_THAT(refusal(one("F32", "[1]", "[4,0]"), 4),
               Contains("data_offsets [4, 0], but the file has 4 bytes of data"));
    CHECK_THAT(refusal(one("F32", "[2]", "[0,8]"), 4),
               Contains("data_offsets [0, 8], but the file has 4 bytes of data"));
    CHECK_THAT(refusal(one("F32", "[1]", "[0,4]"), 5), Contains("the tensors end at byte"));
    CHECK_THAT(refusal(one("F32", "[1]", "[1,5]"), 5), Contains("begins at byte 1 of the data, with a hole after"));
    CHECK_THAT(refusal(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                       3),
               Contains("tensor \"b\" begins at byte 1 of the data, inside"));
    CHECK_THAT(refusal(R"({"__metadata__":{"x":1}})", 0), Contains("which is not a text"));
    CHECK_THROWS_WITH(SafetensorsFile("/no/such/file"), Contains("/no/such/file cannot be opened: No such file"));
}

TEST_CASE("a damaged file says what to do, unless its message does") {
    const std::string path = "damaged.safetensors";
    const auto said = [&](const std::string& header) -> std::string {
        const uint64_t length = header.size();
        std::ofstream(path, std::ios::binary) << std::string(reinterpret_cast<const char*>(&length), 8) << header;
        try {
            const SafetensorsFile file(path);
        } catch (const Error& problem) {
            return problem.what();
        }
        return "read";
    };
    const std::string again = "\n  copy or export it again, and compare its size with the source's";
    CHECK(said("{}") == "read");
    CHECK(said("") == path + ": the header is not a JSON object: it is not a safetensors file" + again);
    CHECK(said(one("F32", "[1]", "[0,4]")).ends_with("the file has 0 bytes of data" + again));
    CHECK(said(one("F8_E8M0", "[0]", "[0,0]")) == "read");
    std::filesystem::remove(path);
}

TEST_CASE("tensors of foreign dtypes lie in a file that is read; reading them is the error") {
    CHECK(refusal(one("BOOL", "[2,3]", "[0,6]"), 6) == "");
    CHECK(refusal(one("I16", "[5]", "[0,10]"), 10) == "");
    CHECK(refusal(one("F4", "[6]", "[0,3]"), 3) == "");
    CHECK(refusal(one("F16_X2", "[6]", "[0,3]"), 3) == "");  // of a later version of the format
    CHECK_THAT(refusal(one("BOOL", "[2,3]", "[0,5]"), 5), Contains("tensor \"a\" is BOOL[2,3], which is 6 bytes"));
    CHECK_THAT(refusal(one("U64", "[1]", "[0,4]"), 4), Contains("is U64[1], which is 8 bytes"));
    CHECK_THAT(refusal(one("F4", "[3]", "[0,1]"), 1), Contains("not a whole number of bytes"));
    CHECK_THAT(refusal(one("F16_X2", "[6]", "[0,4]"), 3), Contains("the file has 3 bytes of data"));
    CHECK_THAT(refusal(one("C64", "[4294967296,536870912]", "[0,0]"), 0), Contains("beyond 64 bits"));
    CHECK_THAT(refusal(one("F32", "[2]", R"([0,"8"])"), 8), Contains("expected an integer"));

    const std::string header = R"({"m":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]},)"
                               R"("w":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})";
    const uint64_t length = header.size();
    const std::string path = in_build("foreign.safetensors");
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&length), 8) << header << "\1\2\3ab";
    {
        const SafetensorsFile file(path);
        CHECK(file.tensor("m").text() == "BOOL[3]");
        CHECK(file.bytes_of("m").size() == 3);
        char two[2];
        file.read("w", {0}, {two, DType::u8, {2}});
        CHECK(std::string(two, 2) == "ab");
        CHECK_THROWS_WITH(file.read("m", {0}, {two, DType::u8, {2}}),
                          Contains(path + ": tensor \"m\" is BOOL[3], an unsupported type\n  supported: F32 BF16"));
    }
    std::filesystem::remove(path);
}

TEST_CASE("files of other formats are called by their name") {
    const std::string path = in_build("other.safetensors");
    const auto said = [&](const std::string& start) -> std::string {
        std::ofstream(path, std::ios::binary) << start << std::string(200, '\0');
        try {
            const SafetensorsFile file(path);
        } catch (const Error& problem) {
            return problem.what();
        }
        return "read";
    };
    CHECK_THAT(said("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n"),
               Equals(path + " is a pointer of Git LFS, not the file itself; expected safetensors\n  fetch the file: "
                             "git lfs pull"));
    CHECK_THAT(said(std::string("GGUF\3\0\0\0", 8)), Contains("is a GGUF file"));
    CHECK_THAT(said(std::string("PK\3\4\0\0\x8\x8", 8)), Contains("is a zip file, as torch.save writes"));
    CHECK_THAT(said("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9"), Contains("is a pickle, as torch.save wrote"));
    std::filesystem::remove(path);
}

TEST_CASE("any cut and any flipped byte of a header is refused or harmless") {
    std::vector<uint8_t> data(100);
    const std::vector<NamedTensor> tensors{{"a", {data.data(), DType::u8, {10, 4}}},
                                           {"b", {data.data(), DType::f32, {3}}}};
    const std::vector<std::byte> good = safetensors_bytes(tensors);
    for (size_t size = 0; size < good.size(); ++size)
        CHECK_THROWS_AS(parse_safetensors(std::span(good).first(size), static_cast<int64_t>(size), "m"), Error);
    int refused = 0;
    for (size_t at = 0; at < good.size(); ++at) {
        for (const int flip : {1, 16, 128}) {
            std::vector<std::byte> bad = good;
            bad[at] ^= static_cast<std::byte>(flip);
            try {
                const auto header = parse_safetensors(bad, static_cast<int64_t>(bad.size()), "m");
                int64_t bytes = 0;
                for (const StoredTensor& tensor : header.tensors) bytes += tensor.end - tensor.begin;
                CHECK(bytes == 52);
            } catch (const Error&) {
                ++refused;
            }
        }
    }
    CHECK(refused > 100);
}

TEST_CASE("runs between blocks are the fewest, ascend and cover the part") {
    const Block all{{0, 0, 0}, {4, 3, 5}}, rows{{1, 0, 0}, {2, 3, 5}}, columns{{0, 0, 2}, {4, 3, 2}};
    int runs = 0;
    for_runs(rows, all, rows, [&](int64_t from, int64_t to, int64_t count) {
        CHECK(from == 15);
        CHECK(to == 0);
        CHECK(count == 30);
        ++runs;
    });
    CHECK(runs == 1);
    const Block part = *intersect(rows, columns);
    CHECK(part == Block{{1, 0, 2}, {2, 3, 2}});
    std::vector<int64_t> from_at, to_at;
    for_runs(part, rows, columns, [&](int64_t from, int64_t to, int64_t count) {
        CHECK(count == 2);
        from_at.push_back(from);
        to_at.push_back(to);
    });
    CHECK(from_at == std::vector<int64_t>{2, 7, 12, 17, 22, 27});
    CHECK(to_at == std::vector<int64_t>{6, 8, 10, 12, 14, 16});
    CHECK_FALSE(intersect(Block{{0}, {2}}, Block{{2}, {2}}));
    int scalars = 0;
    for_runs(Block{}, Block{}, Block{},
             [&](int64_t from, int64_t to, int64_t count) { scalars += from == 0 && to == 0 && count == 1; });
    CHECK(scalars == 1);
}

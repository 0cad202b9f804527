#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "lua/fake_host.h"
#include "run/data/data.h"
#include "safetensors_bytes.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

struct Folder {
    std::string path = std::tmpnam(nullptr);
    Folder() { std::filesystem::create_directory(path); }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string write(const std::string& name, const void* bytes, size_t count) const {
        std::ofstream(path + "/" + name, std::ios::binary).write(static_cast<const char*>(bytes), count);
        return path + "/" + name;
    }
};

DataSpec arrays_of(const std::string& path, const std::string& wanted = "") {
    Config options("o.data.arrays");
    options.set("path", {path, {}});
    if (!wanted.empty()) options.set("arrays", {ConfigValue::List{{wanted, {}}}, {}});
    DataSpec spec;
    spec.source = built_data("arrays", options, {});
    spec.validation = 0;
    return spec;
}

/// images f32[5,3,4], counted from 0; labels i32[5], -1 first.
std::string digits(const Folder& folder, int64_t labels = 5) {
    std::vector<float> images(60);
    std::iota(images.begin(), images.end(), 0.0f);
    std::vector<int32_t> ids = {-1, 0, 1, 2, 3};
    const std::vector<NamedTensor> tensors = {{"images", {images.data(), DType::f32, {5, 3, 4}}},
                                              {"labels", {ids.data(), DType::i32, {labels}}}};
    const std::vector<std::byte> bytes = safetensors_bytes(tensors);
    return folder.write("digits.safetensors", bytes.data(), bytes.size());
}

/// A NumPy file of version 1 with this header and `count` bytes behind it.
std::string npy(const Folder& folder, const std::string& name, const std::string& header, size_t count) {
    std::string bytes = "\x93NUMPY";
    bytes += {1, 0, static_cast<char>(header.size()), 0};
    bytes += header + std::string(count, '\1');
    return folder.write(name, bytes.data(), bytes.size());
}

}  // namespace

TEST_CASE("blocks of a safetensors file's arrays are what lies there") {
    const Folder folder;
    const Dataset data(arrays_of(digits(folder)));
    const auto& arrays = data.source().arrays();
    REQUIRE(arrays.size() == 2);
    CHECK(arrays[0].dims == std::vector<std::pair<std::string, int64_t>>{{"images_1", 3}, {"images_2", 4}});
    CHECK(arrays[1].shape().empty());
    CHECK(data.samples(Split::train) == 5);
    for (int64_t index = 0; index < 5; ++index) {
        const int64_t at = data.position(Split::train, index);
        int32_t label = 7;
        data.read(Split::train, index, 1, {}, {&label, DType::i32, {}});
        CHECK(label == at - 1);
        for (const Shape& offset : {Shape{0, 0}, Shape{1, 0}, Shape{0, 1}, Shape{1, 2}})
            for (const Shape& shape : {Shape{1, 1}, Shape{2, 2}, Shape{3 - offset[0], 4 - offset[1]}}) {
                std::vector<float> block(static_cast<size_t>(shape[0] * shape[1]));
                data.read(Split::train, index, 0, offset, {block.data(), DType::f32, shape});
                for (int64_t i = 0; i < shape[0] * shape[1]; ++i)
                    CHECK(block[static_cast<size_t>(i)] ==
                          at * 12 + (offset[0] + i / shape[1]) * 4 + offset[1] + i % shape[1]);
            }
    }
    CHECK(arrays_of(digits(folder), "labels").source->arrays().size() == 1);
    CHECK_THROWS_WITH(arrays_of(digits(folder), "label"), Contains("no array \"label\"") && Contains("labels i32[5]"));
    CHECK_THROWS_WITH(data.source().vocabulary(), Contains("has no ids"));
}

TEST_CASE("arrays that do not fit are refused with what was found") {
    const Folder folder;
    CHECK_THROWS_WITH(arrays_of(digits(folder, 4)), Contains("labels i32[4] has no sample for each of 5"));
    CHECK_THROWS_WITH(arrays_of(folder.path), Contains("has no arrays"));
    CHECK_THROWS_WITH(arrays_of(""), Contains("path is missing"));
    CHECK_THROWS_WITH(arrays_of(folder.write("short.safetensors", "abc", 3)), Contains("shorter than a safetensors"));
    const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }\n";
    CHECK(arrays_of(npy(folder, "x.npy", good, 24)).source->arrays()[0].shape() == Shape{2});
    CHECK_THROWS_WITH(arrays_of(npy(folder, "x.npy", good, 20)), Contains("f32[3,2], 24 bytes, but 20 bytes follow"));
    const auto with = [&](const std::string& what, const std::string& by) {
        std::string header = good;
        return npy(folder, "x.npy", header.replace(header.find(what), what.size(), by), 24);
    };
    CHECK_THROWS_WITH(arrays_of(with("<f4", ">f4")), Contains("its elements are '>f4'"));
    CHECK_THROWS_WITH(arrays_of(with("False", "True")), Contains("Fortran order"));
    CHECK_THROWS_WITH(arrays_of(with("(3, 2)", "(3, -2)")), Contains("its shape is"));
    CHECK_THROWS_WITH(arrays_of(with("'shape'", "'shade'")), Contains("has no shape"));
}

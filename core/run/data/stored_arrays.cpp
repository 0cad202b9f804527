#include "run/data/stored_arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <filesystem>

#include "base/text.h"
#include "run/checkpoint/format/safetensors.h"

namespace orrery {
namespace {

constexpr int64_t longest_header = int64_t{100} << 20;

/// A key's value in a NumPy header, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", up to its comma.
std::string_view npy_field(std::string_view header, std::string_view key) {
    const std::string quoted = fmt::format("'{}':", key);
    const size_t at = header.find(quoted);
    if (at == std::string_view::npos) throw Error(fmt::format("its header has no {}", key));
    header.remove_prefix(at + quoted.size());
    header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
    const size_t end = header.find_first_of(header.starts_with('(') ? ")" : ",}");
    if (end == std::string_view::npos) throw Error(fmt::format("its header has no end of {}", key));
    return header.substr(0, end);
}

DType npy_dtype(std::string_view descr) {
    constexpr std::pair<std::string_view, DType> known[] = {
        {"'<f4'", DType::f32}, {"'<f2'", DType::f16}, {"'<f8'", DType::f64},
        {"'<i4'", DType::i32}, {"'<i8'", DType::i64}, {"'<u4'", DType::u32},
        {"'<u2'", DType::u16}, {"'|u1'", DType::u8},  {"'|i1'", DType::i8}};
    for (const auto& [name, dtype] : known)
        if (name == descr) return dtype;
    throw Error(
        fmt::format("its elements are {}; supported: f2, f4, f8, i1, i4, i8, u1, u2, u4, little-endian", descr));
}

Shape npy_shape(std::string_view text) {
    Shape shape;
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at < end) {
        int64_t size = 0;
        if (*at == '(' || *at == ',' || *at == ' ') {
            ++at;
            continue;
        }
        const auto [after, problem] = std::from_chars(at, end, size);
        if (problem != std::errc() || size < 0) throw Error(fmt::format("its shape is {})", text));
        shape.push_back(size);
        at = after;
    }
    return shape;
}

StoredArray npy_array(const DataFile& file) {
    unsigned char start[12] = {};
    if (file.bytes() < 12) throw Error("it is shorter than a NumPy header");
    file.read(-1, 0, start, sizeof start);
    if (std::memcmp(start, "\x93NUMPY", 6) != 0) throw Error("it is not a NumPy file");
    if (start[6] < 1 || start[6] > 3) throw Error(fmt::format("it is of version {}", start[6]));
    const int64_t prefix = start[6] == 1 ? 10 : 12;
    int64_t length = start[8] | start[9] << 8;
    if (prefix == 12) length |= static_cast<int64_t>(start[10]) << 16 | static_cast<int64_t>(start[11]) << 24;
    if (length > std::min(longest_header, file.bytes() - prefix)) throw Error("its header is longer than the file");
    std::string header(static_cast<size_t>(length), ' ');
    file.read(-1, prefix, header.data(), length);
    if (npy_field(header, "fortran_order") != "False")
        throw Error("it is in Fortran order; write it with numpy.ascontiguousarray");
    StoredArray array;
    array.name = std::filesystem::path(file.path()).stem().string();
    array.type = {npy_dtype(npy_field(header, "descr")), npy_shape(npy_field(header, "shape"))};
    array.begin = prefix + length;
    if (array.type.bytes() != file.bytes() - array.begin)
        throw Error(fmt::format("its header says {}, {} bytes, but {} bytes follow", array.type.text(),
                                array.type.bytes(), file.bytes() - array.begin));
    return array;
}

std::vector<StoredArray> safetensors_arrays(const DataFile& file) {
    uint64_t length = 0;
    if (file.bytes() < 8) throw Error("it is shorter than a safetensors header");
    file.read(-1, 0, &length, sizeof length);
    if (length > static_cast<uint64_t>(std::min(longest_header, file.bytes() - 8)))
        throw Error("its header is longer than the file, or than 100 MiB");
    std::vector<std::byte> start(8 + static_cast<size_t>(length));
    file.read(-1, 0, start.data(), static_cast<int64_t>(start.size()));
    std::vector<StoredArray> arrays;
    const SafetensorsHeader header = parse_safetensors(start, file.bytes(), file.path());
    for (const StoredTensor& tensor : header.tensors) {
        if (!tensor.foreign.empty())
            throw Error(fmt::format("its array {} is {}, an unsupported type", tensor.name, tensor.text()));
        arrays.push_back({tensor.name, tensor.type, tensor.begin});
    }
    return arrays;
}

}  // namespace

std::vector<StoredArray> stored_arrays(const DataFile& file) {
    return file.path().ends_with(".npy") ? std::vector{npy_array(file)} : safetensors_arrays(file);
}

}  // namespace orrery

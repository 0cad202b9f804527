// Headers of safetensors files: run/checkpoint/format/safetensors, base/files/file_kind. An input is two bytes, how
// many bytes of data follow the header, and then the file; and once more as a header without its length, so that not
// every change is one of length.
#include "run/checkpoint/format/safetensors.h"

#include <algorithm>
#include <cstring>

#include "file.h"
#include "orrery/error.h"
#include "target.h"

namespace orrery::fuzz {
namespace {

/// What was read can be written: with names and values of its own, and read again.
void write(const SafetensorsHeader& header) {
    std::vector<NamedTensor> tensors;
    int64_t data = 0;
    for (const StoredTensor& tensor : header.tensors)
        if (tensor.foreign.empty() && tensor.name != "__metadata__") {
            tensors.push_back({tensor.name, {nullptr, tensor.type.dtype, tensor.type.shape}});
            data += tensor.type.bytes();
        }
    const std::vector<std::byte> start =
        promised("what is read can be written", [&] { return safetensors_start(tensors, header.metadata); });
    require(start.size() % 64 == 0, "data begins at a multiple of 64");
    const SafetensorsHeader again = promised("what is written reads back", [&] {
        return parse_safetensors(start, static_cast<int64_t>(start.size()) + data, "written");
    });
    require(again.metadata == header.metadata && again.tensors.size() == tensors.size(), "all that is written is read");
    if (tensors.empty()) return;
    tensors[0].name += '\xff';
    try {
        safetensors_start(tensors);
    } catch (const Error&) {
        return;
    }
    throw Finding("a name that is not UTF-8 is refused");
}

/// What is taken holds; an Error while that is looked at is a finding, too.
void check(const SafetensorsHeader& header, int64_t file_bytes) try {
    int64_t at = header.tensors.empty() ? file_bytes : header.tensors.front().begin;
    for (const StoredTensor& tensor : header.tensors) {
        require(tensor.begin == at && tensor.end >= at && tensor.end <= file_bytes,
                "tensors lie side by side in the file");
        at = tensor.end;
        if (tensor.foreign.empty())
            require(tensor.type.bytes() == tensor.end - tensor.begin, "a tensor has the bytes of its shape");
        require(header.find(tensor.name) != nullptr, "a tensor is found by its name");
        require(!tensor.text().empty(), "a tensor has a text");
    }
    require(at == file_bytes, "the last tensor ends with the file");
    write(header);
} catch (const Error& problem) {
    require(false, problem.what());
}

void parse(std::span<const std::byte> start, int64_t file_bytes) {
    SafetensorsHeader header;
    try {
        header = parse_safetensors(start, file_bytes, "input");
    } catch (const Error&) {
        return;
    }
    check(header, file_bytes);
}

template <class Part>
bool refused(Part part) {
    try {
        part();
    } catch (const Error&) {
        return true;
    }
    return false;
}

/// A tensor is read whole and in parts, never beyond itself.
void read(const SafetensorsFile& file, const StoredTensor& tensor, int64_t bytes) {
    const auto all = file.bytes_of(tensor.name);
    require(static_cast<int64_t>(all.size()) <= bytes, "a tensor is no larger than its file");
    require(file.same(tensor.name, file, tensor.name), "a tensor is the same as itself");
    const Shape& shape = tensor.type.shape;
    std::vector<std::byte> out(all.size());
    const Tensor whole{out.data(), tensor.type.dtype, shape};
    if (!tensor.foreign.empty())
        return require(refused([&] { file.read(tensor.name, Shape(shape.size(), 0), whole); }), "only ours are read");
    file.read(tensor.name, Shape(shape.size(), 0), whole);
    require(out == all, "a tensor reads back");
    require(refused([&] { file.read(tensor.name, Shape(shape.size() + 1, 0), whole); }), "one offset a dim");
    if (shape.empty() || all.empty()) return;
    Shape part = shape, behind(shape.size(), 0);
    part[0] = 1, behind[0] = shape[0] - 1;
    file.read(tensor.name, behind, {out.data(), tensor.type.dtype, part});
    const auto row = static_cast<int64_t>(all.size()) / shape[0];
    require(std::equal(out.begin(), out.begin() + row, all.end() - row), "the last row reads back");
    behind[0] = shape[0];
    require(refused([&] {
                file.read(tensor.name, behind, {out.data(), tensor.type.dtype, part});
            }),
            "no row behind it");
}

/// The whole file, with bytes of some pattern for data; and once more cut short while it is open.
void read(std::string_view start, uint16_t data) {
    std::string bytes(start);
    for (uint16_t i = 0; i < data; ++i) bytes += static_cast<char>(i % 251);
    const auto size = static_cast<int64_t>(bytes.size());
    const InputFile input(bytes);
    try {
        const SafetensorsFile file(input.path());
        for (const StoredTensor& tensor : file.tensors()) {
            require(file.has(tensor.name) && &file.tensor(tensor.name) == file.header().find(tensor.name),
                    "a tensor is found by its name");
            read(file, tensor, size);
        }
        if (file.tensors().size() > 1 && file.tensors().size() < 50)
            file.same(file.tensors()[0].name, file, file.tensors()[1].name);
        if (!file.tensors().empty() && file.tensors().back().end > file.tensors().back().begin) {
            input.cut(size - 1);
            require(refused([&] { file.bytes_of(file.tensors().back().name); }), "a file that was cut is refused");
        }
        file.tensor("none of these");
    } catch (const Error&) {
    }
}

void run(std::string_view input) {
    if (input.size() < 2) return;
    uint16_t data = 0;
    std::memcpy(&data, input.data(), 2);
    const std::string_view file = input.substr(2);
    parse(std::as_bytes(std::span(file)), static_cast<int64_t>(file.size()) + data);
    if (data % 4 == 0) read(file, data);
    std::string framed(8, '\0');
    const uint64_t length = file.size() < 8 ? 0 : file.size() - 8;
    std::memcpy(framed.data(), &length, 8);
    if (file.size() >= 8) framed += file.substr(8);
    parse(std::as_bytes(std::span(framed)), static_cast<int64_t>(framed.size()) + data);
}

std::string seed(const std::string& json, uint16_t data) {
    std::string text(10, '\0');
    const uint64_t length = json.size();
    std::memcpy(text.data(), &data, 2);
    std::memcpy(text.data() + 2, &length, 8);
    return text + json;
}

std::vector<std::string> seeds() {
    using namespace std::string_view_literals;
    std::vector<std::string> all = {
        seed("{}", 0),
        seed(R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24),
        seed(R"({"__metadata__":{"format":"pt","step":"300"},"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},)"
             R"("b":{"dtype":"I64","shape":[],"data_offsets":[8,16]}})",
             16),
        seed(R"({"f":{"dtype":"F4","shape":[3],"data_offsets":[0,2]},)"
             R"("g":{"dtype":"NEW","shape":[9],"data_offsets":[2,5]}})",
             5),
        seed(R"({"z":{"dtype":"F8_E4M3","shape":[0,5],"data_offsets":[0,0]},"y":{"dtype":"BOOL","shape":[1,2],)"
             R"("data_offsets":[0,2]}})",
             2),
        seed(R"({"w":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
        seed(R"({"w":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 4),
        seed(R"({"w":{"dtype":"no dtype","shape":[3],"data_offsets":[0,4]}})", 4),
        seed(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
        seed(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", 8),
        seed(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[4,16]}})", 16),
        seed(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", 16),
        seed(R"({"w":{"dtype":"F32","shape":[3]}})", 12),
        seed(R"({"__metadata__":[]})", 0),
        seed(R"({"__metadata__":{"step":5}})", 0),
        seed("[]", 0)};
    for (const std::string_view begin : {"GGUF\x03\0rest"sv, "PK\x03\x04zip"sv, "version https://git-lfs"sv, "abc"sv})
        all.push_back(std::string(2, '\0') + std::string(begin));
    std::vector<std::byte> bytes(40);
    const NamedTensor tensors[] = {{"up", {bytes.data(), DType::f32, {2, 2}}},
                                   {"down", {bytes.data(), DType::u8, {8}}}};
    const std::pair<std::string, std::string> step{"step", "5"};
    const auto start = safetensors_start(tensors, {&step, 1});
    const uint16_t data = 24;
    std::string ours(2, '\0');
    std::memcpy(ours.data(), &data, 2);
    ours.append(reinterpret_cast<const char*>(start.data()), start.size());
    all.push_back(ours);
    return all;
}

std::vector<std::string> words() {
    return {"\"__metadata__\":{",
            "\"dtype\":\"",
            "\"shape\":[",
            "\"data_offsets\":[",
            "\"F32\"",
            "\"BF16\"",
            "\"F8_E4M3\"",
            "\"BOOL\"",
            "\"F4\"",
            "\"U64\"",
            "{\"w\":{",
            "\"v\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},",
            "4294967296",
            "}}"};
}

}  // namespace

Target safetensors_target() { return {"safetensors", run, seeds, words}; }

}  // namespace orrery::fuzz

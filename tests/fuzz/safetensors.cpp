// Headers of safetensors files: run/checkpoint/safetensors. An input is two bytes, how many bytes of data follow the
// header, and then the file; and once more as a header without its length, so that not every change is one of length.
#include "run/checkpoint/safetensors.h"

#include <cstring>

#include "file.h"
#include "orrery/error.h"
#include "target.h"

namespace orrery::fuzz {
namespace {

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

/// The whole file, with zeros for data.
void read(std::string_view start, uint16_t data) {
    std::string bytes(start);
    bytes.append(data, '\0');
    const InputFile input(bytes);
    try {
        const SafetensorsFile file(input.path());
        for (const StoredTensor& tensor : file.tensors()) {
            const auto all = file.bytes_of(tensor.name);
            require(all.size() <= bytes.size(), "a tensor is no larger than its file");
            require(file.same(tensor.name, file, tensor.name), "a tensor is the same as itself");
            std::vector<std::byte> out(all.size());
            file.read(tensor.name, Shape(tensor.type.shape.size(), 0),
                      {out.data(), tensor.type.dtype, tensor.type.shape});
            require(out == all, "a tensor reads back");
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
        seed(R"({"w":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0)};
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

}  // namespace

Target safetensors_target() { return {"safetensors", run, seeds}; }

}  // namespace orrery::fuzz

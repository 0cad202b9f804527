#include "run/checkpoint/format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cctype>
#include <cstring>
#include <optional>
#include <set>

#include "base/files/file_kind.h"
#include "base/json.h"
#include "base/suggest.h"
#include "base/text.h"
#include "layout/shards.h"

namespace orrery {

namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr int64_t longest_header = 100'000'000;  // max bytes of a header, as in the safetensors library

constexpr std::pair<DType, std::string_view> stored_names[] = {
    {DType::f32, "F32"}, {DType::bf16, "BF16"},      {DType::f16, "F16"},        {DType::f64, "F64"},
    {DType::i32, "I32"}, {DType::i64, "I64"},        {DType::u32, "U32"},        {DType::u16, "U16"},
    {DType::u8, "U8"},   {DType::f8e4m3, "F8_E4M3"}, {DType::f8e5m2, "F8_E5M2"}, {DType::i8, "I8"},
};

/// Bits per element of the safetensors dtypes that Orrery does not compute with.
constexpr std::pair<std::string_view, int64_t> foreign_bits[] = {
    {"BOOL", 8},    {"I16", 16},    {"U64", 64},        {"C64", 64},        {"F8_E8M0", 8},
    {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F4", 4},
};

std::string_view stored_name(DType dtype) {
    for (const auto& [type, name] : stored_names) {
        if (type == dtype) return name;
    }
    assert(false);
    return "";
}

/// Sets the tensor's dtype. Returns the number of bits of an element; 0 for an unknown dtype.
int64_t read_dtype(const std::string& text, StoredTensor& tensor) {
    for (const auto& [type, name] : stored_names) {
        if (name != text) continue;
        tensor.type.dtype = type;
        return 8 * size_of(type);
    }
    const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    if (text.empty() || text.size() > 32 || !std::all_of(text.begin(), text.end(), plain))
        throw Error(fmt::format("tensor {} has the dtype {}", quote(tensor.name), quote(text)));
    tensor.type.dtype = DType::u8;
    tensor.foreign = text;
    for (const auto& [name, bits] : foreign_bits)
        if (name == text) return bits;
    return 0;
}

StoredTensor parse_tensor(const std::string& name, const Json& entry, int64_t data_start, int64_t file_bytes) {
    const std::string what = "tensor " + quote(name);
    const bool complete = entry.is_object() && entry.size() == 3 && entry.contains("dtype") &&
                          entry.contains("shape") && entry.contains("data_offsets") && entry["dtype"].is_string() &&
                          entry["shape"].is_array() && entry["data_offsets"].is_array() &&
                          entry["data_offsets"].size() == 2;
    if (!complete) throw Error(what + " must have dtype, shape and two data_offsets, and nothing else");
    StoredTensor tensor;
    tensor.name = name;
    const int64_t bits = read_dtype(entry["dtype"].get<std::string>(), tensor);
    int64_t bytes = bits;
    for (const Json& size : entry["shape"]) {
        tensor.type.shape.push_back(whole_number(size, what + ": a size of its shape"));
        if (__builtin_mul_overflow(bytes, tensor.type.shape.back(), &bytes))
            throw Error(what + " has a shape whose size in bytes is beyond 64 bits");
    }
    if (bytes % 8 != 0) throw Error(fmt::format("{} is {}, which is not a whole number of bytes", what, tensor.text()));
    bytes /= 8;
    const int64_t begin = whole_number(entry["data_offsets"][0], what + ": data_offsets");
    const int64_t end = whole_number(entry["data_offsets"][1], what + ": data_offsets");
    if (begin > end || end > file_bytes - data_start)
        throw Error(fmt::format("{} has data_offsets [{}, {}], but the file has {} bytes of data", what, begin, end,
                                file_bytes - data_start));
    if (bits > 0 && end - begin != bytes)
        throw Error(fmt::format("{} is {}, which is {} bytes, but its data_offsets span {}", what, tensor.text(), bytes,
                                end - begin));
    tensor.begin = data_start + begin;
    tensor.end = data_start + end;
    return tensor;
}

SafetensorsHeader parse_header(std::string_view text, int64_t data_start, int64_t file_bytes, const Origin& where) {
    if (text.empty() || text[0] != '{') throw Error("the header is not a JSON object: it is not a safetensors file");
    const Json json = parse_json(text, where);
    SafetensorsHeader header;
    for (const auto& [name, entry] : json.items()) {
        if (name != "__metadata__") {
            header.tensors.push_back(parse_tensor(name, entry, data_start, file_bytes));
            continue;
        }
        if (!entry.is_object()) throw Error("__metadata__ is not an object");
        for (const auto& [key, value] : entry.items()) {
            if (!value.is_string()) throw Error("__metadata__ has " + quote(key) + ", which is not a text");
            header.metadata.emplace_back(key, value.get<std::string>());
        }
    }
    std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
        return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    int64_t at = data_start;
    for (const StoredTensor& tensor : header.tensors) {
        if (tensor.begin != at)
            throw Error(
                fmt::format("tensor {} begins at byte {} of the data, {} the tensor before it, which ends at {}",
                            quote(tensor.name), tensor.begin - data_start,
                            tensor.begin < at ? "inside" : "with a hole after", at - data_start));
        at = tensor.end;
    }
    if (at != file_bytes)
        throw Error(fmt::format("the tensors end at byte {}, but the file has {} bytes", at, file_bytes));
    return header;
}

void refuse_other_kinds(std::string_view start, const std::string& path) {
    if (const FileKind* kind = file_kind(start))
        throw Error(fmt::format("{} is {}; expected safetensors\n  {}", path, kind->what, kind->as_weights));
}

}  // namespace

std::string StoredTensor::text() const { return foreign.empty() ? type.text() : foreign + text_of(type.shape); }

const StoredTensor* SafetensorsHeader::find(std::string_view name) const {
    for (const StoredTensor& tensor : tensors) {
        if (tensor.name == name) return &tensor;
    }
    return nullptr;
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> start, int64_t file_bytes, const std::string& place) {
    const Origin where{"", place, 0, 0};
    if (file_bytes < 8 || start.size() < 8)
        throw Error(where, fmt::format("{} bytes are too few for a safetensors file", file_bytes));
    uint64_t length = 0;
    std::memcpy(&length, start.data(), 8);
    if (length > static_cast<uint64_t>(file_bytes) - 8 || length > start.size() - 8 || length > longest_header)
        throw Error(where, fmt::format("the header should be {} bytes long, but the file has {}: it is truncated, or "
                                       "not a safetensors file",
                                       length, file_bytes));
    const std::string_view text(reinterpret_cast<const char*>(start.data()) + 8, length);
    try {
        return parse_header(text, 8 + static_cast<int64_t>(length), file_bytes, {});
    } catch (const Error& problem) {
        throw Error(where, problem.what());
    }
}

std::vector<std::byte> safetensors_start(std::span<const NamedTensor> tensors,
                                         std::span<const std::pair<std::string, std::string>> metadata) {
    Json json = Json::object();
    if (!metadata.empty()) {
        for (const auto& [key, value] : metadata) json["__metadata__"][key] = value;
    }
    int64_t at = 0;
    for (const NamedTensor& item : tensors) {
        assert(item.name != "__metadata__");
        if (const std::string bad = not_utf8(item.name); !bad.empty())
            throw Error("the name of tensor " + quote(item.name) + " cannot be written: " + bad);
        append(json, item.name,
               {{"dtype", stored_name(item.tensor.dtype)},
                {"shape", item.tensor.shape},
                {"data_offsets", {at, at + item.tensor.bytes()}}});
        at += item.tensor.bytes();
    }
    std::string header = json.dump();
    header.append((64 - (8 + header.size()) % 64) % 64, ' ');
    std::vector<std::byte> start(8 + header.size());
    const uint64_t length = header.size();
    std::memcpy(start.data(), &length, 8);
    std::memcpy(start.data() + 8, header.data(), header.size());
    return start;
}

SafetensorsFile::SafetensorsFile(std::string path) : path_(std::move(path)), file_(path_) {
    if (!file_.problem().empty()) throw Error(path_ + " " + file_.problem());
    std::vector<std::byte> start(8);
    start.resize(file_.read(0, start.data(), start.size()));
    uint64_t length = 0;
    if (start.size() == 8) std::memcpy(&length, start.data(), 8);
    if (const int64_t rest = file_.bytes() - 8; rest > 0 && length <= longest_header) {
        start.resize(8 + std::min(static_cast<size_t>(length), static_cast<size_t>(rest)));
        start.resize(8 + file_.read(8, start.data() + 8, start.size() - 8));
    }
    try {
        header_ = parse_safetensors(start, file_.bytes(), path_);
    } catch (const Error& problem) {
        refuse_other_kinds(file_.text(32), path_);
        const std::string text = problem.what();
        const bool remedied = text.find('\n') != std::string::npos;
        throw Error(text + (remedied ? "" : "\n  copy or export it again, and compare its size with the source's"));
    }
}

const StoredTensor& SafetensorsFile::tensor(std::string_view name) const {
    if (const StoredTensor* found = header_.find(name)) return *found;
    std::vector<std::string> names;
    for (const StoredTensor& tensor : header_.tensors) names.push_back(tensor.name);
    throw Error(path_ + ": no tensor " + quote(name) + choices("it has", name, std::move(names)));
}

void SafetensorsFile::read_at(const StoredTensor& tensor, int64_t offset, std::span<std::byte> out) const {
    const int64_t begin = tensor.begin + offset;
    size_t got = 0;
    try {
        got = file_.read(begin, out.data(), out.size());
    } catch (const Error& problem) {
        throw Error(fmt::format("tensor {}: {}", quote(tensor.name), problem.what()), Fault::failed);
    }
    if (got == out.size()) return;
    throw Error(fmt::format("{}: tensor {} is truncated: bytes {} to {} are needed, but the file ends at {} and had {} "
                            "when it was opened\n  restore the file, and start again",
                            path_, quote(tensor.name), begin, begin + static_cast<int64_t>(out.size()) - 1,
                            begin + static_cast<int64_t>(got), file_.bytes()),
                Fault::failed);
}

std::vector<std::byte> SafetensorsFile::bytes_of(std::string_view name) const {
    const StoredTensor& found = tensor(name);
    std::vector<std::byte> bytes(static_cast<size_t>(found.end - found.begin));
    read_at(found, 0, bytes);
    return bytes;
}

bool SafetensorsFile::same(std::string_view name, const SafetensorsFile& other, std::string_view others_name) const {
    const StoredTensor &mine = tensor(name), &its = other.tensor(others_name);
    const int64_t bytes = mine.end - mine.begin;
    if (mine.text() != its.text() || its.end - its.begin != bytes) return false;
    constexpr int64_t piece = int64_t{8} << 20;
    std::vector<std::byte> a, b;
    for (int64_t at = 0; at < bytes; at += piece) {
        a.resize(static_cast<size_t>(std::min(piece, bytes - at)));
        b.resize(a.size());
        read_at(mine, at, a);
        other.read_at(its, at, b);
        if (a != b) return false;
    }
    return true;
}

void SafetensorsFile::read(std::string_view name, const Shape& offset, const Tensor& out) const {
    const StoredTensor& found = tensor(name);
    if (!found.foreign.empty())
        throw Error(
            fmt::format("{}: tensor {} is {}, an unsupported type\n  supported: F32 BF16 F16 F64 I32 I64 U32 U16 U8 I8",
                        path_, quote(name), found.text()));
    bool inside = offset.size() == found.type.shape.size() && out.shape.size() == offset.size();
    for (size_t dim = 0; inside && dim < offset.size(); ++dim)
        inside = offset[dim] >= 0 && out.shape[dim] <= found.type.shape[dim] - offset[dim];
    if (!inside || out.dtype != found.type.dtype)
        throw Error(fmt::format("{}: tensor {} is {}, which has no part {}{} at offset {}", path_, quote(name),
                                found.type.text(), name_of(out.dtype), text_of(out.shape), text_of(offset)));
    const int64_t size = size_of(out.dtype);
    const Block all{Shape(offset.size(), 0), found.type.shape}, part{offset, out.shape};
    for_runs(part, all, part, [&](int64_t from, int64_t to, int64_t count) {
        read_at(found, from * size, {static_cast<std::byte*>(out.data) + to * size, static_cast<size_t>(count * size)});
    });
}

}  // namespace orrery

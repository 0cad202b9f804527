#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "base/hash.h"
#include "base/text.h"
#include "run/checkpoint/format/manifest.h"
#include "run/checkpoint/format/safetensors.h"

namespace orrery {

std::string stored_name(const std::string& tensor, int64_t before) {
    return before == 0 ? tensor : fmt::format("{}#{}", tensor, before);
}

ObjectReader::ObjectReader(CheckpointStore& store, const Manifest& manifest, int64_t object)
    : store_(store), manifest_(manifest), number_(static_cast<size_t>(object)), object_(manifest.objects.at(number_)) {}

std::string ObjectReader::name() const { return fmt::format("step {}, {}", manifest_.step, object_.key); }

std::string ObjectReader::tensors_in(int64_t begin, int64_t end) const {
    std::vector<std::string> names;
    for (const auto& [tensor, shard] : manifest_.held[number_]) {
        const ManifestTensor& of = manifest_.tensors[tensor];
        const ManifestShard& part = of.shards[shard];
        const int64_t part_end = part.begin + byte_count(of.type.dtype, part.box.shape);
        if (part.begin < end && part_end > begin) names.push_back(of.name);
    }
    if (names.size() > 4) names.resize(4), names.push_back("...");
    return names.empty() ? "" : " (holds " + join(names, ", ") + ")";
}

void ObjectReader::load(int64_t piece, std::string_view tensor) {
    const int64_t begin = piece * manifest_.piece_bytes;
    const int64_t bytes = std::min(manifest_.piece_bytes, object_.bytes - begin);
    const std::string of = tensor.empty() ? tensors_in(begin, begin + bytes) : " (tensor " + std::string(tensor) + ")";
    if (!sized_) {
        const int64_t size = store_.size(manifest_.step, object_.key);
        if (size < 0) throw Damaged(name() + " is missing" + of);
        if (size != object_.bytes)
            throw Damaged(fmt::format("{} {}: it has {} bytes, but the manifest says {}{}", name(),
                                      size < object_.bytes ? "is truncated" : "is too long", size, object_.bytes, of));
        sized_ = true;
    }
    buffer_.resize(static_cast<size_t>(bytes));
    loaded_ = -1;
    store_.get(manifest_.step, object_.key, begin, buffer_);
    const uint32_t crc = crc32c(buffer_), expected = object_.crcs[static_cast<size_t>(piece)];
    if (crc != expected) {
        for (const ManifestObject& other : manifest_.objects) {
            const bool same_place =
                &other != &object_ && other.bytes == object_.bytes && other.crcs[static_cast<size_t>(piece)] == crc;
            if (same_place) throw Damaged(name() + " holds the contents of " + other.key + of);
        }
        throw Damaged(
            fmt::format("{} is damaged between bytes {} and {}: CRC-32C is {:08x}, but the manifest says {:08x}{}",
                        name(), begin, begin + bytes, crc, expected, of));
    }
    loaded_ = piece;
}

void ObjectReader::read(int64_t offset, std::span<std::byte> out, std::string_view tensor) {
    while (!out.empty()) {
        const int64_t piece = offset / manifest_.piece_bytes;
        if (piece != loaded_) load(piece, tensor);
        const auto skip = static_cast<size_t>(offset - piece * manifest_.piece_bytes);
        const size_t count = std::min(out.size(), buffer_.size() - skip);
        std::memcpy(out.data(), buffer_.data() + skip, count);
        out = out.subspan(count);
        offset += static_cast<int64_t>(count);
    }
}

void ObjectReader::check_header(std::string_view tensor) {
    if (object_.bytes < 8) throw Damaged(name() + " is too small for a safetensors file");
    std::vector<std::byte> start(8);
    read(0, start, tensor);
    uint64_t length = 0;
    std::memcpy(&length, start.data(), 8);
    if (length > static_cast<uint64_t>(object_.bytes) - 8)
        throw Damaged(
            fmt::format("{} has {} bytes, too few for its header of {} bytes", name(), object_.bytes, length));
    start.resize(8 + length);
    read(8, std::span(start).subspan(8), tensor);
    try {
        compare_header(start);
    } catch (const Error& problem) {
        throw Damaged(problem.what());
    }
}

void ObjectReader::compare_header(const std::vector<std::byte>& start) {
    SafetensorsHeader header = parse_safetensors(start, object_.bytes, name());
    for (const auto& [key, text] : header.metadata)
        if (key == step_key && text != std::to_string(object_.written))
            throw Error(name() + " was written for step " + quote(text));
    std::vector<StoredTensor>& own = header.tensors;
    std::sort(own.begin(), own.end(), [](const StoredTensor& a, const StoredTensor& b) {
        return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    const auto& held = manifest_.held[number_];
    std::map<size_t, int64_t> before;
    for (size_t i = 0; i < std::min(own.size(), held.size()); ++i) {
        const ManifestTensor& tensor = manifest_.tensors[held[i].first];
        const ManifestShard& shard = tensor.shards[held[i].second];
        const TensorType type{tensor.type.dtype, shard.box.shape};
        const std::string stored = stored_name(tensor.name, before[held[i].first]++);
        if (own[i].name == stored && own[i].foreign.empty() && own[i].type == type && own[i].begin == shard.begin)
            continue;
        throw Error(fmt::format(
            "{} does not match the manifest: its header has {} {} at byte {}, the manifest {} {} at byte {}", name(),
            own[i].name, own[i].text(), own[i].begin, stored, type.text(), shard.begin));
    }
    if (own.size() != held.size())
        throw Error(fmt::format("{} does not match the manifest: its header has {} tensors, the manifest {}", name(),
                                own.size(), held.size()));
}

std::string ObjectReader::verify(bool digest) {
    try {
        Sha256 sum;
        const auto pieces = static_cast<int64_t>(object_.crcs.size());
        for (int64_t piece = 0; piece < pieces; ++piece) {
            load(piece, "");
            if (digest) sum.update(buffer_);
        }
        if (digest && sum.hex() != object_.sha256)
            return name() + " is damaged: its SHA-256 is not that of the manifest";
        check_header();
        return "";
    } catch (const Damaged& problem) {
        return problem.what();
    }
}

}  // namespace orrery

#include "run/checkpoint/format/rank_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"

namespace orrery {

namespace {

constexpr const char* index_format = "orrery checkpoint index";

/// Whether a box is inside of a tensor of this shape. The box's sizes and offsets must not be negative.
bool inside(const Block& box, const Shape& shape) {
    if (box.offset.size() != shape.size() || box.shape.size() != shape.size()) return false;
    for (size_t dim = 0; dim < shape.size(); ++dim)
        if (box.offset[dim] > shape[dim] || box.shape[dim] > shape[dim] - box.offset[dim]) return false;
    return true;
}

ManifestObject object_of(const Json& entry) {
    const auto key = entry.at("key").get<std::string>();
    const std::string what = "object " + quote(key);
    ManifestObject object;
    object.key = key;
    object.bytes = whole_number(entry.at("bytes"), what + ": its bytes");
    object.sha256 = entry.at("sha256");
    if (!entry.contains("written")) throw Error(what + " does not say of which step it is");
    object.written = whole_number(entry["written"], what + ": its step");
    object.crcs.reserve(entry.at("crc32c").size());
    for (const Json& crc : entry.at("crc32c")) {
        const int64_t value = whole_number(crc, what + ": a checksum");
        if (value > UINT32_MAX) throw Error(what + " has a checksum beyond 32 bits");
        object.crcs.push_back(static_cast<uint32_t>(value));
    }
    return object;
}

Json json_of(const ManifestObject& object) {
    return {{"key", object.key},
            {"bytes", object.bytes},
            {"sha256", object.sha256},
            {"written", object.written},
            {"crc32c", object.crcs}};
}

/// Parses one rank's objects. Throws Error unless keys are valid and differ, and each object has a checksum per piece.
std::vector<ManifestObject> objects_of(const Json& list, int64_t piece_bytes) {
    std::vector<ManifestObject> objects;
    std::set<std::string> keys;
    for (const Json& entry : list) {
        const ManifestObject& object = objects.emplace_back(object_of(entry));
        const bool plain = std::all_of(object.key.begin(), object.key.end(), [](unsigned char c) {
            return std::isalnum(c) || c == '.' || c == '-' || c == '_';
        });
        if (!plain || !object.key.starts_with("rank-") || object.key.size() > 200)
            throw Error(quote(object.key) + " cannot be the name of an object");
        const int64_t pieces = object.bytes / piece_bytes + (object.bytes % piece_bytes != 0);
        if (static_cast<int64_t>(object.crcs.size()) != pieces)
            throw Error("object " + quote(object.key) + " has the wrong number of checksums");
        if (!keys.insert(object.key).second) throw Error("two objects are called " + quote(object.key));
    }
    return objects;
}

RankIndex parsed(const Json& json) {
    if (!json.is_object() || !json.contains("format") || json["format"] != index_format)
        throw Error("it is not an index of a checkpoint");
    RankIndex index;
    index.step = whole_number(json.at("step"), "its step");
    index.rank = whole_number(json.at("rank"), "its rank");
    index.piece_bytes = whole_number(json.at("piece_bytes"), "piece_bytes");
    if (index.piece_bytes < 1) throw Error("piece_bytes must be positive");
    index.objects = objects_of(json.at("objects"), index.piece_bytes);
    for (ManifestObject& object : index.objects) {
        object.rank = index.rank;
        if (!object.key.starts_with(fmt::format("rank-{:05}-", index.rank)))
            throw Error(fmt::format("object {} is not from rank {}", quote(object.key), index.rank));
        if (object.written > index.step)
            throw Error(fmt::format("object {} is from step {}, later than the index's step", quote(object.key),
                                    object.written));
    }
    for (const Json& name : json.at("tensors")) index.tensors.push_back(name.get<std::string>());
    for (const Json& entry : json.at("shards")) {
        if (!entry.is_array() || entry.size() != 5) throw Error("a shard of it is not a list of five values");
        RankIndex::Shard shard{static_cast<size_t>(whole_number(entry[0], "a shard's tensor")),
                               whole_number(entry[1], "a shard's object"),
                               whole_number(entry[2], "a shard's begin"),
                               {shape_of(entry[3], "a shard's offset"), shape_of(entry[4], "a shard's shape")}};
        if (shard.tensor >= index.tensors.size() || shard.object >= static_cast<int64_t>(index.objects.size()))
            throw Error(
                fmt::format("a shard of it refers to tensor {} in object {}, but it has {} tensors and {} objects",
                            shard.tensor, shard.object, index.tensors.size(), index.objects.size()));
        index.shards.push_back(std::move(shard));
    }
    return index;
}

}  // namespace

Shape shape_of(const Json& json, const std::string& what) {
    constexpr size_t most = 32;
    if (!json.is_array()) throw Error(what + " is not a list");
    if (json.size() > most) throw Error(fmt::format("{} has {} dims, the maximum is {}", what, json.size(), most));
    Shape shape;
    for (const Json& size : json) shape.push_back(whole_number(size, what));
    return shape;
}

std::string RankIndex::key(int64_t rank) { return fmt::format("rank-{:05}.index.json", rank); }

std::string RankIndex::text() const {
    Json json = {{"format", index_format}, {"step", step}, {"rank", rank}, {"piece_bytes", piece_bytes}};
    Json& own = json["objects"] = Json::array();
    for (const ManifestObject& object : objects) own.push_back(json_of(object));
    json["tensors"] = tensors;
    Json& parts = json["shards"] = Json::array();
    for (const Shard& shard : shards)
        parts.push_back(Json::array({shard.tensor, shard.object, shard.begin, shard.box.offset, shard.box.shape}));
    return json.dump();
}

RankIndex RankIndex::parse(std::string_view text) {
    try {
        return parsed(parse_json(text, {}));
    } catch (const Json::exception& problem) {
        throw Error("it is damaged: " + reason_of(problem));
    }
}

RankIndex index_of(CheckpointStore& store, const Manifest& manifest, const IndexEntry& entry) {
    const std::string key = entry.key(), name = fmt::format("step {}, {}", manifest.step, key);
    const int64_t size = store.size(manifest.step, key);
    if (size < 0) throw Damaged(name + " is missing");
    if (size != entry.bytes)
        throw Damaged(fmt::format("{} {}: it has {} bytes, but the manifest says {}", name,
                                  size < entry.bytes ? "is truncated" : "is too long", size, entry.bytes));
    std::string text(static_cast<size_t>(size), '\0');
    store.get(manifest.step, key, 0, std::as_writable_bytes(std::span(text)));
    const std::string digest = sha256(text);
    if (digest != entry.sha256) {
        for (const IndexEntry& other : manifest.indexes)
            if (other.sha256 == digest) throw Damaged(name + " holds the contents of " + other.key());
        throw Damaged(name + " is damaged: its SHA-256 is not that of the manifest");
    }
    try {
        RankIndex index = RankIndex::parse(text);
        if (index.step != manifest.step) throw Error(fmt::format("it was written for step {}", index.step));
        if (index.rank != entry.rank) throw Error(fmt::format("it is of rank {}", index.rank));
        if (index.piece_bytes != manifest.piece_bytes)
            throw Error(fmt::format("it has a checksum for every {} bytes, but the manifest for every {} bytes",
                                    index.piece_bytes, manifest.piece_bytes));
        return index;
    } catch (const Error& problem) {
        throw Damaged(name + ": " + problem.what());
    }
}

std::vector<RankIndex> indexes_of(const Manifest& manifest) {
    std::map<int64_t, RankIndex> by_rank;
    std::vector<int64_t> numbers;
    for (const ManifestObject& object : manifest.objects) {
        RankIndex& index = by_rank.try_emplace(object.rank).first->second;
        index.step = manifest.step, index.rank = object.rank, index.piece_bytes = manifest.piece_bytes;
        numbers.push_back(static_cast<int64_t>(index.objects.size()));
        index.objects.push_back(object);
    }
    for (const ManifestTensor& tensor : manifest.tensors) {
        std::map<int64_t, size_t> names;
        for (const ManifestShard& shard : tensor.shards) {
            const auto object = static_cast<size_t>(shard.object);
            const int64_t rank = manifest.objects.at(object).rank;
            RankIndex& index = by_rank.at(rank);
            const auto [name, fresh] = names.try_emplace(rank, index.tensors.size());
            if (fresh) index.tensors.push_back(tensor.name);
            index.shards.push_back({name->second, numbers[object], shard.begin, shard.box});
        }
    }
    std::vector<RankIndex> all;
    for (auto& [rank, index] : by_rank) all.push_back(std::move(index));
    return all;
}

IndexEntry put_index(CheckpointStore& store, const RankIndex& index) {
    const std::string text = index.text();
    const IndexEntry entry{index.rank, static_cast<int64_t>(text.size()), sha256(text)};
    if (entry.bytes > Manifest::longest)
        throw Error(
            fmt::format("the index of rank {} has {} bytes, the maximum is {}\n  split the state over more ranks",
                        index.rank, entry.bytes, Manifest::longest));
    store.put(index.step, entry.key(), bytes_of(text));
    return entry;
}

void check_shard(const Manifest& manifest, const ManifestTensor& tensor, const ManifestShard& shard) {
    if (shard.object >= static_cast<int64_t>(manifest.objects.size()) || !inside(shard.box, tensor.type.shape))
        throw Error("it has a shard outside the tensor");
    if (byte_count(tensor.type.dtype, shard.box.shape) >
        manifest.objects[static_cast<size_t>(shard.object)].bytes - shard.begin)
        throw Error("it has a shard beyond the end of its object");
}

void add_index(Manifest& manifest, const RankIndex& index, bool some) {
    const auto first = static_cast<int64_t>(manifest.objects.size());
    manifest.objects.insert(manifest.objects.end(), index.objects.begin(), index.objects.end());
    std::vector<size_t> places;
    for (const std::string& name : index.tensors) {
        const auto place = manifest.places.find(name);
        if (place == manifest.places.end() && !some)
            throw Error(fmt::format("{}: tensor {} is not in the manifest", RankIndex::key(index.rank), quote(name)));
        places.push_back(place == manifest.places.end() ? SIZE_MAX : place->second);
    }
    for (const RankIndex::Shard& shard : index.shards) {
        if (places[shard.tensor] == SIZE_MAX) continue;
        ManifestTensor& tensor = manifest.tensors[places[shard.tensor]];
        try {
            check_shard(manifest, tensor,
                        tensor.shards.emplace_back(ManifestShard{first + shard.object, shard.begin, shard.box}));
        } catch (const Error& problem) {
            throw Error(
                fmt::format("{}: tensor {}: {}", RankIndex::key(index.rank), quote(tensor.name), problem.what()));
        }
    }
}

}  // namespace orrery

#include "run/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>

#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "run/checkpoint/safetensors.h"
#include "run/checkpoint/tiling.h"

namespace orrery {

namespace {

constexpr const char* format_name = "orrery checkpoint";

Json json_of(const Manifest& manifest) {
    Json objects = Json::array(), tensors = Json::array();
    for (const ManifestObject& object : manifest.objects) {
        objects.push_back({{"key", object.key},
                           {"rank", object.rank},
                           {"bytes", object.bytes},
                           {"sha256", object.sha256},
                           {"crc32c", object.crcs}});
    }
    for (const ManifestTensor& tensor : manifest.tensors) {
        Json shards = Json::array();
        for (const ManifestShard& shard : tensor.shards) {
            shards.push_back({{"object", shard.object},
                              {"begin", shard.begin},
                              {"offset", shard.box.offset},
                              {"shape", shard.box.shape}});
        }
        tensors.push_back({{"name", tensor.name},
                           {"dtype", name_of(tensor.type.dtype)},
                           {"shape", tensor.type.shape},
                           {"layout", tensor.layout},
                           {"shards", std::move(shards)}});
    }
    Json json = {{"format", format_name},
                 {"version", Manifest::version},
                 {"orrery", ORRERY_VERSION},
                 {"step", manifest.step},
                 {"mesh", manifest.mesh}};
    json["host"] = parse_json(manifest.host, {"", "the host's part of the manifest", 0, 0});
    json["piece_bytes"] = manifest.piece_bytes;
    json["objects"] = std::move(objects);
    json["tensors"] = std::move(tensors);
    return json;
}

Shape shape_of(const Json& json, const std::string& what) {
    if (!json.is_array()) throw Error(what + " is no list");
    Shape shape;
    for (const Json& size : json) shape.push_back(whole_number(size, what));
    return shape;
}

ManifestTensor tensor_of(const Json& entry) {
    ManifestTensor tensor{entry.at("name"), {}, entry.at("layout"), {}};
    const std::string what = "tensor " + quote(tensor.name);
    const auto dtype = parse_dtype(entry.at("dtype").get<std::string>());
    if (!dtype) throw Error(what + " has an unknown dtype");
    tensor.type = {*dtype, shape_of(entry.at("shape"), what + ": its shape")};
    for (const Json& shard : entry.at("shards"))
        tensor.shards.push_back({whole_number(shard.at("object"), what + ": a shard's object"),
                                 whole_number(shard.at("begin"), what + ": a shard's begin"),
                                 {shape_of(shard.at("offset"), what + ": a shard's offset"),
                                  shape_of(shard.at("shape"), what + ": a shard's shape")}});
    return tensor;
}

ManifestObject object_of(const Json& entry) {
    const auto key = entry.at("key").get<std::string>();
    const std::string what = "object " + quote(key);
    ManifestObject object{key,
                          whole_number(entry.at("rank"), what + ": its rank"),
                          whole_number(entry.at("bytes"), what + ": its bytes"),
                          entry.at("sha256"),
                          {}};
    for (const Json& crc : entry.at("crc32c")) {
        const int64_t value = whole_number(crc, what + ": a checksum");
        if (value > UINT32_MAX) throw Error(what + " has a checksum beyond 32 bits");
        object.crcs.push_back(static_cast<uint32_t>(value));
    }
    return object;
}

/// Sizes and offsets are not negative here.
bool inside(const Block& box, const Shape& shape) {
    if (box.offset.size() != shape.size() || box.shape.size() != shape.size()) return false;
    for (size_t dim = 0; dim < shape.size(); ++dim)
        if (box.offset[dim] > shape[dim] || box.shape[dim] > shape[dim] - box.offset[dim]) return false;
    return true;
}

// What a digest cannot promise: that the numbers fit together.
void check_tensor(const Manifest& manifest, const ManifestTensor& tensor) {
    int64_t elements = 0;
    std::vector<Block> boxes;
    for (const ManifestShard& shard : tensor.shards) {
        if (shard.object >= static_cast<int64_t>(manifest.objects.size()) || !inside(shard.box, tensor.type.shape))
            throw Error("it has a shard that lies outside of it");
        const int64_t bytes = byte_count(tensor.type.dtype, shard.box.shape);
        if (bytes > manifest.objects[static_cast<size_t>(shard.object)].bytes - shard.begin)
            throw Error("it has a shard beyond the end of its object");
        boxes.push_back(shard.box);
        if (__builtin_add_overflow(elements, shard.box.count(), &elements)) throw Error("its shards overlap");
    }
    if (elements != tensor.type.count())
        throw Error(fmt::format("it has {} elements, its shards {}", tensor.type.count(), elements));
    if (byte_count(tensor.type.dtype, tensor.type.shape) > 0 && !tiling_of(tensor.type.shape, boxes).exact)
        throw Error("its shards overlap");  // and leave a hole elsewhere
}

void check_objects(const Manifest& manifest) {
    std::set<std::string_view> keys;
    for (const ManifestObject& object : manifest.objects) {
        const bool plain = std::all_of(object.key.begin(), object.key.end(), [](unsigned char c) {
            return std::isalnum(c) || c == '.' || c == '-' || c == '_';
        });
        if (!plain || !object.key.starts_with("rank-") || object.key.size() > 200)  // a store would refuse it
            throw Error(quote(object.key) + " cannot be the name of an object");
        const int64_t pieces = object.bytes / manifest.piece_bytes + (object.bytes % manifest.piece_bytes != 0);
        if (static_cast<int64_t>(object.crcs.size()) != pieces)
            throw Error("object " + quote(object.key) + " has the wrong number of checksums");
        if (!keys.insert(object.key).second) throw Error("two objects are called " + quote(object.key));
    }
}

/// Fills what finds things by name and by object.
void arrange(Manifest& manifest) {
    manifest.held.resize(manifest.objects.size());
    const std::vector<ManifestTensor>& tensors = manifest.tensors;
    for (size_t i = 0; i < tensors.size(); ++i) {
        if (!manifest.places.emplace(tensors[i].name, i).second)
            throw Error("two tensors are called " + quote(tensors[i].name));
        for (size_t j = 0; j < tensors[i].shards.size(); ++j)
            manifest.held[static_cast<size_t>(tensors[i].shards[j].object)].emplace_back(i, j);
    }
    const auto key = [&](const std::pair<size_t, size_t>& at) {
        const ManifestShard& shard = tensors[at.first].shards[at.second];
        return std::tuple(shard.begin, shard.box.count() > 0, std::string_view(tensors[at.first].name));
    };
    for (auto& list : manifest.held)
        std::sort(list.begin(), list.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
}

}  // namespace

std::string Manifest::text() const {
    try {
        Json json = json_of(*this);
        json["digest"] = sha256(json.dump());
        return json.dump();
    } catch (const Json::exception& problem) {
        throw Error("the manifest cannot be written: " + reason_of(problem));
    }
}

Manifest Manifest::parse(std::string_view text, const std::string& place) {
    const Origin where{"", place, 0, 0};
    try {
        Json json = parse_json(text, {});
        if (!json.is_object() || !json.contains("format") || json["format"] != format_name)
            throw Error("this is no checkpoint manifest");
        if (const int64_t found = whole_number(json.at("version"), "its version"); found > version)
            throw Error(fmt::format("it has version {}, this is orrery {} which reads up to version {}", found,
                                    ORRERY_VERSION, version));
        const auto digest = json.at("digest").get<std::string>();
        json.erase("digest");
        if (sha256(json.dump()) != digest) throw Error("the manifest is damaged: its contents do not match its digest");
        Manifest manifest;
        manifest.step = whole_number(json.at("step"), "its step");
        if (manifest.step > last_step)
            throw Error(fmt::format("it is of step {}, the last that can be is {}", manifest.step, last_step));
        manifest.mesh = json.at("mesh");
        manifest.host = json.at("host").dump();
        manifest.piece_bytes = whole_number(json.at("piece_bytes"), "piece_bytes");
        if (manifest.piece_bytes < 1) throw Error("piece_bytes must be positive");
        for (const Json& entry : json.at("objects")) manifest.objects.push_back(object_of(entry));
        for (const Json& entry : json.at("tensors")) manifest.tensors.push_back(tensor_of(entry));
        check_objects(manifest);
        for (const ManifestTensor& tensor : manifest.tensors) try {
                check_tensor(manifest, tensor);
            } catch (const Error& problem) {
                throw Error("tensor " + quote(tensor.name) + ": " + problem.what());
            }
        arrange(manifest);
        return manifest;
    } catch (const Error& problem) {
        throw Damaged(where, problem.what());
    } catch (const Json::exception& problem) {
        throw Damaged(where, "the manifest is damaged: " + reason_of(problem));
    }
}

Manifest Manifest::of(CheckpointStore& store, int64_t step) {
    if (step > last_step) throw Damaged(fmt::format("step {}: the last step that can be is {}", step, last_step));
    Manifest manifest = parse(store.manifest(step), fmt::format("step {}, manifest", step));
    if (manifest.step != step)
        throw Damaged(
            fmt::format("step {}: its manifest is of step {}: it was copied or renamed", step, manifest.step));
    return manifest;
}

const ManifestTensor* Manifest::find(std::string_view name) const {
    const auto place = places.find(name);
    return place == places.end() ? nullptr : &tensors[place->second];
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
            throw Damaged(fmt::format("{} {} {} bytes, the manifest says {}{}", name(),
                                      size < object_.bytes ? "is cut short: it has" : "has grown: it has", size,
                                      object_.bytes, of));
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
            fmt::format("{} is damaged between bytes {} and {}: CRC-32C is {:08x}, the manifest says {:08x}{}", name(),
                        begin, begin + bytes, crc, expected, of));
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
        throw Damaged(fmt::format("{} has {} bytes, its header should have {}", name(), object_.bytes, length));
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
        if (key == step_key && text != std::to_string(manifest_.step))
            throw Error(name() + " was written for step " + quote(text));
    std::vector<StoredTensor>& own = header.tensors;
    std::sort(own.begin(), own.end(), [](const StoredTensor& a, const StoredTensor& b) {
        return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    const auto& held = manifest_.held[number_];
    for (size_t i = 0; i < std::min(own.size(), held.size()); ++i) {
        const ManifestTensor& tensor = manifest_.tensors[held[i].first];
        const ManifestShard& shard = tensor.shards[held[i].second];
        const TensorType type{tensor.type.dtype, shard.box.shape};
        if (own[i].name == tensor.name && own[i].type == type && own[i].begin == shard.begin) continue;
        throw Error(fmt::format("{} has {} {} at byte {} by its own header, {} {} at byte {} by the manifest", name(),
                                own[i].name, own[i].type.text(), own[i].begin, tensor.name, type.text(), shard.begin));
    }
    if (own.size() != held.size())
        throw Error(
            fmt::format("{} has {} tensors by its own header, {} by the manifest", name(), own.size(), held.size()));
}

std::string ObjectReader::verify() {
    try {
        Sha256 digest;
        const auto pieces = static_cast<int64_t>(object_.crcs.size());
        for (int64_t piece = 0; piece < pieces; ++piece) {
            load(piece, "");
            digest.update(buffer_);
        }
        if (digest.hex() != object_.sha256) return name() + " is damaged: its SHA-256 is not that of the manifest";
        check_header();
        return "";
    } catch (const Damaged& problem) {
        return problem.what();
    }
}

std::string damage_of(CheckpointStore& store, int64_t step) {
    try {
        const Manifest manifest = Manifest::of(store, step);
        for (size_t i = 0; i < manifest.objects.size(); ++i) {
            std::string problem = ObjectReader(store, manifest, static_cast<int64_t>(i)).verify();
            if (!problem.empty()) return problem;
        }
    } catch (const Damaged& problem) {
        return problem.what();
    }
    return "";
}

}  // namespace orrery

#include "run/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"

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

ManifestTensor tensor_of(const Json& entry) {
    ManifestTensor tensor{entry.at("name"), {}, entry.at("layout"), {}};
    const auto dtype = parse_dtype(entry.at("dtype").get<std::string>());
    if (!dtype) throw Error("tensor " + quote(tensor.name) + " has an unknown dtype");
    tensor.type = {*dtype, entry.at("shape").get<Shape>()};
    for (const Json& shard : entry.at("shards")) {
        tensor.shards.push_back({shard.at("object"), shard.at("begin"), {shard.at("offset"), shard.at("shape")}});
    }
    return tensor;
}

/// What a digest cannot promise: that the numbers fit together.
void check(const Manifest& manifest) {
    for (const ManifestTensor& tensor : manifest.tensors) {
        int64_t held = 0;
        for (const ManifestShard& shard : tensor.shards) {
            const Box all{Shape(tensor.type.shape.size(), 0), tensor.type.shape};
            const bool placed = shard.object >= 0 && shard.object < static_cast<int64_t>(manifest.objects.size()) &&
                                shard.box.offset.size() == all.shape.size() &&
                                shard.box.shape.size() == all.shape.size() &&
                                (shard.box.count() == 0 || intersect(shard.box, all) == shard.box);
            if (!placed) throw Error("tensor " + quote(tensor.name) + " has a shard that lies outside of it");
            const int64_t bytes = shard.box.count() * size_of(tensor.type.dtype);
            if (shard.begin < 0 || bytes > manifest.objects[static_cast<size_t>(shard.object)].bytes - shard.begin)
                throw Error("tensor " + quote(tensor.name) + " has a shard beyond the end of its object");
            held += shard.box.count();
        }
        if (held != tensor.type.count())
            throw Error(
                fmt::format("tensor {} has {} elements, its shards {}", quote(tensor.name), tensor.type.count(), held));
        // With the right number of elements, shards that overlap leave a hole elsewhere.
        for (size_t i = 0; i < tensor.shards.size(); ++i) {
            for (size_t j = 0; j < i; ++j) {
                if (intersect(tensor.shards[i].box, tensor.shards[j].box))
                    throw Error("tensor " + quote(tensor.name) + " has shards that overlap");
            }
        }
    }
    for (const ManifestObject& object : manifest.objects) {
        const int64_t pieces = (object.bytes + manifest.piece_bytes - 1) / manifest.piece_bytes;
        if (object.bytes < 0 || static_cast<int64_t>(object.crcs.size()) != pieces)
            throw Error("object " + quote(object.key) + " has the wrong number of checksums");
    }
}

}  // namespace

std::string Manifest::text() const {
    Json json = json_of(*this);
    json["digest"] = sha256(json.dump());
    return json.dump();
}

Manifest Manifest::parse(std::string_view text, const std::string& place) {
    const Origin where{"", place, 0, 0};
    try {
        Json json = parse_json(text, {});
        if (!json.is_object() || json.value("format", "") != format_name) throw Error("this is no checkpoint manifest");
        if (json.at("version").get<int64_t>() > version)
            throw Error(fmt::format("it has version {}, this is orrery {} which reads up to version {}",
                                    json.at("version").get<int64_t>(), ORRERY_VERSION, version));
        const auto digest = json.at("digest").get<std::string>();
        json.erase("digest");
        if (sha256(json.dump()) != digest) throw Error("the manifest is damaged: its contents do not match its digest");
        Manifest manifest;
        manifest.step = json.at("step");
        manifest.mesh = json.at("mesh");
        manifest.host = json.at("host").dump();
        manifest.piece_bytes = json.at("piece_bytes");
        if (manifest.piece_bytes < 1) throw Error("piece_bytes must be positive");
        for (const Json& entry : json.at("objects")) {
            manifest.objects.push_back({entry.at("key"), entry.at("rank"), entry.at("bytes"), entry.at("sha256"),
                                        entry.at("crc32c").get<std::vector<uint32_t>>()});
        }
        for (const Json& entry : json.at("tensors")) manifest.tensors.push_back(tensor_of(entry));
        check(manifest);
        return manifest;
    } catch (const Error& problem) {
        throw Error(where, problem.what(), Fault::failed);
    } catch (const Json::exception& problem) {
        throw Error(where, std::string("the manifest is damaged: ") + problem.what(), Fault::failed);
    }
}

const ManifestTensor* Manifest::find(std::string_view name) const {
    for (const ManifestTensor& tensor : tensors) {
        if (tensor.name == name) return &tensor;
    }
    return nullptr;
}

ObjectReader::ObjectReader(CheckpointStore& store, const Manifest& manifest, int64_t object)
    : store_(store), manifest_(manifest), object_(manifest.objects.at(static_cast<size_t>(object))) {}

std::string ObjectReader::name() const { return fmt::format("step {}, {}", manifest_.step, object_.key); }

std::string ObjectReader::tensors_in(int64_t begin, int64_t end) const {
    std::vector<std::string> names;
    for (const ManifestTensor& tensor : manifest_.tensors) {
        for (const ManifestShard& shard : tensor.shards) {
            const int64_t shard_end = shard.begin + shard.box.count() * size_of(tensor.type.dtype);
            const bool here = &manifest_.objects[static_cast<size_t>(shard.object)] == &object_;
            if (here && shard.begin < end && shard_end > begin) names.push_back(tensor.name);
        }
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
        if (size < 0) throw Error(name() + " is missing" + of, Fault::failed);
        if (size != object_.bytes)
            throw Error(fmt::format("{} {} {} bytes, the manifest says {}{}", name(),
                                    size < object_.bytes ? "is cut short: it has" : "has grown: it has", size,
                                    object_.bytes, of),
                        Fault::failed);
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
            if (same_place) throw Error(name() + " holds the contents of " + other.key + of, Fault::failed);
        }
        throw Error(fmt::format("{} is damaged between bytes {} and {}: CRC-32C is {:08x}, the manifest says {:08x}{}",
                                name(), begin, begin + bytes, crc, expected, of),
                    Fault::failed);
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

std::string ObjectReader::verify() {
    try {
        Sha256 digest;
        const auto pieces = static_cast<int64_t>(object_.crcs.size());
        for (int64_t piece = 0; piece < pieces; ++piece) {
            load(piece, "");
            digest.update(buffer_);
        }
        if (digest.hex() != object_.sha256) return name() + " is damaged: its SHA-256 is not that of the manifest";
        return "";
    } catch (const Error& problem) {
        return problem.what();
    }
}

}  // namespace orrery

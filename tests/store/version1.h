// Checkpoints as orrery 0.1 wrote them: one text names every object and shard.
#pragma once
#include <map>

#include "base/hash.h"
#include "base/json.h"
#include "run/checkpoint/manifest.h"

namespace orrery {

inline std::string text_of_version_1(const Manifest& manifest) {
    Json objects = Json::array(), tensors = Json::array();
    for (const ManifestObject& object : manifest.objects)
        objects.push_back({{"key", object.key},
                           {"rank", object.rank},
                           {"bytes", object.bytes},
                           {"sha256", object.sha256},
                           {"crc32c", object.crcs}});
    for (const ManifestTensor& tensor : manifest.tensors) {
        Json shards = Json::array();
        for (const ManifestShard& shard : tensor.shards)
            shards.push_back({{"object", shard.object},
                              {"begin", shard.begin},
                              {"offset", shard.box.offset},
                              {"shape", shard.box.shape}});
        tensors.push_back({{"name", tensor.name},
                           {"dtype", name_of(tensor.type.dtype)},
                           {"shape", tensor.type.shape},
                           {"layout", tensor.layout},
                           {"shards", std::move(shards)}});
    }
    Json json = {{"format", "orrery checkpoint"},
                 {"version", 1},
                 {"orrery", "0.1"},
                 {"step", manifest.step},
                 {"mesh", manifest.mesh}};
    json["host"] = parse_json(manifest.host, {});
    json["piece_bytes"] = manifest.piece_bytes;
    json["objects"] = std::move(objects);
    json["tensors"] = std::move(tensors);
    json["digest"] = sha256(json.dump());
    return json.dump();
}

/// A committed step becomes one of version 1, with the same objects.
inline void make_version_1(CheckpointStore& store, int64_t step) {
    const Manifest manifest = Manifest::of(store, step);
    std::map<std::string, std::vector<std::byte>> objects;
    for (const ManifestObject& object : manifest.objects) {
        auto& bytes = objects[object.key];
        bytes.resize(static_cast<size_t>(object.bytes));
        store.get(step, object.key, 0, bytes);
    }
    store.remove(step);
    for (const auto& [key, bytes] : objects) store.put(step, key, bytes);
    store.flush(step);
    store.commit(step, text_of_version_1(manifest));
}

}  // namespace orrery

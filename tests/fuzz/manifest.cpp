// Manifests: run/checkpoint/manifest, tiling, and the reader of objects over a store that holds what is drawn from the
// input. An input is parsed as it is, and with its digest made good: a digest keeps accidents out, not strangers.
#include "run/checkpoint/manifest.h"

#include <cstring>

#include "base/hash.h"
#include "base/json.h"
#include "run/checkpoint/safetensors.h"
#include "run/checkpoint/tiling.h"
#include "target.h"

namespace orrery::fuzz {
namespace {

/// One object under every key: the bytes that the test chose.
struct OneObject final : CheckpointStore {
    std::string bytes, text;
    int64_t of = 0;

    void put(int64_t, std::string_view, std::span<const std::byte>) override {}
    void flush(int64_t) override {}
    void commit(int64_t, std::string_view) override {}
    void discard(int64_t) override {}
    std::vector<int64_t> steps() override { return {of}; }
    std::string manifest(int64_t) override { return text; }
    int64_t size(int64_t, std::string_view) override { return static_cast<int64_t>(bytes.size()); }
    void get(int64_t, std::string_view, int64_t offset, std::span<std::byte> out) override {
        require(offset >= 0 && offset <= static_cast<int64_t>(bytes.size()) &&
                    out.size() <= bytes.size() - static_cast<size_t>(offset),
                "reads stay in the object");
        std::memcpy(out.data(), bytes.data() + offset, out.size());
    }
    void remove(int64_t) override {}
    std::string set_aside(int64_t) override { return ""; }
    void mark(int64_t, std::string_view) override {}
    std::string mark_of(int64_t) override { return ""; }
    std::string place() const override { return "one"; }
};

/// The object that the seeds describe.
std::string object() {
    std::vector<std::byte> bytes(64, std::byte{7});
    const NamedTensor tensors[] = {{"a", {bytes.data(), DType::f32, {2, 4}}}, {"b", {bytes.data(), DType::u8, {3, 1}}}};
    const std::pair<std::string, std::string> step{step_key, "5"};
    const auto start = safetensors_start(tensors, {&step, 1});
    std::string text(reinterpret_cast<const char*>(start.data()), start.size());
    return text + std::string(32 + 3, '\7');
}

std::string signed_text(Json json) {
    json.erase("digest");
    json["digest"] = sha256(json.dump());
    return json.dump();
}

Json shard(int64_t object, int64_t begin, const Shape& offset, const Shape& shape) {
    return {{"object", object}, {"begin", begin}, {"offset", offset}, {"shape", shape}};
}

Json tensor(const char* name, const char* dtype, const Shape& shape, Json shards) {
    return {{"name", name}, {"dtype", dtype}, {"shape", shape}, {"layout", "dp:S(1)"}, {"shards", std::move(shards)}};
}

Json manifest(int64_t piece, Json objects, Json tensors) {
    return {{"format", "orrery checkpoint"},
            {"version", 1},
            {"orrery", "0.1.0"},
            {"step", 5},
            {"mesh", "dp=2"},
            {"host", {{"seed", 1}, {"loss", 2.5}}},
            {"piece_bytes", piece},
            {"objects", std::move(objects)},
            {"tensors", std::move(tensors)}};
}

/// Of version 1, which has all in one text. `a` and `b` lie in halves in two objects of the same bytes.
std::string good(int64_t piece) {
    const std::string bytes = object();
    const auto data = static_cast<int64_t>(bytes.size()) - 35;
    Json objects = Json::array();
    for (const char* key : {"rank-00000-000.safetensors", "rank-00001-000.safetensors"}) {
        std::vector<uint32_t> crcs;
        for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(piece))
            crcs.push_back(crc32c(
                std::as_bytes(std::span(bytes)).subspan(at, std::min(static_cast<size_t>(piece), bytes.size() - at))));
        objects.push_back({{"key", key},
                           {"rank", objects.size()},
                           {"bytes", bytes.size()},
                           {"sha256", sha256(bytes)},
                           {"crc32c", crcs}});
    }
    Json tensors = Json::array();
    tensors.push_back(
        tensor("a", "f32", {2, 8}, Json::array({shard(0, data, {0, 0}, {2, 4}), shard(1, data, {0, 4}, {2, 4})})));
    tensors.push_back(tensor("b", "u8", {3, 2},
                             Json::array({shard(0, data + 32, {0, 0}, {3, 1}), shard(1, data + 32, {0, 1}, {3, 1})})));
    return signed_text(manifest(piece, objects, tensors));
}

void use(const Manifest& manifest, const std::string& text) {
    for (const ManifestTensor& tensor : manifest.tensors) {
        require(manifest.find(tensor.name) == &tensor, "a tensor is found by its name");
        std::vector<Block> boxes;
        int64_t count = 0;
        for (const ManifestShard& shard : tensor.shards) boxes.push_back(shard.box), count += shard.box.count();
        require(!manifest.whole || count == tensor.type.count(), "shards have the elements of their tensor");
    }
    require(manifest.held.size() == manifest.objects.size(), "each object has a list of what it holds");
    OneObject store;
    store.text = text;
    store.of = manifest.step;
    store.bytes = object();
    for (size_t i = 0; i < std::min<size_t>(manifest.objects.size(), 4); ++i) {
        ObjectReader(store, manifest, static_cast<int64_t>(i)).verify();
        for (const auto& [tensor, shard] : manifest.held[i]) {
            const ManifestTensor& of = manifest.tensors[tensor];
            const int64_t bytes = byte_count(of.type.dtype, of.shards[shard].box.shape);
            std::vector<std::byte> out(static_cast<size_t>(std::min<int64_t>(bytes, 1 << 12)));
            try {
                ObjectReader(store, manifest, static_cast<int64_t>(i)).read(of.shards[shard].begin, out, of.name);
            } catch (const Error&) {
            }
        }
    }
    damage_of(store, manifest.step);
}

void parse(const std::string& text) {
    try {
        use(Manifest::parse(text, "input"), text);
    } catch (const Error&) {
    }
}

void run(std::string_view input) {
    parse(std::string(input));
    try {
        const Json json = parse_json(input, {});
        if (json.is_object()) parse(signed_text(json));
    } catch (const Error&) {
    } catch (const Json::exception&) {  // of the library, for a text that is no JSON of ours
    }
}

/// 2^7 boxes of a tensor of 16 dims, and empty ones that cut all dims: a few kB whose corners are many.
std::string deep() {
    constexpr size_t dims = 16, fixed = 7;
    Json shards = Json::array();
    for (size_t i = 0; i < size_t{1} << fixed; ++i) {
        Shape offset(dims, 0), shape(dims, 2);
        for (size_t dim = 0; dim < fixed; ++dim) offset[dim] = static_cast<int64_t>(i >> dim & 1), shape[dim] = 1;
        shards.push_back(shard(0, 0, offset, shape));
    }
    Shape empty(dims, 1);
    empty[0] = 0;
    shards.push_back(shard(0, 0, Shape(dims, 1), empty));
    const Json object = {{"key", "rank-00000-000.safetensors"},
                         {"rank", 0},
                         {"bytes", 1 << 20},
                         {"sha256", std::string(64, '0')},
                         {"crc32c", {0}}};
    return signed_text(
        manifest(int64_t{1} << 40, Json::array({object}), Json::array({tensor("deep", "u8", Shape(dims, 2), shards)})));
}

/// A root of version 2, whose indexes are not there.
std::string root() {
    Json json = manifest(1 << 20, Json::array(), Json::array());
    json.erase("objects");
    json["version"] = 2;
    json["axes"] = Json::array({Json::array({"dp", 2}), Json::array({"pp", 2})});
    json["stage_axis"] = 1;
    json["tensors"] = Json::array();
    json["tensors"].push_back({{"name", "a"}, {"dtype", "f32"}, {"shape", {2, 8}}});
    json["tensors"][0]["splits"] = Json::array({Json::array(), Json::array({0})});
    json["tensors"][0]["stages"] = Json::array({1});
    json["indexes"] =
        Json::array({Json::array({0, 500, std::string(64, '0')}), Json::array({3, 500, std::string(64, '1')})});
    return signed_text(json);
}

std::vector<std::string> seeds() {
    std::vector<std::string> all = {good(1 << 20), good(16), deep(), root()};
    use(Manifest::parse(all[3], "a root"), all[3]);  // throws unless it is good
    use(Manifest::parse(all[1], "a seed"), all[1]);  // throws unless it is good
    OneObject store;
    store.text = all[1];
    store.of = 5;
    store.bytes = object();
    require(damage_of(store, 5).empty(), "the seed is of its object");
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string text = good(1 << 20);
        const size_t at = text.find(from);
        require(at != std::string::npos, "a seed has " + from);
        all.push_back(text.replace(at, from.size(), to));
    };
    with(R"("shape":[2,8])", R"("shape":[1152921504606846976,8])");
    with(R"("piece_bytes":1048576)", R"("piece_bytes":9223372036854775807)");
    with(R"("offset":[0,4])", R"("offset":[0,9223372036854775807])");
    with(R"("version":1)", R"("version":99)");
    with(R"("dtype":"f32")", R"("dtype":"f64")");
    return all;
}

}  // namespace

Target manifest_target() { return {"manifest", run, seeds}; }

}  // namespace orrery::fuzz

// Manifests: run/checkpoint/format/manifest, tiling, and the reader of objects over a store that holds what the input
// says. An input is parsed as it is, and with its digests made good: a digest detects accidents, not forgery.
#include "run/checkpoint/format/manifest.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "base/json.h"
#include "held_store.h"
#include "run/checkpoint/format/rank_index.h"
#include "run/checkpoint/format/safetensors.h"
#include "target.h"

namespace orrery::fuzz {
namespace {

/// The object that the seeds describe.
std::string object() {
    std::vector<std::byte> bytes(64, std::byte{7});
    const NamedTensor tensors[] = {{"a", {bytes.data(), DType::f32, {2, 4}}}, {"b", {bytes.data(), DType::u8, {3, 1}}}};
    const std::pair<std::string, std::string> step{step_key, "5"};
    const auto start = safetensors_start(tensors, {&step, 1});
    std::string text(reinterpret_cast<const char*>(start.data()), start.size());
    return text + std::string(32 + 3, '\7');
}

/// An object with this header, which ends where that of object() does if it can, and as much data as it says, at most
/// some kB.
std::string framed(std::string_view header) {
    static const size_t usual = object().size() - 35 - 8;
    std::string text(header);
    text.resize(std::max(text.size(), usual), ' ');
    const uint64_t length = text.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    bytes += text;
    int64_t data = 0;
    try {
        const Json json = parse_json(header, {});
        for (const auto& [name, entry] : json.items())
            if (entry.is_object() && entry.contains("data_offsets") && entry["data_offsets"].size() == 2)
                data = std::max(data, whole_number(entry["data_offsets"].back(), "an end"));
    } catch (const Error&) {
    } catch (const Json::exception&) {
    }
    return bytes + std::string(static_cast<size_t>(std::min<int64_t>(data, 4096)), '\7');
}

std::string signed_text(Json json) {
    json.erase("digest");
    json["digest"] = sha256(json.dump());
    return json.dump();
}

std::vector<uint32_t> crcs_of(const std::string& bytes, int64_t piece) {
    std::vector<uint32_t> crcs;
    for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(piece))
        crcs.push_back(crc32c(
            std::as_bytes(std::span(bytes).subspan(at, std::min(static_cast<size_t>(piece), bytes.size() - at)))));
    return crcs;
}

/// A root of step 5, and an index of a rank with one object.
Json root_json(int64_t piece, Json axes) {
    return {{"format", "orrery checkpoint"},
            {"version", 2},
            {"orrery", "0.1.0"},
            {"step", 5},
            {"mesh", "dp=2"},
            {"axes", std::move(axes)},
            {"host", {{"seed", 1}, {"loss", 2.5}}},
            {"piece_bytes", piece},
            {"tensors", Json::array()},
            {"indexes", Json::array()}};
}

Json index_json(int64_t rank, int64_t piece, int64_t bytes, const std::vector<uint32_t>& crcs) {
    Json index = {{"format", "orrery checkpoint index"}, {"step", 5}, {"rank", rank}, {"piece_bytes", piece}};
    index["objects"] = Json::array();
    index["objects"].push_back({{"key", RankIndex::key(rank).substr(0, 10) + "-000.safetensors"},
                                {"bytes", bytes},
                                {"sha256", sha256(object())},
                                {"written", 5},
                                {"crc32c", crcs}});
    index["tensors"] = index["shards"] = Json::array();
    return index;
}

/// What is wanted of each tensor: the first half of its first dim.
std::vector<Wanted> halves(const Manifest& manifest) {
    std::vector<Wanted> wanted{{"none of these", {}}};
    for (const ManifestTensor& tensor : manifest.tensors) {
        Block box = whole(tensor.type.shape);
        if (!box.shape.empty()) box.shape[0] = (box.shape[0] + 1) / 2;
        wanted.push_back({tensor.name, box});
    }
    return wanted;
}

void read(HeldStore& store, const Manifest& manifest) {
    require(manifest.held.size() == manifest.objects.size(), "each object has a list of what it holds");
    for (size_t i = 0; i < std::min<size_t>(manifest.objects.size(), 4); ++i) {
        ObjectReader reader(store, manifest, static_cast<int64_t>(i));
        for (const auto& [tensor, shard] : manifest.held[i]) {
            const ManifestTensor& of = manifest.tensors[tensor];
            const int64_t bytes = byte_count(of.type.dtype, of.shards[shard].box.shape);
            std::vector<std::byte> out(static_cast<size_t>(std::min<int64_t>(bytes, 1 << 12)));
            try {
                reader.read(of.shards[shard].begin, out, of.name);
                reader.check_header(of.name);
            } catch (const Error&) {
            }
        }
    }
}

void use(const Manifest& manifest, HeldStore& store) {
    for (const ManifestTensor& tensor : manifest.tensors) {
        require(manifest.find(tensor.name) == &tensor, "a tensor is found by its name");
        require(tensor.shards.empty(), "a root has no shards");
    }
    store.of = manifest.step;
    require(has_step(store, store.of) && !has_step(store, -1), "a store has its step");
    damage_of(store, manifest.step);
    promised("a root that was read can be written", [&] {
        const std::string text = manifest.text();
        require(Manifest::parse(text, "again").text() == text, "what is written reads back");
    });
    Manifest part = manifest;
    part.load(store, halves(manifest));
    read(store, part);
    for (const Manifest all = Manifest::of(store, manifest.step); const ManifestTensor& tensor : all.tensors) {
        int64_t count = 0;
        for (const ManifestShard& shard : tensor.shards) count += shard.box.count();
        require(count == tensor.type.count(), "shards have the elements of their tensor");
    }
}

void parse(const std::string& text, HeldStore& store) {
    try {
        store.text = text;
        use(Manifest::parse(text, "input"), store);
    } catch (const Error&) {
    }
}

/// Digests and sizes of what the store holds, in a list of objects.
void fit(Json& objects, const HeldStore& store, int64_t piece) {
    if (!objects.is_array() || store.any.empty()) return;
    for (Json& object : objects) {
        if (!object.is_object()) continue;
        object["bytes"] = store.any.size();
        object["sha256"] = sha256(store.any);
        object["crc32c"] = crcs_of(store.any, piece);
    }
}

int64_t piece_of(const Json& json) {
    const bool small = json.contains("piece_bytes") && json["piece_bytes"].is_number_unsigned();
    return small ? std::clamp<int64_t>(json["piece_bytes"].get<int64_t>(), 8, 1 << 20) : 1 << 20;
}

/// The first line is a root; then come indexes, and after a '!' the header of every object. All digests are made good.
void bound(std::string_view input, HeldStore& store) {
    std::vector<std::string_view> lines;
    for (size_t at = 0; at < input.size() && lines.size() < 20;) {
        const size_t end = std::min(input.find('\n', at), input.size());
        lines.push_back(input.substr(at, end - at));
        at = end + 1;
    }
    store.any = object();
    bool mended = true;
    for (const std::string_view line : lines)
        if (line.starts_with('!') || line.starts_with('?')) store.any = framed(line.substr(1)), mended = line[0] == '!';
    Json root = parse_json(lines.empty() ? "" : lines[0], {}), indexes = Json::array();
    if (!root.is_object()) return;
    for (size_t i = 1; i < lines.size(); ++i) {
        if (lines[i].starts_with('!') || lines[i].starts_with('?')) continue;
        Json index = parse_json(lines[i], {});
        if (!index.is_object() || !index.contains("rank")) continue;
        if (mended && index.contains("objects")) fit(index["objects"], store, piece_of(index));
        const std::string text = index.dump();
        if (index["rank"].is_number_unsigned())
            store.objects[IndexEntry{index["rank"].get<int64_t>(), 0, ""}.key()] = text;
        indexes.push_back(Json::array({index["rank"], text.size(), sha256(text)}));
    }
    if (!indexes.empty()) root["indexes"] = std::move(indexes);
    parse(signed_text(std::move(root)), store);
}

void run(std::string_view input) {
    HeldStore store;
    store.any = object();
    parse(std::string(input), store);
    try {
        HeldStore other;
        bound(input, other);
    } catch (const Error&) {
    } catch (const Json::exception&) {  // of the library, for a text that is no JSON of ours
    }
}

/// 2^fixed boxes of a tensor of so many dims, and an empty one that cuts all dims: a few kB whose corners are many. Its
/// object is as large as it says.
std::string deep(size_t dims, size_t fixed) {
    Json root = root_json(int64_t{1} << 40, Json::array());
    root["tensors"].push_back(
        {{"name", "deep"}, {"dtype", "u8"}, {"shape", Shape(dims, 2)}, {"splits", Json::array()}});
    Json index = index_json(0, int64_t{1} << 40, 1 << 20, {0});
    index["tensors"].push_back("deep");
    for (size_t i = 0; i < size_t{1} << fixed; ++i) {
        Shape offset(dims, 0), shape(dims, 2);
        for (size_t dim = 0; dim < fixed; ++dim) offset[dim] = static_cast<int64_t>(i >> dim & 1), shape[dim] = 1;
        index["shards"].push_back(Json::array({0, 0, 0, offset, shape}));
    }
    Shape empty(dims, 1);
    empty[0] = 0;
    index["shards"].push_back(Json::array({0, 0, 0, Shape(dims, 1), empty}));
    return signed_text(root) + "\n" + index.dump() + "\n?{}";
}

/// A root with two indexes, on a mesh of two stages: `a` is of the second one and split, `b` of both.
std::string root(int64_t piece = 16) {
    const std::string bytes = object();
    const auto data = static_cast<int64_t>(bytes.size()) - 35;
    Json json = root_json(piece, Json::array({Json::array({"dp", 2}), Json::array({"pp", 2})}));
    json["stage_axis"] = 1;
    json["tensors"].push_back({{"name", "a"}, {"dtype", "f32"}, {"shape", {2, 8}}});
    json["tensors"][0]["splits"] = Json::array({Json::array(), Json::array({0})});
    json["tensors"][0]["stages"] = Json::array({1});
    json["tensors"].push_back({{"name", "b"}, {"dtype", "u8"}, {"shape", {3, 2}}, {"splits", Json::array()}});
    json["indexes"] =
        Json::array({Json::array({1, 500, std::string(64, '0')}), Json::array({3, 500, std::string(64, '1')})});
    std::string text = signed_text(json);
    for (const int64_t rank : {1, 3}) {
        const int64_t half = rank / 2;
        Json index = index_json(rank, piece, static_cast<int64_t>(bytes.size()), crcs_of(bytes, piece));
        index["tensors"] = Json::array({"a", "b"});
        index["shards"].push_back(Json::array({0, 0, data, Shape{0, 4 * half}, Shape{2, 4}}));
        index["shards"].push_back(Json::array({1, 0, data + 32, Shape{0, half}, Shape{3, 1}}));
        text += "\n" + index.dump();
    }
    return text;
}

/// The seeds are as they should be; a manifest that asks for very many corners is refused.
void check_seeds() {
    for (const int64_t piece : {16, 1 << 20}) {
        HeldStore store;
        bound(root(piece), store);
        use(Manifest::parse(store.text, "a seed"), store);
        require(damage_of(store, 5).empty(), "the seed is of its objects");
    }
    HeldStore store;
    bound(deep(16, 7), store);
}

std::vector<std::string> seeds() {
    static const bool checked = (check_seeds(), true);
    require(checked, "seeds are good");
    std::vector<std::string> all = {root(1 << 20), deep(8, 4), root()};
    const auto with = [&](const std::string& seed, const std::string& from, const std::string& to) {
        const size_t at = seed.find(from);
        require(at != std::string::npos, "a seed has what is to be changed");
        all.push_back(std::string(seed).replace(at, from.size(), to));
    };
    for (const auto& [from, to] : std::initializer_list<std::pair<std::string, std::string>>{
             {R"("shape":[2,8])", R"("shape":[1152921504606846976,8])"},
             {R"("piece_bytes":1048576)", R"("piece_bytes":9223372036854775807)"},
             {R"("piece_bytes":1048576)", R"("piece_bytes":0)"},
             {R"(,[0,4],[2,4])", R"(,[0,9223372036854775807],[2,4])"},
             {R"("version":2)", R"("version":99)"},
             {R"("version":2)", R"("version":1)"},
             {R"("name":"b")", R"("name":"a")"},
             {R"("step":5)", R"("step":9223372036854775807)"},
             {R"("dtype":"f32")", R"("dtype":"f64")"},
             {R"("dtype":"f32")", R"("dtype":"f33")"}})
        with(root(1 << 20), from, to);
    for (const auto& [from, to] : std::initializer_list<std::pair<std::string, std::string>>{
             {R"("axes":[["dp",2],["pp",2]])", R"("axes":7)"},
             {R"("axes":[["dp",2],["pp",2]])", R"("axes":[["dp",2],["pp"]])"},
             {R"("axes":[["dp",2],["pp",2]])", R"("axes":[["dp",4294967296],["pp",4294967296]])"},
             {R"("stage_axis":1)", R"("stage_axis":9)"},
             {R"("stage_axis":1,)", ""},
             {R"("splits":[[],[0]])", R"("splits":[[0],[0]])"},
             {R"("splits":[[],[0]])", R"("splits":[[]])"},
             {R"("stages":[1])", R"("stages":[1,0])"},
             {R"("step":5,"rank":3)", R"("step":6,"rank":3)"},
             {R"(],"shards":[[0,0)", R"(,"c"],"shards":[[2,0)"},
             {R"([0,4],[2,4])", R"([0,3],[2,4])"},
             {R"([0,4],[2,4])", R"([0,4],[2,3])"},
             {R"("rank":3)", R"("rank":0)"},
             {R"("rank":3)", R"("rank":4)"}})
        with(root(), from, to);
    for (const char* header :
         {R"({})", R"({"a":)", R"({"a":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]}})",
          R"({"__metadata__":{"step":"5"},"a":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]},)"
          R"("b":{"dtype":"BOOL","shape":[3,1],"data_offsets":[32,35]}})",
          R"({"__metadata__":{"step":"6"}})",
          R"({"__metadata__":{"step":"5"},"a":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]},)"
          R"("b":{"dtype":"U8","shape":[3,1],"data_offsets":[32,35]}})"})
        for (const char* mark : {"\n!", "\n?"}) all.push_back(root() + mark + header);
    return all;
}

std::vector<std::string> words() {
    std::vector<std::string> all = {"\n!{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"};
    for (const char* key : {"step",   "mesh",    "host",  "piece_bytes", "objects", "key",     "bytes",      "sha256",
                            "crc32c", "name",    "dtype", "shape",       "shards",  "axes",    "stage_axis", "splits",
                            "stages", "indexes", "rank",  "written",     "tensors", "version", "digest"})
        all.push_back("\"" + std::string(key) + "\":");
    for (const char* value : {"[0,4]", "[2,4]", "\"f32\"", "\"u8\"", "[],", "[0]", "\"dp\"", "1048576", "4294967296"})
        all.push_back(value);
    return all;
}

}  // namespace

Target manifest_target() { return {"manifest", run, seeds, words}; }

}  // namespace orrery::fuzz

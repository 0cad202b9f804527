// Manifests that are damaged, or signed anew with numbers that do not fit.
#include "run/checkpoint/format/manifest.h"

#include <fmt/format.h>

#include <random>

#include "base/json.h"
#include "damage.h"
#include "run/checkpoint/format/rank_index.h"
#include "run/checkpoint/format/tiling.h"
#include "safetensors_bytes.h"
#include "states.h"

using namespace orrery;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

const CheckpointOptions three{3, 700, 64, true};

/// Steps 1 and 2 of the model, drawn with these seeds.
struct TwoSteps {
    TestStore stores{"posix"};
    Scratch scratch;
    fs::path manifest;

    explicit TwoSteps(const std::string& name) : scratch(name) {
        for (const int step : {1, 2})
            REQUIRE(save(stores, scratch.path, model(dp2), dp2, step, step, three) == quiet(dp2));
        manifest = scratch.path / Damage::name_of(2) / "manifest.json";
    }
    /// Step 1 is used, and what is said of step 2 has all of these parts.
    void refused(const std::vector<std::string>& parts) const {
        const Outcome outcome = restore(stores, scratch.path, model(dp2), dp2);
        CHECK(outcome.problems == quiet(dp2));
        CHECK((outcome.step == 1 && outcome.seed == 1 && outcome.equal));
        REQUIRE(outcome.passed_over.size() == 1);
        const std::string verified = read_back(*stores.open(scratch.path), 2);
        for (const std::string& part : parts) {
            CHECK_THAT(outcome.passed_over[0], Contains(part));
            CHECK_THAT(verified, Contains(part));
        }
        CHECK_THAT(outcome.passed_over[0], !Contains("json.exception"));
    }
};

/// Commits a manifest of one rank, whose objects are put already.
void commit(CheckpointStore& store, Manifest manifest) {
    for (const RankIndex& index : indexes_of(manifest)) manifest.indexes.push_back(put_index(store, index));
    store.commit(manifest.step, manifest.text());
}

}  // namespace

TEST_CASE("a manifest of another step is no manifest of this one") {
    const TwoSteps two("manifest_step");
    SECTION("a copied manifest") {
        Damage::write(two.manifest, Damage::contents(two.scratch.path / Damage::name_of(1) / "manifest.json"));
        two.refused({"step 2: its manifest is for step 1"});
    }
    SECTION("a copied step") {
        fs::remove_all(two.manifest.parent_path());
        fs::copy(two.scratch.path / Damage::name_of(1), two.manifest.parent_path());
        two.refused({"step 2: its manifest is for step 1"});
    }
    SECTION("a copied step, signed anew") {
        fs::remove_all(two.manifest.parent_path());
        fs::copy(two.scratch.path / Damage::name_of(1), two.manifest.parent_path());
        Damage::sign(two.manifest, [](Json& json) { json["step"] = 2; });
        two.refused({"step 2, rank-00000.index.json: it was written for step 1"});
    }
    SECTION("a step that never ends") {
        for (const int64_t last : {INT64_MAX, INT64_MAX - 1, Manifest::last_step + 1}) {
            const fs::path folder = two.scratch.path / Damage::name_of(last);
            fs::copy(two.manifest.parent_path(), folder);
            Damage::sign(folder / "manifest.json", [&](Json& json) { json["step"] = last; });
            const Outcome outcome = restore(two.stores, two.scratch.path, model(dp2), dp2);
            CHECK(outcome.step == 2);
            REQUIRE(outcome.passed_over.size() == 1);
            CHECK_THAT(outcome.passed_over[0], Contains("the maximum step is 1000000000000"));
            fs::remove_all(folder);
        }
    }
    SECTION("a step is not retired for a copy of it") {
        fs::copy(two.scratch.path / Damage::name_of(1), two.scratch.path / Damage::name_of(3));
        CHECK(save(two.stores, two.scratch.path, model(dp2), dp2, 4, 4) == quiet(dp2));
        CHECK(two.stores.open(two.scratch.path)->steps() == std::vector<int64_t>{4, 3, 2});
    }
}

TEST_CASE("a manifest with a byte that is not UTF-8 is named and an older checkpoint is used") {
    const TwoSteps two("manifest_utf8");
    const std::string good = Damage::contents(two.manifest);
    for (size_t at = 0; at < good.size(); at += 97) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ 0x80);
        Damage::write(two.manifest, bad);
        INFO("byte " << at);
        two.refused({"step 2, manifest: not valid json: byte 0x", fmt::format(" at offset {} is not UTF-8", at)});
    }
}

TEST_CASE("text of the host that is not UTF-8 does not end a save or a start without a name") {
    const TestStore stores("posix");
    const Scratch scratch("manifest_l\xe4tin");
    auto odd = model(dp2);
    odd[3].name = "st\xff";
    CHECK_THAT(save(stores, scratch.path, odd, dp2, 1, 1)[0],
               Contains("cannot be saved: byte 0xff at offset 2 is not UTF-8") && !Contains("json.exception"));
    REQUIRE(save(stores, scratch.path, model(dp2), dp2, 1, 1) == quiet(dp2));
    CHECK_THAT(save(stores, scratch.path, model(dp2), dp2, 1, 1)[0], Contains("it already exists"));
    fs::remove(scratch.path / Damage::name_of(1) / "rank-00000-000.safetensors");
    CHECK_THAT(restore(stores, scratch.path, model(dp2), dp2).problems[0],
               Contains("rank-00000-000.safetensors is missing") && Contains("--fresh"));
}

TEST_CASE("a step of version 1 is refused with the commit that reads it") {
    const TwoSteps two("manifest_version");
    Damage::sign(two.manifest, [](Json& json) { json["version"] = 1; });
    two.refused({"step 2, manifest: unsupported version 1: this orrery no longer reads it, commit 5b67068 does"});
}

TEST_CASE("an index that was signed anew is held against the root, and the headers of its objects") {
    const TwoSteps two("index_signed");
    const auto sign = [&](auto edit) { Damage::sign_index(two.manifest, 0, edit); };
    const auto sign_root = [&](auto edit) { Damage::sign(two.manifest, edit); };
    const std::string index = "step 2, rank-00000.index.json";
    SECTION("a shifted begin") {
        sign([](Json& json) { json["shards"][0][2] = json["shards"][0][2].get<int64_t>() - 4; });
        two.refused({"step 2, rank-00000-000.safetensors does not match the manifest: its header has "});
    }
    SECTION("another name") {
        sign_root([](Json& json) { json["tensors"][2]["name"] = "norm.h"; });
        two.refused({index, "tensor \"norm.g\" is not in the manifest"});
    }
    SECTION("another dtype of that size") {
        sign_root([](Json& json) { json["tensors"][2]["dtype"] = "i32"; });
        two.refused({"its header has norm.g f32[12] at byte ", ", the manifest norm.g i32[12] at byte "});
    }
    SECTION("a transposed shape") {
        sign_root([](Json& json) { json["tensors"][0]["shape"] = {24, 12}; });
        sign([](Json& json) {
            for (Json& shard : json["shards"])
                if (json["tensors"][shard[0].get<size_t>()] == "up.w") shard[4] = {24, 12};
        });
        two.refused({"its header has up.w f32[12,24] at byte ", ", the manifest up.w f32[24,12] at byte "});
    }
    SECTION("a tensor less") {
        sign_root([](Json& json) { json["tensors"].erase(3); });
        two.refused({index, "tensor \"step\" is not in the manifest"});
    }
    SECTION("a step that is no integer") {
        sign_root([](Json& json) { json["step"] = 2.5; });
        two.refused({"its step is 2.5, expected an integer that is not negative"});
    }
    SECTION("pieces of 2^62 bytes") {
        sign([](Json& json) { json["piece_bytes"] = int64_t{1} << 62; });
        two.refused({index, "has the wrong number of checksums"});
    }
    SECTION("an object twice") {
        sign([](Json& json) { json["objects"].push_back(json["objects"][0]); });
        two.refused({index, "two objects are called \"rank-00000-000.safetensors\""});
    }
    SECTION("a shape whose size wraps") {
        sign_root([](Json& json) {
            json["tensors"][3]["shape"] = {3, 11, 1117984489315730401};
            json["tensors"][3]["splits"] = Json::array();
        });
        two.refused({"tensor \"step\": ", "has more bytes than 64 bits can count"});
    }
    SECTION("2^60 elements") {
        sign_root([](Json& json) { json["tensors"][2]["shape"] = {int64_t{1} << 60}; });
        two.refused({"tensor \"norm.g\": ", "elements"});
    }
    SECTION("a shard outside of its tensor") {
        sign([](Json& json) { json["shards"][0][3][0] = 1000; });
        two.refused({index, "it has a shard outside the tensor"});
    }
    SECTION("a shard beyond its object") {
        sign([](Json& json) { json["shards"][0][2] = INT64_MAX; });
        two.refused({index, "it has a shard beyond the end of its object"});
    }
    SECTION("a shard twice") {
        sign([](Json& json) { json["shards"].push_back(json["shards"][0]); });
        two.refused({"step 2", "tensor ", "elements"});
    }
    SECTION("a shard less") {
        sign([](Json& json) { json["shards"].erase(0); });
        two.refused({"step 2", "tensor ", "elements"});
    }
    SECTION("a shard of no object, or of no tensor") {
        const size_t at = GENERATE(size_t{0}, size_t{1});
        sign([&](Json& json) { json["shards"][0][at] = 1000; });
        two.refused({index, "a shard of it refers to tensor"});
    }
    SECTION("an object of another rank") {
        sign([](Json& json) { json["objects"][0]["key"] = "rank-00001-000.safetensors"; });
        two.refused({index, "object \"rank-00001-000.safetensors\" is not from rank 0"});
    }
    SECTION("an object outside of the step") {
        sign([](Json& json) { json["objects"][0]["key"] = "../step-00000001/rank-00000-000.safetensors"; });
        two.refused({index, "cannot be the name of an object"});
    }
    SECTION("an object of a later step") {
        sign([](Json& json) { json["objects"][0]["written"] = 3; });
        two.refused({index, "is from step 3, later than the index's step"});
    }
    SECTION("an object of an earlier step") {
        sign([](Json& json) { json["objects"][0]["written"] = 1; });
        two.refused({"rank-00000-000.safetensors was written for step \"2\""});
    }
    SECTION("swapped indexes") {
        const fs::path folder = two.manifest.parent_path();
        fs::rename(folder / "rank-00000.index.json", folder / "x");
        fs::rename(folder / "rank-00001.index.json", folder / "rank-00000.index.json");
        fs::rename(folder / "x", folder / "rank-00001.index.json");
        const bool same =
            fs::file_size(folder / "rank-00000.index.json") == fs::file_size(folder / "rank-00001.index.json");
        two.refused({index, same ? "holds the contents of rank-00001.index.json" : "the manifest says"});
    }
    SECTION("an index of another rank, signed") {
        sign_root([](Json& json) { json["indexes"][0][0] = 1, json["indexes"].erase(1); });
        two.refused({"step 2"});
    }
    SECTION("a missing index") {
        fs::remove(two.manifest.parent_path() / "rank-00000.index.json");
        two.refused({index + " is missing"});
    }
    SECTION("an index that is not named") {
        sign_root([](Json& json) { json["indexes"].erase(0); });
        two.refused({"step 2", "tensor ", "elements"});
    }
    SECTION("an index of 2^60 bytes") {
        sign_root([](Json& json) { json["indexes"][0][1] = int64_t{1} << 60; });
        two.refused({"rank-00000.index.json has 1152921504606846976 bytes, more than the maximum of an index"});
    }
    SECTION("more ranks than there can be") {
        sign_root([](Json& json) {
            json["axes"] = Json::array({Json::array({"dp", int64_t{1} << 40}), Json::array({"tp", int64_t{1} << 40})});
        });
        two.refused({"its mesh has more ranks than the maximum"});
    }
    SECTION("a split over an axis that is not there, or twice") {
        const Json splits = GENERATE(Json{{0}, {0}}, Json{{7}, Json::array()}, Json{{0, 0}, Json::array()});
        sign_root([&](Json& json) { json["tensors"][1]["splits"] = splits; });
        two.refused({"tensor \"down.w\": invalid split over axis"});
    }
    SECTION("stages that are none") {
        sign_root([](Json& json) { json["tensors"][1]["stages"] = {0, 1}; });
        two.refused({"tensor \"down.w\": it lists pipeline stages, but the mesh has no pipeline axis"});
    }
    SECTION("a tensor of a thousand dims") {
        sign_root([](Json& json) { json["tensors"][2]["shape"] = std::vector<int>(1000, 1); });
        two.refused({"tensor \"norm.g\": its shape has 1000 dims, the maximum is 32"});
    }
    SECTION("a million shards") {
        const fs::path path = two.manifest.parent_path() / "rank-00000.index.json";
        std::string text = Damage::contents(path), many;
        for (int i = 0; i < 1'000'000; ++i) many += "[0,0,0,[0,0],[1,1]],";
        text.insert(text.find("\"shards\":[") + 10, many);
        Damage::write(path, text);
        Damage::sign(two.manifest, [&](Json& json) {
            json["indexes"][0] = Json::array({0, text.size(), sha256(text)});
        });
        two.refused({"step 2", "tensor ", "elements"});
    }
    SECTION("an index that is no index") {
        const Json other = GENERATE(Json(), Json::array(), Json(3), Json{{"format", "orrery checkpoint"}});
        sign([&](Json& json) { json = other; });
        two.refused({index, "it is not an index of a checkpoint"});
    }
    SECTION("anything at all") {
        std::mt19937 random(5);
        const Json values{nullptr, -1, 2.5, "x", Json::array(), Json::object(), INT64_MAX, UINT64_MAX};
        const std::string good = Damage::contents(two.manifest.parent_path() / "rank-00000.index.json");
        for (const char* key : {"format", "step", "rank", "piece_bytes", "objects", "tensors", "shards"})
            for (const Json& value : values) {
                Damage::write(two.manifest.parent_path() / "rank-00000.index.json", good);
                sign([&](Json& json) { json[key] = value; });
                INFO(key << " " << value);
                two.refused({"step 2"});
            }
    }
}

TEST_CASE("shapes whose size is beyond 64 bits are refused") {
    CHECK(count_of({int64_t{1} << 31, int64_t{1} << 31}) == int64_t{1} << 62);
    CHECK_THROWS_WITH(count_of({int64_t{1} << 32, int64_t{1} << 32}), Contains("[4294967296,4294967296]"));
    CHECK_THROWS_WITH((TensorType{DType::f32, {int64_t{1} << 62}}.bytes()), Contains("more bytes than 64 bits"));
}

TEST_CASE("boxes tile a tensor or do not, whatever their order") {
    const Shape shape{4, 6, 5};
    std::mt19937 random(3);
    const auto draw = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random); };
    int tiled = 0;
    for (int trial = 0; trial < 2000; ++trial) {
        std::vector<Block> boxes{{{0, 0, 0}, shape}};
        for (int64_t cuts = draw(6); cuts-- > 0;) {  // cuts a box in two
            Block& box = boxes[static_cast<size_t>(draw(static_cast<int64_t>(boxes.size()) - 1))];
            const auto dim = static_cast<size_t>(draw(2));
            if (box.shape[dim] < 2) continue;
            Block rest = box;
            box.shape[dim] = 1 + draw(box.shape[dim] - 2);
            rest.offset[dim] += box.shape[dim];
            rest.shape[dim] -= box.shape[dim];
            boxes.push_back(rest);
        }
        if (draw(1) == 1) {  // then moves one, or another size, inside of the tensor
            Block& box = boxes[static_cast<size_t>(draw(static_cast<int64_t>(boxes.size()) - 1))];
            const auto dim = static_cast<size_t>(draw(2));
            box.offset[dim] = draw(shape[dim] - 1);
            box.shape[dim] = std::min(box.shape[dim], shape[dim] - box.offset[dim]);
        }
        std::shuffle(boxes.begin(), boxes.end(), random);
        std::vector<int> over(static_cast<size_t>(count_of(shape)), 0);
        for (const Block& box : boxes)
            for (int64_t i = 0; i < box.count(); ++i) {
                const int64_t z = i % box.shape[2], y = i / box.shape[2] % box.shape[1],
                              x = i / box.shape[2] / box.shape[1];
                ++over[static_cast<size_t>(((x + box.offset[0]) * 6 + y + box.offset[1]) * 5 + z + box.offset[2])];
            }
        const bool once = std::all_of(over.begin(), over.end(), [](int count) { return count == 1; });
        tiled += once;
        if (tiling_of(shape, boxes).exact != once) FAIL_CHECK("trial " << trial);
    }
    CHECK(tiled > 500);
    CHECK(tiled < 1900);
    CHECK(tiling_of({0, 3}, std::vector<Block>{}).exact);
    CHECK_FALSE(tiling_of({2, 3}, std::vector<Block>{}).exact);
    CHECK_THROWS_WITH(tiling_of(Shape(40, 2), std::vector<Block>{{Shape(40, 0), Shape(40, 1)}}), Contains("40 dims"));
}

TEST_CASE("a manifest of 100,000 shards is looked at in far fewer than all pairs") {
    constexpr int64_t shards = 100'000;
    std::vector<Block> line, grid;
    for (int64_t i = 0; i < shards; ++i) {
        line.push_back({{i}, {1}});
        grid.push_back({{i / 100, i % 100}, {1, 1}});
    }
    const Tiling of_line = tiling_of({shards}, line), of_grid = tiling_of({shards / 100, 100}, grid);
    CHECK((of_line.exact && of_grid.exact));
    CHECK(of_line.visited == 2 * (shards + 1));
    CHECK(of_grid.visited == 4 * (shards + 1));
    Manifest manifest;
    manifest.step = 7, manifest.host = "{}", manifest.piece_bytes = 64;
    const std::vector<uint32_t> crcs(static_cast<size_t>(shards / 16));
    manifest.objects.push_back({"rank-00000-a", 0, shards * 4, "", crcs, 7});
    ManifestTensor& tensor = manifest.tensors.emplace_back(ManifestTensor{"w", {DType::f32, {shards}}});
    for (int64_t i = 0; i < shards; ++i) tensor.shards.push_back({0, i * 4, {{i}, {1}}});
    const TestStore stores("memory");
    const auto store = stores.open("grid");
    commit(*store, manifest);
    CHECK(Manifest::of(*store, 7).held[0].size() == shards);  // would take minutes by pairs
}

TEST_CASE("as many objects and names as shards are found by their places") {
    constexpr int64_t count = 20'000;
    const TestStore stores("memory");
    const auto store = stores.open("many");
    Manifest manifest;
    manifest.step = 1, manifest.host = "{}", manifest.piece_bytes = 1 << 20;
    const float value = 1;
    for (int64_t i = 0; i < count; ++i) {
        const std::string name = "w" + std::to_string(i), key = "rank-00000-" + std::to_string(i);
        const std::vector<std::byte> bytes =
            safetensors_bytes(std::vector<NamedTensor>{{name, {const_cast<float*>(&value), DType::f32, {}}}});
        store->put(1, key, bytes);
        const auto size = static_cast<int64_t>(bytes.size());
        manifest.objects.push_back({key, 0, size, sha256(bytes), {crc32c(bytes)}, 1});
        manifest.tensors.push_back({name, {DType::f32, {}}, {{i, size - 4, {{}, {}}}}});
    }
    commit(*store, manifest);
    CHECK(read_back(*store, 1) == "");
    // One object of 100,000 names: a minute where a parser looks at all of them for each.
    std::vector<NamedTensor> names;
    for (int64_t i = 0; i < 100'000; ++i)
        names.push_back({"w" + std::to_string(i), {const_cast<float*>(&value), DType::f32, {}}});
    const std::vector<std::byte> bytes = safetensors_bytes(names);
    CHECK(parse_safetensors(bytes, static_cast<int64_t>(bytes.size()), "a").tensors.size() == 100'000);
}

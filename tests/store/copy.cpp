// Copies of steps between stores and meshes.
#include "run/checkpoint/retain/copy.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "forwarding_store.h"
#include "run/checkpoint/format/manifest.h"
#include "states.h"

namespace orrery {
namespace {

using Catch::Contains;

/// Saves of `mesh` into a posix store, which are good.
std::unique_ptr<CheckpointStore> saved(const TestStore& stores, const Scratch& scratch, const Mesh& mesh) {
    for (const int64_t step : {1, 2})
        REQUIRE(save(stores, scratch.path, model(mesh), mesh, step, static_cast<int>(step)) ==
                std::vector<std::string>(static_cast<size_t>(mesh.ranks())));
    return stores.open(scratch.path);
}

/// A job beside a copy: removes the step before the `at`-th object of it is read, or its mark (-1).
struct Retiring final : test::ForwardingStore {
    Retiring(std::unique_ptr<CheckpointStore> inner, int at) : ForwardingStore(std::move(inner)), at(at) {}

    int at, reads = 0, marks = 0;

    void get(int64_t step, std::string_view key, int64_t offset, std::span<std::byte> bytes) override {
        if (key.ends_with(".safetensors") && ++reads == at) inner_->remove(step);
        inner_->get(step, key, offset, bytes);
    }
    std::string note(int64_t step, StepNote which) override {
        if (++marks == 2 && at < 0) inner_->remove(step);
        return inner_->note(step, which);
    }
};

CopyOptions for_mesh(const Mesh& mesh) {
    CopyOptions options;
    options.mesh = mesh;
    options.object_bytes = 700;
    options.piece_bytes = 64;
    return options;
}

}  // namespace

TEST_CASE("a copy of a step is the same bytes in any store", "[checkpoint][copy]") {
    const std::string kind = GENERATE("posix", "memory");
    const TestStore posix("posix"), stores(kind);
    const Scratch scratch("copy_from"), to("copy_to");
    const auto from = saved(posix, scratch, dp2tp2);
    const auto there = stores.open(to.path);
    const bool same_mesh_named = GENERATE(false, true);
    const StepCopy looked = copy_step(*from, 2, *there, {.only_look = true});
    CHECK(there->steps().empty());
    const StepCopy copy = copy_step(*from, 2, *there, same_mesh_named ? for_mesh(dp2tp2) : CopyOptions{});
    CHECK(there->steps() == std::vector<int64_t>{2});
    CHECK_FALSE(copy.resharded);
    CHECK(copy.bytes == looked.bytes);
    CHECK(copy.objects == looked.objects);
    CHECK(there->manifest(2) == from->manifest(2));
    const Manifest manifest = Manifest::of(*from, 2);
    for (const ManifestObject& object : manifest.objects)
        CHECK(text_at(*there, 2, object.key, 0, static_cast<size_t>(object.bytes)) ==
              text_at(*from, 2, object.key, 0, static_cast<size_t>(object.bytes)));
    CHECK_THROWS_WITH(copy_step(*from, 2, *there, {}), Contains("step 2 already exists in"));
    from->mark(1, "the loss of step 2 is nan");
    copy_step(*from, 1, *there, {});
    CHECK(there->mark_of(1) == "the loss of step 2 is nan");
}

TEST_CASE("a copy for another mesh has each block once and restores anywhere", "[checkpoint][copy]") {
    const Mesh source = std::vector<Mesh>{single, dp2, tp3, dp2tp2}.at(GENERATE(0u, 1u, 2u, 3u));
    const Mesh target = std::vector<Mesh>{single, dp2, tp3, dp2tp2}.at(GENERATE(0u, 1u, 2u, 3u));
    if (source == target) return;
    const TestStore posix("posix");
    const Scratch scratch("copy_from"), to("copy_to");
    const auto from = saved(posix, scratch, source);
    const auto there = posix.open(to.path);
    const StepCopy copy = copy_step(*from, 2, *there, for_mesh(target));
    CHECK(copy.resharded);
    const Manifest manifest = Manifest::of(*there, 2);
    CHECK(manifest.mesh == target.text());
    CHECK(manifest.host == Manifest::of(*from, 2).host);
    for (const ManifestObject& object : manifest.objects) {
        CHECK(object.rank < target.ranks());
        CHECK(object.bytes < 700 + 12 * 24 * 4 + 1000);  // bounded by an object and its largest block
    }
    for (const ManifestTensor& tensor : manifest.tensors)
        for (const ManifestShard& shard : tensor.shards)
            CHECK(shard.box.shape == layout_on(tensor.splits, manifest.axes, tensor.type.shape, target)
                                         .local_shape(tensor.type.shape, target));
    for (const Mesh& mesh : {target, source}) {
        const Outcome outcome = restore(posix, to.path, model(mesh), mesh);
        CHECK(outcome.step == 2);
        CHECK(outcome.seed == 2);
        CHECK(outcome.equal);
    }
}

TEST_CASE("a tensor keeps the splits that the other mesh has", "[checkpoint][copy]") {
    const AxisId dp = *dp2tp2.find("dp"), tp = *dp2tp2.find("tp");
    const auto on = [&](std::vector<std::pair<AxisId, int>> splits, int64_t rows, const Mesh& mesh) {
        Layout split(2);
        for (const auto& [axis, dim] : splits) split.set(axis, Placement::split(dim));
        return layout_on(split, dp2tp2, {rows, 24}, mesh).text(mesh);
    };
    CHECK(on({{dp, 0}, {tp, 1}}, 12, dp2tp2) == "dp:S(0) tp:S(1)");
    CHECK(on({{tp, 1}}, 12, dp2tp2) == "dp:R tp:S(1)");
    CHECK(on({{tp, 0}, {dp, 0}}, 12, dp2tp2) == "tp:S(0) dp:S(0)");
    CHECK(on({{tp, 0}}, 13, tp3) == "tp:R");  // 3 does not divide it
    CHECK(on({{dp, 0}, {tp, 1}}, 12, single) == Layout(2).text(single));
}

TEST_CASE("what cannot be copied leaves nothing", "[checkpoint][copy]") {
    const TestStore posix("posix");
    const Scratch scratch("copy_from"), to("copy_to");
    const auto from = saved(posix, scratch, dp2);
    const auto there = posix.open(to.path);
    const CopyOptions options = GENERATE(0, 1) ? for_mesh(dp2tp2) : CopyOptions{};
    const auto object = scratch.path / "step-00000002" / "rank-00000-000.safetensors";
    std::string expected;
    SECTION("a flipped byte") {
        std::fstream file(object, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(-3, std::ios::end);
        file.put('\x5a');
        expected = "step 2, rank-00000-000.safetensors is damaged between bytes ";
    }
    SECTION("a missing object") {
        std::filesystem::remove(object);
        expected = "step 2, rank-00000-000.safetensors is missing";
    }
    SECTION("a step that is not there") {
        std::filesystem::remove_all(object.parent_path());
        expected = "step 2 is not committed";
    }
    CHECK_THROWS_WITH(copy_step(*from, 2, *there, options), Contains(expected));
    CHECK(there->steps().empty());
    CHECK((!std::filesystem::exists(to.path) || std::filesystem::is_empty(to.path)));
}

TEST_CASE("a step that a job removes while it is copied is not damaged", "[checkpoint][copy]") {
    const TestStore posix("posix");
    const Scratch scratch("copy_from"), to("copy_to");
    saved(posix, scratch, dp2)->mark(2, "the loss of step 3 is nan");
    const auto there = posix.open(to.path);
    const CopyOptions options = GENERATE(0, 1) ? for_mesh(dp2tp2) : CopyOptions{};
    const int at = GENERATE(1, 3, -1);
    Retiring from(posix.open(scratch.path), at);
    if (at < 0) {  // it has been copied by then
        copy_step(from, 2, *there, options);
        CHECK(there->mark_of(2) == "the loss of step 3 is nan");
    } else {
        CHECK_THROWS_WITH(copy_step(from, 2, *there, options),
                          Contains("step 2 in " + from.place() + " was removed before it was copied"));
        CHECK(there->steps().empty());
    }
    CHECK(from.steps() == std::vector<int64_t>{1});
}

}  // namespace orrery

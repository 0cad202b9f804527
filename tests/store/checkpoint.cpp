// Checkpoints of ranks that are threads: any layout to any layout, and no damage that goes unnamed.
#include <cstring>
#include <fstream>
#include <random>

#include "compile/passes/loss_scale.h"
#include "forwarding_store.h"
#include "run/checkpoint/format/manifest.h"
#include "states.h"

using namespace orrery;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

/// Changes a file in place.
template <class Edit>
void edit(const fs::path& path, Edit change) {
    std::ifstream in(path, std::ios::binary);
    REQUIRE(in);
    std::string bytes((std::istreambuf_iterator<char>(in)), {});
    change(bytes);
    std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("state moves from any mesh and layout to any other, bit for bit") {
    const std::vector<Mesh> meshes{single, dp2, tp3, dp2tp2, Mesh({{"tp", 2, false}, {"dp", 3, false}})};
    const auto kind = GENERATE(as<std::string>(), "memory", "posix");
    const TestStore stores(kind);
    const Scratch scratch("checkpoint_reshard");
    for (const Mesh& from : meshes) {
        const std::string place = scratch.path / ("of " + from.text());
        REQUIRE(save(stores, place, model(from), from, 10, 3) == quiet(from));
        for (const Mesh& to : meshes) {
            INFO(kind << ": from " << from.text() << " to " << to.text());
            const Outcome outcome = restore(stores, place, model(to), to);
            CHECK(outcome.problems == quiet(to));
            CHECK(outcome.step == 10);
            CHECK(outcome.equal);
        }
    }
}

TEST_CASE("state moves between random layouts") {
    const TestStore stores("memory");
    std::mt19937 random(7);
    const auto draw = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
    for (int trial = 0; trial < 40; ++trial) {
        std::vector<Mesh> meshes;
        std::vector<Variable> sides[2];
        for (int side = 0; side < 2; ++side) {
            std::vector<Axis> axes;
            for (int i = draw(0, 2); i-- > 0;) axes.push_back({std::string(1, char('a' + i)), draw(1, 3), false});
            meshes.emplace_back(axes);
        }
        for (int i = 0; i < 4; ++i) {
            const auto dims = static_cast<size_t>(draw(0, 3));
            TensorType type{
                std::vector{DType::f32, DType::bf16, DType::u8, DType::i64}[static_cast<size_t>(draw(0, 3))], {}};
            for (size_t dim = 0; dim < dims; ++dim) type.shape.push_back(36 * draw(1, 2));
            for (int side = 0; side < 2; ++side) {
                Layout layout(dims);
                for (size_t axis = 0; axis < meshes[static_cast<size_t>(side)].axes().size(); ++axis) {
                    if (dims > 0 && draw(0, 2) > 0)
                        layout.set(static_cast<AxisId>(axis), Placement::split(draw(0, static_cast<int>(dims) - 1)));
                }
                sides[side].push_back({"v" + std::to_string(i), type, layout});
            }
        }
        const std::string place = "trial" + std::to_string(trial);
        INFO(place << ": from " << meshes[0].text() << " to " << meshes[1].text());
        REQUIRE(save(stores, place, sides[0], meshes[0], 1, trial) == quiet(meshes[0]));
        const Outcome outcome = restore(stores, place, sides[1], meshes[1]);
        CHECK(outcome.problems == quiet(meshes[1]));
        CHECK(outcome.equal);
    }
}

TEST_CASE("each distinct shard is written once, and a small one is not split") {
    const TestStore stores("memory");
    REQUIRE(save(stores, "once", model(dp2tp2), dp2tp2, 5, 1) == quiet(dp2tp2));
    const auto store = stores.open("once");
    const Manifest manifest = Manifest::of(*store, 5);
    std::map<std::string, size_t> shards;
    int64_t bytes = 0;
    for (const ManifestTensor& tensor : manifest.tensors) {
        shards[tensor.name] = tensor.shards.size();
        for (const ManifestShard& shard : tensor.shards) bytes += shard.box.count() * size_of(tensor.type.dtype);
    }
    CHECK(shards == std::map<std::string, size_t>{{"up.w", 2}, {"down.w", 4}, {"norm.g", 1}, {"step", 1}});
    CHECK(bytes == 12 * 24 * 4 + 24 * 12 * 2 + 12 * 4 + 8);
    CHECK(manifest.tensors[0].splits.text(manifest.axes) == "dp:R tp:S(1)");
    for (const ManifestShard& shard : manifest.tensors[0].shards)
        CHECK(manifest.objects[static_cast<size_t>(shard.object)].rank < 2);
}

TEST_CASE("at least two checkpoints stay, and damaged ones do not count") {
    const TestStore stores("posix");
    const Scratch scratch("checkpoint_keep");
    for (const int64_t step : {1, 2, 3}) REQUIRE(save(stores, scratch.path, model(dp2), dp2, step, 1) == quiet(dp2));
    const auto store = stores.open(scratch.path);
    CHECK(store->steps() == std::vector<int64_t>{3, 2});
    edit(scratch.path / "step-00000003" / "rank-00000-000.safetensors", [](std::string& bytes) { bytes[400] ^= 4; });
    REQUIRE(save(stores, scratch.path, model(dp2), dp2, 4, 1) == quiet(dp2));
    CHECK(store->steps() == std::vector<int64_t>{4, 3, 2});
    CHECK_THROWS_WITH(Checkpoints(*store, single, 0, nullptr, {1}), Contains("expected at least 2"));
}

TEST_CASE("damage is named and an older checkpoint is used") {
    const Mesh to = std::vector<Mesh>{dp2tp2, single, tp3}.at(GENERATE(0u, 1u, 2u));
    const TestStore stores("posix");
    const Scratch scratch("checkpoint_damage");
    REQUIRE(save(stores, scratch.path, model(dp2tp2), dp2tp2, 1, 1) == quiet(dp2tp2));
    REQUIRE(save(stores, scratch.path, model(dp2tp2), dp2tp2, 2, 2) == quiet(dp2tp2));
    const fs::path folder = scratch.path / "step-00000002";
    std::string expected;
    SECTION("a flipped byte") {
        edit(folder / "rank-00001-000.safetensors", [](std::string& bytes) { bytes[bytes.size() - 3] ^= 1; });
        expected = "step 2, rank-00001-000.safetensors is damaged between bytes ";
    }
    SECTION("a truncated shard") {
        edit(folder / "rank-00001-000.safetensors", [](std::string& bytes) { bytes.pop_back(); });
        expected = "step 2, rank-00001-000.safetensors is truncated: it has ";
    }
    SECTION("a missing shard") {
        fs::remove(folder / "rank-00002-000.safetensors");
        expected = "step 2, rank-00002-000.safetensors is missing (tensor down.w)";
    }
    SECTION("swapped shards") {
        fs::rename(folder / "rank-00002-000.safetensors", folder / "x");
        fs::rename(folder / "rank-00003-000.safetensors", folder / "rank-00002-000.safetensors");
        fs::rename(folder / "x", folder / "rank-00003-000.safetensors");
        expected =
            "step 2, rank-00002-000.safetensors holds the contents of rank-00003-000.safetensors (tensor down.w)";
    }
    SECTION("a flipped byte of the manifest") {
        edit(folder / "manifest.json", [](std::string& bytes) { bytes[bytes.find("up.w")] = 'U'; });
        expected = "step 2, manifest: the manifest is damaged: its contents do not match its digest";
    }
    SECTION("an empty manifest") {
        edit(folder / "manifest.json", [](std::string& bytes) { bytes.clear(); });
        expected = "step 2, manifest: not valid json";
    }
    const auto store = stores.open(scratch.path);
    CHECK_THAT(read_back(*store, 2), !Catch::Matchers::Equals(""));
    CHECK(read_back(*store, 1) == "");
    const Outcome outcome = restore(stores, scratch.path, model(to), to);
    CHECK(outcome.problems == quiet(to));
    CHECK(outcome.step == 1);
    CHECK(outcome.equal);
    REQUIRE(outcome.passed_over.size() == 1);
    CHECK_THAT(outcome.passed_over[0], Contains(expected));

    // The run goes on from the older one, and writes the damaged step anew.
    CHECK(save(stores, scratch.path, model(to), to, 2, 9) == quiet(to));
    CHECK(restore(stores, scratch.path, model(to), to).step == 2);
    CHECK_THAT(save(stores, scratch.path, model(to), to, 2, 9)[0], Contains("it already exists"));
}

TEST_CASE("a byte flipped anywhere is found") {
    const TestStore stores("posix");
    const Scratch scratch("checkpoint_flip");
    REQUIRE(save(stores, scratch.path, model(dp2), dp2, 1, 1) == quiet(dp2));
    const auto store = stores.open(scratch.path);
    int flips = 0;
    for (const auto& file : fs::directory_iterator(scratch.path / "step-00000001")) {
        if (file.file_size() == 0) continue;
        for (size_t at = 0; at < file.file_size(); at += 13, ++flips) {
            edit(file.path(), [&](std::string& bytes) { bytes[at] ^= 32; });
            if (read_back(*store, 1).empty()) FAIL_CHECK(file.path() << " byte " << at);
            edit(file.path(), [&](std::string& bytes) { bytes[at] ^= 32; });
        }
    }
    CHECK(flips > 100);
    CHECK(read_back(*store, 1) == "");
}

TEST_CASE("a step that was just saved is not saved again") {
    const TestStore stores("memory");
    const auto problems = on_ranks(dp2, [&](int64_t rank, const Gather& gather) {
        const auto store = stores.open("twice");
        const RankState state(model(dp2), dp2, rank, 1, true);
        Checkpoints checkpoints(*store, dp2, rank, gather, small);
        checkpoints.save(1, state.values, R"({"seed":1})");
        checkpoints.save(1, state.values, R"({"seed":1})");
        checkpoints.save(2, state.values, R"({"seed":1})");
    });
    CHECK(problems == quiet(dp2));
    CHECK(stores.open("twice")->steps() == std::vector<int64_t>{2, 1});
}

TEST_CASE("when every checkpoint is damaged the run does not start anew in silence") {
    const TestStore stores("posix");
    const Scratch scratch("checkpoint_all");
    CHECK(restore(stores, scratch.path, model(dp2), dp2).step == -1);  // none at all: a fresh start
    REQUIRE(save(stores, scratch.path, model(dp2), dp2, 1, 1) == quiet(dp2));
    fs::remove(scratch.path / "step-00000001" / "rank-00000-000.safetensors");
    const Outcome outcome = restore(stores, scratch.path, model(dp2), dp2);
    for (const std::string& problem : outcome.problems) CHECK_THAT(problem, Contains("every checkpoint in"));
}

TEST_CASE("what stands where a step goes does not block it, and is kept") {
    const TestStore stores("posix");
    const Scratch scratch("checkpoint_blocked");
    const fs::path folder = scratch.path / "step-00000002";
    REQUIRE(save(stores, scratch.path, model(dp2), dp2, 1, 1) == quiet(dp2));
    REQUIRE(save(stores, scratch.path, model(dp2), dp2, 2, 2) == quiet(dp2));
    std::string said;
    SECTION("no manifest") {
        fs::remove(folder / "manifest.json");
        said = "passed over: step-00000002 has no manifest.json";
    }
    SECTION("a file") {
        fs::remove_all(folder);
        std::ofstream(folder) << "notes";
        said = "passed over: step-00000002 is no folder";
    }
    SECTION("a link") {
        fs::remove_all(folder);
        fs::create_directory_symlink("step-00000001", folder);
        said = "passed over: step-00000002 is a symbolic link, which is not followed";
    }
    SECTION("neither manifest nor marker") {
        fs::remove(folder / "manifest.json");
        fs::remove(folder / ".orrery-checkpoint");
        said = "passed over: step-00000002 has no manifest.json";
    }
    const Outcome outcome = restore(stores, scratch.path, model(dp2), dp2);
    CHECK((outcome.step == 1 && outcome.equal));
    CHECK(outcome.notes == std::vector<std::string>{said});
    CHECK(save(stores, scratch.path, model(dp2), dp2, 2, 9) == quiet(dp2));
    CHECK(restore(stores, scratch.path, model(dp2), dp2).step == 2);
    CHECK(fs::symlink_status(folder.string() + ".aside-1").type() != fs::file_type::not_found);
    fs::remove_all(scratch.path / "step-00000001");
    fs::remove(folder / "manifest.json");  // nothing is sound any more
    const Outcome none = restore(stores, scratch.path, model(dp2), dp2);
    for (const std::string& problem : none.problems)
        CHECK_THAT(problem, Contains("step-00000002 has no manifest.json") && Contains("--fresh"));
}

TEST_CASE("a step without its marker is used, and never removed") {
    const TestStore stores("posix");
    const Scratch scratch("checkpoint_marker");
    REQUIRE(save(stores, scratch.path, model(dp2), dp2, 1, 1) == quiet(dp2));
    fs::remove(scratch.path / "step-00000001" / ".orrery-checkpoint");
    const Outcome outcome = restore(stores, scratch.path, model(dp2), dp2);
    CHECK((outcome.step == 1 && outcome.equal));
    REQUIRE(outcome.notes.size() == 1);
    CHECK_THAT(outcome.notes[0], Contains("has no file .orrery-checkpoint, so it is read but never removed"));
    for (const int64_t step : {2, 3, 4}) REQUIRE(save(stores, scratch.path, model(dp2), dp2, step, 1) == quiet(dp2));
    CHECK(stores.open(scratch.path)->steps() == std::vector<int64_t>{4, 3, 1});
}

TEST_CASE("a step that is marked as suspect is passed over and kept") {
    const TestStore stores(GENERATE(as<std::string>(), "posix", "memory"));
    const Scratch scratch("checkpoint_suspect");
    for (const int step : {1, 2, 3})
        REQUIRE(save(stores, scratch.path, model(dp2), dp2, step, step) == quiet(dp2));  // keeps 3 and 2
    const auto store = stores.open(scratch.path);
    store->mark(3, "the loss of step 4 is inf");
    const Outcome outcome = restore(stores, scratch.path, model(dp2), dp2);
    CHECK((outcome.step == 2 && outcome.equal));
    CHECK(outcome.passed_over ==
          std::vector<std::string>{
              "suspect, an older checkpoint is used: step 3 is marked: \"the loss of step 4 is inf\""});

    SECTION("retiring keeps one that is not suspect, and every suspect until two good ones are after it") {
        for (const int step : {4, 5, 6, 7}) {
            REQUIRE(save(stores, scratch.path, model(dp2), dp2, step, step) == quiet(dp2));
            store->mark(step, "the loss is inf");
        }
        CHECK(store->steps() == std::vector<int64_t>{7, 6, 5, 4, 3, 2});
        CHECK(restore(stores, scratch.path, model(dp2), dp2).step == 2);
        REQUIRE(save(stores, scratch.path, model(dp2), dp2, 8, 8) == quiet(dp2));
        CHECK(store->steps() == std::vector<int64_t>{8, 7, 6, 5, 4, 3, 2});
        for (const int step : {9, 10}) REQUIRE(save(stores, scratch.path, model(dp2), dp2, step, step) == quiet(dp2));
        CHECK(store->steps() == std::vector<int64_t>{10, 9});
    }
    SECTION("one whose mark is taken off is as any other") {
        store->unmark(3);
        CHECK(restore(stores, scratch.path, model(dp2), dp2).step == 3);
    }
    SECTION("its place can be taken, and it is kept") {
        REQUIRE(save(stores, scratch.path, model(dp2), dp2, 3, 9) == quiet(dp2));
        CHECK(store->mark_of(3) == "");
        CHECK(restore(stores, scratch.path, model(dp2), dp2).seed == 9);
        if (stores.name == "posix") CHECK(fs::exists(scratch.path / "step-00000003.aside-1" / "suspect.txt"));
    }
    SECTION("when there is no other the start is refused") {
        store->mark(2, "the loss of step 3 is nan");
        const Outcome none = restore(stores, scratch.path, model(dp2), dp2);
        for (const std::string& problem : none.problems)
            CHECK_THAT(problem, Contains("can be used") && Contains("step 3 is marked") &&
                                    Contains("step 2 is marked") && Contains("--fresh") &&
                                    Contains("`orrery checkpoints unmark`"));
    }
}

TEST_CASE("a checkpoint of another program is refused by name") {
    const TestStore stores("memory");
    REQUIRE(save(stores, "other", model(dp2), dp2, 1, 1) == quiet(dp2));
    auto wider = model(dp2), more = model(dp2), fewer = model(dp2);
    wider[0].type.shape = {12, 48};
    more.push_back({"up.v", {DType::f32, {2}}, Layout(1)});
    fewer.pop_back();
    CHECK_THAT(restore(stores, "other", wider, dp2).problems[1],
               Contains("its tensor \"up.w\" is f32[12,24], the program's is f32[12,48]"));
    CHECK_THAT(restore(stores, "other", more, dp2).problems[0],
               Contains("it has no tensor \"up.v\"") && Contains("did you mean \"up.w\"?"));
    CHECK_THAT(restore(stores, "other", fewer, dp2).problems[0], Contains("the program does not have: step"));
    const Outcome part = restore(stores, "other", fewer, dp2, true);
    CHECK(part.problems == quiet(dp2));
    CHECK(part.equal);
}

TEST_CASE("a checkpoint and a program need not both have a loss scale") {
    const TestStore stores("memory");
    auto scaled = model(dp2);
    for (const std::string_view name : loss_scale_states)
        scaled.push_back({std::string(name), {DType::f32, {}}, Layout(0)});
    REQUIRE(save(stores, "plain", model(dp2), dp2, 1, 1) == quiet(dp2));
    REQUIRE(save(stores, "scaled", scaled, dp2, 1, 1) == quiet(dp2));
    // The states are dropped.
    const Outcome dropped = restore(stores, "scaled", model(dp2), dp2);
    CHECK(dropped.problems == quiet(dp2));
    CHECK(dropped.equal);
    // Only states that may be absent are left as they are.
    CHECK_THAT(restore(stores, "plain", scaled, dp2).problems[0], Contains("it has no tensor \"loss_scale\""));
    const auto problems = on_ranks(dp2, [&](int64_t rank, const Gather& gather) {
        const auto store = stores.open("plain");
        RankState state(scaled, dp2, rank, 0, false);
        const size_t params = model(dp2).size();
        for (size_t i = params; i < scaled.size(); ++i) state.values[i].absent_ok = true;
        const auto restored = Checkpoints(*store, dp2, rank, gather, small).restore(state.values);
        bool good = restored && !restored->loss_scale;
        for (size_t i = 0; i < scaled.size(); ++i) {
            const auto before = std::vector<uint8_t>(state.memory[i].size(), 0xee);
            good = good && state.memory[i] == (i < params ? RankState::expected(scaled[i], dp2, rank, 1) : before);
        }
        if (!good) throw Error("restored otherwise");
    });
    CHECK(problems == quiet(dp2));
    // One of the three alone is not a loss scale.
    scaled.pop_back();
    REQUIRE(save(stores, "part", scaled, dp2, 1, 1) == quiet(dp2));
    CHECK_THAT(restore(stores, "part", model(dp2), dp2).problems[0], Contains("the program does not have: loss_scale"));
}

TEST_CASE("replicas that differ are named and nothing is committed") {
    const TestStore stores("memory");
    const auto problems = on_ranks(Mesh({{"dp", 3, false}}), [&](int64_t rank, const Gather& gather) {
        const Mesh mesh({{"dp", 3, false}});
        const auto store = stores.open("vote");
        RankState state(model(mesh), mesh, rank, 1, true);
        if (rank == 1) state.memory[2][40] ^= 1;
        Checkpoints(*store, mesh, rank, gather, small).save(1, state.values, "{}");
    });
    for (const std::string& problem : problems)
        CHECK_THAT(problem, Contains("replicas of norm.g differ: ranks 0, 2 against rank 1") &&
                                Contains("earlier checkpoints are unchanged"));
    CHECK(stores.open("vote")->steps().empty());
}

namespace {
/// A store that fails, or loses a byte, in one call.
class Faulty final : public test::ForwardingStore {
public:
    Faulty(std::unique_ptr<CheckpointStore> inner, std::string fails)
        : ForwardingStore(std::move(inner)), fails_(std::move(fails)) {}
    StoreContract contract() const override { return {}; }  // all is put
    void put(int64_t step, std::string_view key, std::span<const std::byte> bytes) override {
        fail("put");
        std::vector<std::byte> copy(bytes.begin(), bytes.end());
        if (fails_.starts_with("lose")) copy[copy.size() / 2] ^= std::byte{1};
        inner_->put(step, key, copy);
    }
    void flush(int64_t step) override { fail("flush"), inner_->flush(step); }
    void commit(int64_t step, std::string_view text) override {
        fail("commit");
        inner_->commit(step, text);
        fail("after commit");
    }
    std::string manifest(int64_t step) override { return fail("manifest"), inner_->manifest(step); }
    void get(int64_t step, std::string_view key, int64_t offset, std::span<std::byte> out) override {
        fail("get"), inner_->get(step, key, offset, out);
    }
    void remove(int64_t step) override {
        if (fails_ == "lose and keep") throw Error("the disk is read-only", Fault::failed);
        inner_->remove(step);
    }

private:
    void fail(const std::string& call) const {
        if (fails_ == "memory" && call == "get") throw std::bad_alloc();
        if (call == fails_) throw Error("no space left on device", Fault::failed);
    }
    std::string fails_;
};

/// Keeps the verdict of a save that throws.
struct LastVerdict {
    const Checkpoints& checkpoints;
    CommitVerdict& verdict;
    ~LastVerdict() { verdict = checkpoints.verdict(); }
};
}  // namespace

TEST_CASE("a store that fails on one rank fails the save on all, and earlier checkpoints stay") {
    const TestStore stores("memory");
    for (const std::string& call : std::vector<std::string>{"put", "flush", "commit", "manifest", "get", "lose"}) {
        for (const int64_t bad : {0, 1}) {
            if (bad == 1 && (call == "commit" || call == "manifest")) continue;  // rank 0's calls
            const std::string place = call + std::to_string(bad);
            INFO(place);
            REQUIRE(save(stores, place, model(tp3), tp3, 1, 1) == quiet(tp3));
            std::vector<CommitVerdict> verdicts(3);
            const auto problems = on_ranks(tp3, [&](int64_t rank, const Gather& gather) {
                Faulty store(stores.open(place), rank == bad ? call : "");
                const RankState state(model(tp3), tp3, rank, 2, true);
                Checkpoints checkpoints(store, tp3, rank, gather, small);
                const LastVerdict last{checkpoints, verdicts[static_cast<size_t>(rank)]};
                checkpoints.save(2, state.values, "{}");
            });
            const CommitVerdict& verdict = verdicts[0];
            CHECK((verdict == verdicts[1] && verdict == verdicts[2]));
            CHECK(verdict.end == (call == "put" || call == "flush" ? CommitEnd::unwritten
                                  : call == "commit"               ? CommitEnd::unpublished
                                                                   : CommitEnd::unread));
            CHECK((verdict.step == 2 && verdict.rank == bad && verdict.left == CommitVerdict::Left::nothing));
            if (call == "lose") CHECK(verdict.object == "rank-0000" + std::to_string(bad) + ".index.json");
            for (const std::string& problem : problems) {
                CHECK_THAT(problem, Contains("checkpoint of step 2 in " + place));
                CHECK_THAT(problem, Contains(" rank " + std::to_string(bad) + ":"));
                CHECK_THAT(problem, Contains(call == "lose" ? "is damaged" : "no space left on device"));
            }
            CHECK(stores.open(place)->steps() == std::vector<int64_t>{1});
            CHECK(restore(stores, place, model(dp2), dp2).equal);
            CHECK(save(stores, place, model(tp3), tp3, 2, 3) == quiet(tp3));
        }
    }
}

TEST_CASE("a failed save says what it has left", "[checkpoint]") {
    const TestStore stores("memory");
    for (const std::string how : {"after commit", "lose and keep"}) {
        REQUIRE(save(stores, how, model(dp2), dp2, 1, 1) == quiet(dp2));
        const auto problems = on_ranks(dp2, [&](int64_t rank, const Gather& gather) {
            Faulty store(stores.open(how), rank == 0 ? how : "");
            const RankState state(model(dp2), dp2, rank, 2, true);
            Checkpoints(store, dp2, rank, gather, small).save(2, state.values, "{}");
        });
        for (const std::string& problem : problems) {
            CHECK_THAT(problem, Contains(how == "after commit" ? "the step is there all the same"
                                                               : "could not be removed (the disk is read-only)"));
            CHECK_THAT(problem, !Contains("it was removed") && Contains("earlier"));
        }
        CHECK(stores.open(how)->steps() == std::vector<int64_t>{2, 1});
    }
}

TEST_CASE("shards that leave a hole are found before older steps go", "[checkpoint]") {
    const int64_t ranks = GENERATE(4, 300);
    const Mesh mesh({{"dp", ranks, false}});
    const std::vector<Variable> variables{{"w", {DType::u8, {1024 * ranks}}, Layout(1)}};
    const TestStore stores("memory");
    for (const int64_t step : {1, 2}) REQUIRE(save(stores, "hole", variables, mesh, step, 1) == quiet(mesh));
    // The first and the last rank split by halves of their number, all others by it: as many bytes as there are, the
    // second part twice, the last one by nobody.
    const auto problems = on_ranks(mesh, [&](int64_t rank, const Gather& gather) {
        const auto store = stores.open("hole");
        const RankState state(variables, mesh, rank, 1, true);
        CheckpointOptions options = small;
        options.share_bytes = rank == 0 || rank == ranks - 1 ? 2048 : 1024;
        Checkpoints(*store, mesh, rank, gather, options).save(3, state.values, R"({"seed":1})");
    });
    for (const std::string& problem : problems)
        REQUIRE_THAT(problem, Contains("failed verification on rank 0: the written files do not cover all values: "
                                       "step 3, indexes: tensor \"w\": its shards overlap") &&
                                  Contains("it was removed"));
    CHECK(stores.open("hole")->steps() == std::vector<int64_t>{2, 1});
}

TEST_CASE("a step whose object was damaged before it could be linked counts no more", "[checkpoint]") {
    const TestStore stores("posix");
    const Scratch scratch("checkpoint_doubt");
    auto variables = model(single);
    variables[0].fixed = true;
    const auto store = stores.open(scratch.path);
    const auto problems = on_ranks(single, [&](int64_t rank, const Gather& gather) {
        const RankState state(variables, single, rank, 1, true);
        Checkpoints checkpoints(*store, single, rank, gather, small);
        for (const int64_t step : {1, 2}) checkpoints.save(step, state.values, R"({"seed":1})");
        const fs::path object = scratch.path / "step-00000002" / "rank-00000-000.safetensors";
        fs::copy_file(object, scratch.path / "copy");  // a file of its own: that of step 1 stays as it is
        fs::remove(object);
        fs::rename(scratch.path / "copy", object);
        edit(object, [](std::string& bytes) { bytes.back() ^= 1; });
        checkpoints.save(3, state.values, R"({"seed":1})");
    });
    CHECK(problems == quiet(single));
    CHECK(store->steps() == std::vector<int64_t>{3, 2, 1});  // 3 and 1 are the two that are good
    CHECK(read_back(*store, 3) == "");
    CHECK(read_back(*store, 1) == "");
}

TEST_CASE("a store that cannot be read on one rank ends the start on all, and no older checkpoint is used") {
    const TestStore stores("memory");
    for (const int step : {1, 2}) REQUIRE(save(stores, "unread", model(dp2), dp2, step, step) == quiet(dp2));
    for (const std::string& call : std::vector<std::string>{"manifest", "get", "memory"}) {
        const auto problems = on_ranks(dp2, [&](int64_t rank, const Gather& gather) {
            Faulty store(stores.open("unread"), rank == 1 ? call : "");
            RankState state(model(dp2), dp2, rank, 0, false);
            Checkpoints(store, dp2, rank, gather, small).restore(state.values);
        });
        for (const std::string& problem : problems)
            CHECK_THAT(problem, Contains("cannot restore step 2 from unread: rank 1: ") &&
                                    Contains(call == "memory" ? "out of memory" : "no space left on device") &&
                                    Contains("start again"));
    }
    CHECK(restore(stores, "unread", model(dp2), dp2).step == 2);
    // Nor is a sound step moved out of the way for it.
    const auto problems = on_ranks(dp2, [&](int64_t rank, const Gather& gather) {
        Faulty store(stores.open("unread"), rank == 0 ? "get" : "");
        const RankState state(model(dp2), dp2, rank, 3, true);
        Checkpoints(store, dp2, rank, gather, small).save(2, state.values, "{}");
    });
    for (const std::string& problem : problems)
        CHECK_THAT(problem, Contains("checkpoint of step 2 in unread failed on rank 0: no space left on device"));
    CHECK(stores.open("unread")->steps() == std::vector<int64_t>{2, 1});
}

TEST_CASE("stages of a pipeline hold different values") {
    const Mesh mesh({{"pp", 2, false}, {"dp", 2, false}});
    const TestStore stores("memory");
    const auto part = [&](int64_t rank) {
        auto all = model(mesh);
        all[0].stages = {0}, all[1].stages = {1};
        all.erase(all.begin() + (rank < 2 ? 1 : 0));  // the last two are on both stages
        return all;
    };
    CheckpointOptions options = small;
    options.stage_axis = 0;
    const auto problems = on_ranks(mesh, [&](int64_t rank, const Gather& gather) {
        const auto store = stores.open("stages");
        const RankState state(part(rank), mesh, rank, 1, true);
        Checkpoints(*store, mesh, rank, gather, options).save(1, state.values, R"({"seed":1})");
    });
    CHECK(problems == quiet(mesh));
    const Outcome outcome = restore(stores, "stages", model(tp3), tp3);
    CHECK(outcome.problems == quiet(tp3));
    CHECK(outcome.equal);

    // Who holds what is said by the layout and the stages; a rank that holds other values is named.
    const auto untold = on_ranks(mesh, [&](int64_t rank, const Gather& gather) {
        auto variables = part(rank);
        for (Variable& variable : variables) variable.stages.clear();
        const auto store = stores.open("untold");
        const RankState state(variables, mesh, rank, 1, true);
        Checkpoints(*store, mesh, rank, gather, options).save(1, state.values, "{}");
    });
    for (const std::string& problem : untold)
        CHECK_THAT(problem, Contains("is saved by 1 pipeline stages, expected 2"));
    const auto flat = on_ranks(mesh, [&](int64_t rank, const Gather& gather) {
        const auto store = stores.open("flat");
        const RankState state(rank < 3 ? model(mesh) : part(rank), mesh, rank, 1, true);
        Checkpoints(*store, mesh, rank, gather, small).save(1, state.values, "{}");
    });
    for (const std::string& problem : flat)
        CHECK_THAT(problem, Contains("on rank 3:") || Contains("differs between rank 3 and rank"));
}

// Who writes what: equal parts of what is replicated, each element once; and what does not change is linked.
#include "run/checkpoint/format/shares.h"

#include <fmt/format.h>

#include <atomic>
#include <fstream>

#include <numeric>
#include <random>

#include "forwarding_store.h"
#include "run/checkpoint/format/manifest.h"
#include "run/checkpoint/format/tiling.h"
#include "states.h"

using namespace orrery;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

/// Values without memory: shares look at no byte.
std::vector<StateValue> values_of(const std::vector<Variable>& variables, const Mesh& mesh, int64_t rank,
                                  AxisId stages) {
    std::vector<StateValue> state;
    for (const Variable& variable : variables) {
        const int64_t stage = stages == none ? 0 : mesh.coordinates(rank)[static_cast<size_t>(stages)];
        const bool here = variable.stages.empty() ||
                          std::find(variable.stages.begin(), variable.stages.end(), stage) != variable.stages.end();
        if (here)
            state.push_back({variable.name,
                             variable.type,
                             variable.layout,
                             {nullptr, variable.type.dtype, variable.layout.local_shape(variable.type.shape, mesh)},
                             variable.stages,
                             variable.fixed});
    }
    return state;
}

struct Spread {
    std::vector<int64_t> bytes;                        ///< by rank
    std::map<std::string, std::vector<Block>> blocks;  ///< of all ranks

    Spread(const std::vector<Variable>& variables, const Mesh& mesh, AxisId stages = none, int64_t least = 4096)
        : bytes(static_cast<size_t>(mesh.ranks())) {
        for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
            const auto state = values_of(variables, mesh, rank, stages);
            const auto shares = shares_of(state, mesh, rank, stages, least);
            for (size_t i = 0; i < state.size(); ++i)
                for (const Block& block : shares[i].blocks) {
                    bytes[static_cast<size_t>(rank)] += block.count() * size_of(state[i].global.dtype);
                    blocks[state[i].name].push_back(block);
                }
        }
    }
    bool exact(const std::vector<Variable>& variables) const {
        for (const Variable& variable : variables) {
            const auto found = blocks.find(variable.name);
            const std::vector<Block> all = found == blocks.end() ? std::vector<Block>{} : found->second;
            if (variable.type.count() > 0 && !tiling_of(variable.type.shape, all).exact) return false;
        }
        return true;
    }
    double largest_to_mean() const {
        const double sum = static_cast<double>(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}));
        return static_cast<double>(*std::max_element(bytes.begin(), bytes.end())) * static_cast<double>(bytes.size()) /
               sum;
    }
};

/// A GPT of so many layers with the states of adamw: replicated over dp, split over tp, of stages of pp.
std::vector<Variable> gpt(const Mesh& mesh, int64_t layers, int64_t width, int64_t vocab) {
    const int64_t stages = mesh.size("pp");
    std::vector<Variable> all;
    const auto add = [&](const std::string& name, const Shape& shape, int tp, int64_t layer) {
        for (const char* what : {"", ".m", ".v"}) {
            all.push_back({name + what,
                           {DType::f32, shape},
                           layout_of(mesh,
                                     tp < 0 ? std::vector<std::pair<std::string, int>>{}
                                            : std::vector<std::pair<std::string, int>>{{"tp", tp}},
                                     shape.size())});
            if (stages > 1) all.back().stages = {layer * stages / layers};
        }
    };
    add("embed", {vocab, width}, 0, 0);
    for (int64_t layer = 0; layer < layers; ++layer) {
        const std::string name = fmt::format("layers.{}.", layer);
        add(name + "qkv", {width, 3 * width}, 1, layer);
        add(name + "out", {width, width}, 0, layer);
        add(name + "up", {width, 4 * width}, 1, layer);
        add(name + "down", {4 * width, width}, 0, layer);
        add(name + "norm", {width}, -1, layer);
        add(name + "bias", {width}, -1, layer);
    }
    return all;
}

}  // namespace

TEST_CASE("shares are equal and cover every element once") {
    const Mesh dp4({{"dp", 4, false}}), all({{"pp", 2, false}, {"dp", 4, false}, {"tp", 2, false}});
    for (const auto& [layers, width, vocab] : {std::array<int64_t, 3>{2, 32, 96}, {4, 128, 1000}, {12, 768, 50257}}) {
        const auto flat = gpt(dp4, layers, width, vocab);
        const Spread spread(flat, dp4);
        CHECK(spread.exact(flat));
        INFO(
            fmt::format("{} layers of {}: the largest is {:.3f} of the mean", layers, width, spread.largest_to_mean()));
        CHECK(spread.largest_to_mean() <= 1.1);
    }
    const auto staged = gpt(all, 4, 128, 1024);
    const Spread spread(staged, all, 0);
    CHECK(spread.exact(staged));
    // The stages differ by the embedding; within each the parts are equal.
    for (size_t stage = 0; stage < 2; ++stage) {
        const auto [least, most] = std::minmax_element(spread.bytes.begin() + static_cast<int64_t>(stage) * 8,
                                                       spread.bytes.begin() + static_cast<int64_t>(stage + 1) * 8);
        CHECK(static_cast<double>(*most) <= 1.1 * static_cast<double>(*least));
    }
}

TEST_CASE("one tensor that is larger than a part is cut within its rows") {
    const Mesh dp4({{"dp", 4, false}});
    for (const Shape& shape : {Shape{1, 1000, 7, 11}, Shape{3, 1000, 77}, Shape{1, 1, 1'000'003}, Shape{5, 7}}) {
        const std::vector<Variable> one{{"w", {DType::f32, shape}, Layout(shape.size())}};
        const Spread spread(one, dp4, none, 4);
        CHECK(spread.exact(one));
        CHECK(spread.largest_to_mean() <= 1.1);
        CHECK(spread.blocks.at("w").size() <= 4 * (2 * shape.size() + 1));
    }
}

TEST_CASE("shares of random layouts cover every element once") {
    std::mt19937 random(11);
    const auto draw = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
    for (int trial = 0; trial < 300; ++trial) {
        const Mesh mesh({{"pp", draw(1, 3), false}, {"dp", draw(1, 4), false}, {"tp", draw(1, 3), false}});
        std::vector<Variable> variables;
        for (int i = draw(1, 8); i-- > 0;) {
            Variable one{"v" + std::to_string(i), {i % 2 ? DType::f32 : DType::bf16, {}}, {}};
            for (int dim = draw(0, 3); dim-- > 0;) one.type.shape.push_back(draw(0, 9) == 0 ? 0 : 72 * draw(1, 2));
            one.layout = Layout(one.type.shape.size());
            for (AxisId axis = 1; axis < 3; ++axis)
                if (!one.type.shape.empty() && draw(0, 2) > 0)
                    one.layout.set(axis, Placement::split(draw(0, static_cast<int>(one.type.shape.size()) - 1)));
            for (int64_t stage = 0; stage < mesh.size("pp"); ++stage)
                if (draw(0, 1) == 0) one.stages.push_back(stage);
            variables.push_back(one);
        }
        if (!Spread(variables, mesh, 0, draw(0, 1) ? 1 : 5000).exact(variables)) FAIL_CHECK("trial " << trial);
    }
}

TEST_CASE("what is split over its holders is saved and restored, each byte once") {
    CheckpointOptions fine = small;
    fine.share_bytes = 1;
    const TestStore stores(GENERATE(as<std::string>(), "memory", "posix"));
    const Scratch scratch("shares_saved");
    REQUIRE(save(stores, scratch.path, model(dp2tp2), dp2tp2, 1, 4, fine) == quiet(dp2tp2));
    const auto store = stores.open(scratch.path);
    CHECK(read_back(*store, 1) == "");
    const Manifest manifest = Manifest::of(*store, 1);
    int64_t bytes = 0, parts = 0;
    for (const ManifestTensor& tensor : manifest.tensors)
        for (const ManifestShard& shard : tensor.shards)
            bytes += shard.box.count() * size_of(tensor.type.dtype), ++parts;
    CHECK(bytes == 12 * 24 * 4 + 24 * 12 * 2 + 12 * 4 + 8);
    CHECK(parts > 8);
    for (const Mesh& to : {single, dp2, tp3, dp2tp2}) {
        const Outcome outcome = restore(stores, scratch.path, model(to), to);
        CHECK(outcome.problems == quiet(to));
        CHECK((outcome.step == 1 && outcome.equal));
    }
}

TEST_CASE("two parts of a tensor in one object, and a tensor that is called like the second") {
    CheckpointOptions fine = small;
    fine.share_bytes = 1;
    const std::vector<Variable> odd{{"w", {DType::f32, {3, 50, 7}}, Layout(3)}, {"w#1", {DType::f32, {40}}, Layout(1)}};
    const TestStore stores("memory");
    REQUIRE(save(stores, "odd", odd, dp2, 1, 3, fine) == quiet(dp2));
    CHECK(read_back(*stores.open("odd"), 1) == "");
    CHECK(restore(stores, "odd", odd, tp3).equal);
}

namespace {

/// Bytes that are put, not linked.
class Counting final : public test::ForwardingStore {
public:
    explicit Counting(std::unique_ptr<CheckpointStore> inner, bool links = true)
        : ForwardingStore(std::move(inner)), links_(links) {}
    int64_t put_bytes = 0, linked = 0;
    StoreContract contract() const override {
        StoreContract contract = inner_->contract();
        contract.links = contract.links && links_;
        return contract;
    }
    void put(int64_t step, std::string_view key, std::span<const std::byte> bytes) override {
        put_bytes += static_cast<int64_t>(bytes.size());
        inner_->put(step, key, bytes);
    }
    void link(int64_t step, std::string_view key, int64_t from, std::string_view from_key) override {
        ++linked;
        inner_->link(step, key, from, from_key);
    }

private:
    bool links_;
};

constexpr int64_t frozen_rows = 150;

/// 90 % of the params are fixed, and have no states.
std::vector<Variable> frozen() {
    std::vector<Variable> all;
    for (int i = 0; i < 9; ++i)
        all.push_back({"fixed" + std::to_string(i), {DType::f32, {frozen_rows, 100}}, Layout(2), {}, true});
    for (const char* what : {"w", "w.m", "w.v"}) all.push_back({what, {DType::f32, {frozen_rows, 100}}, Layout(2)});
    return all;
}

struct Rewritten {
    std::vector<std::string> problems;
    std::vector<int64_t> put, linked;  ///< by save, of all ranks
};

/// Saves of one job, between which the variables of `seeds` change.
Rewritten saves(const TestStore& stores, const std::string& place, int steps, bool links = true,
                const std::function<void(int, int64_t, CheckpointStore&, RankState&)>& between = {}) {
    Rewritten out;
    out.put.resize(static_cast<size_t>(steps)), out.linked.resize(static_cast<size_t>(steps));
    std::mutex mutex;
    const auto variables = frozen();
    CheckpointOptions options{2, 1 << 20, 4096, true};
    out.problems = on_ranks(dp2, [&](int64_t rank, const Gather& gather) {
        Counting store(stores.open(place), links);
        RankState state(variables, dp2, rank, 1, true);
        Checkpoints checkpoints(store, dp2, rank, gather, options);
        for (int step = 1; step <= steps; ++step) {
            for (size_t i = 9; i < variables.size(); ++i)
                state.memory[i] = RankState::expected(variables[i], dp2, rank, step);
            for (size_t i = 0; i < variables.size(); ++i) state.values[i].local.data = state.memory[i].data();
            if (between) between(step, rank, store, state);
            store.put_bytes = store.linked = 0;
            checkpoints.save(step, state.values, fmt::format("{{\"seed\":{}}}", step));
            const std::lock_guard lock(mutex);
            out.put[static_cast<size_t>(step) - 1] += store.put_bytes;
            out.linked[static_cast<size_t>(step) - 1] += store.linked;
        }
    });
    return out;
}

bool as_saved(const TestStore& stores, const std::string& place, int64_t step) {
    const auto variables = frozen();
    std::atomic<bool> equal{true};
    const auto problems = on_ranks(tp3, [&](int64_t rank, const Gather& gather) {
        const auto store = stores.open(place);
        RankState state(variables, tp3, rank, 0, false);
        const auto restored = Checkpoints(*store, tp3, rank, gather).restore(state.values);
        if (!restored || restored->step != step) throw Error("another step");
        for (size_t i = 0; i < variables.size(); ++i)
            if (state.memory[i] != RankState::expected(variables[i], tp3, rank, i < 9 ? 1 : static_cast<int>(step)))
                equal = false;
    });
    return problems == quiet(tp3) && equal;
}

}  // namespace

TEST_CASE("what has not changed since the step before is linked, not written") {
    const TestStore stores(GENERATE(as<std::string>(), "memory", "posix"));
    const Scratch scratch("shares_linked");
    const auto store = stores.open(scratch.path);
    const Rewritten out = saves(stores, scratch.path, 4);
    CHECK(out.problems == quiet(dp2));
    INFO(fmt::format("bytes put: {}, then {}, {}, {}", out.put[0], out.put[1], out.put[2], out.put[3]));
    CHECK(out.linked == std::vector<int64_t>{0, 2, 2, 2});
    // A tenth of the params with two moments each: a tenth of what a save has where all of them are trained.
    const double changed = 3 * frozen_rows * 100 * 4, trained = 10 * changed;
    for (const size_t step : {1u, 2u, 3u}) {
        CHECK(static_cast<double>(out.put[step]) <= 0.12 * trained);
        CHECK(static_cast<double>(out.put[step]) <= 1.05 * changed);
    }
    CHECK(store->steps() == std::vector<int64_t>{4, 3});  // those it was first written for are gone
    for (const int64_t step : {3, 4}) CHECK(read_back(*store, step) == "");
    const Manifest manifest = Manifest::of(*store, 4);
    std::map<int64_t, int> written;
    for (const ManifestObject& object : manifest.objects) ++written[object.written];
    CHECK(written == std::map<int64_t, int>{{1, 2}, {4, 2}});
    CHECK(as_saved(stores, scratch.path, 4));
    store->remove(3);
    CHECK(read_back(*store, 4) == "");
    // A new job links nothing that it has not written itself.
    const Rewritten other = saves(stores, scratch.path, 0);
    CHECK(other.problems == quiet(dp2));
}

TEST_CASE("a store that shares no bytes is written to as before") {
    const TestStore stores("memory");
    const Rewritten out = saves(stores, "no links", 3, false);
    CHECK(out.problems == quiet(dp2));
    CHECK(out.linked == std::vector<int64_t>{0, 0, 0});
    CHECK(static_cast<double>(out.put[2]) >= 0.99 * static_cast<double>(out.put[0]));
    CHECK(as_saved(stores, "no links", 3));
}

TEST_CASE("an object that is damaged, gone or changed is written anew, not linked") {
    const TestStore stores("posix");
    const Scratch scratch("shares_anew");
    const std::string what = GENERATE("damaged", "gone", "changed");
    const Rewritten out =
        saves(stores, scratch.path, 3, true, [&](int step, int64_t rank, CheckpointStore& store, RankState& state) {
            if (step != 3) return;
            if (what == "changed") state.memory[4][10] ^= 1;
            if (rank != 0) return;
            const fs::path object = scratch.path / "step-00000002" / "rank-00000-000.safetensors";
            if (what == "damaged") {
                std::fstream file(object, std::ios::in | std::ios::out | std::ios::binary);
                file.seekp(5000);
                file.put('\x55');  // into a tensor
            }
            if (what == "gone") store.remove(2);
        });
    CHECK(out.problems == quiet(dp2));
    CHECK(out.linked[1] == 2);
    CHECK(out.linked[2] <= 1);
    const auto store = stores.open(scratch.path);
    CHECK(read_back(*store, 3) == "");
    if (what != "changed") CHECK(as_saved(stores, scratch.path, 3));
}

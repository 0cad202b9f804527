// Ranks read rows in the order that a strategy asks for: each token once, with what belongs to it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <numeric>

#include "compile/compile.h"
#include "folders.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "run/data/input_feed.h"

using namespace orrery;

namespace {

constexpr int64_t length = 48, batch = 8;
using Ids = std::vector<int32_t>;

struct Read {
    std::unique_ptr<Experiment> experiment;
    std::optional<Dataset> data;
    std::map<std::string, Ids> arrays;  ///< [batch, length], as the ranks' parts make them up
    TokenOrder order;
};

/// What the ranks of dp 2 x cp 2 read for the samples from `first` on, in two micro-batches.
Read read(const std::string& path, bool documents, const std::string& order, int64_t first) {
    FakeHost host("[train]\nsteps = 10\nsequences_per_step = 8\nmicrobatches = 2\n[data]\npath = \"" + path +
                  "\"\ntokens_per_sequence = 48\n" + (documents ? "separator = 10\n" : "") +
                  "[mesh]\ndp = 2\ncp = 2\n");
    host.strategies = built_strategy;
    run_script_text(
        "local o = require 'orrery'\nlocal data = o.data.file { documents = " +
            std::string(documents ? "true" : "false") +
            " }\nlocal m = require 'orrery.models.gpt' { layers = 1, embed = 4, heads = 1, vocab = 256, seq = 48 }\n"
            "local p = o.trace('m', data.placed, function(b) return m:loss(b.tokens, b.targets, b) end)\n"
            "p:train_with(o.optim.adamw {})\np:parallel { o.strategy.context { axis = 'cp', method = 'gather', order = "
            "'" +
            order + "' }, o.strategy.data { axis = { 'dp', 'cp' } } }\np:compile():train(data)",
        "a.lua", ".", host);
    Read made{std::move(host.experiment), std::optional<Dataset>(host.data), {}, {}};
    const Compiled compiled = compile_training(*made.experiment, {});
    const Plan& plan = compiled.train();
    made.order = token_order(plan.program, plan.mesh);
    for (int64_t rank = 0; rank < plan.mesh.ranks(); ++rank) {
        const InputFeed feed(plan, rank, *made.data, compiled.ids);
        std::vector<std::byte> memory(static_cast<size_t>(feed.bytes()));
        feed.fill(Split::train, first, memory.data());
        const HostPlaces places = host_inputs(plan.program, plan.class_of(rank));
        for (const ValueId id : plan.program.inputs()) {
            const Value& input = plan.program.value(id);
            if (!is_data_input(input) || !places.offset(id)) continue;
            Ids& whole = made.arrays[input.name];
            whole.resize(batch * length, -7);
            const auto* at = reinterpret_cast<const int32_t*>(memory.data() + *places.offset(id));
            const Shape local = input.layout.local_shape(input.type.shape, plan.mesh);
            for (int64_t micro = 0; micro < plan.mesh.microbatches(); ++micro) {
                const Shape offset = input.layout.offset(input.type.shape, plan.mesh, rank, micro);
                for (int64_t row = 0; row < local[0]; ++row, at += local[1])
                    std::copy_n(at, local[1], whole.begin() + (offset[0] + row) * length + offset[1]);
            }
        }
        // The oracle of `verify` reads whole arrays.
        for (const auto& [name, whole] : made.arrays) {
            if (rank + 1 < plan.mesh.ranks()) break;
            Ids same(whole.size());
            read_batch(*made.data, Split::train, first, plan.program.value(*plan.program.find(name)), {}, made.order,
                       reinterpret_cast<std::byte*>(same.data()));
            INFO(name);
            CHECK(same == whole);
        }
    }
    return made;
}

Ids row_of(const Ids& array, int64_t row) { return {array.begin() + row * length, array.begin() + (row + 1) * length}; }

}  // namespace

TEST_CASE("ranks read the tokens of rows in order, with numbers that the source may lack") {
    const std::string path = std::tmpnam(nullptr);
    std::ofstream text(path);
    for (int i = 0; i < 900; ++i)
        text << std::string(static_cast<size_t>(i * i % 37 + (i % 9 == 0 ? 80 : 1)), 'a' + i % 26) << '\n';
    text.close();
    for (const bool documents : {false, true})
        for (const std::string order : {"natural", "zigzag", "balanced"}) {
            INFO(order << (documents ? ", documents" : ", one document a row"));
            const Read natural = read(path, documents, "natural", 16), made = read(path, documents, order, 16);
            REQUIRE(made.arrays.size() == 5);
            CHECK(made.order.natural() == (order == "natural"));
            for (int64_t r = 0; r < batch; ++r) {
                const Ids places = row_of(made.arrays.at("places"), r);
                Ids sorted = places, all(length);
                std::iota(all.begin(), all.end(), 0);
                std::ranges::sort(sorted);
                REQUIRE(sorted == all);
                Ids expected;
                for (const TokenRun& run : token_runs(made.order, length, row_of(natural.arrays.at("documents"), r)))
                    for (int64_t i = 0; i < run.count; ++i) expected.push_back(static_cast<int32_t>(run.first + i));
                CHECK(places == expected);
                for (const auto& [name, whole] : made.arrays) {
                    const Ids there = row_of(natural.arrays.at(name), r), here = row_of(whole, r);
                    Ids moved;
                    for (const int32_t place : places) moved.push_back(there[static_cast<size_t>(place)]);
                    INFO(name);
                    CHECK(here == moved);
                }
                if (!documents) CHECK(made.arrays.at("positions") == made.arrays.at("places"));
            }
            CHECK((std::ranges::max(made.arrays.at("documents")) > 0) == documents);
        }
    std::remove(path.c_str());
}

TEST_CASE("the dim seq of an array may follow others") {
    struct Counts : DataSource {  // each element is its index in the sample
        std::vector<DataArray> all{{"x", DType::i32, {{"kind", 3}, {"seq", 8}, {"pair", 2}}}};
        std::string hash = "counts";
        const std::vector<DataArray>& arrays() const override { return all; }
        void open(int64_t) override {}
        int64_t samples() const override { return 64; }
        const std::string& digest() const override { return hash; }
        std::string place() const override { return hash; }
        void read(size_t, const DataSample&, const Shape& offset, const Tensor& block) const override {
            auto* to = static_cast<int32_t*>(block.data);
            for (int64_t kind = offset[0]; kind < offset[0] + block.shape[0]; ++kind)
                for (int64_t i = offset[1]; i < offset[1] + block.shape[1]; ++i)
                    for (int64_t pair = offset[2]; pair < offset[2] + block.shape[2]; ++pair)
                        *to++ = static_cast<int32_t>((kind * 8 + i) * 2 + pair);
        }
    };
    DataSpec spec;
    spec.source = std::make_shared<Counts>();
    spec.validation = 0;
    const Dataset data(spec);
    const RowOrders orders(data, {TokenOrder::Kind::zigzag, "cp", 2});
    Value input;
    input.name = "x";
    input.type = {DType::i32, {4, 3, 8, 2}};
    input.dims = {"batch", "kind", "seq", "pair"};
    Ids here(2 * 4 * 2), expected;
    RowReader(input, data, orders, {})
        .read(Split::train, 0, {1, 2, 0}, {2, 4, 2}, reinterpret_cast<std::byte*>(here.data()));
    for (const int32_t kind : {1, 2})
        for (const int32_t place : {6, 7, 2, 3})  // of 0 1 6 7 2 3 4 5 from index 2 on
            for (const int32_t pair : {0, 1}) expected.push_back((kind * 8 + place) * 2 + pair);
    CHECK(here == expected);
}

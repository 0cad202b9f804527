// Expert parallelism in C++ and in Lua: the same marks, the collectives that they lead to, and what is refused.
#include <catch2/catch.hpp>

#include "compile/pipeline.h"
#include "ir/print.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"

using namespace orrery;

namespace {

/// What a mixture of 8 experts under strategies was compiled to. `strategies`: Lua, "s" is o.strategy or o.strategies.
std::unique_ptr<Experiment> made(const std::string& mesh, const std::string& strategies, const std::string& kind,
                                 const std::string& model = "mixtral", const std::string& options = "experts = 8") {
    FakeHost host("[mesh]\n" + mesh +
                  "\n[train]\nsteps = 2\nsequences_per_step = 16\n[data]\npath = \"none\"\ntokens_per_sequence = 16\n");
    host.strategies = built_strategy;
    run_script_text("local o = require 'orrery'\nlocal s = o." + kind + "\nlocal m = require 'orrery.models." + model +
                        "' { layers = 1, embed = 16, heads = 4, kv_heads = 2, mlp = 24, vocab = 256, " + options +
                        " }\nlocal d = o.data.text {}\n"
                        "local p = o.trace('m', d.placed, function(b) return m:loss(b.tokens, b.targets, b) end)\n"
                        "p:train_with(o.optim.adamw {})\np:parallel { " +
                        strategies + " }\np:compile()",
                    "a.lua", ".", host);
    return std::move(host.experiment);
}

std::map<std::string, int> kinds_over(const Program& program, const std::string& kind) {
    std::map<std::string, int> count;
    for (const Op& op : program.ops)
        if (op.kind == kind) ++count[op.attributes.text("axis")];
    return count;
}

}  // namespace

TEST_CASE("expert strategy: the Lua form gives the identical program") {
    struct {
        const char *mesh, *axes, *before, *options;
    } const cases[] = {
        {"dp = 2\nep = 2", "ep", "", "experts = 8"},
        {"dp = 2\ntp = 2", "dp", "", "experts = 8"},
        {"dp = 2\ncp = 2\ntp = 2", "dp', 'cp', 'tp", "s.context { method = 'ring' }, ", "experts = 8, parts = 4"},
        {"ep = 4", "cp', 'ep", "", "experts = 8"},
        {"dp = 2\nep = 2", "ep", "", "experts = 8, dispatch = 'rows', expert_blocks = 4"},
    };
    for (const auto& one : cases) {
        const auto text = [&](const std::string& kind) {
            const auto all = made(one.mesh,
                                  std::string(one.before) + "s.expert { axes = { '" + one.axes +
                                      "' } }, o.strategy.tensor { axis = 'tp', sequence = true }, "
                                      "s.data { axis = { 'dp', 'ep', 'cp' } }",
                                  kind, "mixtral", one.options);
            const Program spread = distribute(all->train(), all->mesh);
            return print(all->train()) + print(spread, &all->mesh);
        };
        const std::string plugin = text("strategy");
        INFO(one.mesh << " " << one.axes);
        CHECK(plugin == text("strategies"));
        CHECK(plugin.find("all_to_all") != std::string::npos);
    }
}

TEST_CASE("expert strategy: the axis of a pipeline is refused, in C++ and in Lua") {
    for (const std::string kind : {"strategy", "strategies"}) {
        const auto all =
            made("pp = 2", "o.strategy.pipeline { ends = true }, s.expert { axes = { 'pp' } }", kind, "mixtral");
        CHECK_THROWS_WITH(distribute(all->train(), all->mesh),
                          Catch::Contains("expert, a.lua:7: cannot mark") &&
                              Catch::Contains("over pp=2: the pipeline") &&
                              Catch::Contains("give the two strategies different axes"));
    }
}

TEST_CASE("expert strategy: slabs move by all-to-alls, and nothing else moves over its axis but sums") {
    const std::string data = "o.strategy.data { axis = { 'dp', 'ep' } }";
    const auto all = made("dp = 2\nep = 2", "o.strategy.expert {}, " + data, "strategy");
    const Program spread = distribute(all->train(), all->mesh);
    CHECK(kinds_over(spread, "all_to_all") == std::map<std::string, int>{{"ep", 5}});  // 4 slabs, and the loads
    CHECK(kinds_over(spread, "all_gather").empty());
    CHECK(kinds_over(spread, "reduce_scatter").empty());
    for (const auto& [param, grad] : spread.grads()) {  // experts are summed over dp alone
        const Value& value = spread.value(grad);
        CHECK((value.layout.at(1).kind == Placement::Kind::split) ==
              (spread.value(param).name.find("experts") != std::string::npos));
    }
    const auto same = made("dp = 2\nep = 2", "o.strategy.expert {}, o.strategy.data {}", "strategy");
    const Program summed = distribute(same->train(), same->mesh);  // ranks of ep have the same tokens
    for (const char* kind : {"all_to_all", "all_gather", "reduce_scatter"}) CHECK(kinds_over(summed, kind).empty());
}

TEST_CASE("expert strategy: nothing is marked on a mesh without its axes") {
    const auto all = made("dp = 2", "o.strategy.expert {}, o.strategy.data {}", "strategy");
    for (const Mark& mark : all->train().marks()) CHECK(mark.origin.who != "expert");
}

TEST_CASE("expert strategy: refuses axes that do not divide, to come later, and orders that tear groups apart") {
    for (const std::string kind : {"strategy", "strategies"}) {
        const auto refused = [&](const std::string& mesh, const std::string& strategies, const std::string& why,
                                 const std::string& model = "mixtral", const std::string& options = "experts = 8") {
            INFO(kind);
            CHECK_THROWS_WITH(made(mesh, strategies, kind, model, options), Catch::Contains(why));
        };
        refused("ep = 3", "s.expert {}", "over ep=3: 8 is not a multiple of 3\n  use ep = 2, 4 or 8");
        refused("dp = 2\nep = 8", "s.expert { axes = { 'dp', 'ep' } }",
                "over dp=2 and ep=8: 8 is not a multiple of 16\n  use dp and ep of 2, 4 or 8 ranks together");
        refused("ep = 2", "s.expert {}", "the mesh has ep=2, but the model has no experts (no param has a dim", "llama",
                "qk_norm = true");
        refused("tp = 2", "o.strategy.tensor {}, s.expert { axes = { 'tp' } }", "strategy expert must come before");
        refused("ep = 2", "s.expert { axes = {} }", "is an empty list");
        refused("dp = 2\nep = 4", "s.expert { axes = { 'dp', 'ep' } }, o.strategy.data { axis = { 'dp', 'ep' } }",
                "layers.0.mlp.experts has 4 blocks of experts, expected a multiple of 8 for dp=2 and ep=4\n  set "
                "blocks of nn.moe (script.expert_blocks) to a multiple of 8",
                "mixtral", "experts = 8, dispatch = 'rows', expert_blocks = 4");
        refused("cp = 2\nep = 2",
                "s.context { method = 'ring' }, s.expert {}, o.strategy.data { axis = { 'ep', 'cp' } }",
                "cp=2 splits a group of tokens of layers.0.mlp.experts between ranks: rows have 1 group, expected a "
                "multiple of 2\n  set parts of nn.moe (script.parts) to a multiple of 2");
        for (const char* order : {"zigzag", "balanced"})
            refused("cp = 2\nep = 2",
                    "s.context { method = 'ring', order = '" + std::string(order) +
                        "' }, s.expert {}, o.strategy.data { axis = { 'ep', 'cp' } }",
                    "into groups of 8 tokens, but the order moves blocks of", "mixtral", "experts = 8, parts = 2");
    }
    CHECK_NOTHROW(made("cp = 2\nep = 2",
                       "o.strategy.context { method = 'ring', order = 'zigzag' }, o.strategy.expert {}, "
                       "o.strategy.data { axis = { 'ep', 'cp' } }",
                       "strategy", "mixtral", "experts = 8, parts = 4"));
}

namespace {

/// A model that reads the first `size` of 16 tokens of a row, under tensor over tp=2.
std::unique_ptr<Experiment> shortened(int size, const std::string& options) {
    FakeHost host(
        "[mesh]\ntp = 2\n[train]\nsteps = 2\nsequences_per_step = 16\n[data]\npath = \"none\"\n"
        "tokens_per_sequence = 16\n");
    host.strategies = built_strategy;
    const std::string cut = ":slice { dim = 'seq', start = 0, size = " + std::to_string(size) + " }";
    run_script_text(
        "local o, nn = require 'orrery', require 'orrery.nn'\nlocal d = o.data.text {}\n"
        "local p = o.trace('m', d.placed, function(b)\n"
        "local x = nn.embedding(b.tokens" +
            cut +
            ", 'tokens', { 'vocab', 256 }, { 'embed', 16 })\nx = x + nn.mlp(nn.layernorm(x, 'ln'), { mlp = 32 })\n"
            "return nn.linear(x, 'head', { 'vocab', 256 }):cross_entropy(b.targets" +
            cut + ") end)\np:train_with(o.optim.adamw {})\np:parallel { o.strategy.tensor { " + options +
            " } }\np:compile()",
        "a.lua", ".", host);
    return std::move(host.experiment);
}

}  // namespace

TEST_CASE("tensor strategy: a part of a sequence is split as a whole one is, and is no group of tokens") {
    const auto all = shortened(8, "sequence = true");
    CHECK(kinds_over(distribute(all->train(), all->mesh), "reduce_scatter")["tp"] > 0);
    CHECK_THROWS_WITH(shortened(15, "sequence = true"), Catch::Contains("cannot split seq over tp=2: 15 of them in"));
    CHECK_NOTHROW(shortened(15, "sequence = true, optional = true"));
    CHECK_NOTHROW(shortened(8, "sequence = true, keep = true"));
    CHECK_THROWS_WITH(shortened(8, "keep = true"), Catch::Contains("a.lua") &&
                                                       Catch::Contains("keep = true has no effect") &&
                                                       Catch::Contains("set sequence = true, or leave keep out"));
}

TEST_CASE("tensor strategy: it refuses to split nothing where experts are split over its axis already") {
    CHECK_THROWS_WITH(
        made("tp = 2", "o.strategy.expert { axes = { 'tp' } }, o.strategy.tensor { dims = { 'experts' } }", "strategy"),
        Catch::Contains("another strategy has split every param with a dim named experts over tp"));
}

// Context parallelism in C++ and in Lua: the same marks, and what it refuses.
#include <algorithm>
#include <catch2/catch.hpp>

#include "compile/pipeline.h"
#include "ir/print.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"

using namespace orrery;

namespace {

const std::string config =
    "[mesh]\ndp = 2\ncp = 2\ntp = 2\n[train]\nsteps = 2\nsequences_per_step = 4\n[data]\npath = \"none\"\n"
    "tokens_per_sequence = 8\n";

/// What a model under strategies was compiled to. `model`: "gpt { ... }"; `strategies`: Lua, "s" is o.strategy or
/// o.strategies. `loss`: what the traced function returns; the batch has places.
std::unique_ptr<Experiment> made(const std::string& model, const std::string& strategies, const std::string& kind,
                                 const std::vector<std::string>& sets = {},
                                 const std::string& loss = "m:loss(b.tokens, b.targets)") {
    FakeHost host(config, sets);
    host.strategies = built_strategy;
    run_script_text("local o = require 'orrery'\nlocal s = o." + kind + "\nlocal m = require 'orrery.models." +
                        model.substr(0, model.find(' ')) + "' " + model.substr(model.find(' ')) +
                        "\nlocal d = o.data.text {}\n"
                        "local p = o.trace('m', d.placed, function(b) return " +
                        loss +
                        " end)\n"
                        "p:train_with(o.optim.adamw {})\np:parallel { " +
                        strategies + " }\np:compile()",
                    "a.lua", ".", host);
    return std::move(host.experiment);
}

const std::string gpt = "gpt { layers = 2, embed = 16, heads = 4, vocab = 256, seq = 8 }";
const std::string llama =
    "llama { layers = 1, embed = 16, heads = 4, kv_heads = 2, mlp = 24, vocab = 256, qk_norm = true }";
const std::string both = ", o.strategy.tensor { axis = 'tp' }, o.strategy.data { axis = { 'dp', 'cp' } }";

}  // namespace

TEST_CASE("context strategy: the Lua form gives the identical program") {
    for (const std::string& model : {gpt, llama})
        for (const char* options : {"", "method = 'gather'", "method = 'gather', keep = true", "method = 'ring'"}) {
            const auto text = [&](const std::string& kind) {
                const auto all = made(model, "s.context { " + std::string(options) + " }" + both, kind);
                const Program spread = distribute(all->train(), all->mesh);
                return print(all->train()) + print(spread, &all->mesh);
            };
            const std::string plugin = text("strategy");
            INFO(model << " " << options);
            CHECK(plugin == text("strategies"));
            CHECK((plugin.find("all_to_all") != std::string::npos) == (std::string(options).empty()));
            CHECK((plugin.find("roll ") != std::string::npos) == (std::string(options).find("ring") == 10));
        }
}

TEST_CASE("context strategy: attention by other ops is remarked on") {
    const std::string apart = "gpt { layers = 1, embed = 16, heads = 4, vocab = 256, seq = 8, fused = false }";
    for (const char* kind : {"strategy", "strategies"}) {
        const auto all = made(apart, "s.context {}" + both, kind);
        const auto& remarks = all->train().remarks();
        INFO(kind);
        CHECK(std::ranges::any_of(
            remarks, [](const Remark& one) { return one.text.find("method does nothing") != std::string::npos; }));
        CHECK_THROWS_WITH(made(apart, "s.context { method = 'ring' }" + both, kind),
                          Catch::Contains("method = \"ring\" applies to op attention, which the program lacks"));
    }
}

TEST_CASE("context strategy: nothing is marked on a mesh without its axis") {
    const auto all = made(gpt, "s.context { axis = 'sp' }" + both, "strategy");
    for (const Mark& mark : all->train().marks()) CHECK(mark.origin.who != "context");
}

TEST_CASE("context strategy: refuses what it cannot split, with sizes that would divide, and to come later") {
    for (const std::string kind : {"strategy", "strategies"}) {
        const auto refused = [&](const std::string& model, const std::string& strategies, const std::string& why,
                                 const std::vector<std::string>& sets = {}) {
            INFO(kind);
            CHECK_THROWS_WITH(made(model, strategies, kind, sets),
                              Catch::Contains(kind == "strategy" ? "a.lua:7" : "a.lua:8") && Catch::Contains(why));
        };
        refused(
            gpt, "s.context {}",
            "cannot split seq of tokens over cp=3: rows of 8 tokens are not a multiple of 3\n  cp of 2, 4 or 8 would "
            "divide, or rows of 9 tokens",
            {"mesh.cp=3"});
        refused(gpt, "s.context {}", "over cp=8\n  cp of 2 or 4 would divide, or give method = \"gather\"",
                {"mesh.cp=8"});
        CHECK_THROWS_WITH(made(gpt, "s.context {}" + both, kind, {"mesh.cp=4"}),
                          Catch::Contains("cannot split heads over tp=2: 4 of them") &&
                              Catch::Contains("are not a multiple of 8 (it is also split over cp=4)"));
        CHECK_THROWS_WITH(made(gpt,
                               "s.context { method = 'gather' }, o.strategy.tensor { axis = 'tp', sequence = true }, "
                               "o.strategy.data { axis = 'dp' }",
                               kind, {"mesh.cp=8"}),
                          Catch::Contains("cannot split seq over tp=2: 8 of them") &&
                              Catch::Contains("are not a multiple of 16 (it is also split over cp=8)"));
        refused(gpt, "s.context { method = 'rings' }", "method is \"rings\"; there are \"heads\"");
        refused(gpt, "s.context { method = 'ring', keep = true }",
                "keep applies only to what method \"gather\" gathers");
        refused(gpt, "s.context { axis = 'dp', method = 'gather' }, s.context { method = 'ring' }",
                "a ring over cp must split seq outside, but dp splits it already");
        refused(gpt, "s.context { keep = true }", "keep applies only to what method \"gather\" gathers");
        refused(gpt, "o.strategy.tensor { axis = 'tp', sequence = true }, s.context {}",
                "in program:parallel: seq is split by cp outside, by tp inside");
        refused(gpt, "s.data { axis = { 'dp', 'cp' } }, s.context {}", "must come before");
    }
    CHECK_THROWS_WITH(made(gpt, "o.strategy.tensor { axis = 'tp' }, o.strategy.context {}", "strategy"),
                      Catch::Contains("must come before tensor") && Catch::Contains("seq is split by cp outside"));
    CHECK_THROWS_WITH(
        made(gpt, "o.strategy.tensor { axis = 'tp' }, o.strategies.context {}", "strategies"),
        Catch::Contains("must come before") && Catch::Contains("seq is split by cp outside, by tp inside"));
    for (const std::string kind : {"strategy", "strategies"})  // params that are gathered before they are read
        CHECK_NOTHROW(made(gpt, "o.strategy.zero { axis = 'dp', stage = 3 }, s.context {}", kind));
}

TEST_CASE("context strategy: an order of tokens is the same in Lua, and changes no collective") {
    const std::string with_places = "m:loss(b.tokens, b.targets, b)";
    for (const std::string& model : {gpt, llama})
        for (const std::string order : {"zigzag", "balanced"}) {
            const auto text = [&](const std::string& kind, const std::string& options) {
                const auto all = made(model, "s.context { " + options + " }" + both, kind, {}, with_places);
                const Program spread = distribute(all->train(), all->mesh);
                return print(all->train()) + print(spread, &all->mesh);
            };
            const std::string plugin = text("strategy", "order = '" + order + "'");
            CHECK(plugin == text("strategies", "method = 'gather', order = '" + order + "'"));
            const std::string asked = "\n  order cp " + order;
            CHECK(plugin.find(asked) != std::string::npos);
            std::string natural = plugin;
            for (size_t at = natural.find(asked); at != std::string::npos; at = natural.find(asked))
                natural.erase(at, asked.size());
            CHECK(natural == text("strategy", "method = 'gather'"));
        }
}

TEST_CASE("context strategy: an order is refused by what gives another result for it") {
    const std::string with_places = "m:loss(b.tokens, b.targets, b)", order = "s.context { order = 'zigzag' }";
    const std::string mlp = "mlp { embed = 16, mlp = 16, vocab = 256 }";
    const auto and_drawn = [](const std::string& drawn) {
        return "(function() local sum, count = m:loss(b.tokens, b.targets); return sum + b.tokens:cast('f32'):" +
               drawn + ":sum(), count end)()";
    };
    for (const std::string kind : {"strategy", "strategies"}) {
        const auto refused = [&](const std::string& model, const std::string& strategies, const std::string& loss,
                                 const std::string& why, const std::vector<std::string>& sets = {}) {
            INFO(kind << " " << loss);
            CHECK_THROWS_WITH(made(model, strategies, kind, sets, loss), Catch::Contains(why));
        };
        refused(gpt, "s.context { method = 'heads', order = 'zigzag' }", with_places,
                "order applies only to methods that split the queries in attention");
        refused(gpt, "s.context { order = 'striped' }", with_places,
                "order is \"striped\"; there are \"natural\", \"zigzag\" and \"balanced\"");
        refused(gpt, order, with_places,
                "over cp=8 in zigzag order: rows of 8 tokens are not a multiple of 16\n  cp of 2 or 4 would divide, or "
                "rows of 16 tokens",
                {"mesh.cp=8"});
        // Positions by index, and attention or rope without positions.
        refused(gpt, order, "m:loss(b.tokens, b.targets)",
                "tokens cannot be in the order zigzag over cp=2: add combines tokens with");
        refused(llama, order, "m:loss(b.tokens, b.targets)",
                "rope in layers.0.self_attn depends on the index of a token in its row\n  give it the positions of the "
                "tokens");
        refused("llama { layers = 1, embed = 16, heads = 4, mlp = 24, vocab = 256, fused = false }", order, with_places,
                "softmax in layers.0.self_attn mixes positions, which only attention can do in another order");
        refused(mlp, order, and_drawn("dropout(0.5)"),
                "dropout depends on the index of a token in its row\n  give it the positions of the tokens, or their "
                "places");
        refused(mlp, order, "m:loss(b.tokens:roll { dim = 2, by = 1 }, b.targets)", "roll mixes positions");
    }
    // Masks by places, and a model without attention, give the same result.
    for (const std::string& loss : {and_drawn("dropout(0.5, b.places)"), std::string("m:loss(b.tokens, b.targets)")})
        CHECK(made(mlp, "o.strategy.context { order = 'zigzag' }", "strategy", {}, loss));
}

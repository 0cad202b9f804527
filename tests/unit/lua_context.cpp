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
/// o.strategies.
std::unique_ptr<Experiment> made(const std::string& model, const std::string& strategies, const std::string& kind,
                                 const std::vector<std::string>& sets = {}) {
    FakeHost host(config, sets);
    host.strategies = built_strategy;
    run_script_text("local o = require 'orrery'\nlocal s = o." + kind + "\nlocal m = require 'orrery.models." +
                        model.substr(0, model.find(' ')) + "' " + model.substr(model.find(' ')) +
                        "\nlocal d = o.data.text {}\n"
                        "local p = o.trace('m', d.signature, function(b) return m:loss(b.tokens, b.targets) end)\n"
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

// The options of scripts/orrery/models/llama.lua.
#include <algorithm>

#include <catch2/catch.hpp>

#include "folders.h"
#include "ir/print.h"
#include "lua/fake_host.h"
#include "lua/script.h"

using namespace orrery;

namespace {

Program llama(const std::string& more) {
    FakeHost host("[train]\nsteps = 100\n");
    run_script_text(
        "local o = require 'orrery'\n"
        "local model = require 'orrery.models.llama' { layers = 2, embed = 24, heads = 6,\n"
        "  kv_heads = 2, mlp = 20, vocab = 17" +
            more +
            " }\n"
            "local t = o.array('i32', { {'batch', 3}, {'seq', 5} })\n"
            "local p = o.trace('t', { tokens = t, targets = t },\n"
            "  function(b) return model:loss(b.tokens, b.targets) end)\n"
            "p:train_with(o.optim.adamw { lr = 0.1 })\np:compile()\n",
        "a.lua", in_source("tests/lua"), host);
    return host.experiment->train();
}

int64_t count(const Program& program, const std::string& kind) {
    return std::count_if(program.ops.begin(), program.ops.end(), [&](const Op& op) { return op.kind == kind; });
}

}  // namespace

TEST_CASE("llama normalises q and k by head when asked") {
    const Program plain = llama(""), normed = llama(", qk_norm = true");
    CHECK(count(plain, "rmsnorm") == 5);
    CHECK(count(normed, "rmsnorm") == 9);
    CHECK_FALSE(plain.find("layers.0.self_attn.q_norm.weight"));
    REQUIRE(normed.params().size() == plain.params().size() + 4);
    const Value& gain = normed.value(*normed.find("layers.1.self_attn.k_norm.weight"));
    CHECK(gain.type.text() == "f32[4]");
    CHECK(gain.dims == std::vector<std::string>{"head_dim"});
    for (const ValueId id : normed.params()) CHECK(normed.grad_of(id) != none);
}

TEST_CASE("llama's window is that of every attention, and of none where it is left out") {
    const Program plain = llama(""), windowed = llama(", window = 3");
    CHECK(print(plain) == print(llama(", window = 0")));
    REQUIRE(count(windowed, "attention") == 2);
    REQUIRE(count(windowed, "attention_grad") == 2);
    for (const Program* p : {&plain, &windowed})
        for (const Op& op : p->ops) {
            if (!op.kind.starts_with("attention")) continue;
            CHECK(op.attributes.flag("causal"));
            CHECK(op.attributes.has("window") == (p == &windowed));
            CHECK(op.attributes.integer("window", 3) == 3);
        }
    CHECK_THROWS_WITH(llama(", window = -1"), Catch::Contains("llama: window"));
}

TEST_CASE("llama's initial scales follow its options") {
    const Program p = llama(", std = 0.5, embed_std = 0.3, std_out = 0");
    const auto scale = [&](const std::string& name) { return p.value(*p.find(name)).init.number("scale"); };
    CHECK(scale("embed_tokens.weight") == Approx(0.3));
    CHECK(scale("lm_head.weight") == Approx(0.5));
    for (const std::string layer : {"layers.0.", "layers.1."}) {
        for (const char* name : {"self_attn.q.weight", "self_attn.v.weight", "mlp.gate.weight"}) {
            CHECK(scale(layer + name) == Approx(0.5));
        }
        for (const char* name : {"self_attn.o.weight", "mlp.down.weight"}) CHECK(scale(layer + name) == 0);
    }
}

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "folders.h"
#include "ir/describe.h"
#include "lua/fake_host.h"
#include "lua/script.h"

using namespace orrery;

namespace {

const char* const config =
    "[train]\nsteps = 100\nsequences_per_step = 4\n[data]\npath = \"x.txt\"\n"
    "tokens_per_sequence = 8\n[mesh]\ndp = 2\ntp = 2\n";

void run(const std::string& script, FakeHost& host) { run_script_text(script, "a.lua", in_source("tests/lua"), host); }

std::string failure(const std::string& script) {
    FakeHost host(config);
    try {
        run(script, host);
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

/// A script that traces one function of x f32[batch=4,embed=6].
std::string tracing(const std::string& body) {
    return "local o = require 'orrery'\nlocal nn = o.nn\n"
           "local p = o.trace('t', { x = o.array('f32', { {'batch', 4}, {'embed', 6} }) }, function(b)\n"
           "  local x = b.x\n" +
           body + "\nend)\n";
}

std::vector<std::string> kinds(const Program& program) {
    std::vector<std::string> out;
    for (const Op& op : program.ops) out.push_back(op.kind);
    return out;
}

const std::string param = "  local w = nn.param { name = 'w', shape = { {'embed', 6} } }\n";
const std::string training = "p:train_with(o.optim.sgd { lr = 0.1, momentum = 0 })\np:compile()\n";

}  // namespace

TEST_CASE("a traced function becomes a program with origins and scopes") {
    FakeHost host(config);
    run(tracing("  local y = nn.scope('block', nn.linear, x, 'up', { 'mlp', 10 })\n"
                "  return (y:gelu() * 2):sum()") +
            training,
        host);
    const Program& program = host.experiment->train();
    CHECK(program.name == "t");
    const Value& w = program.value(*program.find("block.up.weight"));
    CHECK(w.type.text() == "f32[6,10]");
    CHECK(w.dims == std::vector<std::string>{"embed", "mlp"});
    CHECK(program.value(*program.find("block.up.bias")).dims == std::vector<std::string>{"mlp"});
    const Op& matmul = program.ops.at(0);
    CHECK(matmul.kind == "matmul");
    CHECK(matmul.scope == "block.up");
    CHECK(matmul.origin.text() == "a.lua:5");
    CHECK(program.ops.at(1).kind == "gelu");
    CHECK(program.ops.at(2).kind == "scale");
    CHECK(program.ops.at(2).attributes.number("by") == 2);
    CHECK(program.ops.at(1).origin.text() == "a.lua:6");
    REQUIRE(program.params().size() == 2);
    for (const ValueId id : program.params()) CHECK(program.grad_of(id) != none);
    CHECK(program.updates.size() == 2);
    for (const char* name : {"loss_sum", "count", "grad_norm", "lr"}) CHECK(program.result(name));
}

TEST_CASE("a plugin's op is a function with the op's operands and attributes, and no method") {
    FakeHost host(config);
    run(tracing("  local w = nn.param { name = 'w', shape = { {'embed', 6} }, init = { kind = 'ones' } }\n"
                "  local y = o.op.swish_gate(x, x * w, { beta = 2 })\n"
                "  return o.op.swish_gate(y, { g = x }):sum()") +
            training,
        host);
    const Program& program = host.experiment->train();
    const Op& first = program.ops.at(1);
    CHECK(first.kind == "swish_gate");
    CHECK(first.attributes.number("beta") == 2);
    CHECK(first.origin.text() == "a.lua:6");
    CHECK(program.value(first.outputs[0]).dims == std::vector<std::string>{"batch", "embed"});
    CHECK(program.ops.at(2).attributes.number("beta") == 1);
    CHECK(std::ranges::count(kinds(program), "swish_gate_grad") == 2);
    CHECK(failure(tracing("  return o.op.swish_gate(x, x):sum(), x:swish_gate(x)"))
              .starts_with("a.lua:5: values have no field or op \"swish_gate\""));
    CHECK(failure(tracing("  return o.op.swish_gate(x)"))
              .starts_with("a.lua:5: bad argument #1 'g' to 'swish_gate' (a value expected, got nothing)"));
    CHECK(failure(tracing("  return o.op.gelu(x)"))
              .starts_with("a.lua:5: o.op.gelu: gelu is a built-in op; write x:gelu("));
}

TEST_CASE("operators take values and numbers") {
    FakeHost host(config);
    run(tracing("  local w = nn.param { name = 'w', shape = { {'embed', 6} }, init = { kind = 'ones' } }\n"
                "  return ((1 - x) / w + 3 * x - x / 2 + -x ^ 2):sum()") +
            training,
        host);
    std::vector<std::string> forward = kinds(host.experiment->train());
    forward.resize(12);
    CHECK(forward == std::vector<std::string>{"full", "sub", "div", "scale", "add", "scale", "sub", "full", "pow",
                                              "neg", "add", "sum"});
}

TEST_CASE("what Lua would ask of a value while it is recorded names the op that a program has for it") {
    const std::string where = "a.lua:5: ";
    for (const auto& [code, write] :
         std::vector<std::pair<std::string, std::string>>{{"if x:sum() < 10 then return x:sum() end", "x:less(y)"},
                                                          {"if 10 < x:sum() then return x:sum() end", "x:less(y)"},
                                                          {"if x >= 10 then return x:sum() end", "x:less_equal(y)"},
                                                          {"return (x % 2):sum()", "write x - n *"},
                                                          {"return (x // 2):sum()", "(x / n):cast(\"i32\")"},
                                                          {"return (x .. x):sum()", "o.concat("},
                                                          {"return math.min(x, 1):sum()", "math.min takes numbers"},
                                                          {"return math.max(1, x):sum()", "x:maximum(y)"},
                                                          {"return math.sqrt(x):sum()", "x:sqrt()"}}) {
        INFO(code);
        const std::string said = failure(tracing("  " + code));
        CHECK(said.starts_with(where));
        CHECK(has(said, write));
        CHECK(has(said, "value"));
    }
    CHECK(failure("local a\nlocal b = math.floor(a)").starts_with("a.lua:2: bad argument #1 to 'floor' ("));
    FakeHost host(config);
    run(tracing("  assert(math.min(3, 2) == 2 and math.floor(2.5) == 2)\n" + param + "  return (x * w):sum()") +
            training,
        host);
}

TEST_CASE("lists of values are joined along a dim that they have, and along a new one") {
    FakeHost host(config);
    run(tracing("  local list = { x * 1, x * 2, x * 3 }\n"
                "  local long = o.concat(list, { dim = 'embed' })\n"
                "  local deep = o.stack(list, { dim = 2, name = 'layer' })\n"
                "  local last = o.stack({ x, x }, { dim = 3 })\n"
                "  assert(#long.shape == 2 and long.shape[2] == 18)\n"
                "  assert(deep.shape[2] == 3 and deep.dims[2] == 'layer' and deep.dims[1] == x.dims[1])\n"
                "  assert(last.shape[3] == 2 and last.dims[2] == 'embed')\n"
                "  assert(o.concat({ x }, { dim = 1 }).shape[1] == x.shape[1])\n" +
                param + "  return long:sum() + (deep * 2):sum() + (x * w):sum()") +
            training,
        host);
    CHECK(host.experiment->train().ops.size() > 6);
    CHECK(has(failure(tracing("  return o.concat(x, { dim = 1 })")), "o.concat: a list of values expected"));
    CHECK(has(failure(tracing("  return o.concat { x, x }")), "o.concat: dim is missing"));
    CHECK(has(failure(tracing("  return o.stack({ x }, { dim = 4 })")), "o.stack: dim is 4, expected 1 to 3"));
}

TEST_CASE("random numbers have the run's seed, a stream of their own and the range of their kind") {
    FakeHost host(config);
    run(tracing("  local u = o.random { shape = { {'batch', 4}, {'embed', 6} } }\n"
                "  local n = o.random { shape = { {'embed', 6} }, kind = 'normal' }\n" +
                param + "  return (x * w * u + n):sum()") +
            training,
        host);
    const Program& program = host.experiment->train();
    std::vector<const Op*> draws;
    for (const Op& op : program.ops)
        if (op.kind == "random" && op.phase == Phase::forward) draws.push_back(&op);
    REQUIRE(draws.size() == 2);
    CHECK(draws[0]->attributes.integer("stream") != draws[1]->attributes.integer("stream"));
    CHECK(program.value(draws[0]->inputs[0]).name == "seed");
    CHECK(text_of(program.value(draws[0]->outputs[0]).type, program.value(draws[0]->outputs[0]).dims) ==
          "f32[batch=4,embed=6]");
    CHECK(has(failure(tracing("  return o.random { shape = { 4 }, kind = 'normale' }")),
              "o.random: no kind \"normale\""));
    CHECK(has(failure(tracing("  return o.random { 4 }")), "shape"));
}

TEST_CASE("indices along a dim: dims by name or number, ids from 0") {
    FakeHost host(config);
    run(tracing("  local w = nn.param { name = 'w', shape = { {'embed', 6} }, init = { kind = 'ones' } }\n"
                "  local values, ids = (x * w):top_k(2, 'embed')\n"
                "  local rows = o.iota { shape = { {'batch', 4}, 1 }, dim = 'batch' }\n"
                "  local hot = ids:one_hot(6):cumsum(3, { reverse = true })\n"
                "  local there = values:scatter_add(ids, 2, 6):gather(rows, 'batch')\n"
                "  return there:sum() + hot:sum()") +
            training,
        host);
    const Program& program = host.experiment->train();
    std::vector<std::string> forward = kinds(program);
    forward.resize(9);
    CHECK(forward ==
          std::vector<std::string>{"mul", "top_k", "iota", "one_hot", "cumsum", "scatter_add", "gather", "sum", "sum"});
    const auto type = [&](size_t op) {
        const Value& value = program.value(program.ops[op].outputs.back());
        return text_of(value.type, value.dims);
    };
    CHECK(type(1) == "i32[batch=4,2]");
    CHECK(type(2) == "i32[batch=4,1]");
    CHECK(type(3) == "f32[batch=4,2,6]");
    CHECK(type(5) == "f32[batch=4,6]");
    CHECK(program.ops[2].attributes.integer("dim") == 0);
    CHECK(program.ops[4].attributes.integer("dim") == 2);
    CHECK(program.ops[4].attributes.flag("reverse"));
    const std::string none = "dim is the number 3, expected the name of a dim of its shape, or 1 to 2";
    CHECK(has(failure(tracing("  return o.iota { shape = { 4, 6 }, dim = 3 }")), "o.iota: " + none));
    CHECK(has(failure(tracing("  return o.iota { shape = { 4, {'seq', 6} }, dim = 'sek' }")),
              "dim is the text \"sek\", expected the name of a dim"));
    CHECK(has(failure(tracing("  return o.iota { shape = { 4 }, dtype = 'bf16' }")),
              "dtype = \"bf16\" is unknown; there are i32, f32"));
    CHECK(has(failure(tracing("  return x:top_k(7, 'embed')")),
              "k = 7 is out of range: expected 1 to the 6 elements of dim embed"));
    CHECK(has(failure(tracing("  return x:gather(x, 1)")), "is not i32"));
}

TEST_CASE("mistakes in a trace name the script's line, the operands and their dims") {
    std::string text = failure(tracing("  return x:matmul(b.x):sum()"));
    CHECK(has(text, "a.lua:5: matmul"));
    CHECK(has(text, "embed=6"));
    CHECK(has(failure(tracing("  return x:matmul(3):sum()")), "a.lua:5"));
    CHECK(has(failure(tracing("  return x:matmul()")),
              "bad argument #1 'b' to 'matmul' (a value expected, got nothing)"));
    CHECK(has(failure(tracing("  return x:matmul('w')")),
              "bad argument #1 'b' to 'matmul' (a value expected, got the text \"w\")"));
    const std::string no_op = failure(tracing("  return x:gellu()"));
    CHECK(has(no_op, "values have no field or op \"gellu\"        did you mean \"gelu\"?\n  the closest: gelu"));
    CHECK(has(no_op, "; all "));
    CHECK(has(no_op, "/orrery/meta.lua, class Value"));
    CHECK(has(failure(tracing("  return x:dropout(0 / 0)")), "a probability in [0, 1) expected"));
    CHECK(has(failure(tracing("  return x:layernorm(x, x, { eps = 0 / 0 })")), "nan, expected a number"));
    CHECK(has(failure(tracing("  return x:gellu()")), "did you mean \"gelu\"?"));
    CHECK(has(failure(tracing("  return x:gelu { aprox = 'erf' }")), "gelu: unknown option \"aprox\""));
    CHECK(has(failure(tracing("  return x + {}")), "a.lua:5: '+': a value or a number expected, got a table"));
    CHECK(has(failure(tracing("  return b.y")), "the batch has no \"y\""));
    CHECK(has(failure(tracing("  return x:reshape { 'batch', 'embeds' }")), "no dim \"embeds\""));
    CHECK(has(failure(tracing("  return x:reshape { 'batch', 5 }")), "a.lua:5: reshape"));
    CHECK(has(failure(tracing("  return x")), "a.lua:3: the function given to o.trace returned"));
    CHECK(has(failure(tracing("  return 3")), "returned the number 3 as the loss"));
    CHECK(has(failure(tracing("  return x:dropout(2):sum()")), "a probability in [0, 1) expected"));
    CHECK(has(failure(tracing("  nn.linear(x, 'a', {'m', 4})\n nn.linear(x, 'a', {'m', 5})")),
              "param a.weight f32[embed=6,m=5]: it already exists"));
    CHECK(has(failure("local o = require 'orrery'\nlocal k\n"
                      "o.trace('t', { x = o.array('f32', { {'batch', 4} }) }, function(b) k = b.x return k:sum() end)\n"
                      "k:sum()"),
              "a.lua:4: x belongs to the program \"t\", whose trace has ended"));
    CHECK(has(failure("require 'orrery'.param { name = 'w', shape = { 3 } }"),
              "can only be called inside the function given to o.trace"));
    CHECK(has(failure("local o = require 'orrery'\no.trace('t', {}, print)"), "the signature has no inputs"));
    CHECK(has(failure("local o = require 'orrery'\no.trace('t', { step = o.array('f32', {}) }, print)"),
              "reserved name of an input: \"step\""));
}

TEST_CASE("errors in a model say who called it") {
    const std::string text = failure(
        "local o = require 'orrery'\nlocal gpt = require 'orrery.models.gpt'\n"
        "local m = gpt { layers = 1, embed = 30, heads = 4, vocab = 16, seq = 8 }\n"
        "local data = o.data.text {}\n"
        "o.trace('g', data.signature, function(b) return m:loss(b.tokens, b.targets) end)");
    CHECK(has(text, "attention: 4 heads do not divide embed = 30"));
    CHECK(has(text, "called from a.lua:5"));
    CHECK(has(failure("require 'orrery.models.gpt' { layer = 3 }"), "gpt: unknown option \"layer\""));
    CHECK(has(failure("require 'orrery.models.gpt' { layers = 'x' }"), "a.lua:1: gpt: layers is x, expected a number"));
}

TEST_CASE("nn.attention is causal unless told otherwise, and takes a window") {
    const auto attention = [](const std::string& options) {
        FakeHost host(config);
        run("local o = require 'orrery'\nlocal nn = o.nn\nlocal data = o.data.text {}\n"
            "local p = o.trace('a', data.signature, function(b)\n"
            "  local x = nn.embedding(b.tokens, 'e', { 'vocab', 32 }, { 'embed', 16 })\n"
            "  return nn.attention(x, { heads = 2" +
                options +
                " }):sumsq()\nend)\n"
                "p:train_with(o.optim.sgd { lr = 0.1 })\np:compile()",
            host);
        for (const Op& op : host.experiment->train().ops)
            if (op.kind == "attention") return op.attributes;
        return Attributes{};
    };
    const double scale = 1 / std::sqrt(8.0);
    CHECK(attention("") == Attributes{{"causal", true}, {"scale", scale}});
    CHECK(attention(", causal = true, window = 0") == Attributes{{"causal", true}, {"scale", scale}});
    CHECK(attention(", causal = false") == Attributes{{"scale", scale}});
    CHECK(attention(", window = 5") == Attributes{{"causal", true}, {"scale", scale}, {"window", int64_t{5}}});
    CHECK_THROWS_WITH(attention(", causal = false, window = 5"), Catch::Contains("add causal = true"));
    CHECK_THROWS_WITH(attention(", causal = 'no'"), Catch::Contains("causal"));
    CHECK_THROWS_WITH(attention(", window = 1.5"), Catch::Contains("window"));
    CHECK_THROWS_WITH(attention(", windw = 5"),
                      Catch::Contains("a.lua:6") && Catch::Contains("nn.attention has no option windw; it has heads, "
                                                                    "kv_heads"));
}

TEST_CASE("a run that is not the newest is refused, as its program is no longer the host's") {
    FakeHost host(config);
    const std::string text =
        "local o = require 'orrery'\nlocal data = o.data.text {}\nlocal function made(name)\n"
        "  local m = require 'orrery.models.gpt' { layers = 1, embed = 16, heads = 2, vocab = 32, seq = 8 }\n"
        "  local p = o.trace(name, data.signature, function(b) return m:loss(b.tokens, b.targets) end)\n"
        "  p:train_with(o.optim.sgd { lr = 0.1 })\n  return p:compile()\nend\n"
        "local first, second = made('first'), made('second')\n";
    run(text + "second:train(data)", host);
    CHECK(host.trained == 1);
    CHECK_THROWS_WITH(
        run(text + "first:train(data)", host),
        Catch::Contains("a.lua:10") && Catch::Contains("\"first\" is not the one that was compiled last"));
    CHECK(host.trained == 1);
}

TEST_CASE("an error of a function that is recorded with another batch says so") {
    const std::string said = failure(
        "local o = require 'orrery'\nlocal data = o.data.text {}\n"
        "local m = require 'orrery.models.gpt' { layers = 1, embed = 16, heads = 2, vocab = 32, seq = 8 }\n"
        "local p = o.trace('g', data.signature, function(b)\n"
        "  local flat = b.tokens:reshape { o.config.train.sequences_per_step * 8 }\n"
        "  return m:loss(b.tokens, b.targets)\nend)\n"
        "p:train_with(o.optim.sgd { lr = 0.1 })\np:compile()");
    CHECK(said.starts_with("a.lua:5: reshape"));
    CHECK(has(said, "the function was recorded once more, with batch = 1, to evaluate"));
}

TEST_CASE("dropout and evaluation") {
    FakeHost host(config);
    run("local o = require 'orrery'\nlocal data = o.data.text {}\n"
        "local m = require 'orrery.models.gpt' { layers = 2, embed = 16, heads = 2, vocab = 32, seq = 8, dropout = 0.1 "
        "}\n"
        "local p = o.trace('g', data.signature, function(b) return m:loss(b.tokens, b.targets) end)\n"
        "p:train_with(o.optim.adamw { lr = o.lr.cosine { peak = 1e-3, warmup = 10 } }, { microbatches = 2 })\n"
        "p:parallel { o.strategies.data { axis = 'dp' } }\n"
        "local run = p:compile()\nrun:train(data, { evaluate_every = 10 })\nprint(run:summary())",
        host);
    const Experiment& made = *host.experiment;
    const MarkedProgram *eval = made.find("eval"), *logits_entry = made.find("logits");
    const auto count = [](const Program& program, const std::string& kind) {
        int n = 0;
        for (const Op& op : program.ops) n += op.kind == kind && op.phase == Phase::forward;
        return n;
    };
    CHECK(count(made.train(), "dropout") == 5);
    std::vector<int64_t> streams;
    for (const Op& op : made.train().ops)
        if (op.kind == "dropout" && op.phase == Phase::forward) streams.push_back(op.attributes.integer("stream"));
    CHECK(streams == std::vector<int64_t>{0, 1, 2, 3, 4});
    CHECK(count(eval->program, "dropout") == 0);
    CHECK(eval->program.result("loss_sum"));
    CHECK(eval->program.find("seed") == std::nullopt);
    REQUIRE(logits_entry);
    const Value& logits = logits_entry->program.value(*logits_entry->program.result("logits"));
    CHECK(logits.type.shape == Shape{1, 8, 32});
    CHECK(logits_entry->program.find("targets") == std::nullopt);
    CHECK(logits_entry->program.params().size() == made.train().params().size());
    CHECK(made.mesh.text() == "dp=2 tp=2 micro=2");
    REQUIRE(made.train().marks().size() == 2);
    CHECK(made.train().marks()[0].axis == "dp");
    CHECK(made.train().marks()[0].placement == Placement::split(0));
    CHECK(made.train().marks()[0].origin.text() == "data, a.lua:6");
    CHECK(logits_entry->program.marks().empty());
    CHECK(host.trained == 1);
    CHECK(host.options.steps == 100);
    CHECK(host.options.evaluate_every == 10);
    CHECK(host.options.origin.text() == "a.lua:8");
    CHECK(host.data.source->path() == "x.txt");
    CHECK(host.data.source->arrays()[0].shape() == Shape{8});
    CHECK(host.lines == std::vector<std::string>{"summary"});
}

TEST_CASE("strategies mark by dim names and errors say what is wrong") {
    const std::string start =
        "local o = require 'orrery'\nlocal strategy = require 'orrery.strategy'\n"
        "local R, S = strategy.R, strategy.S\n";
    const auto with = [&](const std::string& body) {
        return start + tracing("  return nn.linear(x, 'up', {'mlp', 10}):sum()") +
               "p:train_with(o.optim.adamw {})\np:parallel { strategy.define('mine', { axis = 'tp' }, "
               "function(program, mesh, opt)\n" +
               body + "\nend) {} }\np:compile()\n";
    };
    FakeHost host(config);
    run(with("for p in program:params() do\n  local d = p:first_dim_divisible_by(mesh:size(opt.axis))\n"
             "  if d then p:store { [opt.axis] = S(d) } p:use { tp = R, keep = 'fragment' } p:grad():store { tp = S(d) "
             "} "
             "p:state():store { tp = S(d), optional = true } end\nend"),
        host);
    const auto& marks = host.experiment->train().marks();
    REQUIRE(marks.size() == 10);  // 2 params: store, use, grad, two states
    CHECK(marks[1].keep == Keep::fragment);
    CHECK(marks[3].optional);
    CHECK(has(failure(with("for p in program:params() do p:store { tp = S 'heads' } end")), "has no dim \"heads\""));
    CHECK(has(failure(with("for p in program:params() do p:store { tp = S(3) } end")), "has no dim 3"));
    CHECK(has(failure(with("for p in program:params() do p:store { tp = 0 } end")),
              "store: tp is the number 0, expected R, P or S(dim)"));
    CHECK(has(failure(with("for p in program:params() do local q = p + p end")), "a strategy cannot add ops"));
    CHECK(has(failure(with("S(0)")), "dims count from 1"));
    CHECK(has(failure(start + "strategy.define('m', { axis = 'tp' }, print) { axes = 'dp' }"),
              "strategy \"m\": unknown option \"axes\""));
}

TEST_CASE("a strategy in Lua asks what one in C++ may ask, and marks scopes") {
    FakeHost host(config, {"train.precision=bf16"});
    run("local o = require 'orrery'\nlocal strategy = require 'orrery.strategy'\nlocal data = o.data.text {}\n"
        "local m = require 'orrery.models.gpt' { layers = 2, embed = 16, heads = 2, vocab = 32, seq = 8 }\n"
        "local p = o.trace('g', data.signature, function(b) return m:loss(b.tokens, b.targets) end)\n"
        "p:train_with(o.optim.adamw {})\n"
        "p:parallel { strategy.define('mine', function(program, mesh)\n"
        "  local row = program:layers()\n"
        "  for i = 2, #row - 1 do program:stage(row[i].scope, i - 2) end\n"
        "  for _, scope in ipairs(program:scopes()) do\n"
        "    if scope:find '^h%.%d$' or scope:find 'mlp$' then program:recompute(scope, { 'gelu' }) end\n  end\n"
        "  for p in program:params() do\n"
        "    if p:has_low_copy() then p:store { tp = strategy.S(1), optional = true } end\n"
        "    p:grad_terms():store { dp = strategy.P }\n  end\n"
        "  for x in program:activations() do if x.dims[2] == 'seq' then program:note(x, 'seen') break end end\n"
        "end) {} }\np:compile()",
        host);
    const Program& made = host.experiment->train();
    std::vector<ValueId> low, terms;
    for (const Mark& mark : made.marks()) (mark.axis == "tp" ? low : terms).push_back(mark.value);
    const std::vector<bool> copied = made.params_with_low_copies();
    CHECK(low.size() == static_cast<size_t>(std::count(copied.begin(), copied.end(), true)));
    CHECK(!low.empty());
    CHECK(terms == made.grad_terms(*made.find("wte.weight")));  // tied to the head
    CHECK(terms.size() == 2);
    std::vector<std::string> stages, again;
    for (const ScopeMark& mark : made.scope_marks()) (mark.recompute ? again : stages).push_back(mark.scope);
    CHECK(stages == std::vector<std::string>{"h.0", "h.1"});
    CHECK(!again.empty());
    REQUIRE(made.remarks().size() == 1);
    CHECK(made.remarks()[0].text == "seen");
}

TEST_CASE("optimizers refuse unknown options and schedules need an end") {
    CHECK(has(failure("require 'orrery'.optim.adamw { beta = 1 }"), "optim.adamw: unknown option \"beta\""));
    CHECK(has(failure("require 'orrery'.lr.cosine { warmup = 1 }"), "lr.cosine: peak is missing"));
    CHECK(has(failure(tracing("  return nn.linear(x, 'up', {'mlp', 10}):sum()") + "p:train_with(function() end)"),
              "the optimizer updates no param"));
    CHECK(has(failure(tracing("  return nn.linear(x, 'up', {'mlp', 10}):sum()") + "p:compile()"), "has no optimizer"));
}

TEST_CASE("optimizers refuse groups that cannot mean what they say") {
    const auto refused = [](const std::string& groups, const std::string& optimizer = "adamw") {
        return failure(tracing("  return nn.linear(x, 'up', {'mlp', 10}):sum()") + "p:train_with(o.optim." + optimizer +
                       " { groups = " + groups + " })\np:compile()");
    };
    CHECK(has(refused("{ { dims = 'vocab', decay = 0 } }"), "a.lua:7: groups: group 1: unknown key \"dims\""));
    CHECK(has(refused("{ { dim = 'mlp', decay = 0 }, { rank = 1, lr = 5 } }", "sgd"),
              "groups: group 2: unknown key \"lr\""));
    CHECK(has(refused("{ { decay = 0 } }"), "group 1 names no params"));
    CHECK(has(refused("{ { dim = 'mlp' } }"), "group 1 { dim = mlp } sets nothing"));
    CHECK(has(refused("{ { dim = 'mlp', decay = 'no' } }"), "group 1: decay is no, expected a number"));
    CHECK(has(refused("{ dim = 'mlp', decay = 0 }"), "a list of groups is expected, found the key decay"));
    for (const char* optimizer : {"adamw", "sgd"}) {
        CHECK(has(refused("{ { dim = 'vocab', decay = 0 } }", optimizer), "group 1 { dim = vocab } matches no param"));
        CHECK(
            has(refused("{ { match = '%.weight$', decay = 0 }, { match = '^down', rank = 2, decay = 0 } }", optimizer),
                "group 2 { match = ^down, rank = 2 } matches no param"));
        FakeHost host(config);
        run(tracing("  return nn.linear(x, 'up', {'mlp', 10}):sum()") + "p:train_with(o.optim." + optimizer +
                " { groups = { { dim = 'mlp', decay = 0 }, { rank = 1, lr_scale = 2 } } })\np:compile()",
            host);
        CHECK(host.experiment);
    }
}

TEST_CASE("a token file whose vocabulary nobody states is refused where a script asks for it") {
    FakeHost host(config, {"data.path=ids.bin"});
    try {
        run("\nlocal data = require 'orrery'.data.file {}\nprint(data.vocab)", host);
        FAIL("not refused");
    } catch (const Error& error) {
        CHECK(has(error.what(), "a.lua:3: data.vocab is missing: token file \"ids.bin\" does not say"));
        CHECK(has(error.what(), "256 after `orrery tokenize`"));
    }
    FakeHost given(config, {"data.path=ids.bin", "data.vocab=300"});
    run("print(require 'orrery'.data.file {}.vocab)", given);
    FakeHost text(config, {"data.path=ids.txt"});
    run("assert(require 'orrery'.data.file {}.vocab == 256)", text);
}

TEST_CASE("a setting out of its bounds is blamed where it was set") {
    const auto refused = [](const std::string& set, const std::string& call) -> std::string {
        FakeHost host(config, {set});
        try {
            run(call, host);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    const std::string plain = "require 'orrery'.data.tokens {}";
    CHECK(has(refused("data.validation=1.5", plain), "--set data.validation=1.5"));
    CHECK(has(refused("data.validation=1.5", plain), "data.validation is 1.5, expected a share from 0 to 0.5"));
    CHECK(has(refused("data.validation=0.7", plain), "data.validation is 0.7, expected a share from 0 to 0.5"));
    CHECK(has(refused("data.token_bytes=3", plain), "data.token_bytes is 3, expected 2 or 4"));
    CHECK(has(refused("data.validation=0.1", "require 'orrery'.data.tokens { validation = 0.7 }"),
              "a.lua:1: o.data.tokens: validation is the number 0.7, expected a share from 0 to 0.5"));
    CHECK(refused("data.validation=0.5", plain) == "");
}

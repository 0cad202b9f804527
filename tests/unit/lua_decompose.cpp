// Decompositions of a script (o.decompose): what their functions see and add, on a mesh against one device, and what
// is refused.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "compile/pipeline.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "mesh_interpreter.h"

using namespace orrery;
using namespace orrery::test;

namespace {

Array small(const Value& value, ValueId id) { return fill_small(value, id); }

/// Distributes the train step while the script waits, as commands do, and compares every value with one device's.
struct Distributing : FakeHost {
    using FakeHost::FakeHost;
    void compile(Experiment made) override {
        CompileOptions options;
        options.redistribution = made.recipe->redistribution;
        options.look = look;
        spread = distribute(made.train(), made.mesh, options);
        MeshInterpreter(spread, made.mesh, small).compare(evaluate(made.train(), small));
        for (const Op& op : spread.ops) kinds.insert(op.kind);
        FakeHost::compile(std::move(made));
    }
    Program spread;
    std::multiset<std::string> kinds;
};

/// A softmax of x f32[batch=4,seq=8], with seq split over cp, and `declared` before the program is compiled.
std::string script(const std::string& declared, const std::string& after = "") {
    return "local o, strategy = require 'orrery', require 'orrery.strategy'\n"
           "local p = o.trace('t', { x = o.array('f32', { {'batch', 4}, {'seq', 8} }) }, function(b)\n"
           "  local w = o.param { name = 'w', shape = { {'seq', 8} } }\n"
           "  return ((b.x * w):softmax() * b.x):sum()\n"
           "end)\n"
           "p:train_with(o.optim.sgd { lr = 0.1, momentum = 0 })\n"
           "local split = strategy.define('split', function(program)\n"
           "  for _, name in ipairs { 'x', 'w' } do program:find(name):store { cp = strategy.S 'seq' } end\n"
           "end)\n"
           "p:parallel { split() }\n" +
           declared + "\np:compile()\n" + after;
}

/// A decomposition over cp by a function with this body.
std::string decompose(const std::string& op, const std::string& body) {
    return "o.decompose { op = '" + op + "', axis = 'cp', parts = function(op, add)\n" + body + "\nend }\n";
}

const std::string softmax = decompose("softmax",
                                      "  local x = op.inputs[1]\n"
                                      "  local over = { dims = { 'seq' }, keep = true }\n"
                                      "  local e = add('exp', { add('sub', { x, add('max', { x }, over) }) })\n"
                                      "  add('div', { e, add('sum', { e }, over) }, nil, op.outputs)\n"
                                      "  return true");
const std::string softmax_grad =
    decompose("softmax_grad",
              "  local y, dy = table.unpack(op.inputs)\n"
              "  local all = add('sum', { add('mul', { y, dy }) }, { dims = { 2 }, keep = true })\n"
              "  add('mul', { y, add('sub', { dy, all }) }, {}, { op.outputs[1] })\n"
              "  return true");

std::string failure(const std::string& text, const std::string& mesh = "[mesh]\ncp = 2\n") {
    try {
        Distributing host(mesh);
        run_script_text(text, "a.lua", ".", host);
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace

TEST_CASE("decompositions of a script: a softmax and its gradient send a number a row instead of the rows") {
    Distributing whole("[mesh]\ncp = 4\n");
    run_script_text(script(""), "a.lua", ".", whole);
    CHECK(whole.kinds.count("all_gather") + whole.kinds.count("all_to_all") > 0);
    for (const char* mesh : {"[mesh]\ncp = 4\n", "[mesh]\ndp = 2\ncp = 2\n"}) {
        Distributing host(mesh);
        run_script_text(script(softmax + softmax_grad), "a.lua", ".", host);
        CHECK(host.kinds.count("softmax") + host.kinds.count("softmax_grad") == 0);
        CHECK(host.kinds.count("all_gather") + host.kinds.count("all_to_all") == 0);
        CHECK(host.spread.remarks().empty());
    }
    for (const char* mesh : {"[mesh]\ncp = 1\n", "[mesh]\n"}) {
        Distributing host(mesh);
        run_script_text(script(softmax + softmax_grad), "a.lua", ".", host);
        CHECK(host.kinds.count("softmax") == 1);
    }
}

TEST_CASE("decompositions of a script: the function sees the op and its layouts; the first that returns true counts") {
    Distributing host("[mesh]\ncp = 2\n");
    run_script_text(
        script(decompose("softmax",
                         "  local x, y = op.inputs[1], op.outputs[1]\n"
                         "  local at = x:splits()[1]\n"
                         "  print(op.kind, op.phase, op.axis, op.size, x.dtype, x.shape[2], x.dims[2], #x:splits())\n"
                         "  print(at.axis, at.dim, y.shape[2], #y:splits(), next(op.attributes) == nil)\n"
                         "  return #x:splits() == 2") +
               softmax + decompose("softmax", "error('tried after one that returned true')") +
               decompose("sum", "  print(op.attributes.dims[1], op.attributes.dims[2], op.phase)")),
        "a.lua", ".", host);
    REQUIRE(host.lines.size() == 3);
    CHECK(host.lines[0] == "softmax\tforward\tcp\t2\tf32\t8\tseq\t1");
    CHECK(host.lines[1] == "cp\t2\t8\t0\ttrue");
    CHECK(host.lines[2] == "1\t2\tforward");
    CHECK(host.kinds.count("softmax") == 0);
}

TEST_CASE("decompositions of a script: those that replace nothing are remarked on") {
    const auto remark = [](const std::string& declared, const std::string& mesh) {
        Distributing host(mesh);
        run_script_text(script(declared), "a.lua", ".", host);
        return host.spread.remarks().empty() ? "" : host.spread.remarks()[0].text;
    };
    const std::string cp = "[mesh]\ncp = 2\n", of_softmax = "decomposition of softmax over cp replaces none of ";
    CHECK(remark(decompose("softmax", "return false"), cp) ==
          of_softmax + "1 op: its function returned false for all of them");
    CHECK(remark(decompose("softmax", ""), "[mesh]\ncp = 1\n").empty());
    CHECK(remark(decompose("softmax", ""), "[mesh]\ndp = 2\n") == of_softmax + "1 op: the mesh has no axis cp");
    CHECK(has(remark(decompose("layernorm", ""), cp), "over cp replaces none of 0 ops: the step has no such op"));
    const std::string other = "o.decompose { op = 'softmax', axis = 'dp', parts = function() end }";
    CHECK(has(remark(other, "[mesh]\ncp = 2\ndp = 2\n"), "none reads a value split by dp: mark what they read"));
}

TEST_CASE("decompositions and codecs of a script: their text is part of the recipe's digest") {
    const auto digest = [](const std::string& declared) {
        Distributing host("[mesh]\ncp = 2\n");
        run_script_text(script(declared), "a.lua", ".", host);
        return host.experiment->recipe->digest();
    };
    const std::string plain = digest("");
    CHECK(digest(softmax) != plain);
    CHECK(digest(softmax) == digest("\n" + softmax));
    CHECK(digest(softmax) != digest(decompose("softmax", "return false")));
    CHECK(digest(decompose("softmax", "return false")) != digest(decompose("softmax", "return nil")));
    const auto codec = [](const std::string& bound, const std::string& by) {
        return "o.codec { name = 'own', bound = " + bound +
               ", encode = function(x, add)\n  return { add('scale', { x }, "
               "{ by = " +
               by + " }) } end, decode = function(codes) return codes[1] end }";
    };
    CHECK(digest(codec("1", "1.0")) != plain);
    CHECK(digest(codec("1", "1.0")) == digest("\n" + codec("1", "1.0")));
    CHECK(digest(codec("1", "1.0")) != digest(codec("2", "1.0")));
    CHECK(digest(codec("1", "1.0")) != digest(codec("1", "2.0")));
}

TEST_CASE("decompositions of a script: what they cannot be or add is refused at its line") {
    const auto refused = [](const std::string& declared, const std::string& why,
                            const std::string& place = "a.lua:11") {
        const std::string message = failure(script(declared));
        CHECK(has(message, why));
        CHECK(has(message, place));
    };
    refused("o.decompose { op = 'sofmax', axis = 'cp', parts = print }", "did you mean \"softmax\"?");
    refused("o.decompose { op = 'all_gather', axis = 'cp', parts = print }",
            "all_gather is a collective, which propagation inserts; name an op of the script");
    refused("o.decompose { op = 'softmax', parts = print }", "axis is nil, expected the name of an axis of the mesh");
    refused("o.decompose { op = 'softmax', axis = 'cp', part = print }", "parts is nil, expected a function (op, add)");
    refused("o.decompose { op = 'softmax', axis = 'cp', parts = print, when = 1 }", "when");
    refused(decompose("softmax", "  return 7"), "the function returned the number 7 for softmax\n  return true if");

    const auto wrong = [&](const std::string& body, const std::string& why) {
        refused(decompose("softmax", body), why, "a.lua:12");
    };
    wrong("  add('sofmax', op.inputs)", "did you mean \"softmax\"?");
    wrong("  add('all_gather', op.inputs, { dim = 1 })",
          "all_gather is a collective, and a decomposition adds none: propagation inserts what the layouts of its ops");
    wrong("  add('exp', { 7 })",
          "add: inputs[1] is the number 7, expected a value that the function was given, or one that");
    wrong("  add('exp', op.inputs[1])", "a list of inputs");
    wrong("  add('exp', op.inputs, { dim = 1 })", "add: exp has no attribute \"dim\"; it has none");
    wrong("  add('sum', op.inputs, { dims = { 'sec' } })", "no dim \"sec\" in %");
    wrong("  add('sum', op.inputs, { dims = { 3 } })", "dim 3 of %");
    wrong("  local x = op.inputs[1] + op.inputs[1]", "a decomposition adds ops with its argument add, as in add(");
    wrong("  op.inputs[1]:store { cp = 1 }", "store: can only be called inside a strategy's function");

    // What propagation refuses names the op and its line, then that of `add`.
    wrong("  add('add', op.inputs)", "a.lua:4: ");
    wrong("  add('sum', op.inputs, nil, op.outputs)",
          "a.lua:4: decompose of softmax %3: sum returns f32[], a type that differs from the type of output %");
    wrong("  add('exp', op.inputs, nil, op.inputs)", "as output, which is not an output of the op");
    wrong("  add('exp', op.outputs)", "which no op before it makes");
    refused(decompose("softmax", "  add('exp', op.inputs, nil, op.outputs)\n  add('neg', op.inputs, nil, op.outputs)"),
            "neg names output %3", "a.lua:13");
    refused(decompose("softmax", "  add('exp', op.inputs)"),
            "a.lua:4: decompose of softmax %3 (a.lua:11) added ops, but returned false", "before it adds an op");
    refused(decompose("softmax", "  add('exp', op.inputs)\n  return true"),
            "a.lua:4: decompose of softmax %3 (a.lua:11) returned true, but no op that it added makes the output %3",
            "give it as `made` of an added op");
}

TEST_CASE("decompositions of a script: values and add belong to one call, and declarations to before a compilation") {
    const std::string keep = "local held\n";
    CHECK(has(failure(script(keep + decompose("softmax", "  held = add"), "held('exp', {})")),
              "add: can only be called while the function that it was given to runs"));
    CHECK(has(failure(script(keep + decompose("softmax", "  held = op.inputs[1]") +
                             decompose("softmax_grad", "  add('exp', { held })"))),
              "inputs[1] is a value of another op or program"));
    CHECK(has(failure(script("", "o.decompose { op = 'softmax', axis = 'cp', parts = print }")),
              "the script has compiled a program already"));
}

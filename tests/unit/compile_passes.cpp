// Which passes run for which program, and what the script's functions may do to them.
#include <catch2/catch.hpp>
#include <map>

#include "compile/pipeline.h"
#include "folders.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"

using namespace orrery;

namespace {

/// A host that notes which passes it has seen, by program.
class Looking : public FakeHost {
public:
    explicit Looking(const std::string& toml) : FakeHost(toml) {
        look = [this](std::string_view pass, const Program& program, const Mesh*) {
            seen[program.name].emplace_back(pass);
        };
    }
    std::map<std::string, std::vector<std::string>> seen;
};

std::string script(const std::string& between, const std::string& with = "") {
    return "local o = require 'orrery'\n"
           "local data = o.data.text {}\n"
           "local by = 1\n"
           "local model = require 'orrery.models.gpt' { layers = 1, embed = 8, heads = 2, mlp = 8, vocab = 16, seq = 4 "
           "}\n"
           "local p = o.trace('g', data.signature, function(b)\n"
           "  local zero = o.param { name = 'loss_scale', shape = { 1 } }\n"
           "  local sum, count = model:loss(b.tokens, b.targets)\n"
           "  return sum + zero:sum(1), count\n"
           "end)\n"
           "local sgd = function(u) for q in u:params() do u:set(q, q - q:grad() * by) end end\n" +
           between + "\np:train_with(sgd" + with + ")\n";
}

void run(FakeHost& host, const std::string& text) { run_script_text(text, "a.lua", in_source("tests/lua"), host); }

const std::string config = "[data]\npath = \"none\"\ntokens_per_sequence = 4\n[train]\nsequences_per_step = 4\n";

}  // namespace

TEST_CASE("each program takes the passes of its role, in the order of the list") {
    Looking host(config + "[mesh]\n");
    run(host, script("") + "p:compile()");
    const std::pair<const char*, ProgramRole> programs[] = {
        {"g", ProgramRole::train}, {"g.eval", ProgramRole::evaluate}, {"g.logits", ProgramRole::logits}};
    for (const auto& [name, role] : programs) {
        std::vector<std::string> expected;
        for (const Pass& pass : passes())
            if (pass.part == PassPart::record || pass.part == PassPart::mark)
                if (pass.roles & static_cast<unsigned>(role)) expected.emplace_back(pass.name);
        INFO(name);
        CHECK(host.seen[name] == expected);
    }
}

TEST_CASE("a param that is called loss_scale is no loss scale") {
    FakeHost host(config);
    run(host, script("") + "p:compile()");
    const Program& train = host.experiment->train();
    const ValueId param = train.find("loss_scale").value();
    for (const Op& op : train.ops)
        if (op.phase == Phase::backward)
            for (const ValueId input : op.inputs) CHECK(input != param);
}

TEST_CASE("a train_with that failed has trained nothing, and may be called again") {
    FakeHost failed(config);
    CHECK_THROWS_WITH(
        run(failed, script("pcall(function() p:train_with(function() error('no') end) end)\np:compile()")),
        Catch::Contains("no optimizer"));
    FakeHost again(config);
    run(again, script("pcall(function() p:train_with(function() error('no') end) end)") + "p:compile()");
    CHECK(!again.experiment->train().updates.empty());
    FakeHost nested(config);
    CHECK_THROWS_WITH(run(nested, script("local q = p\nsgd = function() q:train_with(function() end) end")),
                      Catch::Contains("train_with"));
}

TEST_CASE("an optimizer that records another step for the ramp's smaller batches is refused") {
    FakeHost host(config + "ramp_start = 2\nramp_increment = 2\nramp_samples = 8\n");
    CHECK_THROWS_WITH(run(host, script("") + "by = 99\np:compile()"), Catch::Contains("records another step"));
}

TEST_CASE("inputs with two batch sizes are refused") {
    FakeHost host(config);
    CHECK_THROWS_WITH(
        run(host,
            "local o = require 'orrery'\n"
            "o.trace('g', { x = o.array('f32', { { 'batch', 8 } }), y = o.array('f32', { { 'batch', 16 } }) },\n"
            "  function(b) return b.x:sum(1) end)"),
        Catch::Contains("a.lua:2") && Catch::Contains("the size of dim batch differs: 8") &&
            Catch::Contains("16 in input \"y\""));
}

// Every key of the schema is read by somebody: a key that is accepted and ignored would be a silent no.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "cli/script_runner.h"
#include "config/load.h"
#include "config/schema.h"
#include "config/toml_text.h"
#include "folders.h"

using namespace orrery;

namespace {

namespace fs = std::filesystem;

/// A value that the key takes; what other keys depend on is fixed by name.
std::string value_of(const SchemaKey& key, const std::string& folder) {
    const std::string path = std::string(key.table) + "." + std::string(key.key);
    const std::map<std::string, std::string> fixed = {
        {"run.script", toml_string(folder + "/all.lua")},
        {"run.device", "\"cpu\""},
        {"run.transport", "\"threads\""},
        {"run.store", "\"posix\""},
        {"run.trace", toml_string(folder + "/trace.json")},
        {"data.path", toml_string(folder + "/text.txt")},
        {"data.vocab", "256"},
        {"data.tokenizer", "\"\""},
        {"data.token_bytes", "2"},
        {"train.sequences_per_step", "2"},
        {"checkpoint.load", "\"\""},
        {"device.memory_gib", "64"},
        {"plugins.path", "[" + toml_string(in_build("plugins")) + "]"},
        {"lua.library", toml_string(in_source("scripts"))},
        {"lua.allow", "[\"os\"]"},
        {"lua.memory_mib", "256"},
        {"data.validation_path", toml_string(folder + "/text.txt")},
        {"submit.time", "\"1:00:00\""},
        {"run.ports", "\"29501-29600\""},
        {"transport.axis.*", "\"threads\""},
        {"collectives.*", "\"ring\""},
    };
    if (const auto found = fixed.find(path); found != fixed.end()) return found->second;
    if (!key.fallback.empty()) return std::string(key.fallback);
    if (!key.one_of.empty()) return toml_string(split(key.one_of, '|').front());
    switch (key.kind) {
        case ConfigKind::flag: return "true";
        case ConfigKind::integer: return std::to_string(std::max<int64_t>(1, static_cast<int64_t>(key.least)));
        case ConfigKind::number: return "1.0";
        case ConfigKind::text: return toml_string(folder);
        case ConfigKind::texts: return "[]";
    }
    return "";
}

std::string_view key_of(const SchemaKey& key) { return key.key == "*" ? "dp" : key.key; }

const ConfigValue* find(Config& root, const SchemaKey& key) {
    Config* table = &root;
    for (const std::string& part : split(key.table, '.')) table = &table->table(part);
    return table->find(key_of(key));
}

}  // namespace

TEST_CASE("every key of the schema is read") {
    const std::string folder = in_build("unit_settings");
    fs::remove_all(folder);
    fs::create_directories(folder);
    std::ofstream(folder + "/text.txt") << std::string(4000, 'x');
    std::ofstream(folder + "/all.lua") << "local o = require 'orrery'\n"
                                          "local data = o.data.text {}\n"
                                          "o.data.tokens {}\no.data.file {}\n"
                                          "o.data.documents {}\no.data.documents { path = 'lines.jsonl' }\n"
                                          "local m = require 'orrery.models.mlp' { embed = 8, mlp = 8, vocab = 256 }\n"
                                          "local p = o.trace('all', data.signature, function(b)\n"
                                          "  return m:loss(b.tokens, b.targets) end)\n"
                                          "p:train_with(o.optim.sgd { lr = o.lr.linear { peak = 0.1 } })\n"
                                          "local run = p:compile()\n"
                                          "run:train(data)\n"
                                          "run:sample {}\n";
    {
        std::ofstream out(folder + "/config.toml");
        std::string table;
        for (const SchemaKey& key : schema()) {
            if (key.table != table) out << "[" << (table = key.table) << "]\n";
            out << key_of(key) << " = " << value_of(key, folder) << "\n";
        }
    }
    ScriptCommand command;
    command.script = folder;
    const auto script = check_launch(command, Job{});
    for (const SchemaKey& key : schema()) {
        INFO(key.table << "." << key_of(key) << " is accepted, but nothing reads it: honour it or take it out");
        const ConfigValue* value = find(script->config(), key);
        REQUIRE(value);
        CHECK(value->used);
    }
    fs::remove_all(folder);
}

namespace {

/// A call that gives a key, what it gives, and another value for the configuration.
struct GivenTwice {
    std::string key, data, with, train, gives, other;
};

std::string script_of(const GivenTwice& given, const std::string& data) {
    return "local o = require 'orrery'\nlocal data = " + data +
           "\nlocal m = require 'orrery.models.mlp' { embed = 8, mlp = 8, vocab = 256 }\n"
           "local p = o.trace('all', data.signature, function(b) return m:loss(b.tokens, b.targets) end)\n"
           "p:train_with(o.optim.sgd { lr = 0.1 }, { " +
           given.with + " })\np:compile():train(data, { " + given.train + " })\n";
}

std::unique_ptr<ScriptRunner> recorded(const ScriptCommand& command) {
    auto script = std::make_unique<ScriptRunner>(command, Job{}, ScriptUse{.tells = false});
    script->load();
    script->run();
    return script;
}

/// Every key of [train] and [data] that a call can give, in `folder` with text.txt, more.txt and ids.bin.
std::vector<GivenTwice> given_twice(const std::string& folder) {
    const std::string text = "path = '" + folder + "/text.txt'", tokens = "path = '" + folder + "/ids.bin'";
    const std::string more = "o.data.text { path = '" + folder + "/more.txt' }";
    const auto quoted = [&](const std::string& name) { return toml_string(folder + "/" + name); };
    const std::string ramp = "ramp = { start = 2, increment = 2, samples = 8 }";
    return {
        {"train.steps", "", "", "steps = 3", "3", "5"},
        {"train.sequences_per_step", "o.data.text { batch = 8, " + text + " }", "", "", "8", "2"},
        {"train.ramp_start", "", ramp, "", "2", "1"},
        {"train.ramp_increment", "", ramp, "", "2", "1"},
        {"train.ramp_samples", "", ramp, "", "8", "9"},
        {"train.microbatches", "", "microbatches = 2", "", "2", "4"},
        {"train.precision", "", "precision = 'bf16'", "", "\"bf16\"", "\"f16\""},
        {"train.evaluate_every", "", "", "evaluate_every = 2", "2", "3"},
        {"train.evaluate_batches", "", "", "evaluate_batches = 2", "2", "3"},
        {"train.log_every", "", "", "log_every = 2", "2", "3"},
        {"data.path", "o.data.text { " + text + " }", "", "", quoted("text.txt"), quoted("more.txt")},
        {"data.mix", "o.data.mixture { { o.data.text { " + text + " }, 2 }, { " + more + ", 1.5 } }", "", "",
         "[" + toml_string("2 " + folder + "/text.txt") + ", " + toml_string("1.5 " + folder + "/more.txt") + "]",
         "[" + toml_string("1 " + folder + "/more.txt") + "]"},
        {"data.token_bytes", "o.data.tokens { token_bytes = 2, vocab = 256, " + tokens + " }", "", "", "2", "4"},
        {"data.tokens_per_sequence", "o.data.text { seq = 16, " + text + " }", "", "", "16", "32"},
        {"data.separator", "o.data.documents { separator = 120, vocab = 256, " + text + " }", "", "", "120", "10"},
        {"data.field", "o.data.documents { field = 'text', path = '" + folder + "/lines.jsonl' }", "", "", "\"text\"",
         "\"body\""},
        {"data.vocab", "o.data.tokens { vocab = 256, " + tokens + " }", "", "", "256", "200"},
        {"data.validation", "o.data.text { validation = 0.25, " + text + " }", "", "", "0.25", "0.125"},
        {"data.validation_path", "o.data.text { validation = " + more + ", " + text + " }", "", "", quoted("more.txt"),
         quoted("text.txt")},
    };
}

}  // namespace

TEST_CASE("a key of [train] and [data] that a call gives, too, is refused or recorded as it ran", "[slow]") {
    const std::string folder = in_build("unit_given"), script = folder + "/all.lua", run = folder + "/run";
    fs::remove_all(folder);
    fs::create_directories(run);
    for (const char* name : {"/text.txt", "/more.txt", "/ids.bin"})
        std::ofstream(folder + name) << (name[1] == 'i' ? std::string(4000, '\0') : std::string(4000, 'x'));
    const std::vector<std::string> common = {"data.tokens_per_sequence=8",
                                             "train.steps=4",
                                             "train.sequences_per_step=4",
                                             "run.transport=\"threads\"",
                                             "plugins.path=[" + toml_string(in_build("plugins")) + "]",
                                             "lua.library=" + toml_string(in_source("scripts"))};
    const std::vector<GivenTwice> all = given_twice(folder);
    for (const SchemaKey& key : schema()) {
        const std::string name = fmt::format("{}.{}", key.table, key.key);
        if (key.table != "train" && key.table != "data") continue;
        INFO(name << ": no case gives it in a call");
        CHECK((name == "data.tokenizer" || name == "train.max_skips" ||
               std::ranges::find(all, name, &GivenTwice::key) != all.end()));
    }
    for (const GivenTwice& given : all) {
        INFO(given.key);
        const std::string plain = "o.data.text { path = '" + folder + "/text.txt' }";
        std::ofstream(script) << script_of(given, given.data.empty() ? plain : given.data);
        const size_t dot = given.key.find('.');
        const std::string table = given.key.substr(0, dot), key = given.key.substr(dot + 1);
        ScriptCommand command;
        command.script = script;
        for (const std::string& set : common)
            if (!set.starts_with(given.key + "=")) command.sets.push_back(set);

        ScriptCommand refused = command;
        refused.sets.push_back(given.key + "=" + given.other);
        CHECK_THROWS_WITH(recorded(refused),
                          Catch::StartsWith("--set " + given.key + "=" + given.other) && Catch::Contains(script + ":"));

        ScriptCommand equal = command;
        equal.sets.push_back(given.key + "=" + given.gives);
        const auto agreed = recorded(equal);
        CHECK(agreed->told().empty());

        command.config = folder + "/x.toml";
        std::ofstream(command.config) << "[" << table << "]\n" << key << " = " << given.other << "\n";
        const auto told = recorded(command);
        const std::string line =
            given.key + " = " + given.other + " of " + command.config + ":2 has no effect: the script at ";
        CHECK(std::ranges::count_if(told->told(), [&](const std::string& one) {
                  return one.starts_with(line + script + ":") && one.ends_with(" gives " + given.gives);
              }) >= 1);
        const auto value_of = [&](ScriptRunner& of) {
            Config ran = of.as_run();
            const ConfigValue& value = *ran.table(table).find(key);
            CHECK(value.origin.file == script);
            return toml_value(value);
        };
        CHECK(value_of(*told) == given.gives);
        CHECK(toml_value(*told->config().table(table).find(key)) == given.other);

        std::ofstream(run + "/config.toml") << render(told->as_run());  // what resumes it says nothing of this
        CHECK(toml_value(*load_config(run + "/config.toml").table(table).find(key)) == given.gives);
        ScriptCommand again = command;
        again.script = run;
        again.config.clear();
        again.sets.clear();
        const auto resumed = recorded(again);
        CHECK(resumed->told().empty());
        CHECK(value_of(*resumed) == given.gives);
        CHECK(toml_value(*resumed->config().table(table).find(key)) == given.other);
        again.sets = {given.key + "=" + given.other};
        CHECK_THROWS_WITH(recorded(again), Catch::StartsWith("--set " + given.key));
    }
    fs::remove_all(folder);
}

TEST_CASE("a table by axis takes the names of single axes") {
    for (const char* table : {"transport.axis", "collectives"}) {
        Config config =
            parse_config(fmt::format("[mesh]\nrep = 2\ndp = 2\n[{}]\n\"rep+dp\" = \"gloo\"\n", table), "a.toml");
        CHECK_THROWS_WITH(read_settings(config), Catch::Contains("a.toml:5:") &&
                                                     Catch::Contains(fmt::format("{}.\"rep+dp\": ", table)) &&
                                                     Catch::Contains("set its axes one by one: rep, dp"));
    }
}

TEST_CASE("a transport of one host is refused where its ranks are on two, whatever memory it has") {
    Settings settings;
    settings.mesh = Mesh({{"dp", 4, false}});
    settings.transport = "own";
    Config config;
    TransportContract contract;
    contract.memory = {MemoryKind::device};
    const auto refuse = [&](int64_t per_host) { refuse_apart(settings, config, {{"dp", contract}}, per_host); };
    refuse(2);
    contract.same_host = true;
    refuse(4);
    CHECK_THROWS_WITH(refuse(2), Catch::Contains("transport own connects ranks on one host only"));
    contract.same_host = false;
    contract.memory = {MemoryKind::shared};
    refuse(2);
}

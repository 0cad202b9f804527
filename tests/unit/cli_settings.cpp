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

TEST_CASE("a table by axis takes the names of single axes") {
    for (const char* table : {"transport.axis", "collectives"}) {
        Config config =
            parse_config(fmt::format("[mesh]\nrep = 2\ndp = 2\n[{}]\n\"rep+dp\" = \"gloo\"\n", table), "a.toml");
        CHECK_THROWS_WITH(read_settings(config), Catch::Contains("a.toml:5:") &&
                                                     Catch::Contains(fmt::format("{}.\"rep+dp\": ", table)) &&
                                                     Catch::Contains("name its axes one by one: rep, dp"));
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
    CHECK_THROWS_WITH(refuse(2), Catch::Contains("transport own joins ranks of one host"));
    contract.same_host = false;
    contract.memory = {MemoryKind::shared};
    refuse(2);
}

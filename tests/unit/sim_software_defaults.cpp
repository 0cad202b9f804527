// What training software does by default: files of configs/software.
#include "sim/software/defaults.h"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "config/load.h"
#include "folders.h"
#include "orrery/error.h"

using namespace orrery;

namespace {

std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// nemo.toml with one text replaced, or in full.
std::string text_with(const std::string& from = "", const std::string& to = "") {
    std::string text = text_of(in_source("configs/software/nemo.toml"));
    if (const size_t place = text.find(from); !from.empty()) {
        REQUIRE(place != std::string::npos);
        text.replace(place, from.size(), to);
    }
    return text;
}

SoftwareDefaults read(const std::string& name, const std::string& text) {
    Config file = parse_toml(text, name + ".toml");
    return software_defaults(name, file);
}

void refused(const std::string& from, const std::string& to, const std::string& part) {
    INFO(from << " -> " << to);
    CHECK_THROWS_WITH(read("some", text_with(from, to)), Catch::Contains("some.toml") && Catch::Contains(part));
}

}  // namespace

TEST_CASE("software defaults: every file is read, and is found by its own texts") {
    std::vector<SoftwareDefaults> all;
    for (const auto& entry : std::filesystem::directory_iterator(in_source("configs/software")))
        if (entry.path().extension() == ".toml")
            all.push_back(read(entry.path().stem().string(), text_of(entry.path().string())));
    check_matches(all);
    CHECK(all.size() >= 13);
    for (const SoftwareDefaults& one : all) {
        INFO(one.name);
        CHECK_FALSE(one.matches.empty());
        for (const std::string& match : one.matches) CHECK(software_in(all, match).name == one.name);
    }
    CHECK(software_in(all, "by nvidia-nemo/megatron-bridge, tp > 1").name == "megatron_bridge");  // the longest
    CHECK(software_in(all, "fsdp2 under compile").name == "torchtitan_compiled");                 // both parts
    CHECK_THROWS_WITH(software_in({}, "x"), Catch::Contains("no file of configs/software"));
}

TEST_CASE("software defaults: a word, key or source that is not known is refused with its place") {
    CHECK(read("some", text_with()).chunks_tp);
    refused("value = \"ring\"", "value = \"rings\"", "tp_overlap.value is \"rings\"");
    refused("[tp_overlap]", "[tp_overlaps]", "missing [tp_overlap]");
    refused("[tp_overlap]", "[more]\nvalue = 1\n[tp_overlap]", "more");
    refused("[tp_overlap]", "[tp_overlap]\nvalues = 1", "values");
    refused("value = 134217728", "value = -1", "message_elements.value is -1");
    const std::string text = text_of(in_source("configs/software/nemo.toml"));
    const size_t line = text.find("source = ", text.find("[tp_overlap]"));
    refused(text.substr(line, text.find('\n', line) - line), "source = \"\"", "tp_overlap.source is empty");
}

TEST_CASE("software defaults: two files with the same text are refused") {
    CHECK_THROWS_WITH(check_matches({read("a", text_with()), read("b", text_with())}),
                      Catch::Contains("b.toml: matches has") && Catch::Contains("as a.toml has"));
}

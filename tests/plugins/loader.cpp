#include "plugin/loader.h"
#include "folders.h"
#include "plugin/code_digest.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

using namespace orrery;
namespace fs = std::filesystem;

namespace {

const Origin asked{"", "run.toml", 3, 9};

/// The message when a store is asked for, with this build's ABI written as <this>.
std::string bad_plugins() { return in_build("tests/bad_plugins"); }

std::string refusal(const std::string& name, const std::string& folder = bad_plugins()) {
    Registry registry;
    try {
        Loader({folder}).load("store", name, registry, asked);
    } catch (const Error& problem) {
        CHECK(registry.names().empty());
        std::string text = problem.what();
        const std::string mine = describe_abi(this_abi());
        if (const size_t at = text.find(mine); at != std::string::npos) text.replace(at, mine.size(), "<this>");
        return text;
    }
    return "loaded";
}

/// The remedy where the function of a plugin does not register the plugin.
std::string once(const std::string& name) {
    return "\n  give ORRERY_PLUGIN a function that calls add_store(\"" + name + "\", ...) once";
}

const std::string mend = "\n  fix the function given to ORRERY_PLUGIN, or remove the file from the folder";

std::string head(const std::string& name) {
    return "run.toml:3:9: cannot load bad_plugins/liborrery_store_" + name + ".so\n  ";
}

/// A folder with a copy of the plugin that is fine.
struct Copy {
    fs::path folder = fs::path(in_build("tests")) / "copied_plugins";
    fs::path file = folder / "liborrery_store_fine.so";
    Copy() {
        fs::remove_all(folder);
        fs::create_directories(folder);
        fs::copy(fs::path(bad_plugins()) / "liborrery_store_fine.so", file);
    }
    ~Copy() { fs::remove_all(folder); }
};

}  // namespace

TEST_CASE("a good plugin registers under its name, once") {
    Registry registry;
    const Loader loader({bad_plugins()});
    loader.load("store", "fine", registry, asked);
    loader.load("store", "fine", registry, asked);
    CHECK(registry.names() == std::vector<std::string>{"store/fine"});
    Config config;
    CHECK_THROWS_WITH(registry.store("fine", asked)(config, ""), "made for a test");
    CHECK_THROWS_WITH(registry.store("fime", asked),
                      "run.toml:3:9: no store \"fime\"\n  loaded: fine        did you mean \"fine\"?");
}

TEST_CASE("a stale plugin is refused before any of its code runs") {
    const fs::path trace = fs::path(in_build("tests")) / "trace";
    fs::remove(trace);
    ::setenv("ORRERY_TEST_TRACE", trace.c_str(), 1);
    CHECK(refusal("stale") == head("stale") +
                                  "it was built for another version of orrery\n"
                                  "  built for  orrery 7f3a91c0, gcc 11, debug\n"
                                  "  this is    <this>\n"
                                  "  rebuild it with: cmake --build build --target store_stale");
    CHECK_FALSE(fs::exists(trace));
    // The trace does work: a file that is opened leaves it.
    CHECK(refusal("wrong_name") != "loaded");
    CHECK(fs::exists(trace));
    ::unsetenv("ORRERY_TEST_TRACE");
    fs::remove(trace);
}

TEST_CASE("each way to build a plugin wrong has its own message") {
    CHECK(refusal("no_section") ==
          head("no_section") +
              "it is not an orrery plugin: it has no section .orrery.*\n"
              "  build it with orrery_plugin() of the CMake package, and use ORRERY_PLUGIN in its source");
    CHECK(refusal("no_symbol") == head("no_symbol") +
                                      "it does not export the symbol orrery_plugin\n"
                                      "  its source needs ORRERY_PLUGIN(\"store.no_symbol\", version, add)");
    CHECK(refusal("inherits") ==
          head("inherits") +
              "its symbol orrery_plugin comes from bad_plugins/libbad_parent.so, a library that it links\n"
              "  a plugin must not link another; its own source needs ORRERY_PLUGIN");
    CHECK(refusal("wrong_name") ==
          head("wrong_name") +
              "it calls itself \"store.other\", its file name says \"store.wrong_name\"\n"
              "  give both the same name: orrery_plugin(store wrong_name ...) and ORRERY_PLUGIN");
    CHECK(refusal("null") ==
          head("null") + "it registers nothing: the function given to ORRERY_PLUGIN is null" + once("null"));
    CHECK(refusal("nothing") ==
          head("nothing") + "it registers nothing, expected store/nothing alone" + once("nothing"));
    CHECK(refusal("two") ==
          head("two") + "it registers store/another, store/two, expected store/two alone" + once("two"));
    CHECK(refusal("gone") == head("gone") +
                                 "liborrery_test_gone.so: cannot open shared object file: No such file or directory\n"
                                 "  install the library that it names, or add its folder with ldconfig");
}

TEST_CASE("what a plugin throws while registering is caught and quoted") {
    CHECK(refusal("throws") == head("throws") + "it failed while registering: the tape is not in the drive" + mend);
    CHECK(refusal("throws_int") ==
          head("throws_int") + "it failed while registering: it threw something other than a std::exception" + mend);
}

TEST_CASE("a file that others may change, or that is damaged, is refused") {
    const Copy copy;
    CHECK(refusal("fine", copy.folder) == "loaded");
    ::chmod(copy.file.c_str(), 0666);
    CHECK(refusal("fine", copy.folder) ==
          "run.toml:3:9: cannot load copied_plugins/liborrery_store_fine.so\n"
          "  it is world-writable (mode of the file)\n"
          "  fix it with: chmod o-w copied_plugins/liborrery_store_fine.so");
    ::chmod(copy.file.c_str(), 0644);
    ::chmod(copy.folder.c_str(), 0777);
    CHECK(refusal("fine", copy.folder).find("it is world-writable (mode of its folder)") != std::string::npos);
    ::chmod(copy.folder.c_str(), 0755);
    for (const uintmax_t keep : {0, 30, 100, 3000}) {
        // A new file each time: the old one is mapped for good.
        fs::remove(copy.file);
        fs::copy(fs::path(bad_plugins()) / "liborrery_store_fine.so", copy.file);
        fs::resize_file(copy.file, keep);
        CHECK(refusal("fine", copy.folder) ==
              "run.toml:3:9: cannot load copied_plugins/liborrery_store_fine.so\n"
              "  it is not a shared library for this machine, or is truncated\n"
              "  rebuild it with: cmake --build build --target store_fine");
    }
}

TEST_CASE("the digest of a file is the one of the library that is loaded from it") {
    const Copy copy;
    Registry registry;
    const Loader loader({copy.folder});
    loader.load("store", "fine", registry, asked);
    REQUIRE(loader.loaded().size() == 1);
    const std::string digest = loader.loaded().front().digest;
    CHECK(digest.size() == 40);
    CHECK(code_digest_of(copy.file) == digest);
    REQUIRE(loader.files().size() == 1);
    CHECK(loader.files().front().digest == digest);
    CHECK(code_digest_of(copy.folder).empty());
    CHECK(code_digest_of(copy.folder / "gone.so").empty());
    fs::remove(copy.file);  // the old one is mapped
    fs::copy(fs::path(bad_plugins()) / "liborrery_store_fine.so", copy.file);
    fs::resize_file(copy.file, 100);
    CHECK(code_digest_of(copy.file).empty());
}

TEST_CASE("the notes of a library that is not asked for are not read") {
    const Copy copy;
    const fs::path other = copy.folder / "other.so";
    fs::copy(fs::path(bad_plugins()) / "liborrery_store_idle.so", other);
    {
        std::fstream file(other, std::ios::binary | std::ios::in | std::ios::out);
        Elf64_Ehdr header;
        REQUIRE(file.read(reinterpret_cast<char*>(&header), sizeof(header)));
        int moved = 0;
        for (size_t i = 0; i < header.e_phnum; ++i) {
            const auto at = static_cast<std::streamoff>(header.e_phoff + i * sizeof(Elf64_Phdr));
            Elf64_Phdr part;
            REQUIRE(file.seekg(at).read(reinterpret_cast<char*>(&part), sizeof(part)));
            if (part.p_type != PT_NOTE || part.p_align != 4) continue;  // the loader itself reads the aligned to 8
            part.p_vaddr = uint64_t{1} << 46;                           // in no segment that is loaded
            REQUIRE(file.seekp(at).write(reinterpret_cast<const char*>(&part), sizeof(part)));
            ++moved;
        }
        REQUIRE(moved > 0);
    }
    void* const library = ::dlopen(other.c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library);
    Registry registry;
    const Loader loader({copy.folder});
    loader.load("store", "fine", registry, asked);
    CHECK(loader.loaded().front().digest == code_digest_of(copy.file));
    const auto* const its = reinterpret_cast<const link_map*>(library);
    CHECK(code_at(reinterpret_cast<const void*>(its->l_ld)).digest.empty());
    ::dlclose(library);
}

TEST_CASE("an unknown name lists what there is, with a suggestion") {
    const Copy copy;
    CHECK(refusal("fin", copy.folder) ==
          "run.toml:3:9: no store \"fin\"\n  found in copied_plugins: fine        did you mean \"fine\"?");
    CHECK(refusal("../fine", copy.folder).find("no store \"../fine\"") != std::string::npos);
    Registry registry;
    CHECK_THROWS_WITH(Loader({copy.folder}).load("device", "cpu", registry, asked),
                      "run.toml:3:9: no device \"cpu\"\n  found none in copied_plugins");
}

TEST_CASE("the list tells of every file whether it loads") {
    const std::vector<PluginReport> reports = Loader({bad_plugins(), bad_plugins()}).list();
    CHECK(reports.size() == 13);
    for (const PluginReport& report : reports) {
        const bool good = report.name == "store/fine" || report.name == "store/idle";
        CHECK(report.reason.empty() == good);
        CHECK(report.version == (good ? "0.1" : ""));
        CHECK(report.cannot_run == (report.name == "store/idle" ? "no tape drive in this machine" : ""));
    }
}

TEST_CASE("a plugin that is no use on this machine says why, before it is asked for anything") {
    const Loader loader({bad_plugins()});
    CHECK(loader.cannot_run("store", "idle") == "no tape drive in this machine");
    CHECK(loader.cannot_run("store", "fine") == "");
    CHECK(loader.cannot_run("store", "nowhere") == "");
}

TEST_CASE("a plugin that the build left out says why") {
    const Copy copy;
    std::ofstream(copy.folder / "liborrery_device_abacus.why") << "no beads were found\n";
    const Loader loader({copy.folder});
    CHECK(loader.names() == std::vector<std::string>{"device/abacus", "store/fine"});
    const std::vector<PluginReport> reports = loader.list();
    REQUIRE(reports.size() == 2);
    CHECK(reports[0].reason == "not included in this build: no beads were found");
    Registry registry;
    CHECK_THROWS_WITH(loader.load("device", "abacus", registry, asked),
                      "run.toml:3:9: cannot load copied_plugins/liborrery_device_abacus.why\n"
                      "  not included in this build: no beads were found");
}

TEST_CASE("an abi string is described for people") {
    CHECK(describe_abi("7f3a91c0-gnu-12-cxx11-debug") == "orrery 7f3a91c0, gcc 12, debug");
    CHECK(describe_abi("7f3a91c0-clang-14-old-release-address-undefined") ==
          "orrery 7f3a91c0, clang 14, old strings, release, address, undefined");
    CHECK(describe_abi("1.0") == "orrery 1.0");
}

// Run by out_of_tree.sh, which builds the plugins first.
TEST_CASE("plugins of another project load and work", "[.][out_of_tree]") {
    const char* folder = std::getenv("ORRERY_TEST_FOLDER");
    REQUIRE(folder);
    Registry registry;
    const Loader loader({folder});
    loader.load("store", "tape", registry, asked);
    loader.load("strategy", "rows", registry, asked);

    Config config("store.tape");
    config.set("drive", {std::string("left")});
    const auto store = registry.store("tape", asked)(config, "gpt");
    const std::string text = "weights";
    store->put(3, "a", std::as_bytes(std::span(text)));
    CHECK(store->size(3, "a") == -1);
    store->commit(3, "{}");
    CHECK(store->size(3, "a") == 7);
    CHECK(store->place() == "left:gpt");
    CHECK_THROWS_WITH(store->commit(3, "{}"), "left:gpt: the step is committed already");

    Program program;
    Value weight;
    weight.name = "w";
    weight.type = {DType::f32, {8, 4}};
    weight.role = Role::param;
    program.values.push_back(weight);
    Config options;
    registry.strategy("rows", asked)(options, {"rows", "mlp.lua", 9, 0})->annotate(program, Mesh({{"tp", 2, false}}));
    REQUIRE(program.marks().size() == 1);
    CHECK(program.marks()[0].placement.text() == "S(0)");
}

namespace {

/// A folder with a copy of the plugin that ends who opens it, with `is` in the place of `was`.
PluginFacts facts_after(const std::string& was, const std::string& is) {
    const Copy copy;
    const fs::path file = copy.folder / "liborrery_device_aborts.so";
    std::ifstream from(fs::path(bad_plugins()) / "facts/liborrery_device_aborts.so", std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(from), {}};
    const size_t at = bytes.find(was);
    REQUIRE(at != std::string::npos);
    std::ofstream(file, std::ios::binary) << bytes.replace(at, is.size(), is);
    return Loader({copy.folder}).facts("device", "aborts", asked);
}

const std::string written("host_memory leaves_nothing", 27);  // with the zero at its end

void refused_facts(const std::string& is, const std::string& why) {
    CHECK_THROWS_WITH(facts_after(written, is),
                      "run.toml:3:9: cannot read the facts of copied_plugins/liborrery_device_aborts.so\n  " + why);
}

}  // namespace

TEST_CASE("the facts of a plugin that cannot be opened are read") {
    const PluginFacts facts = facts_after(written, written);
    CHECK(facts.text() == "host_memory leaves_nothing");
    CHECK(facts.of_device().host_memory);
    CHECK_FALSE(facts_after("leaves_nothing", "              ").of_device().leaves_nothing);
    const Loader fine({bad_plugins()});
    CHECK(fine.facts("store", "fine", asked).text().empty());
    CHECK_THROWS_WITH(fine.facts("store", "fime", asked), Catch::Matchers::Contains("did you mean \"fine\""));
}

TEST_CASE("facts that are damaged or of another kind are refused with a message") {
    refused_facts("host_memory leaves_nothing!", "its ORRERY_FACTS do not end with a zero byte: the file is damaged");
    refused_facts(std::string("host_\x1b[2J", 10), "its ORRERY_FACTS have a byte that is not printable ASCII");
    refused_facts("host_memory host_memory  ", "its ORRERY_FACTS have \"host_memory\" twice");
    refused_facts("host_memory=yes leaves",
                  "its ORRERY_FACTS have \"host_memory=yes\", but host_memory takes no value");
    refused_facts("host_memory leaves_nothink",
                  "its ORRERY_FACTS have \"leaves_nothink\"\n  a device has: host_memory, leaves_nothing, memory "
                  "       did you mean \"leaves_nothing\"?");
    for (const char* text : {"devices", "devices=", "devices=cpu,", "same_process=1 devices=cpu", "", "same_process"})
        CHECK_THROWS_AS(PluginFacts("transport", text).of_transport(), Error);
    CHECK(PluginFacts("transport", " devices=cpu,cuda  pins_ranks ").of_transport().devices.size() == 2);
    CHECK_THROWS_WITH(PluginFacts("store", "x"), "its ORRERY_FACTS have \"x\", but a store has no facts");
}

TEST_CASE("a section of facts that is longer than a text of facts, or outside of its file, is refused") {
    const Copy copy;
    const fs::path file = copy.folder / "liborrery_device_aborts.so";
    const auto with_header = [&](const std::function<void(Elf64_Shdr&)>& change) {
        fs::remove(file);
        fs::copy(fs::path(bad_plugins()) / "facts/liborrery_device_aborts.so", file);
        std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
        Elf64_Ehdr header;
        REQUIRE(bytes.read(reinterpret_cast<char*>(&header), sizeof(header)));
        int changed = 0;
        for (size_t i = 0; i < header.e_shnum; ++i) {
            const auto at = static_cast<std::streamoff>(header.e_shoff + i * sizeof(Elf64_Shdr));
            Elf64_Shdr part;
            REQUIRE(bytes.seekg(at).read(reinterpret_cast<char*>(&part), sizeof(part)));
            if (part.sh_size != written.size()) continue;
            change(part);
            REQUIRE(bytes.seekp(at).write(reinterpret_cast<const char*>(&part), sizeof(part)));
            ++changed;
        }
        REQUIRE(changed == 1);
        bytes.close();
        return [&] { return Loader({copy.folder}).facts("device", "aborts", asked); };
    };
    using Catch::Matchers::Contains;
    CHECK_THROWS_WITH(with_header([](Elf64_Shdr& part) { part.sh_size = uint64_t{1} << 40; })(),
                      Contains("has 1099511627776 bytes, expected at most 4096"));
    CHECK_THROWS_WITH(with_header([](Elf64_Shdr& part) { part.sh_offset = uint64_t{1} << 40; })(),
                      Contains(".orrery_facts is truncated"));
    CHECK_THROWS_WITH(with_header([](Elf64_Shdr& part) { part.sh_size = 0; })(),
                      Contains("do not end with a zero byte"));
    CHECK_THROWS_WITH(with_header([](Elf64_Shdr& part) { part.sh_name = uint32_t{1} << 30; })(),
                      Contains("it is not a shared library for this machine, or is truncated"));
}

// The include table: which folder may include which, and which third-party headers are where.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <regex>
#include <set>

#include "source.h"

using policy::Include;
using policy::Source;

namespace {

static_assert(CATCH_VERSION_MAJOR == 2 && CATCH_VERSION_MINOR == 13, "tests are written for Catch2 2.13");

/// Folder of core -> folders that it may include.
const std::map<std::string, std::set<std::string>> core_table = {
    {"include", {"orrery"}},
    {"base", {"orrery", "base"}},
    {"control", {"orrery", "base", "control"}},
    {"tokenizer", {"orrery", "base", "tokenizer"}},
    {"ir", {"orrery", "base", "ir"}},
    {"layout", {"orrery", "base", "ir", "layout"}},
    {"plan", {"orrery", "base", "ir", "layout", "plan"}},
    {"compile", {"orrery", "base", "ir", "layout", "plan", "compile"}},
    {"draw", {"orrery", "base", "ir", "plan", "draw"}},
    {"collective", {"orrery", "base", "ir", "plan", "collective"}},
    {"trace", {"orrery", "base", "ir", "plan", "trace"}},
    {"run",
     {"orrery", "base", "control", "tokenizer", "ir", "layout", "plan", "compile", "collective", "trace", "run"}},
    {"sim", {"orrery", "base", "ir", "layout", "plan", "compile", "collective", "trace", "sim"}},
    {"plugin", {"orrery", "base", "ir", "plugin"}},
    {"config", {"orrery", "base", "config"}},
    {"lua",
     {"orrery", "base", "control", "tokenizer", "ir", "layout", "plan", "compile", "draw", "trace", "run", "plugin",
      "config", "lua"}},
    {"cli",
     {"orrery", "base", "control", "tokenizer", "ir", "layout", "plan", "compile", "draw", "collective", "trace", "run",
      "sim", "plugin", "config", "lua", "cli"}},
};

/// Third-party library of a header in <>, "" for the C++ library, the C library and the system.
std::string library_of(const std::string& header) {
    static const std::vector<std::pair<std::regex, std::string>> libraries = {
        {std::regex("^fmt/.*"), "fmt"},
        {std::regex("^nlohmann/.*"), "json"},
        {std::regex("^openssl/.*"), "openssl"},
        {std::regex("^boost/.*"), "boost"},
        {std::regex("^toml.*"), "toml"},
        {std::regex("^(lua|lauxlib|lualib).*"), "lua"},
        {std::regex("^CLI/.*"), "cli11"},
        {std::regex("^catch2/.*"), "catch2"},
        {std::regex("^gloo/.*"), "gloo"},
        {std::regex("^(ucp|uct|ucs)/.*"), "ucx"},
        {std::regex("^nccl.*"), "nccl"},
        {std::regex("^(cu[a-zA-Z_]*\\.h|cu[a-z_]*/.*|nv.*)"), "cuda"},
        {std::regex("^(dnnl|oneapi/).*"), "onednn"},
        {std::regex("^oniguruma.*"), "onig"},
        {std::regex("^utf8proc.*"), "utf8proc"},
        {std::regex("^hwloc.*"), "hwloc"},
        {std::regex("^curl/.*"), "curl"},
        {std::regex("^hiredis/.*"), "gloo"},
        {std::regex("^httplib.*"), "http"},
    };
    for (const auto& [pattern, library] : libraries) {
        if (std::regex_match(header, pattern)) return library;
    }
    return "";
}

/// A C++ standard header: no folder, no extension.
bool is_standard(const std::string& header) { return header.find_first_of("/.") == std::string::npos; }

std::string first_part(const std::string& path) { return path.substr(0, path.find('/')); }

/// Where a library's headers may be included.
bool may_use(const Source& source, const std::string& library) {
    if (library == "fmt") return source.in("core") && !source.in("core/include");
    if (library == "json" || library == "openssl") return source.in("core/base");
    if (library == "hwloc") return source.path == "core/base/topology.cpp";
    if (library == "boost") return source.path == "core/plugin/loader.cpp";
    if (library == "toml") return source.in("core/config");
    if (library == "lua") return source.in("core/lua");
    if (library == "cli11") return source.path == "core/cli/flags.cpp";
    if (library == "onig" || library == "utf8proc") return source.in("core/tokenizer");
    if (library == "onednn") return source.in("kernels/cpu");
    if (library == "cuda") return source.in("kernels/cuda") || source.in("plugins");
    return source.in("plugins");
}

/// The folder of a plugin, "plugins/transport/gloo", "" for anything else.
std::string plugin_of(const std::string& path) {
    static const std::regex pattern("^(plugins/[^/]+/[^/]+)/.*");
    std::smatch match;
    return std::regex_match(path, match, pattern) ? match[1].str() : "";
}

std::string problem_of(const Source& source, const Include& include) {
    const std::string folder = first_part(include.name);
    const std::string library = include.angle ? library_of(include.name) : "";
    if (!library.empty()) return may_use(source, library) ? "" : "headers of " + library + " are not for this folder";
    if (source.in("core")) {
        const std::string mine = first_part(source.path.substr(5));
        if (include.angle) {
            if (mine == "include" && !is_standard(include.name)) return "nouns include only standard headers";
            return "";
        }
        const auto row = core_table.find(mine);
        if (row == core_table.end()) return "core/" + mine + " is not in the include table";
        return row->second.count(folder) ? "" : "core/" + mine + " may not include " + folder;
    }
    if (include.angle) return "";
    if (const std::string plugin = plugin_of(source.path); !plugin.empty()) {
        const bool own = include.name.find('/') == std::string::npos;
        const bool kernels = source.in("plugins/device") && (folder == "kernels" || include.name == "../kernel_spec.h");
        const bool shell = source.in("plugins/engine") && include.name == "../shell.h";
        return own || kernels || shell || folder == "orrery" ? "" : "a plugin includes orrery/*.h and its own files";
    }
    if (source.in("kernels")) return folder == "kernels" ? "" : "kernels know nothing of the rest";
    return "";
}

}  // namespace

TEST_CASE("every include is in the table") {
    int seen = 0;
    for (const Source& source : policy::sources()) {
        const bool checked = source.in("core") || source.in("plugins") || source.in("kernels");
        if (!checked || !(source.is(".h") || source.is(".cpp") || source.is(".cu") || source.is(".cuh"))) continue;
        for (const Include& include : policy::includes_of(source)) {
            ++seen;
            const std::string problem = problem_of(source, include);
            if (!problem.empty())
                FAIL_CHECK(source.path << ":" << include.line << ": includes " << include.name << ": " << problem);
        }
    }
    CHECK(seen > 100);
}

TEST_CASE("a plugin has one vendor") {
    std::map<std::string, std::set<std::string>> vendors;
    for (const Source& source : policy::sources()) {
        const std::string plugin = plugin_of(source.path);
        if (plugin.empty()) continue;
        for (const Include& include : policy::includes_of(source)) {
            const std::string library = include.angle ? library_of(include.name) : "";
            // nccl's header brings cuda's
            if (!library.empty() && !(library == "cuda" && plugin == "plugins/transport/nccl"))
                vendors[plugin].insert(library);
        }
    }
    for (const auto& [plugin, libraries] : vendors) {
        if (libraries.size() > 1) FAIL_CHECK(plugin << " uses " << libraries.size() << " vendors");
    }
}

TEST_CASE("the table itself refuses what it must") {
    const auto refused = [](const std::string& path, const std::string& line) {
        const Source source{path, {line}};
        const auto includes = policy::includes_of(source);
        REQUIRE(includes.size() == 1);
        return !problem_of(source, includes[0]).empty();
    };
    CHECK(refused("core/ir/a.cpp", "#include \"run/session.h\""));
    CHECK(refused("core/run/a.cpp", "#include \"config/load.h\""));
    CHECK(refused("core/lua/a.cpp", "#include \"cli/launch.h\""));
    CHECK(refused("core/include/orrery/a.h", "#include <unistd.h>"));
    CHECK(refused("core/include/orrery/a.h", "#include <fmt/format.h>"));
    CHECK(refused("core/run/a.cpp", "#include <nlohmann/json.hpp>"));
    CHECK(refused("core/run/a.cpp", "#include <oniguruma.h>"));
    CHECK(refused("core/base/a.cpp", "#include <utf8proc.h>"));
    CHECK(refused("core/base/a.cpp", "#include <hwloc.h>"));
    CHECK(refused("core/tokenizer/a.cpp", "#include \"ir/program.h\""));
    CHECK(refused("core/control/a.cpp", "#include \"run/control/job.h\""));
    CHECK(refused("core/plugin/registry.cpp", "#  include <boost/dll.hpp>"));
    CHECK(refused("plugins/store/s3/s3.cpp", "#include \"base/text.h\""));
    CHECK(refused("plugins/store/s3/s3.cpp", "#include \"kernels/kernels.h\""));
    CHECK(refused("plugins/transport/ucx/a.cpp", "#include <openssl/evp.h>"));
    CHECK(refused("kernels/cpu/a.cpp", "#include \"orrery/tensor.h\""));
    CHECK(refused("kernels/reference/a.cpp", "#include <dnnl.h>"));
    CHECK(refused("core/plan/a.cpp", "#include \"compile/passes/propagate.h\""));
    CHECK_FALSE(refused("core/plan/a.cpp", "#include \"layout/stages.h\""));
    CHECK_FALSE(refused("core/tokenizer/a.cpp", "#include <oniguruma.h>"));
    CHECK_FALSE(refused("plugins/device/cpu/cpu.cpp", "#include \"kernels/kernels.h\""));
    CHECK_FALSE(refused("plugins/transport/ucx/a.cpp", "#include <ucp/api/ucp.h>"));
    CHECK_FALSE(refused("core/include/orrery/a.h", "#include <vector>"));
}

// Rules about single files: lines, ordered iteration in Lua, paths of one machine, the framework of tests.
#include <catch2/catch.hpp>
#include <map>
#include <regex>
#include <set>

#include "source.h"

using policy::Source;

TEST_CASE("lines are at most 120 characters and end clean") {
    constexpr size_t longest = 120;
    for (const Source& source : policy::sources()) {
        if (!source.code()) continue;
        for (size_t i = 0; i < source.lines.size(); ++i) {
            const std::string& line = source.lines[i];
            size_t letters = 0;
            for (unsigned char c : line) letters += (c & 0xc0) != 0x80;  // UTF-8: count first bytes
            if (letters > longest) FAIL_CHECK(source.path << ":" << i + 1 << ": " << letters << " characters");
            if (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r'))
                FAIL_CHECK(source.path << ":" << i + 1 << ": ends in white space");
            if (line.find('\t') != std::string::npos) FAIL_CHECK(source.path << ":" << i + 1 << ": has a tab");
        }
    }
}

TEST_CASE("strategies and schedules iterate in order") {
    // The order of pairs() differs from process to process, and ranks would derive different plans.
    const std::regex unordered(R"((^|[^i\w])(pairs|next)\s*\()");
    CHECK(std::regex_search("for k, v in pairs(t) do", unordered));
    CHECK_FALSE(std::regex_search("for i, v in ipairs(t) do", unordered));
    for (const Source& source : policy::sources()) {
        if (!source.is(".lua") || !(source.in("scripts/orrery/strategies") || source.in("scripts/orrery/schedules")))
            continue;
        for (size_t i = 0; i < source.lines.size(); ++i) {
            const std::string code = source.lines[i].substr(0, source.lines[i].find("--"));
            if (std::regex_search(code, unordered))
                FAIL_CHECK(source.path << ":" << i + 1
                                       << ": iterates in an order that differs from process to process");
        }
    }
}

TEST_CASE("no file names a place on somebody's machine") {
    const std::regex place(R"((^|[^\w.$}])/(work|home|root|Users|mnt)/\w)");
    CHECK(
        std::regex_search("see /"
                          "home/me/x",
                          place));
    CHECK_FALSE(
        std::regex_search("core/"
                          "work/x",
                          place));
    for (const Source& source : policy::sources()) {
        for (size_t i = 0; i < source.lines.size(); ++i) {
            if (std::regex_search(source.lines[i], place))
                FAIL_CHECK(source.path << ":" << i + 1 << ": " << source.lines[i]);
        }
    }
}

TEST_CASE("tests use one framework") {
    for (const Source& source : policy::sources()) {
        if (!source.in("tests")) continue;
        for (const auto& include : policy::includes_of(source)) {
            const bool other = include.name.starts_with("catch2/") && include.name != "catch2/catch.hpp";
            if (other || include.name.starts_with("gtest/")) FAIL_CHECK(source.path << ": " << include.name);
        }
    }
}

TEST_CASE("the library does not print or exit") {
    // Files write to what they are given (run/metrics); whoever names a standard stream prints.
    const std::regex prints(
        R"((^|[^\w.>:])(::|std::)?(printf|vprintf|puts|putchar|perror|exit|_exit|_Exit|quick_exit|terminate)\s*\()"
        R"(|(^|[^\w.>:])(::|std::)?abort\s*\(\s*\)|\b(stdout|stderr|STDOUT_FILENO|STDERR_FILENO)\b)"
        R"(|\bstd::(cout|cerr|clog|print|println)\b)");
    for (const char* line : {"    std::cout << 1;", "    std::cerr << 1;", "    exit(1);", "    ::_exit(1);",
                             "    std::_Exit(1);", "    quick_exit(0);", "    std::quick_exit(0);", "    std::abort();",
                             "    ::abort();", "    abort();", "    std::fprintf(stderr, text);",
                             "    fputs(text, stdout);", "    std::puts(text);", "    std::terminate();"})
        if (!std::regex_search(line, prints)) FAIL_CHECK(line);
    for (const char* line :
         {"    snprintf(text, sizeof text, format);", "    std::fprintf(file_, text);", "    c->abort(why);",
          "    void abort(std::string_view reason) override;", "    Worker::abort(why);", "    on.exit(1);"})
        if (std::regex_search(line, prints)) FAIL_CHECK(line);
    for (const Source& source : policy::sources()) {
        // The command's own files print and end the process; process.cpp gives a forked child its streams and ends it.
        const bool core = source.in("core") && !source.in("core/cli") && source.path != "core/base/process.cpp";
        const bool library = core || source.in("plugins") || source.in("kernels");
        const bool code = source.is(".cpp") || source.is(".h") || source.is(".cu") || source.is(".cuh");
        if (!library || !code) continue;
        for (size_t i = 0; i < source.lines.size(); ++i) {
            const std::string line = source.lines[i].substr(0, source.lines[i].find("//"));
            if (std::regex_search(line, prints)) FAIL_CHECK(source.path << ":" << i + 1 << ": " << line);
        }
    }
}

TEST_CASE("runs of the manual and of the configurations keep to folders of their own") {
    // Two that share a folder go on with each other's checkpoint, or train nothing.
    const std::regex named(R"re(^folder = "(.+)")re"), trains(R"re(^path = ")re");
    const std::regex runs(R"(^build/orrery run scripts/\S+ --config (configs/\S+))"), set(R"(--set run\.folder=(\S+))");
    std::map<std::string, std::string> folders, of_config;
    std::smatch match;
    for (const Source& source : policy::sources()) {
        if (!source.in("configs") || !source.is(".toml") || source.path == "configs/laptop.toml") continue;
        bool data = false;
        for (const std::string& line : source.lines) {
            data = data || std::regex_search(line, trains);
            if (std::regex_search(line, match, named)) of_config[source.path] = match[1];
        }
        const auto found = of_config.find(source.path);
        if (data && found == of_config.end()) FAIL_CHECK(source.path << " trains and names no run.folder");
        if (found != of_config.end() && !folders.emplace(found->second, source.path).second)
            FAIL_CHECK(source.path << " and " << folders[found->second] << " share " << found->second);
    }
    CHECK(folders.size() >= 6);
    for (const Source& source : policy::sources()) {
        if (source.path != "README.md") continue;
        for (const std::string& line : source.lines) {  // the quickstart has trained in its configuration's folder
            if (!std::regex_search(line, match, runs) || match[1] != "configs/quickstart.toml") continue;
            const bool apart = std::regex_search(line, match, set) && folders.emplace(match[1], source.path).second;
            if (!apart) FAIL_CHECK(source.path << ": " << line);
        }
    }
}

TEST_CASE("every folder of the tree has a manual") {
    std::map<std::string, std::set<std::string>> folders;  // and what lies directly in them
    for (const Source& source : policy::sources()) {
        static const std::regex top(R"(^(core|kernels|scripts|configs|tests|bench|plugins)/.*)");
        if (!std::regex_match(source.path, top)) continue;
        for (size_t at = source.path.find('/'), end; at != std::string::npos; at = end) {
            end = source.path.find('/', at + 1);
            const std::string name = source.path.substr(at + 1, end == std::string::npos ? end : end - at);
            folders[source.path.substr(0, at)].insert(name);
        }
    }
    CHECK(folders.count("core/run/control") == 1);
    CHECK(folders.count("plugins/device/cuda") == 1);
    for (const auto& [folder, holds] : folders) {
        const bool room = folder.starts_with("core/") || folder.starts_with("plugins/");
        if (!room && folder.find('/') != std::string::npos) continue;
        if (holds.size() == 1 && holds.begin()->ends_with('/')) continue;  // only the way to another
        if (holds.count("README.md") == 0) FAIL_CHECK(folder << " has no README.md");
    }
}

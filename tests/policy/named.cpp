// What wraps a plugin's object forwards every function of its interface: one with a default would be lost silently.
#include <catch2/catch.hpp>
#include <map>
#include <regex>
#include <set>

#include "source.h"

using policy::Source;

namespace {

struct Declared {
    std::string base;                 // "" without one
    std::set<std::string> functions;  // declared virtual, or override
};

/// The classes of a source, by name, with their functions marked by `word`.
void read_classes(const Source& source, const std::regex& marked, std::map<std::string, Declared>& classes) {
    static const std::regex begin(R"(^(?:class|struct)(?: ORRERY_API)? (\w+)(?: final)?(?: : public (\w+))?.*\{)");
    Declared* inside = nullptr;
    std::smatch found;
    for (const std::string& line : source.lines) {
        if (std::regex_search(line, found, begin)) {
            inside = &classes[found[1]];
            inside->base = found[2];
        } else if (line == "};") {
            inside = nullptr;
        } else if (inside && std::regex_search(line, found, marked)) {
            inside->functions.insert(found[1]);
        }
    }
}

}  // namespace

TEST_CASE("wrappers of plugins' objects forward every virtual function") {
    std::map<std::string, Declared> nouns, wrappers;
    const std::regex is_virtual(R"(^    virtual .*?[ *&](\w+)\()"), overrides(R"(^    [\w:].*?[ *&](\w+)\(.*override)");
    for (const Source& source : policy::sources()) {
        if (source.in("core/include/orrery")) read_classes(source, is_virtual, nouns);
        if (source.path == "core/plugin/named.cpp") {
            Source joined = source;  // a declaration over several lines as one
            for (size_t i = joined.lines.size(); i-- > 1;)
                if (joined.lines[i].starts_with("     ") && joined.lines[i - 1].find('{') == std::string::npos)
                    joined.lines[i - 1] += joined.lines[i];
            read_classes(joined, overrides, wrappers);
        }
    }
    size_t compared = 0;
    for (const auto& [name, wrapper] : wrappers)
        for (std::string base = wrapper.base; nouns.count(base) > 0; base = nouns[base].base)
            for (const std::string& function : nouns[base].functions) {
                ++compared;
                if (wrapper.functions.count(function) == 0)
                    FAIL_CHECK("core/plugin/named.cpp: " << name << " does not forward " << base << "::" << function);
            }
    CHECK(wrappers.size() >= 10);
    CHECK(compared >= 80);
}

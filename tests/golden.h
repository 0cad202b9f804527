#pragma once
#include <catch2/catch.hpp>
#include "folders.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace orrery::test {

/// Compares a text with tests/golden/NAME. With ORRERY_BLESS=1 in the environment the file is written instead: read the
/// difference before you commit it.
inline void check_golden(const std::string& name, const std::string& text) {
    const std::string path = in_source("tests/golden/") + name;
    if (std::getenv("ORRERY_BLESS")) {
        std::ofstream(path) << text;
        return;
    }
    std::ifstream file(path);
    if (!file) FAIL("no " << path << ": run with ORRERY_BLESS=1 to write it");
    std::stringstream golden;
    golden << file.rdbuf();
    std::istringstream have(text);
    std::string a, b;
    for (int line = 1; std::getline(golden, a); ++line) {
        if (!std::getline(have, b)) b = "(end of the text)";
        INFO(path << ":" << line);
        REQUIRE(b == a);
    }
    CHECK(text == golden.str());
}

}  // namespace orrery::test

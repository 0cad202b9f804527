// The drills of tests/jobs/drills.txt in a made world, over seeds; tests/jobs/drill.sh plays them with processes.
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <regex>

#include "cases.h"
#include "drill_world.h"
#include "folders.h"

using namespace orrery;
using test::Drill;

namespace {

std::vector<Drill> all_drills() {
    std::ifstream file(in_source("tests/jobs/drills.txt"));
    return test::read_drills(std::string(std::istreambuf_iterator<char>(file), {}));
}

/// "hang" is a hang of any rank, "-" whatever ends the job.
bool same_ends(const std::vector<std::string>& row, const std::vector<std::string>& found) {
    const auto same = [](const std::string& one, const std::string& other) {
        return one == "-" || one == other || (one.find(':') == one.npos && other.starts_with(one + ":"));
    };
    return row == std::vector<std::string>{"-"} || std::equal(row.begin(), row.end(), found.begin(), found.end(), same);
}

/// Why it is not as the row says, "" where it is.
std::string difference(const Drill& drill, const test::Outcome& found) {
    if (!found.broken.empty()) return found.broken.front();
    for (const auto& [node, code] : found.codes)
        if (code != drill.code) return "exit code " + std::to_string(code) + " of node " + std::to_string(node);
    std::string ends;
    for (const std::string& end : found.ends) ends += end + " ";
    if (!same_ends(drill.ends, found.ends)) return "ends: " + ends;
    const bool supervised = drill.of("restarts", 0) > 0;
    return supervised && !std::regex_search(found.said, std::regex(drill.says)) ? "it says: " + found.said : "";
}

}  // namespace

TEST_CASE("every drill ends as its row says, over 200 seeds", "[drills]") {
    const std::vector<Drill> drills = all_drills();
    CHECK(drills.size() > 50);
    for (const Drill& drill : drills)
        for (uint64_t seed = 0; seed < test::cases(200); ++seed) {
            const std::string wrong = difference(drill, test::DrillWorld(drill, seed).play());
            if (wrong.empty()) continue;
            FAIL_CHECK(drill.name << ", seed " << seed << ": " << wrong);
            break;
        }
}

// Rules about files and about the folders of core that have sources: their size, their manuals, the names they use.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <regex>
#include <set>

#include "source.h"

using policy::Source;

namespace {

// The limits of the design's style. They are guides: a longer file says in its first line why it is whole.
constexpr size_t largest_room = 40, longest_header = 200, longest_source = 600;

struct Room {
    size_t files = 0;  ///< .h and .cpp directly in it
    const Source* manual = nullptr;
};

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }
std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }
std::string module_of(const std::string& file) { return file.substr(0, file.rfind('.')); }

std::map<std::string, Room> rooms_of(const std::vector<Source>& sources, const std::string& top) {
    std::map<std::string, Room> rooms;
    for (const Source& source : sources) {
        if (!source.in(top) || !(source.is(".h") || source.is(".cpp"))) continue;
        ++rooms[folder_of(source.path)].files;
    }
    for (const Source& source : sources) {
        const auto room = rooms.find(folder_of(source.path));
        if (room != rooms.end() && name_of(source.path) == "README.md") room->second.manual = &source;
    }
    return rooms;
}

/// What is wrong with the beginning of a room's manual.
std::vector<std::string> missing_at_top(const Room& room) {
    if (!room.manual) return {"is missing"};
    std::vector<std::string> problems;
    for (const char* begins : {"**In:**", "**Out:**"}) {
        const auto& lines = room.manual->lines;
        const auto top = lines.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(lines.size(), 12));
        if (std::none_of(lines.begin(), top, [&](const std::string& line) { return line.starts_with(begins); }))
            problems.push_back(std::string("does not begin with what comes in and goes out: no line ") + begins);
    }
    return problems;
}

/// Words that were replaced by the field's, and must not come back.
struct Word {
    std::string old, now;
    std::set<std::string> mean_otherwise = {};  ///< files in which it is another thing
};

/// As names of modules, by the room below which they lay.
const std::map<std::string, std::vector<Word>> old_modules = {
    {"core/plan",
     {{"spread", "insert_transfers"},
      {"roles", "loop_analysis"},
      {"share", "loop_analysis"},
      {"places", "assign_buffers"},
      {"queues", "insert_waits"},
      {"weights", "weight_gradients"},
      {"transfers", "emit"},
      {"collectives", "emit"},
      {"check_contents", "check_values"},
      {"check_groups", "check_collectives"},
      {"check_progress", "check_deadlock"},
      {"check_tables", "check_collective_tables"}}},
    {"core/compile", {{"ledger", "versions"}, {"join", "bucket"}, {"composites", "scalar_sums"}}},
    {"core/run",
     {{"host", "script_interface"},
      {"whole", "oracle_inputs"},
      {"feed", "input_feed"},
      {"numbers", "float_distance"},
      {"diverged", "nonfinite"},
      {"stop", "preemption"},
      {"initial", "init"},
      {"box", "Block, in layout/shards"},
      {"weights", "pretrained"}}},
    {"core/ir", {{"verify", "check_program"}}},
    {"core/lua", {{"weights", "published"}}},
};

/// As identifiers of core, plugins and kernels/rules, in regular expressions.
const std::vector<Word> old_words = {
    {R"(\bDo::|\benum class Do\b)", "Opcode"},
    {R"(\bHolds\b)", "BufferUse"},
    {R"(\bCompleter\b)", "EventSource"},
    {R"(\bWires\b)", "WireBytes"},
    {R"(\bPatience\b)", "WaitLimit"},
    // What verify remembers of bytes is a note, and Ranges keeps notes of any type.
    {R"(\bNote\b)",
     "Remark",
     {"core/plan/ranges.h", "core/run/verify/verify_rank.h", "core/run/verify/verify_rank.cpp"}},
    {R"(\bLedger\b)", "Versions"},
    {R"(\bOffer\b)", "Candidate"},
    // What work asks of a simulated cluster.
    {R"(\bDemand\b)",
     "Constraint",
     {"core/sim/prices.h", "core/sim/fair_share.h", "core/sim/fair_share.cpp", "core/sim/simulate.cpp",
      "core/sim/questions.h", "core/sim/questions.cpp", "core/sim/cluster_prices.h", "core/sim/cluster_prices.cpp",
      "core/sim/kernel_prices.h", "core/sim/cluster/wires.h", "core/sim/cluster/wires.cpp",
      "core/sim/cluster/measured_wires.h", "core/sim/cluster/measured_wires.cpp", "core/sim/local/local_prices.h",
      "core/sim/local/local_prices.cpp", "core/sim/software/wires.h", "core/sim/software/wires.cpp"}},
    {R"(\bWish\b)", "Preference"},
    {R"(\bRule\b)", "FactorRule, or KernelRule"},
    {R"(\bRoles\b)", "LoopAnalysis"},
    {R"(\bSpread\b)", "StagePlacement"},
    {R"(\blowering::spread\s*\()", "insert_transfers"},
    {R"(\bfind_waits\b)", "insert_waits"},
    {R"(\bBox\b)", "Block"},
    // A ring's segment, a contribution to a gradient, and a pinned buffer of copies are no blocks of a tensor.
    {R"(\bPiece\b)",
     "Block",
     {"core/collective/p2p_collectives.cpp", "core/include/orrery/backward.h", "core/ir/backward.cpp",
      "plugins/device/cuda/memory.h", "plugins/device/cuda/memory.cpp"}},
    {R"(\bFeed\b)", "InputFeed"},
    {R"(\bfor_each_run\b)", "for_runs"},
};

bool says(const std::string& line, const Word& word) {
    static std::map<std::string, std::regex> patterns;
    const auto found = patterns.try_emplace(word.old, word.old).first;
    const std::string code = line.substr(0, line.find("//"));
    return std::regex_search(code, found->second);
}

}  // namespace

TEST_CASE("a room of core has at most 40 files") {
    const auto rooms = rooms_of(policy::sources(), "core");
    CHECK(rooms.size() >= 20);
    for (const auto& [folder, room] : rooms) {
        if (room.files > largest_room)
            FAIL_CHECK(folder << " has " << room.files << " .h and .cpp files, at most " << largest_room << ": cut it");
    }
}

TEST_CASE("a file over its limit says in its first line why it is whole") {
    for (const Source& source : policy::sources()) {
        const bool header = source.is(".h") && (source.in("core") || source.in("plugins"));
        const size_t limit = header ? longest_header : longest_source;
        if (!source.code() || source.lines.size() <= limit) continue;
        const std::string& first = source.lines[0];
        const bool says = first.starts_with("//") || first.starts_with("--") || first.starts_with("# ");
        if (!says)
            FAIL_CHECK(source.path << " has " << source.lines.size() << " lines: split it, or say why in line 1");
    }
}

TEST_CASE("a room's manual begins with what comes in and goes out") {
    for (const auto& [folder, room] : rooms_of(policy::sources(), "core"))
        for (const std::string& problem : missing_at_top(room)) FAIL_CHECK(folder << "/README.md " << problem);
}

TEST_CASE("core's manual lists every room") {
    const std::vector<Source>& sources = policy::sources();
    const auto manual = std::find_if(sources.begin(), sources.end(),
                                     [](const Source& source) { return source.path == "core/README.md"; });
    REQUIRE(manual != sources.end());
    for (const auto& [folder, room] : rooms_of(sources, "core")) {
        const std::string link = "(" + folder.substr(folder.find('/') + 1) + "/README.md)";
        const bool listed = std::any_of(manual->lines.begin(), manual->lines.end(), [&](const std::string& line) {
            return line.starts_with("|") && line.find(link) != std::string::npos;
        });
        if (!listed) FAIL_CHECK("core/README.md does not list " << folder);
    }
}

TEST_CASE("the rule about manuals refuses what it must") {
    const Source good{"core/x/README.md", {"**In:** a", "**Out:** b"}},
        bad{"core/x/README.md", {"In comes a", "**Out:** b"}};
    CHECK(missing_at_top(Room{1, &good}).empty());
    CHECK(missing_at_top(Room{1, &bad}).size() == 1);
    CHECK(missing_at_top(Room{1, nullptr}).size() == 1);
}

TEST_CASE("words that were replaced stay away") {
    for (const Source& source : policy::sources()) {
        if (!(source.is(".h") || source.is(".cpp"))) continue;
        for (const auto& [room, words] : old_modules)
            for (const Word& word : words)
                if (source.in(room) && module_of(name_of(source.path)) == word.old)
                    FAIL_CHECK(source.path << ": such a module is called " << word.now << " now");
        if (!(source.in("core") || source.in("plugins") || source.in("kernels/rules"))) continue;
        for (size_t i = 0; i < source.lines.size(); ++i)
            for (const Word& word : old_words)
                if (word.mean_otherwise.count(source.path) == 0 && says(source.lines[i], word))
                    FAIL_CHECK(source.path << ":" << i + 1 << ": that is called " << word.now
                                           << " now: " << source.lines[i]);
    }
    for (const Word& word : old_words)
        for (const std::string& path : word.mean_otherwise) {
            const auto named = [&](const Source& source) {
                return source.path == path && std::any_of(source.lines.begin(), source.lines.end(),
                                                          [&](const std::string& line) { return says(line, word); });
            };
            const auto& sources = policy::sources();
            if (std::none_of(sources.begin(), sources.end(), named))
                FAIL_CHECK(path << " does not say " << word.old << " any more: take it out of the table");
        }
}

TEST_CASE("the rule about words refuses what it must") {
    const auto refused = [](const std::string& line) {
        return std::any_of(old_words.begin(), old_words.end(), [&](const Word& word) { return says(line, word); });
    };
    for (const char* line :
         {"case Do::kernel: break;", "Holds holds = Holds::param;", "class Communicator : public Completer {",
          "summary(plan, Wires{});", "exchange(topic, text, Patience::files);", "struct Note {", "Ledger ledger_;",
          "std::vector<Offer> offers;", "std::span<const Demand> demands",
          "Rule rule = op_def(kind).rule(program, op);", "find_waits(c);",
          "lowering::spread(plan.program, mesh, schedule);", "explicit Roles(const Program&);", "Box box_of(value);",
          "const Piece piece = block_of(layout);", "Feed feed(program);", "for_each_run(a, b, c);"})
        if (!refused(line)) FAIL_CHECK(line);
    for (const char* line :
         {"FactorRule rule;", "do { } while (false);", "// a Rule of the house", "InputFeed feed;",
          "if (executor.holds(value)) return;", "spread(spread_in),", "OpRole role;", "BlackBox box;"})
        if (refused(line)) FAIL_CHECK(line);
}

// Every strategy alone, every pair, and pp x dp x tp with ZeRO on eight ranks: each cell is verified value by value.
#include <fmt/format.h>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "table.h"
#include "trial.h"
#include "verify_plan.h"

using namespace orrery;
using namespace orrery::equivalence;

namespace {

/// What a strategy needs of a cell: mesh axes, options of grid.lua.
struct Part {
    std::string name;
    std::string axes;  ///< the axes that it takes for itself
    std::string mesh;  ///< lines of [mesh]
    std::string script;
    int64_t tokens = 8;  ///< of a row; of a cell, the max of its parts
    int64_t rows = 16;   ///< of a step; the same
};

const std::vector<Part>& parts() {
    static const std::vector<Part> all = [] {
        std::vector<Part> parts{
            {"dp", "dp", "dp = 2\n", ""},
            {"tp", "tp", "tp = 2\n", ""},
            {"tp+seq", "tp", "tp = 2\n", "sequence = true\n"},
        };
        for (int stage : {1, 2, 3})
            parts.push_back({fmt::format("zero{}", stage), "dp", "dp = 2\n", fmt::format("zero = {}\n", stage)});
        parts.push_back({"hybrid", "dp rep", "rep = 2\ndp = 2\n", "zero = 3\nrep = true\n"});
        for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb_h1", "zbv"})
            parts.push_back(
                {fmt::format("pp {}", schedule), "pp", "pp = 2\n", fmt::format("schedule = \"{}\"\n", schedule)});
        return parts;
    }();
    return all;
}

const Part& part(const std::string& name) {
    for (const Part& p : parts())
        if (p.name == name) return p;
    throw std::runtime_error("no part " + name);
}

struct Cell {
    std::string name;
    std::vector<const Part*> parts;

    bool packed() const {
        return std::ranges::any_of(parts,
                                   [](const Part* p) { return p->script.find("packed = true") != std::string::npos; });
    }
};

/// Pairs on different axes; plain and sharded data parallelism on two axes of their own is "hybrid".
bool compatible(const Part& a, const Part& b) {
    for (const char* axis : {"dp", "tp", "pp", "rep"})
        if (a.axes.find(axis) != std::string::npos && b.axes.find(axis) != std::string::npos) return false;
    return true;
}

std::vector<Cell> alone(bool pipelines) {
    std::vector<Cell> cells;
    for (const Part& p : parts())
        if ((p.axes == "pp") == pipelines) cells.push_back({p.name, {&p}});
    return cells;
}

std::vector<Cell> pairs() {
    std::vector<Cell> cells;
    for (size_t a = 0; a < parts().size(); ++a)
        for (size_t b = a + 1; b < parts().size(); ++b)
            if (compatible(parts()[a], parts()[b]))
                cells.push_back({parts()[a].name + " x " + parts()[b].name, {&parts()[a], &parts()[b]}});
    return cells;
}

std::vector<Cell> triples() {
    std::vector<Cell> cells;
    for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb_h1", "zbv"})
        for (const char* zero : {"zero1", "zero2", "zero3"}) {
            const std::string pipeline = fmt::format("pp {}", schedule);
            cells.push_back({fmt::format("{} x {} x tp", pipeline, zero), {&part(pipeline), &part(zero), &part("tp")}});
        }
    return cells;
}

std::unique_ptr<Experiment> made(const std::string& model, const Cell& cell) {
    // Interleaved and V-shaped schedules have two stages a rank.
    std::string mesh, script = fmt::format("model = \"{}\"\nlayers = 4\n", model);
    for (const char* axis : {"pp", "rep", "dp", "ep", "co", "cp", "tp"})
        for (const Part* p : cell.parts) {
            const std::string lines = "\n" + p->mesh;  // so that "ep = " is not found in "rep = "
            const auto at = lines.find(fmt::format("\n{} = ", axis));
            if (at != std::string::npos) mesh += lines.substr(at + 1, lines.find('\n', at + 1) - at);
        }
    int64_t tokens = 0, rows = 0;
    for (const Part* p : cell.parts)
        script += p->script, tokens = std::max(tokens, p->tokens), rows = std::max(rows, p->rows);
    return experiment("tests/equivalence/grid.lua",
                      fmt::format("[mesh]\n{}[train]\nsteps = 2\nsequences_per_step = {}\nmicrobatches = 4\n"
                                  "[data]\npath = \"none\"\ntokens_per_sequence = {}\n[script]\n{}",
                                  mesh, rows, tokens, script));
}

struct Tally {
    int passed = 0, failed = 0;
};

double worst(const VerifyReport& report) {
    double most = 0;
    for (const Compared& line : report.compared) most = std::max(most, line.worst);
    return most;
}

/// Verifies the cells and prints the worst ratios. `in_turn`: but in the long form each cell is verified on one model.
Tally run(const std::string& title, const std::vector<Cell>& cells, const std::vector<std::string>& models,
          bool in_turn = false) {
    say(title + ": part of what rounding explains, of the gradients' tolerance; values compared");
    const bool one_each = in_turn && !std::getenv("ORRERY_LONG");
    Tally tally;
    for (size_t c = 0; c < cells.size(); ++c)
        for (size_t m = 0; m < models.size(); ++m) {
            if (one_each && m != c % models.size()) continue;
            const Cell& cell = cells[c];
            const std::string& model = models[m];
            const std::string name = fmt::format("  {:<32} {:<6}", cell.name, model);
            try {
                const auto experiment = made(model, cell);
                const auto lowered = compiled(*experiment);
                test::Verifying how;
                how.contents = drawn_for(lowered.plan, 40, cell.packed());
                const VerifyReport report = test::verify_plan(experiment->train(), lowered, how);
                const bool passed = report.passed() && report.gradients >= 0;
                ++(passed ? tally.passed : tally.failed);
                say(fmt::format("{} {} {:>8.2g} {:>8.2g} {:>9}", name, passed ? "pass" : "FAIL", worst(report),
                                report.gradients, report.values));
                if (!passed) say(report.text(lowered.plan, how.options));
            } catch (const Error& error) {
                ++tally.failed;
                say(fmt::format("{} FAIL {}", name, error.what()));
            }
        }
    say(fmt::format("  {} passed, {} failed", tally.passed, tally.failed));
    return tally;
}

const std::vector<std::string> all_models{"gpt", "llama", "qwen2"};

}  // namespace

TEST_CASE("each strategy alone is verified on each model", "[alone]") {
    const Tally tally = run("alone", alone(false), all_models);
    CHECK(tally.failed == 0);
    CHECK(tally.passed > 0);
}

TEST_CASE("data and zero over two axes are verified, on the models in turn", "[alone]") {
    std::vector<Part> parts;
    for (int stage : {0, 1, 2, 3})
        parts.push_back(
            {fmt::format("dp x cp, zero{}", stage), "", "dp = 2\ncp = 2\n", fmt::format("zero = {}\n", stage)});
    std::vector<Cell> cells;
    for (const Part& p : parts) cells.push_back({p.name, {&p}});
    cells.push_back({"dp x cp, zero1 x tp+seq", {&parts[1], &part("tp+seq")}});
    cells.push_back({"dp x cp, zero3 x tp", {&parts[3], &part("tp")}});
    cells.push_back({"dp x cp, zero2 x pp 1f1b", {&parts[2], &part("pp 1f1b")}});
    const Tally tally = run("two data axes", cells, all_models, true);
    CHECK(tally.failed == 0);
    CHECK(tally.passed > 0);
}

TEST_CASE("context parallelism is verified under each strategy, on the models in turn", "[context]") {
    std::vector<Part> methods;
    for (const char* method : {"heads", "gather", "ring"})
        methods.push_back({method, "", "cp = 2\n", fmt::format("context = \"{}\"\ndropout = 0.1\n", method)});
    std::vector<Cell> cells;
    for (const Part& method : methods) {
        cells.push_back({method.name, {&method}});
        for (const char* other : {"dp", "zero1", "zero2", "zero3", "tp", "tp+seq", "pp 1f1b", "pp zb_h1"})
            if (method.name == "ring" || std::string_view(other) != "pp zb_h1")
                cells.push_back({fmt::format("{} x {}", method.name, other), {&method, &part(other)}});
    }
    const Part four{"", "", "cp = 4\n", "context = \"heads\"\n"};  // more ranks than llama's 2 kv_heads
    cells.push_back({"heads of 4", {&four}});
    cells.push_back({"heads of 4 x zero3", {&four, &part("zero3")}});
    const Part both{"", "", "co = 2\ncp = 2\n", "context = \"heads\"\n"};
    cells.push_back({"gather 2 x heads 2", {&both}});
    const Part crossed{"", "", "co = 2\ncp = 2\n", "outer = \"ring\"\ncontext = \"heads\"\n"};
    cells.push_back({"ring 2 x heads 2", {&crossed}});
    const Tally tally = run("context", cells, all_models, true);
    const Tally repeated = run("context, repeated kv_heads", {cells.end() - 4, cells.end()}, {"llama"});
    CHECK(tally.failed + repeated.failed == 0);
    CHECK(tally.passed > 0);
}

TEST_CASE("rings of 3 and 4, with a window and over packed documents, are verified under each strategy", "[context]") {
    const auto ring = [](const char* name, const char* mesh, const char* script, int64_t tokens) {
        return Part{name, "", mesh, fmt::format("{}dropout = 0.1\n", script), tokens};
    };
    const std::string outside = "outer = \"ring\"\ncontext = \"heads\"\n", alone = "context = \"ring\"\n";
    const Part three = ring("ring 3, packed", "cp = 3\n", (alone + "packed = true\n").c_str(), 48);
    const Part four = ring("ring 4, packed", "cp = 4\n", (alone + "packed = true\n").c_str(), 48);
    const Part window = ring("ring 4, window", "cp = 4\n", (alone + "window = 3\n").c_str(), 8);
    const Part both = ring("ring 2 x heads 2, packed", "co = 2\ncp = 2\n", (outside + "packed = true\n").c_str(), 48);
    const Part seen = ring("ring 2 x heads 2, window", "co = 2\ncp = 2\n", (outside + "window = 5\n").c_str(), 8);
    std::vector<Cell> cells{{three.name, {&three}}, {both.name + " x zero3", {&both, &part("zero3")}}};
    const std::vector<const char*> others{"dp", "zero1", "zero2", "zero3", "tp+seq", "pp 1f1b", "pp zb_h1"};
    if (std::getenv("ORRERY_LONG"))
        for (const Part* p : {&three, &four, &both}) {
            cells.push_back({p->name, {p}});
            for (const char* other : others)
                cells.push_back({fmt::format("{} x {}", p->name, other), {p, &part(other)}});
        }
    const Tally tally = run("rings", cells, all_models, true);
    std::vector<Cell> windows;
    for (const Part* p : {&window, &seen}) {
        windows.push_back({p->name, {p}});
        const std::vector<const char*> few{"zero1", "tp+seq", "pp zb_h1"};
        for (const char* other : std::getenv("ORRERY_LONG") ? others : p == &window ? few : decltype(few)())
            windows.push_back({fmt::format("{} x {}", p->name, other), {p, &part(other)}});
    }
    const Tally far = run("rings with a window", windows, {"llama"});
    CHECK(tally.failed + far.failed == 0);
    CHECK(tally.passed + far.passed > 0);
}

TEST_CASE("orders of tokens are verified under each strategy, on the models in turn", "[context]") {
    // In CI each method, order and strategy is there once.
    const bool all = std::getenv("ORRERY_LONG");
    const Part methods[] = {{"gather", "", "cp = 2\n", "context = \"gather\"\n"},
                            {"ring", "", "cp = 2\n", "context = \"ring\"\n"},
                            {"ring x heads", "", "co = 2\ncp = 2\n", "context = \"heads\"\nouter = \"ring\"\n"}};
    std::vector<Part> orders;
    for (const bool packed : {false, true})
        for (const char* order : {"zigzag", "balanced"})
            for (const Part& method : methods)
                orders.push_back(
                    {fmt::format("{} {}{}", order, method.name, packed ? ", packed" : ""), "", method.mesh,
                     fmt::format("{}order = \"{}\"\npacked = {}\ndropout = 0.1\n", method.script, order, packed),
                     packed ? 48 : 8});
    const char* others[] = {"", "dp", "zero1", "zero2", "zero3", "tp+seq", "pp 1f1b", "pp zb_h1"};
    std::vector<Cell> cells;
    for (size_t o = 0; o < orders.size(); ++o)
        for (size_t s = 0; s < std::size(others); ++s) {
            if (!all && s != o % std::size(others)) continue;
            Cell& cell = cells.emplace_back(Cell{orders[o].name, {&orders[o]}});
            if (others[s][0] == '\0') continue;
            cell.name += fmt::format(" x {}", others[s]);
            cell.parts.push_back(&part(others[s]));
        }
    const Tally tally = run("orders", cells, all_models, true);
    int failed = tally.failed;
    const Part window{"window", "", "", "window = 3\n"};
    for (Cell& cell : cells) cell.parts.push_back(&window);
    if (all) failed += run("orders, with a window of 3", cells, {"llama"}).failed;
    CHECK(failed == 0);
    CHECK(tally.passed > 0);
}

TEST_CASE("experts over their own axis and over those of attention are verified under each strategy", "[experts]") {
    const auto over = [](const char* name, const char* mesh, const char* axes, const char* more = "",
                         int64_t rows = 16) {
        return Part{name, "", mesh, fmt::format("experts_over = \"{}\"\n{}", axes, more), 8, rows};
    };
    const char* const ring = "context = \"ring\"\nparts = 2\n";
    const Part two = over("ep 2", "ep = 2\n", "ep"), four = over("ep 4", "ep = 4\n", "ep", "", 32);
    const Part same = over("ep 2 of the same tokens", "ep = 2\n", "ep", "same_tokens = true\n");
    const Part dp = over("experts over dp", "", "dp"), tp = over("over tp", "", "tp", "parts = 2\n");
    const Part cp = over("over cp", "cp = 2\n", "cp", ring), both = over("over dp and cp", "cp = 2\n", "dp cp", ring);
    const Part all = over("over dp, cp and tp", "cp = 2\n", "dp cp tp", "context = \"ring\"\nparts = 4\n");
    const Part longer = {"", "", "", "", 16};
    const Part beside = over("ep 2, ring", "ep = 2\ncp = 2\n", "ep", ring);
    std::vector<Cell> cells;
    const auto cell = [&](const Part& experts, const std::vector<const char*>& others, const Part* more = nullptr) {
        Cell& made = cells.emplace_back(Cell{experts.name, {&experts}});
        for (const char* other : others) {
            made.name += fmt::format(" x {}", other);
            made.parts.push_back(&part(other));
        }
        if (more) made.parts.push_back(more);
    };
    cell(two, {"dp"});
    cell(two, {"zero1", "tp+seq"});
    cell(two, {"pp zb_h1"});
    cell(four, {"zero2"});
    cell(same, {"zero1"});
    cell(dp, {"zero3"});
    cell(tp, {"dp", "tp"});
    cell(cp, {"zero1"});
    cell(both, {"zero2"});
    cell(all, {"zero1", "tp+seq"}, &longer);
    cell(beside, {"pp 1f1b"});
    // A token is sent once to each block of experts.
    const auto rows = [](Part one, int blocks) {
        one.name += ", rows";
        one.script += fmt::format("expert_blocks = {}\n", blocks);
        return one;
    };
    const Part two_rows = rows(two, 4), four_rows = rows(four, 4), tp_rows = rows(tp, 2), both_rows = rows(both, 4);
    const Part same_rows = rows(same, 2), dp_rows = rows(dp, 2), cp_rows = rows(cp, 2), beside_rows = rows(beside, 2);
    cell(two_rows, {"zero1", "tp+seq"});
    cell(four_rows, {"zero2"});
    cell(both_rows, {"zero3"});
    cell(beside_rows, {"pp zb_h1"});
    if (std::getenv("ORRERY_LONG")) {
        const std::vector<const char*> others{"dp", "zero1", "zero2", "zero3", "tp", "tp+seq", "pp 1f1b", "pp zb_h1"};
        for (const Part* experts : {&two, &four, &same, &dp, &tp, &cp, &both, &beside, &two_rows, &four_rows,
                                    &same_rows, &dp_rows, &tp_rows, &cp_rows, &both_rows, &beside_rows})
            for (const char* other : others) {
                std::vector<const char*> list{other};
                const bool data = std::string_view(other) == "dp" || std::string_view(other).starts_with("zero");
                const std::string_view name = experts->name;
                if ((name.starts_with("experts over dp") || name.starts_with("over dp")) && !data)
                    list.push_back("zero1");
                if (name.starts_with("over tp") && !std::string_view(other).starts_with("tp")) list.push_back("tp+seq");
                cell(*experts, list);
            }
        cell(two, {"pp 1f1b", "zero3", "tp"});
        cell(two, {"pp zb_h1", "zero3", "tp+seq"});
        cell(dp, {"pp 1f1b", "zero1", "tp"});
        cell(two_rows, {"pp 1f1b", "zero3", "tp"});
    }
    const Tally tally = run("experts", cells, {"mixtral", "qwen3_moe", "deepseek_v3"}, true);
    CHECK(tally.failed == 0);
    CHECK(tally.passed > 0);
}

TEST_CASE("attention with a window is verified under each strategy", "[alone]") {
    const Part window{"window", "", "", "window = 3\n"};
    std::vector<Cell> cells = alone(false);
    cells.push_back({"pp 1f1b x tp", {&part("pp 1f1b"), &part("tp")}});
    for (Cell& cell : cells) cell.parts.push_back(&window);
    const Tally tally = run("with a window of 3", cells, {"llama"});
    CHECK(tally.failed == 0);
    CHECK(tally.passed > 0);
}

TEST_CASE("a pipeline with each schedule is verified on each model", "[grid]") {
    const Tally tally = run("pipelines alone", alone(true), all_models);
    CHECK(tally.failed == 0);
    CHECK(tally.passed > 0);
}

TEST_CASE("every pair of strategies is verified, on the models in turn", "[grid]") {
    const Tally tally = run("pairs", pairs(), all_models, true);
    CHECK(tally.failed == 0);
    CHECK(tally.passed > 0);
}

TEST_CASE("pp x dp x tp with ZeRO on eight ranks is verified, on the models in turn", "[grid]") {
    const Tally tally = run("triples", triples(), all_models, true);
    CHECK(tally.failed == 0);
    CHECK(tally.passed > 0);
}

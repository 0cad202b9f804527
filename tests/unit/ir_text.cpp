#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <chrono>
#include <random>

#include "compile/passes/differentiate.h"
#include "ir/check_program.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir_programs.h"

using namespace orrery;

TEST_CASE("random programs print and parse back to equal programs") {
    for (uint32_t seed = 0; seed < 300; ++seed) {
        const Program program = test::random_program(seed);
        const std::string text = print(program);
        INFO("seed " << seed << "\n" << text);
        Program back;
        REQUIRE_NOTHROW(back = parse(text));
        REQUIRE(test::difference(program, back) == "");
        REQUIRE(print(back) == text);
    }
}

TEST_CASE("a differentiated decoder prints, parses and verifies") {
    Program program = test::decoder({});
    differentiate(program, *program.result("loss_sum"));
    check_program(program);
    const Program back = parse(print(program));
    CHECK(test::difference(program, back) == "");
    check_program(back);
}

TEST_CASE("layouts print with a mesh and parse back") {
    Program program = test::mlp(8, 6, 10);
    const Mesh mesh({{"dp", 2, false}, {"tp", 2, false}});
    for (Value& value : program.values) {
        value.layout = Layout(value.type.shape.size());
        if (!value.type.shape.empty()) value.layout.set(0, Placement::split(0));
        if (value.type.shape.empty()) value.layout.set(1, Placement::partial(ReduceOp::sum));
        if (value.type.shape.size() == 2) value.layout.set(1, Placement::split(0));
    }
    const std::string text = print(program, &mesh);
    CHECK(text.find("mesh dp=2 tp=2") != std::string::npos);
    CHECK(text.find("dp:S(0) tp:S(0)") != std::string::npos);
    CHECK(test::difference(program, parse(text)) == "");
}

TEST_CASE("origins read back, or are quoted") {
    CHECK(print(Origin{"tensor", "mlp.lua", 9, 0}) == "tensor, mlp.lua:9");
    CHECK(print(Origin{"", "laptop.toml", 4, 13}) == "laptop.toml:4:13");
    CHECK(print(Origin{"data", "", 0, 0}) == "data");
    CHECK(print(Origin{"", "Makefile", 0, 0}) == R"("" "Makefile" 0 0)");
    CHECK(print(Origin{"", "a by b.lua", 3, 0}) == R"("" "a by b.lua" 3 0)");
}

TEST_CASE("a program that is no program names the line and what is expected") {
    auto message = [](std::string_view text) {
        try {
            parse(text, "p.txt");
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string("parsed");
    };
    CHECK(message("") == "p.txt: expected \"program NAME\", found nothing");
    CHECK(message("program p\n  %0 x = input f32[8") == "p.txt:2: expected an integer, found the end of the line");
    CHECK(message("program p\n  %0 x = input f99[8]").find("found \"f99\"") != std::string::npos);
    CHECK(message("program p\n  %999999999 x = input f32[8]").find("out of range") != std::string::npos);
    CHECK(message("program p\nnotes\n  grad %3 %4").find("a known value instead of %3") != std::string::npos);
    CHECK(message("program p\nnotes\n  frobnicate 3").find("found \"frobnicate\"") != std::string::npos);
}

TEST_CASE("a 405B program is built, differentiated, verified, printed and parsed in linear time") {
    auto milliseconds = [](int64_t layers) {
        const auto start = std::chrono::steady_clock::now();
        Program program = test::decoder({.layers = layers,
                                         .batch = 16,
                                         .seq = 8192,
                                         .embed = 16384,
                                         .heads = 128,
                                         .kv_heads = 8,
                                         .mlp = 53248,
                                         .vocab = 128256});
        differentiate(program, *program.result("loss_sum"));
        check_program(program);
        const Program back = parse(print(program));
        CHECK(back.ops.size() == program.ops.size());
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    };
    milliseconds(4);  // warm caches and tables
    const double small = milliseconds(63);
    const double large = milliseconds(126);
    INFO("63 layers " << small << " ms, 126 layers " << large << " ms");
    CHECK_NOFAIL(large < 6 * small + 20);  // reported, not failed: a busy machine is no bug
    CHECK_NOFAIL(large < 5000);
}

TEST_CASE("damaged text is refused with an Error, and never crashes") {
    Program program = test::decoder({.layers = 1});
    differentiate(program, *program.result("loss_sum"));
    program.store(2, "tp", Placement::split(0), {"tensor", "a.lua", 3, 0});
    const Mesh mesh({{"dp", 2, false}, {"tp", 2, false}});
    for (Value& value : program.values) value.layout = Layout(value.type.shape.size());
    const std::string whole = print(program, &mesh);
    std::mt19937 random(5);
    auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
    constexpr std::string_view letters = "0123456789%=,[]{}#:;\"\\ \n-.eSRPx()";
    int refused = 0;
    for (int round = 0; round < 2000; ++round) {
        std::string text = whole;
        for (size_t i = 0; i <= below(4); ++i) {
            const size_t place = below(text.size());
            switch (below(4)) {
                case 0: text[place] = letters[below(letters.size())]; break;
                case 1: text.insert(place, 1, letters[below(letters.size())]); break;
                case 2: text.erase(place, 1 + below(12)); break;
                default: text.insert(place, text.substr(below(text.size()), below(30)));
            }
        }
        INFO("round " << round);
        try {
            const Program damaged = parse(text);
            check_program(damaged);
            print(damaged, &mesh);
        } catch (const Error&) {
            ++refused;
        }
    }
    CHECK(refused > 1000);
}

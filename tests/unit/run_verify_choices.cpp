// Verification of choices by rounded values: ties of top_k and assign_slots, and choices that rounding does not
// explain.
#include <atomic>
#include <catch2/catch.hpp>

#include "ir/op.h"
#include "layout_models.h"
#include "verify_plan.h"

using namespace orrery;
using namespace orrery::test;

namespace {

using Ints = std::vector<int64_t>;
constexpr int64_t width = 64, experts = 8;

/// scores = x router -> the two highest of 8, by weight to 2 slots of each expert, a gain for each expert, and back.
Model mixture(DType compute = DType::f32) {
    Model m;
    m.compute = compute;
    const ValueId x = m.input("x", {4, 8, width}, {"batch", "seq", "embed"});
    m.build.push_scope("mixture");
    const ValueId scores = m.op("matmul", {x, m.param("router", {width, experts}, {"embed", "expert"})});
    m.build.name(scores, "scores", {});
    const std::vector<ValueId> best = m.build.add("top_k", {scores}, {{"k", int64_t{2}}}, m.here());
    m.build.name(best[1], "ids", {});
    const Attributes size{{"experts", experts}, {"slots", int64_t{2}}};
    const ValueId places = m.build.add("assign_slots", {best[1], best[0]}, size, m.here())[0];
    const ValueId rows = m.op("dispatch", {x, places}, size);
    const ValueId made = m.op("mul", {rows, m.param("gain", {experts, 1, width}, {"", "", "embed"})});
    const ValueId y = m.op("combine", {made, places, best[0]});
    m.build.pop_scope();
    m.train(m.op("sum", {m.op("square", {y})}, {{"dims", Ints{0, 1, 2}}}));
    m.split_names({{"embed", "tp"}});
    return m;
}

/// Values in another order in each row (or column) `k`: sums of them differ by rounding alone.
float shuffled(int64_t i, int64_t k) {
    const int64_t from = (i * (2 * k + 1) + 5 * k) % width;
    return 0.5f + 0.3f * static_cast<float>(from * from % 61) / 61;
}

/// All scores of a token are tied, or all scores of an expert in its group of tokens.
std::vector<char> tied(const Value& value, int64_t step, bool tokens) {
    std::vector<char> bytes = contents(value, step);
    const bool x = value.name == "x";
    if (!x && value.name != "router") return bytes;
    for (int64_t i = 0; i < value.type.count(); ++i) {
        const int64_t row = x ? i / width : i / experts, col = x ? i % width : i % experts;
        const float number = x ? (tokens ? shuffled(col, row) : 1 + 0.07f * static_cast<float>(row))
                               : (tokens ? 1 - 0.1f * static_cast<float>(col) : shuffled(row, col));
        std::memcpy(&bytes[static_cast<size_t>(i) * 4], &number, 4);
    }
    return bytes;
}

Mesh mesh_of(int64_t tp, int64_t micro = 1) { return Mesh({{"tp", tp}}).with_microbatches(micro); }

bool names(const VerifyReport& report, const std::string& op) {
    return std::any_of(report.ties.begin(), report.ties.end(),
                       [&](const auto& tie) { return tie.first.starts_with(op + " of mixture, model.lua:"); });
}

/// x [256, 64] times a gain -> scores, and the highest of each row. The first row's two highest differ by `gap`.
Model highest() {
    Model m;
    const ValueId x = m.input("x", {256, width}, {"batch", "expert"});
    m.build.push_scope("mixture");
    const ValueId scores = m.op("mul", {x, m.param("gain", {width}, {"expert"})});
    const std::vector<ValueId> best = m.build.add("top_k", {scores}, {{"k", int64_t{1}}}, m.here());
    m.build.name(best[1], "ids", {});
    const ValueId hot = m.op("one_hot", {best[1]}, {{"size", width}});
    const ValueId row = m.op("matmul", {hot, m.param("table", {width, 6}, {"expert", "embed"})});
    const ValueId y = m.op("mul", {row, m.op("reshape", {best[0]}, {{"shape", Ints{256, 1, 1}}})});
    m.build.pop_scope();
    m.train(m.op("sum", {m.op("square", {y})}, {{"dims", Ints{0, 1, 2}}}));
    m.split_names({{"embed", "tp"}});
    return m;
}

/// Verifies `highest` where the last `ranks` of two ranks read an x of the other order of the first row's highest.
VerifyReport turned(float gap, int ranks, std::string& text) {
    const Model m = highest();
    const Lowered lowered = compile(m.program, mesh_of(2));
    std::atomic<int> reads = 0;
    Verifying how;
    how.options.steps = 1;
    how.contents = [&](const Value& value, int64_t step) {
        std::vector<char> bytes = contents(value, step);
        const float one = 1, near = value.name == "x" && reads++ > 2 - ranks ? 1 + gap : 1 - gap;
        if (value.name == "x") std::memcpy(&bytes[3 * 4], &one, 4), std::memcpy(&bytes[5 * 4], &near, 4);
        if (value.name == "gain")
            for (size_t i = 0; i < static_cast<size_t>(width); ++i) std::memcpy(&bytes[i * 4], &one, 4);
        return bytes;
    };
    const VerifyReport report = verify_plan(m.program, lowered, how);
    text = report.text(lowered.plan, how.options);
    return report;
}

}  // namespace

TEST_CASE("verify: choices within rounding of a tie are counted and what follows is compared") {
    for (const DType compute : {DType::f32, DType::bf16})
        for (const bool tokens : {false, true})
            for (const auto& [tp, micro] : {std::pair<int64_t, int64_t>{2, 1}, {2, 2}, {4, 1}}) {
                const Model m = mixture(compute);
                const Lowered lowered = compile(m.program, mesh_of(tp, micro));
                Verifying how;
                how.contents = [&](const Value& value, int64_t step) { return tied(value, step, tokens); };
                const VerifyReport report = verify_plan(m.program, lowered, how);
                const std::string text = report.text(lowered.plan, how.options);
                INFO(text);
                CHECK(report.passed());
                const std::string op = tokens ? "assign_slots" : "top_k";
                if (compute == DType::bf16 && tokens) continue;  // all sums may be the same in 16 bits
                CHECK(names(report, op));
                CHECK_THAT(text, Catch::Contains("within rounding of a tie: " + op + " of mixture"));
                for (const auto& [name, ties] : report.ties) {
                    CHECK(ties.choices.size() <= 2 * 4 * 8 * 2);  // steps, groups, tokens, choices of a token
                    CHECK(ties.smallest <= ties.largest);
                    CHECK(ties.worst < 1);
                }
                for (const Compared& line : report.compared) CHECK(line.worst < 0.5);
            }
}

TEST_CASE("verify: a rank's wrong choice is not taken for a tie") {
    const Model m = mixture();
    const Lowered lowered = compile(m.program, mesh_of(2));
    Verifying wrong;
    wrong.options.injections = {parse_injection("scale,rank=1,by=-1,tensor=scores")};
    const VerifyReport report = verify_plan(m.program, lowered, wrong);
    INFO(report.text(lowered.plan, wrong.options));
    CHECK_FALSE(report.passed());
    CHECK(report.ties.empty());
    REQUIRE(!report.roots.empty());
    CHECK(report.roots[0].own);
    CHECK(report.roots[0].rank == 1);
    CHECK_THAT(report.text(lowered.plan, wrong.options), Catch::Contains("tensor    scores"));
}

TEST_CASE("verify: a choice that rounding does not explain is a finding, and so is one that only some ranks make") {
    std::string text;
    const VerifyReport near = turned(1e-6f, 2, text);
    INFO(text);
    CHECK(near.passed());
    REQUIRE(near.ties.size() == 1);
    const Ties& ties = near.ties.begin()->second;
    CHECK(ties.choices == std::set<std::pair<int64_t, int64_t>>{{1, 0}});
    CHECK(ties.largest == Approx(1e-6).epsilon(0.1));
    CHECK(ties.worst < 0.5);
    for (const auto& [gap, ranks, why] : {std::tuple{1e-5f, 2, "rounding does not explain the order"},
                                          std::tuple{1e-6f, 1, "made a different choice"}}) {
        const VerifyReport far = turned(gap, ranks, text);
        INFO(text);
        CHECK_FALSE(far.passed());
        CHECK(far.ties.empty());
        CHECK(far.roots.size() == static_cast<size_t>(ranks));
        CHECK(far.further == 0);
        REQUIRE(!far.roots.empty());
        CHECK(far.roots[0].chosen);
        CHECK_THAT(text, Catch::Contains("tensor    ids") && Catch::Contains(why));
    }
}

TEST_CASE("verify: the oracle's random roundings keep its choice, so they widen no tolerance by another one") {
    const Model m = mixture();
    const Lowered lowered = compile(m.program, mesh_of(2));
    const auto device = cpu_device(false);
    const auto tie = [](const Value& value, int64_t step) {
        const std::vector<char> bytes = tied(value, step, false);
        const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
        return std::vector<std::byte>(first, first + bytes.size());
    };
    Oracle oracle(m.program, lowered.plan.program, lowered.plan.mesh, *device, tie, 4);
    oracle.step(1);
    const ValueId ids = *m.program.find("ids");
    const Program& propagated = lowered.plan.program;
    const ValueId scores = propagated.op(propagated.value(ids).op).inputs[0];  // summed over ranks
    CHECK(oracle.moved(scores) > 0);
    CHECK(oracle.moved(scores, 0) > 0);
    CHECK(oracle.moved(ids) == 0);
    const ValueId gain = m.program.grad_of(*m.program.find("gain"));  // another choice would move it by its own size
    const auto* whole = oracle.whole(gain);
    CHECK(oracle.moved(gain) < 1e-5 * difference(DType::f32, whole, whole, experts * width).norm);
}

TEST_CASE("verify: which elements decided a choice") {
    const auto differences = [](const char* op, const Attributes& attributes, const std::vector<Shape>& operands,
                                const Shape& shape, auto want, auto have) {
        const DType type = sizeof(want[0]) == 4 ? DType::i32 : DType::u8;
        std::vector<std::array<int64_t, 3>> found;
        for (const Rivals& r : op_def(op).choice->differences(attributes, operands, {want.data(), type, shape},
                                                              {have.data(), type, shape}))
            found.push_back({r.result, r.first, r.second});
        return found;
    };
    using Found = std::vector<std::array<int64_t, 3>>;
    using Ids = std::vector<int32_t>;
    using Flags = std::vector<uint8_t>;
    // Along dim 1 of [2, 3, 2], two of three.
    const Attributes two{{"k", int64_t{2}}, {"dim", int64_t{1}}};
    CHECK(differences("top_k", two, {{2, 3, 2}}, {2, 2, 2}, Ids{0, 0, 1, 1, 2, 2, 1, 1}, Ids{0, 0, 1, 2, 1, 2, 2, 1}) ==
          Found{{3, 3, 5}, {4, 10, 8}, {6, 8, 10}});
    CHECK(differences("top_k", two, {{2, 3}}, {2, 2}, Ids{0, 1, 1, 2}, Ids{0, 3, 1, 2}).empty());
    // Two groups of three tokens with one choice each, two experts with one slot.
    const Attributes size{{"experts", int64_t{2}}, {"slots", int64_t{1}}};
    const Shape choices{2, 3, 1};
    const Ids want{0, -1, 1, -1, 1, -1};
    CHECK(differences("assign_slots", size, {choices, choices}, choices, want, Ids{-1, 0, 1, -1, -1, 1}) ==
          Found{{0, 0, 1}, {4, 4, 5}});
    CHECK(differences("assign_slots", size, {choices, choices}, choices, want, Ids{-1, -1, 1, -1, -1, 1}).empty());
    CHECK(differences("assign_slots", size, {choices}, choices, want, Ids{-1, 0, 1, -1, 1, -1}).empty());
    CHECK(differences("less", {}, {{3}, {2, 1}}, {2, 3}, Flags{0, 1, 0, 1, 1, 1}, Flags{0, 0, 0, 1, 1, 0}) ==
          Found{{1, 1, 0}, {5, 2, 1}});
}

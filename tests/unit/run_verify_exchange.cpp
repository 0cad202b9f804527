// Verification of programs that exchange how an array is split: every pair of dims, of arrays of 2, 3 and 4 dims.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "ir/describe.h"
#include "layout_models.h"
#include "verify_plan.h"

using namespace orrery;
using namespace orrery::test;

namespace {

const auto S = Placement::split;

/// How the exchanged array comes and goes.
enum class Way { plain, transposed, reshaped };

struct Case {
    size_t rank = 3;
    int from = 0, to = 1;
    Way way = Way::plain;
    std::vector<Axis> axes{{"tp", 2}};
    int64_t micro = 1;

    Mesh mesh() const { return Mesh(axes).with_microbatches(micro); }
    std::string text() const {
        return fmt::format("rank {}, {} -> {}, way {}, mesh {}", rank, from, to, static_cast<int>(way), mesh().text());
    }
};

Shape permuted(const Shape& shape, const std::vector<int64_t>& perm) {
    Shape out;
    for (int64_t d : perm) out.push_back(shape[static_cast<size_t>(d)]);
    return out;
}

/// x gain -> "before", split in `from`; its square "after", split in `to`; the gradient goes back the other way.
/// Sizes are all different, so that blocks in a wrong order cannot look right.
Model exchanged(const Case& c) {
    Model m;
    Shape shape{4, 12, 8, 16};
    shape.resize(c.rank);
    Names names{"batch", "one", "two", "three"};
    names.resize(c.rank);
    const Shape row(shape.begin() + 1, shape.end());
    ValueId x = m.op("mul", {m.input("x", shape, names), m.param("gain", row, Names(row.size()))});
    m.build.name(x, "before", {});
    m.store("x", "tp", S(c.from));
    if (c.way == Way::transposed) {  // the dims turn round: what was `to` is another place
        std::vector<int64_t> perm;
        for (size_t d = c.rank; d-- > 0;) perm.push_back(static_cast<int64_t>(d));
        x = m.op("transpose", {x}, {{"perm", perm}});
        shape = permuted(shape, perm);
    } else if (c.way == Way::reshaped) {  // a dim more at the end
        shape.back() /= 2;
        shape.push_back(2);
        x = m.op("reshape", {x}, {{"shape", shape}});
    }
    x = m.op("square", {x});
    m.build.name(x, "after", {});
    m.store("after", "tp", S(c.way == Way::transposed ? static_cast<int>(c.rank) - 1 - c.to : c.to));
    std::vector<int64_t> all;
    for (size_t d = 0; d < shape.size(); ++d) all.push_back(static_cast<int64_t>(d));
    m.train(m.op("sum", {x}, {{"dims", all}}));
    if (c.axes.size() > 1) m.split_names({{"batch", "dp"}});
    return m;
}

int exchanges(const Plan& plan) {
    int count = 0;
    for (const RankClass& c : plan.classes)
        for (const Instruction& i : c.stream) count += i.opcode == Opcode::all_to_all;
    return count;
}

std::vector<Case> cases() {
    const std::vector<std::pair<std::vector<Axis>, int64_t>> meshes{
        {{{"tp", 2}}, 1}, {{{"tp", 2}}, 2}, {{{"dp", 2}, {"tp", 2}}, 1}, {{{"tp", 2}, {"dp", 2}}, 1}};
    std::vector<Case> all;
    for (size_t rank = 2; rank <= 4; ++rank)
        for (int from = 0; from < static_cast<int>(rank); ++from)
            for (int to = 0; to < static_cast<int>(rank); ++to)
                for (const auto& [axes, micro] : meshes)
                    for (Way way : {Way::plain, Way::transposed, Way::reshaped}) {
                        if (from == to || (micro > 1 && (from == 0 || to == 0))) continue;
                        if (axes.size() > 1 && way != Way::plain) continue;
                        all.push_back({rank, from, to, way, axes, micro});
                    }
    return all;
}

}  // namespace

TEST_CASE("verify: every exchange of two dims agrees with one device", "[slow]") {
    int verified = 0;
    for (const Case& c : cases()) {
        INFO(c.text());
        const Model m = exchanged(c);
        const Lowered lowered = compile(m.program, c.mesh());
        REQUIRE(exchanges(lowered.plan) > 0);
        Verifying how;
        how.reference = true;  // plain kernels: nothing to prepare
        const VerifyReport right = verify_plan(m.program, lowered, how);
        INFO(right.text(lowered.plan, {}));
        CHECK(right.passed());
        ++verified;
    }
    fmt::print("  {} exchanges verified\n", verified);
    CHECK(verified == 124);
}

TEST_CASE("verify: a mistake before an exchange, at it or behind it is named with tensor and rank", "[slow]") {
    for (size_t rank = 2; rank <= 4; ++rank)
        for (int from = 0; from < static_cast<int>(rank); ++from) {
            const Case c{rank, from, (from + 1) % static_cast<int>(rank)};
            const Model m = exchanged(c);
            const Lowered lowered = compile(m.program, c.mesh());
            for (const char* mistake :
                 {"scale,rank=1,tensor=before", "unexchanged,rank=1,tensor=after", "scale,rank=1,tensor=after"}) {
                INFO(c.text() << ", " << mistake);
                Verifying how;
                how.reference = true;
                how.options.injections = {parse_injection(mistake)};
                const VerifyReport report = verify_plan(m.program, lowered, how);
                INFO(report.text(lowered.plan, how.options));
                CHECK_FALSE(report.passed());
                REQUIRE(!report.roots.empty());
                const Finding& first = report.roots[0];
                CHECK(first.own);
                CHECK(first.rank == 1);
                const Program& program = lowered.plan.program;
                CHECK(program.value(original_of(program, first.value)).name == how.options.injections[0].tensor);
            }
        }
}

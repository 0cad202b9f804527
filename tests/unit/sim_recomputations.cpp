#include "sim/search/recomputations.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "compile/passes/differentiate.h"
#include "compile/passes/recompute.h"
#include "unit/ir_programs.h"

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr DecoderShape shape{.layers = 8, .batch = 2, .seq = 10, .embed = 48, .heads = 4, .kv_heads = 2, .mlp = 96};
constexpr int64_t token_bytes = 4 * shape.batch * shape.seq;  // of a f32 for each token

Program trained() {
    Program program = decoder(shape);
    differentiate(program, *program.result("loss_sum"));
    return program;
}

int64_t freed(const Program& program, const std::vector<std::string>& kinds) {
    return saved_bytes(program) - saved_bytes(recompute_by(program, {{"", none, true, {}, kinds}}));
}

}  // namespace

TEST_CASE("recompute: saved bytes are those of forward results that the backward pass reads, each memory once") {
    const Program program = trained();
    CHECK(freed(program, {"swiglu"}) == shape.layers * shape.mlp * token_bytes);
    // The result and a statistic of each of two norms in a layer, and of the last.
    CHECK(freed(program, {"rmsnorm"}) == (2 * shape.layers + 1) * (shape.embed + 1) * token_bytes);
    // Only its statistic: the output of attention is saved by the reshape that the product reads.
    CHECK(freed(program, {"attention"}) == shape.layers * shape.heads * token_bytes);
    CHECK(freed(program, {"reshape"}) == 0);
}

TEST_CASE("recompute: a kind that frees nothing gets a remark at the line that asks for it, others get none") {
    for (const bool more : {false, true}) {
        Program program = trained();
        const Origin here{"recompute", "mine.lua", 12, 0};
        program.recompute("layers", here,
                          more ? std::vector<std::string>{"swiglu", "attention"} : std::vector<std::string>{"swiglu"});
        const std::vector<Remark> remarks = recompute(program).remarks();
        REQUIRE(remarks.size() == (more ? 1 : 0));
        if (!more) continue;
        CHECK(remarks[0].text.find("recomputing attention frees 0.") != std::string::npos);
        CHECK(remarks[0].origin.line == 12);
    }
    Program whole = trained();
    whole.recompute("layers.3", {});
    CHECK(recompute(whole).remarks().empty());
}

TEST_CASE("recomputations: kinds are candidates by bytes for their time, then a part of the layers, then all") {
    const Program program = trained();
    const Recomputations found = recomputations(program, shape.batch, 1e12, 1e10, true);
    REQUIRE(found.worth.size() >= 4);
    CHECK(found.worth.front().kinds == "none");
    CHECK(found.worth.back().kinds == "all");
    CHECK(found.worth.back().layers == 0);
    CHECK(found.worth.back().factor == 4.0 / 3);
    CHECK(found.saved == static_cast<double>(saved_bytes(program)) / shape.batch);
    for (size_t i = 1; i < found.worth.size(); ++i) {
        const Recomputation &one = found.worth[i], &before = found.worth[i - 1];
        CHECK(one.freed > before.freed);
        CHECK(one.seconds > before.seconds);
        if (one.layers > 0) CHECK(one.kinds == "all");
        if (one.kinds == "all") continue;
        CHECK(one.factor < 4.0 / 3);
        // A longer list of kinds frees what it says, for less of the time of all layers than its share of their bytes.
        CHECK(one.kinds.find("attention") == std::string::npos);
        CHECK(one.freed * found.forward_s > one.seconds * found.worth.back().freed);
    }
    CHECK(std::ranges::count(found.useless, "attention") == 1);
    CHECK(std::ranges::count(found.useless, "swiglu") == 0);
    CHECK(text_of(found).find("next to nothing: ") != std::string::npos);
    for (const Recomputation& one : recomputations(program, shape.batch, 1e12, 1e10, false).worth)
        CHECK(one.layers == 0);
    // Where products cost nothing, ops that move bytes are no bargain.
    const Recomputations free = recomputations(program, shape.batch, 1e30, 1e10, true);
    CHECK(free.worth.size() <= found.worth.size());
}

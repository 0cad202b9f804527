// Redistribution paths: known ones, and that every path found does what it says.
#include "layout/reshard.h"

#include <catch2/catch.hpp>

#include "ir/op.h"

using namespace orrery;

namespace {

const Mesh mesh({{"dp", 2}, {"tp", 4}});
const TensorType type{DType::f32, {16, 32}};
const auto S = Placement::split;
const Placement R = Placement::replicated();
const Placement P = Placement::partial(ReduceOp::sum);

Layout layout(Placement dp, Placement tp) {
    Layout result(2);
    result.set(0, dp);
    result.set(1, tp);
    return result;
}

/// "all_reduce dp 128, shard tp 0"
std::string text(const ReshardPath* path) {
    if (!path) return "none";
    std::string result;
    for (const ReshardStep& step : path->steps)
        result += (result.empty() ? "" : ", ") + std::string(op_inserted_for(step.instruction)) + " " +
                  mesh.axis(step.axis).name + " " + std::to_string(step.bytes);
    return result;
}

std::string find(const Layout& from, const Layout& to) {
    Resharder resharder(mesh);
    return text(resharder.path(type, from, to));
}

}  // namespace

TEST_CASE("one axis: each pair of placements has its collective, with the bytes that its comment states") {
    // 16 x 32 x 4 bytes = 2048
    CHECK(find(layout(P, R), layout(R, R)) == "all_reduce dp 2048");
    CHECK(find(layout(R, P), layout(R, R)) == "all_reduce tp 3072");
    CHECK(find(layout(R, P), layout(R, S(1))) == "reduce_scatter tp 1536");
    CHECK(find(layout(R, S(0)), layout(R, R)) == "all_gather tp 1536");
    CHECK(find(layout(R, S(0)), layout(R, S(1))) == "all_to_all tp 384");
    CHECK(find(layout(R, R), layout(R, S(1))) == "shard tp 0");
    CHECK(find(layout(R, R), layout(R, R)) == "");
    CHECK(find(layout(R, R), layout(R, P)) == "none");
    CHECK(find(layout(R, S(0)), layout(R, P)) == "none");
}

TEST_CASE("two axes: smaller blocks travel, and an outer axis waits for the inner one") {
    // The scatter first, so that the all-reduce moves a quarter.
    CHECK(find(layout(P, P), layout(R, S(0))) == "reduce_scatter tp 1536, all_reduce dp 512");
    CHECK(find(layout(S(0), S(0)), layout(S(0), R)) == "all_gather tp 768");
    // dp is the outer split: tp has to leave first and come back.
    CHECK(find(layout(S(0), S(0)), layout(R, S(0))) == "all_gather tp 768, all_gather dp 1024, shard tp 0");
    CHECK(find(layout(S(0), P), layout(S(0), S(1))) == "reduce_scatter tp 768");
    Layout swapped(2);
    swapped.set(1, S(0));
    swapped.set(0, S(0));
    CHECK(swapped.splits()[0] == std::vector<AxisId>{1, 0});
    CHECK(find(layout(S(0), S(0)), swapped) == "all_gather tp 768, all_gather dp 1024, shard tp 0, shard dp 0");
}

TEST_CASE("the sequential axis sends nothing: it can be left by a sum, entered by a slice, and not gathered") {
    const Mesh micro = mesh.with_microbatches(2);
    Resharder resharder(micro);
    const auto with = [](Layout base, Placement placement) {
        base.set(2, placement);
        return base;
    };
    const Layout whole = layout(R, R);
    CHECK(resharder.path(type, with(whole, P), whole)->steps.empty());
    CHECK(text(resharder.path(type, with(layout(P, R), P), whole)) == "all_reduce dp 2048");
    CHECK(resharder.path(type, with(whole, S(0)), whole) == nullptr);
    CHECK(resharder.path(type, with(whole, P), with(whole, S(0))) == nullptr);
    const ReshardPath* sliced = resharder.path(type, whole, with(whole, S(0)));
    REQUIRE((sliced && sliced->steps.size() == 1));
    CHECK(sliced->steps[0].instruction == Opcode::kernel);
    CHECK(sliced->bytes == 0);
    // Inside the loop the sum over micro-batches stays open.
    const ReshardPath* inside = resharder.path(type, with(layout(P, R), P), with(layout(S(0), R), P));
    REQUIRE(inside);
    CHECK(inside->steps.size() == 1);
    CHECK(inside->steps[0].layout.at(2) == P);
}

TEST_CASE("a dim that does not divide is not split on the way") {
    Resharder resharder(mesh);
    const TensorType odd{DType::f32, {6, 32}};
    CHECK(resharder.path(odd, layout(R, P), layout(R, S(0))) == nullptr);
    CHECK(resharder.path(odd, layout(R, P), layout(R, S(1))) != nullptr);
}

TEST_CASE("every pair of layouts on three axes: a path ends where it should, step by step, at the cheapest cost") {
    const Mesh cube({{"a", 2}, {"b", 2}, {"c", 2}});
    const TensorType small{DType::bf16, {8, 8}};
    std::vector<Layout> all;
    const std::vector<Placement> kinds{R, P, S(0), S(1)};
    // Both orders of two axes on one dim.
    for (const Placement& a : kinds)
        for (const Placement& b : kinds)
            for (const Placement& c : kinds)
                for (const std::vector<AxisId>& order : {std::vector<AxisId>{0, 1, 2}, std::vector<AxisId>{2, 1, 0}}) {
                    Layout l(2);
                    const Placement places[] = {a, b, c};
                    for (AxisId axis : order) l.set(axis, places[static_cast<size_t>(axis)]);
                    if (std::find(all.begin(), all.end(), l) == all.end()) all.push_back(l);
                }
    Resharder resharder(cube);
    int found = 0;
    for (const Layout& from : all)
        for (const Layout& to : all) {
            const ReshardPath* path = resharder.path(small, from, to);
            bool possible = true;
            for (AxisId axis : {0, 1, 2}) possible = possible && (to.at(axis) != P || from.at(axis) == P);
            CHECK((path != nullptr) == possible);
            if (!path) continue;
            ++found;
            Layout at = from;
            int64_t bytes = 0;
            for (const ReshardStep& step : path->steps) {
                at.set(step.axis, step.to >= 0 ? S(step.to) : R);
                CHECK(at == step.layout);
                bytes += step.bytes;
            }
            CHECK(at == to);
            CHECK(bytes == path->bytes);
            // No detour over a third layout is cheaper.
            for (size_t k = 0; k < all.size(); k += 7) {
                const ReshardPath* first = resharder.path(small, from, all[k]);
                const ReshardPath* second = resharder.path(small, all[k], to);
                if (!first || !second) continue;
                bool known = true;  // the search may pass only through layouts that lie between
                for (AxisId axis : {0, 1, 2}) {
                    const Placement p = all[k].at(axis);
                    known = known && (p == from.at(axis) || p == to.at(axis) || (p == R && to.at(axis) != P));
                }
                bool spread = false;  // splitting what ends replicated, to send less, is not tried
                for (AxisId axis : {0, 1, 2})
                    spread = spread || (all[k].at(axis).kind == Placement::Kind::split &&
                                        from.at(axis) != all[k].at(axis) && to.at(axis) != all[k].at(axis));
                if (known && !spread) CHECK(path->cost <= first->cost + second->cost);
            }
        }
    CHECK(found > 3000);
}

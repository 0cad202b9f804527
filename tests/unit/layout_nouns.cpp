#include <catch2/catch.hpp>

#include "orrery/layout.h"

using namespace orrery;

namespace {
const Mesh mesh({{"pp", 2}, {"dp", 3}, {"tp", 4}});
}

TEST_CASE("a mesh refuses names that repeat, empty names, sizes below one, and a sequential axis that is not last") {
    CHECK_THROWS_WITH(Mesh({{"dp", 2}, {"dp", 2}}), Catch::Contains("duplicate mesh axis dp"));
    CHECK_THROWS_WITH(Mesh({{"", 2}}), Catch::Contains("no name"));
    CHECK_THROWS_WITH(Mesh({{"dp", 0}}), Catch::Contains("axis dp has size 0"));
    CHECK_THROWS_WITH(Mesh({{"micro", 2, true}, {"dp", 2}}), Catch::Contains("must be the last axis"));
}

TEST_CASE("ranks, coordinates and groups agree") {
    CHECK(mesh.ranks() == 24);
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) CHECK(mesh.rank_of(mesh.coordinates(rank)) == rank);
    CHECK(mesh.coordinates(23) == std::vector<int64_t>{1, 2, 3});
    CHECK(mesh.group(5, 2) == std::vector<int64_t>{4, 5, 6, 7});
    CHECK(mesh.group(5, 1) == std::vector<int64_t>{1, 5, 9});
    CHECK(mesh.group(5, 0) == std::vector<int64_t>{5, 17});
    CHECK(mesh.size("dp") == 3);
    CHECK(mesh.size("cp") == 1);
    CHECK_FALSE(mesh.find("cp"));
}

TEST_CASE("micro-batches are a sequential axis that counts no ranks") {
    const Mesh micro = mesh.with_microbatches(8);
    CHECK(micro.ranks() == 24);
    CHECK(micro.microbatches() == 8);
    CHECK(micro.text() == "pp=2 dp=3 tp=4 micro=8");
    CHECK(micro.with_microbatches(1) == mesh);
    CHECK(micro.coordinates(23) == std::vector<int64_t>{1, 2, 3, 0});
    CHECK(micro.rank_of({1, 2, 3, 0}) == 23);
}

TEST_CASE("a layout keeps the order of the axes that split a dim, and prints it") {
    Layout layout(2);
    CHECK(layout.replicated());
    CHECK(layout.text(mesh) == "pp:R dp:R tp:R");
    layout.set(2, Placement::split(0));
    layout.set(1, Placement::split(0));
    layout.set(0, Placement::partial(ReduceOp::max));
    CHECK(layout.splits()[0] == std::vector<AxisId>{2, 1});
    CHECK(layout.text(mesh) == "pp:P(max) tp:S(0) dp:S(0)");
    CHECK(layout.at(0) == Placement::partial(ReduceOp::max));
    CHECK(layout.at(1) == Placement::split(0));
    layout.set(2, Placement::split(1));
    CHECK(layout.text(mesh) == "pp:P(max) dp:S(0) tp:S(1)");
    layout.set(0, Placement::replicated());
    layout.set(1, Placement::replicated());
    layout.set(2, Placement::replicated());
    CHECK(layout == Layout(2));
}

TEST_CASE("local shapes and offsets follow the split order") {
    Layout layout(2);
    layout.set(2, Placement::split(0));
    layout.set(1, Placement::split(0));
    const Shape global{24, 5};
    CHECK(layout.local_shape(global, mesh) == Shape{2, 5});
    // rank 6 = (pp 0, dp 1, tp 2): block 2 * 3 + 1 of 12
    CHECK(layout.offset(global, mesh, 6) == Shape{14, 0});
    CHECK_THROWS_WITH(layout.local_shape({25, 5}, mesh), Catch::Contains("dim 0 of [25,5] has size 25") &&
                                                             Catch::Contains("tp=4 dp=3") &&
                                                             Catch::Contains("multiple of 12"));
    const Mesh micro = mesh.with_microbatches(2);
    layout.set(3, Placement::split(0));
    CHECK(layout.local_shape(global, micro) == Shape{1, 5});
    CHECK(layout.offset(global, micro, 6, 1) == Shape{15, 0});
}

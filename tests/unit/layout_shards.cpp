#include "assemble.h"
#include "layout/shards.h"

#include <catch2/catch.hpp>

#include <numeric>

using namespace orrery;

namespace {
const Mesh mesh({{"dp", 2}, {"tp", 3}});
const Shape shape{4, 6, 5};

Layout layout(std::vector<std::pair<AxisId, int>> splits) {
    Layout result(3);
    for (auto [axis, dim] : splits) result.set(axis, Placement::split(dim));
    return result;
}
}  // namespace

TEST_CASE("the blocks of all ranks put together give the whole array") {
    std::vector<int32_t> whole(static_cast<size_t>(count_of(shape)));
    std::iota(whole.begin(), whole.end(), 0);
    for (const Layout& l : {layout({}), layout({{0, 0}}), layout({{1, 1}}), layout({{0, 0}, {1, 1}}),
                            layout({{0, 1}, {1, 1}}), layout({{1, 1}, {0, 1}})}) {
        std::vector<std::vector<int32_t>> locals;
        std::vector<const void*> pointers;
        for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
            const Block block = block_of(l, shape, mesh, rank);
            locals.emplace_back(static_cast<size_t>(count_of(block.shape)), -1);
            slice(whole.data(), shape, block, 4, locals.back().data());
            // Element by element, from the definition.
            size_t at = 0;
            for (int64_t i = 0; i < block.shape[0]; ++i)
                for (int64_t j = 0; j < block.shape[1]; ++j)
                    for (int64_t k = 0; k < block.shape[2]; ++k)
                        CHECK(locals.back()[at++] ==
                              ((block.offset[0] + i) * 6 + block.offset[1] + j) * 5 + block.offset[2] + k);
        }
        for (const auto& local : locals) pointers.push_back(local.data());
        std::vector<int32_t> back(whole.size(), -1);
        test::assemble(back.data(), shape, l, mesh, 4, pointers);
        CHECK(back == whole);
    }
}

TEST_CASE("runs join the dims that a block has whole") {
    const auto runs = [](const Block& block) {
        std::vector<std::array<int64_t, 3>> result;
        for_runs(block, whole(shape), block, [&](int64_t g, int64_t l, int64_t n) { result.push_back({g, l, n}); });
        return result;
    };
    CHECK(runs({{0, 0, 0}, {4, 6, 5}}) == std::vector<std::array<int64_t, 3>>{{0, 0, 120}});
    CHECK(runs({{2, 0, 0}, {2, 6, 5}}) == std::vector<std::array<int64_t, 3>>{{60, 0, 60}});
    CHECK(runs({{2, 3, 0}, {2, 3, 5}}) == std::vector<std::array<int64_t, 3>>{{75, 0, 15}, {105, 15, 15}});
    CHECK(runs({{3, 4, 1}, {1, 2, 2}}) == std::vector<std::array<int64_t, 3>>{{111, 0, 2}, {116, 2, 2}});
    int scalars = 0;
    for_runs({}, {}, {}, [&](int64_t g, int64_t l, int64_t n) { scalars += g == 0 && l == 0 && n == 1; });
    CHECK(scalars == 1);
}

TEST_CASE("of the ranks with equal blocks the first one writes") {
    const auto writers = [](const Layout& l) {
        std::vector<int64_t> result;
        for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
            if (first_holder(l, mesh, rank)) result.push_back(rank);
        return result;
    };
    CHECK(writers(layout({})) == std::vector<int64_t>{0});
    CHECK(writers(layout({{0, 0}})) == std::vector<int64_t>{0, 3});
    CHECK(writers(layout({{1, 1}})) == std::vector<int64_t>{0, 1, 2});
    CHECK(writers(layout({{0, 0}, {1, 1}})).size() == 6);
}

// Values with a row for each member of an axis, read by another number of members.
#include <mutex>

#include "states.h"

using namespace orrery;

TEST_CASE("rows that count as a sum are restored by another number of ranks with the same sum") {
    const TestStore stores("memory");
    constexpr int64_t count = 6;
    const auto rows = [](const Mesh& mesh, std::vector<float>& own) {
        const int64_t members = mesh.ranks();
        Layout layout(2);
        layout.set(0, Placement::split(0));
        StateValue value{"w.error.dp", {DType::f32, {members, count}}, layout, {own.data(), DType::f32, {1, count}}};
        value.other_rows = OtherRows::sum;
        return std::vector<StateValue>{value};
    };
    const Mesh four({{"dp", 4}});
    REQUIRE(on_ranks(four, [&](int64_t rank, const Gather& gather) {
                const auto store = stores.open("rows");
                std::vector<float> own;
                for (int64_t i = 0; i < count; ++i) own.push_back(static_cast<float>(10 * rank + i));
                Checkpoints(*store, four, rank, gather, small).save(1, rows(four, own), "{}");
            }) == quiet(four));
    for (const int64_t members : {2, 3, 4, 6}) {
        INFO(members << " ranks");
        const Mesh mesh({{"dp", members}});
        std::mutex mutex;
        std::vector<float> sum(count, 0);
        CHECK(on_ranks(mesh, [&](int64_t rank, const Gather& gather) {
                  const auto store = stores.open("rows");
                  std::vector<float> own(count, 99);
                  Checkpoints(*store, mesh, rank, gather, small).restore(rows(mesh, own));
                  const std::lock_guard lock(mutex);
                  for (size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
              }) == quiet(mesh));
        CHECK(sum == std::vector<float>{60, 64, 68, 72, 76, 80});
    }
}

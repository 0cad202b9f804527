// The check of data sources, on sources that are wrong on purpose; tests/suites has right ones.
#include <catch2/catch.hpp>

#include <chrono>
#include <cstring>
#include <thread>

#include "lua/fake_host.h"
#include "plugin/named.h"
#include "run/data/data.h"
#include "run/verify/source_check.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

int64_t checked(std::shared_ptr<DataSource> source, int64_t samples = 5) {
    DataSpec spec;
    spec.source = std::move(source);
    spec.plugin = "data/tried";
    spec.validation = 0;
    const Dataset data(spec);
    SourceCheck check(data);
    check.cuts(Split::train, samples);
    return check.blocks();
}

enum class Wrong { nothing, offset, flat, cut, random, half, past, before };

/// a f32[4,6], b i64[]: of small whole numbers.
class Tried final : public DataSource {
public:
    explicit Tried(Wrong wrong) : wrong_(wrong) {}
    const std::vector<DataArray>& arrays() const override { return arrays_; }
    void open(int64_t) override {}
    int64_t samples() const override { return 64; }
    const std::string& digest() const override { return digest_; }
    std::string place() const override { return "here"; }
    void read(size_t array, const DataSample& sample, const Shape& offset, const Tensor& block) const override {
        if (array == 1) {
            std::memcpy(block.data, &sample.number, sizeof sample.number);
            return;
        }
        auto* out = static_cast<float*>(block.data);
        const int64_t count = block.count();
        for (int64_t i = 0; i < count; ++i) {
            if (wrong_ == Wrong::half && count == 24 && i == 12) return;
            int64_t row = offset[0] + i / block.shape[1], column = offset[1] + i % block.shape[1];
            if (wrong_ == Wrong::offset) row -= offset[0], column -= offset[1];
            if (wrong_ == Wrong::flat) row = i / 6, column = i % 6;
            if (wrong_ == Wrong::cut && block.shape[1] < 6) column = 5 - column;
            out[i] = static_cast<float>(100 * sample.number + 6 * row + column);
            if (wrong_ == Wrong::random && i == 7) out[i] += static_cast<float>(calls_++);
        }
        if (wrong_ == Wrong::past) out[count + 63] = 1;
        if (wrong_ == Wrong::before) out[-1] = 1;
    }

private:
    Wrong wrong_;
    mutable int calls_ = 0;
    std::string digest_ = "tried";
    std::vector<DataArray> arrays_ = {{"a", DType::f32, {{"rows", 4}, {"columns", 6}}}, {"b", DType::i64, {}}};
};

int64_t tried(Wrong wrong) { return checked(std::make_shared<Tried>(wrong)); }

}  // namespace

TEST_CASE("source check: each fault is named with input, sample and element") {
    CHECK(tried(Wrong::nothing) > 20);
    CHECK_THROWS_WITH(tried(Wrong::offset), Contains("plugin data/tried: it ignores the block's offset") &&
                                                Contains("input    \"a\" f32[4,6]") && Contains("here: sample ") &&
                                                Contains("[2,6] at [2,0]") && Contains("element  [2,0]: "));
    CHECK_THROWS_WITH(tried(Wrong::flat), Contains("it ignores the block's offset"));
    CHECK_THROWS_WITH(tried(Wrong::cut), Contains("it cuts samples another way") && Contains("[4,3] at [0,0]"));
    CHECK_THROWS_WITH(tried(Wrong::random), Contains("it is not deterministic") && Contains("element  [1,1]: "));
    CHECK_THROWS_WITH(tried(Wrong::half), Contains("it did not fill 12 of 24 elements of the block") &&
                                              Contains("element  [2,0], the first one"));
    CHECK_THROWS_WITH(tried(Wrong::past), Contains("it wrote past the end of the block, 64 elements too many"));
    CHECK_THROWS_WITH(tried(Wrong::before), Contains("it wrote before the beginning of the block, 1 element"));
}

TEST_CASE("source check: a fault of a mixture's part names the plugin of the part") {
    const auto part = [](const std::string& plugin, Wrong wrong) {
        Registry alone;
        alone.add_data("part", [=](Config&, const Origin&) { return std::make_unique<Tried>(wrong); });
        Config none("o.data.part");
        const Registry wrapped = named(plugin, alone, PluginFacts("data", ""), std::make_shared<OpenCalls>());
        return std::shared_ptr<DataSource>(wrapped.data("part", {})(none, {}));
    };
    Config none("o.data.mixture");
    const std::shared_ptr<DataSource> mixture = built_data("mixture", none, {"", "data.lua", 1});
    REQUIRE(mixture->over({{part("data/right", Wrong::nothing), 1, {}}, {part("data/tape", Wrong::offset), 1, {}}}));
    CHECK_THROWS_WITH(checked(mixture), Contains("plugin data/tape: it ignores the block's offset") &&
                                            Contains("\n  through  plugin data/tried\n  input    \"a\""));
}

TEST_CASE("source check: of calls inside each other the inner one is reported where it does not return") {
    using namespace std::chrono_literals;
    const auto calls = std::make_shared<OpenCalls>();
    const OpenCalls::Call outer(*calls, "data/mixture", "read", 3);
    std::this_thread::sleep_for(20ms);
    CHECK(calls->overdue(1h).empty());
    CHECK(calls->overdue(10ms) == "plugin data/mixture: read of sample 3");
    {
        const OpenCalls::Call inner(*calls, "data/tape", "read", 17);
        std::this_thread::sleep_for(30ms);
        CHECK(calls->overdue(20ms) == "plugin data/tape: read of sample 17");
    }
    CHECK(calls->overdue(10ms) == "plugin data/mixture: read of sample 3");
    std::string said;
    {
        std::mutex mutex;
        std::condition_variable changed;
        const CallWatch watch(calls, 1ms, "run.timeout_s", [&](const std::string& text) {
            const std::lock_guard lock(mutex);
            said = text;
            changed.notify_all();
        });
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return !said.empty(); });
    }
    CHECK(said == "plugin data/mixture: read of sample 3 did not return within 0.001 s (run.timeout_s)");
}

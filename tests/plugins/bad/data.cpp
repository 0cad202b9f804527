// Data sources that break one rule of orrery/data.h each, named by ORRERY_TEST_FAULT: a file in the place of the
// template's plugin, with its arrays.
#include <unistd.h>

#include <cstdlib>
#include <random>
#include <stdexcept>
#include <vector>

#include "orrery/data.h"
#include "orrery/plugin.h"

namespace {

using orrery::DType;

/// Trains on what is held out; with `counts` its answers depend on how often it was asked.
class Order final : public orrery::DataOrder {
public:
    explicit Order(bool counts) : counts_(counts) {}
    int64_t samples(orrery::Split split) const override { return split == orrery::Split::train ? 4096 : 100; }
    int64_t position(orrery::Split, int64_t index) const override { return (index + (counts_ ? asked_++ : 0)) % 4096; }

private:
    bool counts_;
    mutable int64_t asked_ = 0;
};

class Bad final : public orrery::DataSource {
public:
    Bad(std::string fault, int64_t features)
        : fault_(std::move(fault)),
          digest_("bad-" + fault_),
          arrays_{{"x", DType::f32, {{"features", features}}}, {"y", DType::f32, {{"outputs", 1}}}} {
        if (fault_ == "digest") digest_ += std::to_string(std::random_device()());
        if (fault_ == "ids" || fault_ == "vocabulary") arrays_.push_back({"ids", DType::i32, {{"seq", 4}}});
    }

    const std::vector<orrery::DataArray>& arrays() const override { return arrays_; }
    void open(int64_t) override {
        if (fault_ == "open") throw std::out_of_range("map::at");
        if (fault_ == "again") digest_ += " again";
        if (fault_ == "arrays") arrays_.pop_back();
    }
    int64_t samples() const override { return 4096; }
    int64_t vocabulary() const override { return fault_ == "vocabulary" ? 70 : DataSource::vocabulary(); }
    const std::string& digest() const override { return digest_; }
    std::string place() const override { return "the points"; }
    std::unique_ptr<orrery::DataOrder> order(double held_out, uint64_t seed,
                                             const orrery::Origin& asked) const override {
        if (fault_ == "order" || fault_ == "rank") return std::make_unique<Order>(fault_ == "rank");
        return DataSource::order(held_out, seed, asked);
    }

    void read(size_t array, const orrery::DataSample& sample, const orrery::Shape& offset,
              const orrery::Tensor& block) const override {
        if (fault_ == "throw") throw std::runtime_error("no such record");
        if (fault_ == "number") throw 42;
        while (fault_ == "hang" && sample.number % 2 == 1) ::usleep(1000);
        const int64_t whole = arrays_[array].shape()[0], count = block.shape[0];
        if (arrays_[array].name == "ids") {
            for (int64_t i = 0; i < count; ++i)
                static_cast<int32_t*>(block.data)[i] = sample.number % 3 == 0 && offset[0] + i == 2 ? 77 : 5;
            return;
        }
        auto* out = static_cast<float*>(block.data);
        for (int64_t i = 0; i < count; ++i) {
            int64_t at = offset[0] + i;
            if (fault_ == "offset") at = i;
            if (fault_ == "tp" && 4 * count == whole) at = i * 4 + offset[0] / count;
            if (fault_ == "half" && array == 0 && at >= whole / 2) break;
            out[i] = value(sample.number, at);
            if (fault_ == "random") out[i] += 1e-3f * static_cast<float>(std::random_device()() % 1000);
        }
        if (fault_ == "past" && array == 0)
            for (int64_t i = 0; i < 64; ++i) out[count + i] = 1;
    }

private:
    static float value(int64_t sample, int64_t at) {
        return static_cast<float>((sample * 37 + at * 101) % 64) / 64 - 0.5f;
    }

    std::string fault_, digest_;
    std::vector<orrery::DataArray> arrays_;
};

void add(orrery::Registry& registry) {
    registry.add_data("sundial", [](orrery::Config& options, const orrery::Origin&) {
        const char* fault = std::getenv("ORRERY_TEST_FAULT");
        if (fault && fault == std::string("factory")) throw std::length_error("too long");
        return std::make_unique<Bad>(fault ? fault : "", options.integer("features", 8));
    });
}

}  // namespace

ORRERY_PLUGIN("data.sundial", "0.1", add);

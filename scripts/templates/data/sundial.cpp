// The data source sundial: points x and what a fixed function makes of them, y. Replace value() by what you have; the
// rules of orrery/data.h are what the core relies on: a block is a function of the sample and its place alone.
#include <cmath>

#include "orrery/data.h"
#include "orrery/plugin.h"

namespace {

class Sundial final : public orrery::DataSource {
public:
    Sundial(int64_t samples, int64_t features)
        : samples_(samples),
          features_(features),
          digest_("sundial-1-" + std::to_string(features)),
          arrays_{{"x", orrery::DType::f32, {{"features", features}}}, {"y", orrery::DType::f32, {{"outputs", 1}}}} {}

    const std::vector<orrery::DataArray>& arrays() const override { return arrays_; }
    void open(int64_t) override {}  // a file would be an orrery::DataFile, made here
    int64_t samples() const override { return samples_; }
    const std::string& digest() const override { return digest_; }
    std::string place() const override { return "data sundial"; }

    void read(size_t array, const orrery::DataSample& sample, const orrery::Shape& offset,
              const orrery::Tensor& block) const override {
        auto* out = static_cast<float*>(block.data);
        for (int64_t i = 0; i < block.shape[0]; ++i)
            out[i] = array == 0 ? value(sample.number, offset[0] + i) : target(sample.number);
    }

private:
    /// From -1 to 1.
    static float value(int64_t sample, int64_t feature) {
        return static_cast<float>(std::sin(static_cast<double>(sample * 37 + feature * 101)));
    }

    float target(int64_t sample) const {
        float sum = 0;
        for (int64_t i = 0; i < features_; ++i) sum += value(sample, i) * (i % 2 ? 0.5f : -1.0f);
        return sum;
    }

    int64_t samples_, features_;
    std::string digest_;
    std::vector<orrery::DataArray> arrays_;
};

void add(orrery::Registry& registry) {
    // Options of o.data.sundial { ... }, or keys of [data]; what is not read here is an error.
    registry.add_data("sundial", [](orrery::Config& options, const orrery::Origin& asked) {
        const int64_t samples = options.integer("samples", 4096), features = options.integer("features", 8);
        if (samples < 1 || features < 1)
            throw orrery::Error(asked, "o.data.sundial: samples and features are at least 1");
        return std::make_unique<Sundial>(samples, features);
    });
}

}  // namespace

ORRERY_PLUGIN("data.sundial", "0.1", add);

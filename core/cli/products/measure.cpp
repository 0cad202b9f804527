#include "cli/products/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "base/seconds.h"
#include "orrery/half.h"
#include "plan/lower/buffers.h"
#include "run/verify/float_distance.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;

struct Sizes {
    int64_t m, n, k;
    bool trans_a = false, trans_b = false;

    double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
    std::string text() const {
        return fmt::format("[{},{}] x [{},{}]{}{}", m, k, k, n, trans_a ? ", a transposed" : "",
                           trans_b ? ", b transposed" : "");
    }
};

// Matrix products of a layer: forward, gradient of the input, gradient of the weight.
constexpr Sizes large[] = {{1024, 1024, 1024}, {2048, 768, 768, false, true}, {768, 768, 2048, true, false}};
// Odd sizes that exceed a tile of every implementation. Sums stay below 257, so bf16 represents them exactly.
constexpr Sizes small[] = {
    {1, 1, 1}, {130, 97, 200}, {33, 65, 129, false, true}, {67, 130, 255, true, false}, {17, 31, 64, true, true}};

/// Returns element `i` of a test matrix: -1, 0 or 1 without a pattern, so that wrong strides are detected.
int element(int64_t i, uint64_t salt) {
    uint64_t x = (static_cast<uint64_t>(i) + salt) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return static_cast<int>((x >> 33) % 3) - 1;
}

float get(const void* from, DType dtype, int64_t i) {
    if (dtype == DType::f32) return static_cast<const float*>(from)[i];
    const uint16_t half = static_cast<const uint16_t*>(from)[i];
    return dtype == DType::bf16 ? widen_bf16(half) : widen_f16(half);
}

class Trial {
public:
    Trial(Device& device, DType dtype, const Sizes& sizes) : device_(device), dtype_(dtype), sizes_(sizes) {
        const TensorType a{dtype, sizes.trans_a ? Shape{sizes.k, sizes.m} : Shape{sizes.m, sizes.k}},
            b{dtype, sizes.trans_b ? Shape{sizes.n, sizes.k} : Shape{sizes.k, sizes.n}}, c{dtype, {sizes.m, sizes.n}};
        kernel_ = device.prepare({"matmul", {{"trans_a", sizes.trans_a}, {"trans_b", sizes.trans_b}}, {a, b}, {c}});
        int64_t bytes = 0;
        for (const TensorType& type : {a, b, c}) {
            operands_.push_back({nullptr, dtype, type.shape});
            bytes += aligned(type.bytes(), scratch_alignment);
        }
        memory_ = device.allocate(bytes + std::max<int64_t>(kernel_->scratch_bytes(), 1), MemoryKind::device);
        auto* at = static_cast<char*>(memory_.data);
        for (Tensor& operand : operands_) {
            operand.data = at;
            at += aligned(operand.bytes(), scratch_alignment);
        }
        scratch_ = at;
        for (size_t i = 0; i < 2; ++i) fill(operands_[i], i + 1);
    }
    ~Trial() { device_.release(memory_); }
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;

    void run() {
        device_.launch(0, *kernel_, operands_, scratch_);
        device_.synchronize(0);
    }

    void check() {
        run();
        std::vector<char> got(static_cast<size_t>(operands_[2].bytes()));
        device_.copy(0, got.data(), operands_[2].data, operands_[2].bytes());
        device_.synchronize(0);
        for (int64_t i = 0; i < sizes_.m; ++i)
            for (int64_t j = 0; j < sizes_.n; ++j) {
                const float found = get(got.data(), dtype_, i * sizes_.n + j);
                if (const int exact = sum(i, j); found != static_cast<float>(exact))
                    throw Error(
                        fmt::format("wrong result of the {} matrix product {}: element ({}, {}) is {}, expected {}",
                                    name_of(dtype_), sizes_.text(), i, j, found, exact),
                        Fault::failed);
            }
    }

    double seconds() {
        constexpr int most = 6;
        constexpr double enough_s = 2;  // seconds for all runs of one product on a slow processor
        double best = std::numeric_limits<double>::infinity(), all = 0;
        run();
        for (int i = 0; i < most && all < enough_s; ++i) {
            const auto begin = Clock::now();
            run();
            const double now = seconds_since(begin);
            best = std::min(best, now);
            all += now;
        }
        return best;
    }

private:
    void fill(const Tensor& to, uint64_t salt) {
        std::vector<char> values(static_cast<size_t>(to.bytes()));
        for (int64_t i = 0; i < to.count(); ++i)
            set_number(dtype_, values.data(), i, static_cast<float>(element(i, salt << 32)));
        device_.copy(0, to.data, values.data(), to.bytes());
        device_.synchronize(0);
    }

    int sum(int64_t i, int64_t j) const {
        int all = 0;
        for (int64_t l = 0; l < sizes_.k; ++l)
            all += element(sizes_.trans_a ? l * sizes_.m + i : i * sizes_.k + l, uint64_t{1} << 32) *
                   element(sizes_.trans_b ? j * sizes_.k + l : l * sizes_.n + j, uint64_t{2} << 32);
        return all;
    }

    Device& device_;
    const DType dtype_;
    const Sizes sizes_;
    std::unique_ptr<Kernel> kernel_;
    std::vector<Tensor> operands_;
    Memory memory_;
    char* scratch_ = nullptr;
};

}  // namespace

void check_products(Device& device, DType dtype) {
    for (const Sizes& sizes : small) Trial(device, dtype, sizes).check();
}

ProductRates measure_products(Device& device, DType dtype) {
    ProductRates rates;
    double flops = 0, seconds = 0;
    for (const Sizes& sizes : large) {
        const double now = Trial(device, dtype, sizes).seconds();
        flops += sizes.flops();
        seconds += now;
        rates.fastest = std::max(rates.fastest, sizes.flops() / now);
    }
    rates.all = flops / seconds;
    return rates;
}

}  // namespace orrery

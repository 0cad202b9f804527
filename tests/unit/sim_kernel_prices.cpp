#include "sim/kernel_prices.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <set>

#include "orrery/error.h"
#include "sim/constants.h"

using namespace orrery;

namespace {

/// Round numbers: 100 TFLOP/s, 1 TB/s, 100 multiprocessors, all of it reached, launches free.
AcceleratorRates round_rates() {
    AcceleratorRates rates;
    rates.matrix_flops = 100e12, rates.eight_bit_flops = 200e12;
    rates.memory_bytes_per_s = 1e12, rates.multiprocessors = 100;
    rates.matrix_share = rates.memory_share = 1;
    rates.exponentials_per_s = 1e18;
    return rates;
}

KernelSoftware free_software() {
    KernelSoftware software;
    software.launch_s = 0, software.passes = 1, software.ramp = 0, software.attention_share = 1;
    software.eight_bit_share = 1;
    return software;
}

KernelSpec product(int64_t m, int64_t k, int64_t n) {
    return {"matmul", {}, {{DType::bf16, {m, k}}, {DType::bf16, {k, n}}}, {{DType::bf16, {m, n}}}};
}

KernelSpec attention(bool causal, int64_t batch = 2, int64_t tokens = 1024) {
    const Shape q{batch, tokens, 16, 128};
    KernelSpec spec{"attention", {}, {{DType::bf16, q}, {DType::bf16, q}, {DType::bf16, q}}, {{DType::bf16, q}}};
    if (causal) spec.attributes.set("causal", true);
    return spec;
}

}  // namespace

TEST_CASE("kernel prices: a product that fills whole waves takes its flops over the rate") {
    const KernelPrices prices(round_rates(), free_software());
    // 10 x 10 tiles of 256 x 128, one for each multiprocessor.
    CHECK(prices.seconds(product(2560, 4096, 1280)) == Approx(2.0 * 2560 * 4096 * 1280 / 100e12));
}

TEST_CASE("kernel prices: GEMMs of experts are one for each expert, with the rows of all groups") {
    const KernelPrices prices(round_rates(), free_software());
    const auto of = [](DType type, std::vector<Shape> shapes) {
        std::vector<TensorType> all;
        for (Shape& shape : shapes) all.push_back({type, std::move(shape)});
        return all;
    };
    const TensorType loads{DType::i32, {4, 10}};
    KernelSpec slabs{"grouped_matmul", {}, of(DType::bf16, {{4, 10, 640, 512}, {10, 512, 1280}}), {}};
    slabs.inputs.push_back(loads);
    slabs.outputs = of(DType::bf16, {{4, 10, 640, 1280}});
    KernelWork work = work_of(slabs);
    CHECK(std::vector{work.batch, work.m, work.n, work.k} == std::vector{10.0, 2560.0, 1280.0, 512.0});
    CHECK(prices.seconds(slabs) == Approx(10 * 2.0 * 2560 * 1280 * 512 / 100e12));
    KernelSpec back{"grouped_matmul", {{"trans_b", true}}, of(DType::bf16, {{4, 10, 640, 1280}, {10, 512, 1280}}), {}};
    back.outputs = of(DType::bf16, {{4, 10, 640, 512}});
    work = work_of(back);
    CHECK(std::vector{work.batch, work.m, work.n, work.k} == std::vector{10.0, 2560.0, 512.0, 1280.0});
    KernelSpec sorted{"grouped_matmul", {}, of(DType::bf16, {{25600, 512}, {10, 512, 1280}}), {}};
    sorted.outputs = of(DType::bf16, {{25600, 1280}});
    CHECK(prices.seconds(sorted) == prices.seconds(slabs));
    KernelSpec dw{"grouped_matmul_dw", {}, of(DType::bf16, {{4, 10, 640, 512}, {4, 10, 640, 1280}}), {}};
    dw.outputs = of(DType::f32, {{10, 512, 1280}});
    work = work_of(dw);
    CHECK(std::vector{work.batch, work.m, work.n, work.k} == std::vector{10.0, 512.0, 1280.0, 2560.0});
    // A batch of GEMMs, and leading dims that share a matrix, are what they were.
    KernelSpec batch{"matmul", {}, of(DType::bf16, {{4, 10, 64, 32}, {4, 10, 32, 16}}), {}};
    work = work_of(batch);
    CHECK(std::vector{work.batch, work.m, work.n, work.k} == std::vector{40.0, 64.0, 16.0, 32.0});
    KernelSpec turned{"matmul", {{"trans_a", true}}, of(DType::bf16, {{4, 32, 64}, {4, 32, 16}}), {}};
    work = work_of(turned);
    CHECK(std::vector{work.batch, work.m, work.n, work.k} == std::vector{4.0, 64.0, 16.0, 32.0});
    KernelSpec shared{"matmul", {}, of(DType::bf16, {{4, 64, 32}, {32, 16}}), {}};
    work = work_of(shared);
    CHECK(std::vector{work.batch, work.m, work.n, work.k} == std::vector{1.0, 256.0, 16.0, 32.0});
}

TEST_CASE("kernel prices: one tile more than a wave costs a second wave, and the best tile is taken") {
    const KernelPrices prices(round_rates(), free_software());
    const double whole = prices.seconds(product(2560, 4096, 1280)),
                 more = prices.seconds(product(2560 + 1, 4096, 1280));
    CHECK(more > 1.05 * whole);
    CHECK(more < 2.01 * whole);
}

TEST_CASE("kernel prices: a ramp weighs more where the contraction is short") {
    KernelSoftware software = free_software();
    software.ramp = 128;
    const KernelPrices with(round_rates(), software), without(round_rates(), free_software());
    const auto slower = [&](int64_t k) {
        return with.seconds(product(25600, k, 12800)) / without.seconds(product(25600, k, 12800));
    };
    CHECK(slower(128) > slower(1024));
    CHECK(slower(1024) == Approx(1 + 128.0 / 1024).epsilon(0.01));
}

TEST_CASE("kernel prices: a thin product is bound by its bytes") {
    const KernelPrices prices(round_rates(), free_software());
    const KernelSpec thin = product(1, 8192, 8192);
    CHECK(prices.seconds(thin) == Approx(2.0 * (8192.0 * 8192 + 2 * 8192) / 1e12));
}

TEST_CASE("kernel prices: a gradient of weights with few tiles is cut along its contraction") {
    const KernelPrices prices(round_rates(), free_software());
    const KernelSpec dw{
        "matmul_dw", {}, {{DType::bf16, {65536, 512}}, {DType::bf16, {65536, 512}}}, {{DType::f32, {512, 512}}}};
    // 8 tiles of 256 x 128 on 100 multiprocessors would take 12.5 times as long as the flops do.
    CHECK(prices.seconds(dw) < 3 * 2.0 * 65536 * 512 * 512 / 100e12);
}

TEST_CASE("kernel prices: transposed operands and leading dims give the same product") {
    const KernelPrices prices(round_rates(), free_software());
    const double seconds = prices.seconds(product(4096, 2048, 1280));
    KernelSpec turned{"matmul",
                      {{"trans_b", true}},
                      {{DType::bf16, {4, 1024, 2048}}, {DType::bf16, {1280, 2048}}},
                      {{DType::bf16, {4, 1024, 1280}}}};
    CHECK(prices.seconds(turned) == Approx(seconds));
}

TEST_CASE("kernel prices: flash attention halves what a causal mask hides, separate ops do not") {
    const KernelPrices flash(round_rates(), free_software());
    CHECK(flash.seconds(attention(false)) == Approx(2 * flash.seconds(attention(true))));
    CHECK(flash.seconds(attention(true)) == Approx(4.0 * 2 * 16 * 1024 * 1024 * 128 / 2 / 100e12));
    KernelSoftware software = free_software();
    software.separate_attention = true;
    const KernelPrices separate(round_rates(), software);
    CHECK(separate.seconds(attention(true)) == Approx(separate.seconds(attention(false))));
    CHECK(separate.seconds(attention(true)) > flash.seconds(attention(false)));
}

TEST_CASE("kernel prices: a part of the queries costs what the last rank sees, with an index an equal share") {
    KernelSpec part = attention(true);
    part.inputs[0].shape[1] = part.outputs[0].shape[1] = 256;  // of 1024, on each of 4 ranks
    const double all = work_of(attention(true)).seen, mean = all / 4;
    CHECK(work_of(part).seen == Approx((2.0 * 4 - 1) / 4 * mean));
    const TensorType queries{DType::i32, {2, 256}}, keys{DType::i32, {2, 1024}};
    part.inputs.insert(part.inputs.end(), {queries, queries, keys, keys});
    CHECK(work_of(part).seen == Approx(mean));
}

TEST_CASE("kernel prices: 8-bit products run at their rate, the head stays as it is") {
    KernelSoftware software = free_software();
    software.eight_bit = true, software.wide = 12800;
    const KernelPrices narrow(round_rates(), software), wide(round_rates(), free_software());
    const KernelSpec block = product(25600, 8192, 6400), head = product(25600, 8192, 12800);
    CHECK(narrow.seconds(block) < 0.65 * wide.seconds(block));
    CHECK(narrow.seconds(block) > 0.5 * wide.seconds(block));  // the casts
    CHECK(narrow.seconds(head) == wide.seconds(head));
}

TEST_CASE("kernel prices: other kernels move their bytes, each software's number of times, behind a launch") {
    KernelSoftware software = free_software();
    software.passes = 2, software.launch_s = 1e-6;
    const KernelPrices prices(round_rates(), software);
    const TensorType x{DType::bf16, {1000, 1000}};
    CHECK(prices.seconds({"add", {}, {x, x}, {x}}) == Approx(1e-6 + 2 * 6e6 / 1e12));
    CHECK(prices.copy_seconds(1000000) == Approx(1e-6 + 2e6 / 1e12));
    CHECK(prices.kernel({"add", {}, {x, x}, {x}}).loads.empty());
}

TEST_CASE("constants: at most 30 are fitted, each within its range and of a name of its own") {
    const Constants constants;
    CHECK(std::ranges::count_if(constants.all(), [](const Constant& one) { return one.least < one.most; }) <= 30);
    std::set<std::string> names;
    for (const Constant& one : constants.all()) {
        INFO(one.name);
        CHECK(one.least <= one.value);
        CHECK(one.value <= one.most);
        CHECK(one.least <= one.unfitted);
        CHECK(one.unfitted <= one.most);
        CHECK(names.insert(one.name).second);
        CHECK(constants.of(one.name) == one.value);
    }
    CHECK_THROWS_AS(constants.of("matrix.unheard"), Error);
}

TEST_CASE("kernel prices: rows that lack operands count their bytes") {
    for (const char* op : {"attention", "attention_grad", "matmul", "matmul_dw", "embedding", "add"})
        for (const bool with_one : {false, true}) {
            CAPTURE(op, with_one);
            KernelSpec spec{op, {}, {}, {}};
            if (with_one) spec.inputs = {{DType::f32, {}}};
            CHECK(work_of(spec).bytes >= 0);
        }
}

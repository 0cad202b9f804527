// The CUDA table without a GPU: every kernel is there, and both devices refuse what makes no sense.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>

#include "kernels/cuda/bias_grad.h"
#include "kernels/cuda/emulated/emulated.h"
#ifdef ORRERY_HAVE_CUDA
#include "../plugins/device/cpu/resolve.h"
#include "../plugins/device/cuda/resolve.h"
#include "kernels/cuda/kernels.h"
#endif

using namespace orrery;

TEST_CASE("cuda: the emulated table has every kernel") {
    using Pointer = void (*)();
    constexpr size_t n = sizeof(kernels::Kernels) / sizeof(Pointer);
    const auto* table = reinterpret_cast<const Pointer*>(&kernels::emulated::table());
    for (size_t i = 0; i < n; ++i) {
        INFO("kernel " << i);
        CHECK(table[i] != nullptr);
    }
}

TEST_CASE("cuda: an emulated barrier that not all threads reach is reported") {
    const auto half = [](const kernels::emulated::Block& b) {
        if (b.thread() < 32) b.sync();
    };
    CHECK_THROWS_AS(kernels::emulated::emulate(1, 64, 0, true, half), std::logic_error);
}

namespace {

/// Stands in for cuBLASLt: a product and the sum of b's rows, which overwrites, and a workspace that it fills.
struct Library {
    kernels::Matmul sizes;
    std::int64_t bytes;
    bool willing;
    int runs = 0;

    std::int64_t workspace() const { return bytes; }
    bool takes(kernels::In, kernels::In, kernels::Out, kernels::Out) const { return willing; }
    void run(kernels::In a, kernels::In b, kernels::Out dw, kernels::Out sums, void* workspace) {
        ++runs;
        kernels::emulated::Call own;
        kernels::emulated::table().matmul(own, sizes, a, b, {}, dw);
        kernels::Matmul alone = sizes;
        alone.accumulate = false;
        kernels::emulated::sum_rows(own, alone, b, sums);
        std::memset(workspace, 0xff, static_cast<size_t>(bytes));
    }
};

}  // namespace

TEST_CASE("cuda: a bias' gradient has scratch for the library and for operands that it does not take") {
    using kernels::Type;
    constexpr std::int64_t m = 3, n = 40, k = 300;  // the sum of so many rows is made in parts, which take scratch
    std::vector<float> a(k * m, 0.5f), b(k * n);
    for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 7) - 2;
    for (const std::int64_t bytes : {0, 512, 1 << 16}) {
        for (const bool accumulate : {false, true}) {
            for (const bool willing : {false, true}) {
                INFO(bytes << " bytes" << (accumulate ? ", added" : "")
                           << (willing ? ", by the library" : ", by ours"));
                kernels::Matmul sizes{.m = m, .n = n, .k = k, .trans_a = true};
                sizes.accumulate = accumulate;
                std::vector<float> dw(m * n, 1), dbias(n, 1);
                const auto launch = [&](kernels::emulated::Call& call, Library& library, bool bare) {
                    const auto at = [&](std::vector<float>& v) {
                        return kernels::Out(static_cast<void*>(bare ? nullptr : v.data()), Type::f32);
                    };
                    kernels::emulated::bias_grad(call, sizes, library, {at(a).data, Type::f32}, {at(b).data, Type::f32},
                                                 at(dw), at(dbias));
                };
                Library library{sizes, bytes, willing};
                kernels::emulated::Call rehearsal, call;
                rehearsal.rehearsal = true;
                launch(rehearsal, library, true);
                REQUIRE(library.runs == 0);
                std::vector<std::uint64_t> scratch(static_cast<size_t>(rehearsal.used) / 8 + 1);
                call.begin(scratch.data(), rehearsal.used);
                launch(call, library, false);
                CHECK(library.runs == (willing ? 1 : 0));
                for (size_t column = 0; column < n; ++column) {
                    float sum = 0;
                    for (size_t row = 0; row < k; ++row) sum += b[row * n + column];
                    CHECK(dbias[column] == sum + (accumulate ? 1.0f : 0.0f));
                    CHECK(dw[2 * n + column] == sum / 2 + (accumulate ? 1.0f : 0.0f));
                }
            }
        }
    }
}

#ifdef ORRERY_HAVE_CUDA

namespace {

using kernels::Type;
using kernels::cuda::Spec;
using kernels::cuda::why_not;

Spec norm(Type x, std::int64_t cols) {
    return {"layernorm",
            {{"eps", 1e-5}},
            {{x, {4, cols}}, {Type::f32, {cols}}, {Type::f32, {cols}}},
            {{x, {4, cols}}, {Type::f32, {4}}, {Type::f32, {4}}}};
}

}  // namespace

TEST_CASE("cuda: what cannot run is refused with the reason") {
    CHECK(why_not(norm(Type::bf16, 768)).empty());
    CHECK(why_not(norm(Type::bf16, 40000)).empty());
    CHECK(why_not({"no_such_op", {}, {}, {}}).find("no such kernel") != std::string::npos);
    Spec residual = norm(Type::f32, 8);
    residual.inputs.push_back(residual.inputs[0]);
    CHECK(why_not(residual).find("the sum as the last output") != std::string::npos);
    residual.outputs.push_back(residual.outputs[0]);
    CHECK(why_not(residual).empty());
    residual.inputs.pop_back();
    CHECK(why_not(residual).find("the sum as the last output") != std::string::npos);
    const auto heads = [](std::int64_t dim) {
        const kernels::cuda::Operand q{Type::bf16, {2, 8, 4, dim}}, lse{Type::f32, {2, 4, 8}};
        return Spec{"attention", {{"causal", true}, {"scale", 1.0}}, {q, q, q}, {q, lse}};
    };
    CHECK(why_not(heads(64)).empty());
    CHECK(why_not(heads(257)).find("256") != std::string::npos);
}

TEST_CASE("cuda: a form of gelu that does not exist is refused, and by the CPU device") {
    const auto refused = [](const char* op, size_t inputs, const char* approx) {
        const TensorType x{DType::bf16, {16, 16}};
        KernelSpec spec{op, {{"approx", std::string(approx)}}, std::vector(inputs, x), {x}};
        if (spec.op == "matmul_bias_gelu") spec.inputs[2].shape = {16};
        std::string cpu;
        try {
            cpu_device::resolve(spec, kernels::reference::table(), true);
        } catch (const Error& error) {
            cpu = error.what();
        }
        const std::string cuda = why_not(cuda_device::spec_of(spec));
        const std::string why = "approx is \"tanh\" or \"erf\", found \"" + std::string(approx);
        CHECK(cuda.empty() == cpu.empty());
        return cuda.find(why) != std::string::npos && cpu.find(why) != std::string::npos;
    };
    const std::vector<std::pair<const char*, size_t>> ops{
        {"gelu", 1}, {"gelu_grad", 2}, {"matmul_bias_gelu", 3}, {"matmul_gelu_grad", 3}};
    for (const auto& [op, inputs] : ops) {
        INFO(op);
        CHECK(refused(op, inputs, "sigmoid"));
        CHECK_FALSE(refused(op, inputs, "erf"));
        CHECK_FALSE(refused(op, inputs, "tanh"));
    }
}

#endif

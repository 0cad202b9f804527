// The CUDA table without a GPU: every op that the CPU runs is there, and both refuse what makes no sense.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "kernels/cuda/emulated/emulated.h"
#ifdef ORRERY_HAVE_CUDA
#include "../plugins/device/cpu/resolve.h"
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

#ifdef ORRERY_HAVE_CUDA

TEST_CASE("cuda: every op of the CPU device has a CUDA kernel, without a driver") {
    const std::vector<std::string> listed = kernels::cuda::ops();
    const std::set<std::string> cuda(listed.begin(), listed.end());
    std::set<std::string> cpu;
    for (const auto rules : {cpu_device::elementwise_rules(), cpu_device::contraction_rules(), cpu_device::row_rules(),
                             cpu_device::shape_rules()}) {
        for (const cpu_device::Rule& rule : rules) cpu.insert(rule.op);
    }
    CHECK(cuda == cpu);
    CHECK(cpu.size() > 60);
}

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
    CHECK(why_not(norm(Type::f64, 768)).find("f64") != std::string::npos);
    CHECK(why_not({"no_such_op", {}, {}, {}}).find("no such kernel") != std::string::npos);
    Spec broken = norm(Type::f32, 8);
    broken.outputs.pop_back();
    CHECK(why_not(broken).find("operands are missing") != std::string::npos);
    Spec added = norm(Type::f32, 8);
    added.attributes.insert(added.attributes.begin(), {"accumulate", true});
    CHECK(why_not(added).find("cannot accumulate") != std::string::npos);
    const auto heads = [](std::int64_t dim) {
        const kernels::cuda::Operand q{Type::bf16, {2, 8, 4, dim}}, lse{Type::f32, {2, 4, 8}};
        return Spec{"attention", {{"causal", true}, {"scale", 1.0}}, {q, q, q}, {q, lse}};
    };
    CHECK(why_not(heads(64)).empty());
    CHECK(why_not(heads(257)).find("256") != std::string::npos);
}

#endif

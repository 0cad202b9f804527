// Every kernel that plans of models ask for can run on a GPU: one that is missing, and no model runs.
#ifdef ORRERY_HAVE_CUDA
#include <catch2/catch.hpp>

#include <set>

#include "../plugins/device/cuda/resolve.h"
#include "ir_programs.h"
#include "kernels/cuda/kernels.h"
#include "layout_models.h"
#include "plan_ranks.h"

using namespace orrery;
using namespace orrery::test;

namespace {

/// The ops asked for.
std::set<std::string> check_kernels(const Plan& plan) {
    std::set<std::string> ops;
    for (const RankClass& c : plan.classes) {
        for (const KernelSpec& spec : c.kernels) {
            ops.insert(spec.op);
            CHECK(kernels::cuda::why_not(cuda_device::spec_of(spec)) == "");
        }
    }
    return ops;
}

}  // namespace

TEST_CASE("cuda: every kernel of plans can run") {
    std::set<std::string> ops;
    const auto check_model = [&](Model model) {
        model.split_names({{"batch", "dp"}, {"mlp", "tp"}, {"heads", "tp"}, {"vocab", "tp"}});
        for (const auto& axes : {std::vector<Axis>{}, std::vector<Axis>{{"dp", 2}, {"tp", 2}}}) {
            Program program = model.program;
            const Mesh mesh = Mesh(axes).with_microbatches(2);
            ops.merge(check_kernels(compile(program, mesh).plan));
        }
    };
    check_model(mlp(8, 4, 12, true, true));
    check_model(block(4, 6, 2, 4, 8, true, true));
    for (const DType compute : {DType::f32, DType::bf16, DType::f16}) {
        Model model = network({1, 1}, true, compute);
        ops.merge(check_kernels(compile(model.program, Mesh().with_microbatches(2)).plan));
    }
    for (const char* op : {"matmul", "matmul_dw", "matmul_dw_bias", "matmul_bias_gelu", "matmul_gelu_grad",
                           "attention_grad", "rmsnorm_grad", "adamw", "embedding_grad"}) {
        INFO(op);
        CHECK(ops.count(op) == 1);
    }
}
#endif

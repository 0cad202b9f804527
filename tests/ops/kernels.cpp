// The CPU device's kernels against the reference in f64, in every type that they run in.
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "chosen.h"
#include "comparison.h"

using namespace orrery;
using namespace orrery::op_tests;

namespace {

Way way(std::string name, Device& device) {
    return {std::move(name), [&](const KernelSpec& spec) { return device.why_not(spec); },
            [&](const KernelSpec& spec, std::span<const Tensor> operands) { run(device, spec, operands); }};
}

}  // namespace

TEST_CASE("CPU kernels of every op agree with the reference") {
    const Way right = way("the reference", reference());
    const std::vector<Way> ways = {way("1 thread", cpu(1)), way("3 threads", cpu(3))};
    for (const OpDef* def : chosen()) {
        DYNAMIC_SECTION(def->name) {
            int in_f32 = 0;
            for (const Call& call : calls_of(*def))
                for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
                    std::string why;
                    const std::optional<Program> program = in_type(call, type, ways[0].why_not, why);
                    INFO(call.text() << " in " << name_of(type) << (why.empty() ? "" : ": ") << why);
                    if (!program) {
                        // A refusal names the op; a device without f32 kernels of a plugin's op is told here.
                        if (!why.empty()) CHECK(why.find(def->name) != std::string::npos);
                        if (type == DType::f32) WARN("device cpu has no kernel: " << why);
                        continue;
                    }
                    in_f32 += type == DType::f32;
                    Comparison(right, ways, call, *program).check();
                }
            CHECK((chosen_by_name() || in_f32 > 0));
        }
    }
}

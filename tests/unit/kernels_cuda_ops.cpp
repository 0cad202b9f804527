// Every op as the CUDA device hands it over, by the CUDA kernels under the emulator of thread blocks.
#include <set>

#include "kernels_specs.h"

using namespace orrery;
using namespace orrery::kernels::testing;

namespace {

void run_emulated(const kernels::cuda::Spec& spec, const Buffers& in, Buffers& out) {
    kernels::emulated::Call rehearsal, call;
    kernels::emulated::SpecKernel kernel(spec, rehearsal);
    std::vector<unsigned char> scratch(static_cast<size_t>(kernel.scratch_bytes()) + 64);
    Buffers inputs = in;
    std::vector<void*> operands;
    for (Buffer& b : inputs) operands.push_back(b.out().data);
    for (Buffer& b : out) operands.push_back(b.out().data);
    call.begin(scratch.data(), kernel.scratch_bytes());
    kernel.run(call, operands);
    for (size_t i = 0; i < in.size(); ++i) CHECK(inputs[i].same_bits(in[i]));
}

}  // namespace

TEST_CASE("cuda: every op agrees with the reference, emulated") { check_cases(run_emulated); }

TEST_CASE("cuda: the cases hold every op") {
    Source source;
    std::set<std::string> tried;
    for (const OpCase& one : op_cases(source)) tried.insert(one.spec.op);
    for (const std::string& op : kernels::emulated::rule_ops()) {
        INFO(op);
        CHECK(tried.count(op) == 1);
    }
}

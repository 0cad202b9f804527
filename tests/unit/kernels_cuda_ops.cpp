// Every op as the CUDA device hands it over, by the CUDA kernels under the emulator of thread blocks.
#include <cstring>
#include <set>

#include "kernels_specs.h"

using namespace orrery;
using namespace orrery::kernels::testing;

namespace {

/// An operand `shift` elements behind an aligned address, between guards.
struct Shifted {
    Shifted(const Buffer& host, i64 shift) : from(static_cast<size_t>(shift * size_of(host.type()))) {
        const auto* data = static_cast<const unsigned char*>(host.in().data);
        bytes.assign(from, 0xa5);
        bytes.insert(bytes.end(), data, data + host.count() * size_of(host.type()));
        bytes.insert(bytes.end(), 64, 0xa5);
    }
    void* data() { return bytes.data() + from; }
    void copy_to(Buffer& host) const {
        const auto n = static_cast<size_t>(host.count() * size_of(host.type()));
        std::memcpy(host.out().data, bytes.data() + from, n);
        for (size_t i = 0; i < bytes.size(); ++i) {
            if (i < from || i >= from + n) REQUIRE(bytes[i] == 0xa5);
        }
    }
    size_t from;
    std::vector<unsigned char> bytes;
};

void run_emulated(const kernels::cuda::Spec& spec, const Buffers& in, Buffers& out, i64 shift) {
    kernels::emulated::Call rehearsal, call;
    kernels::emulated::SpecKernel kernel(spec, rehearsal);
    std::vector<unsigned char> scratch(static_cast<size_t>(kernel.scratch_bytes()) + 64);
    std::vector<Shifted> inputs, outputs;
    for (const Buffer& b : in) inputs.emplace_back(b, shift);
    for (const Buffer& b : out) outputs.emplace_back(b, shift);
    std::vector<void*> operands;
    for (std::vector<Shifted>* side : {&inputs, &outputs}) {
        for (Shifted& operand : *side) operands.push_back(operand.data());
    }
    call.begin(scratch.data(), kernel.scratch_bytes());
    kernel.run(call, operands);
    for (size_t i = 0; i < in.size(); ++i) {
        Buffer after = in[i];
        inputs[i].copy_to(after);
        CHECK(after.same_bits(in[i]));
    }
    for (size_t i = 0; i < out.size(); ++i) outputs[i].copy_to(out[i]);
}

RunSpec emulated_at(i64 shift) {
    return [shift](const kernels::cuda::Spec& spec, const Buffers& in, Buffers& out) {
        run_emulated(spec, in, out, shift);
    };
}

}  // namespace

TEST_CASE("cuda: every op agrees with the reference, emulated", "[slow]") { check_cases(emulated_at(0)); }

#ifndef __SANITIZE_ADDRESS__  // what they touch is looked at above; here they take three minutes more
TEST_CASE("cuda: every op agrees at addresses that are no multiple of 16 bytes, emulated", "[slow]") {
    check_cases(emulated_at(1));
}
#endif

TEST_CASE("cuda: the cases hold every op") {
    Source source;
    std::set<std::string> tried;
    for (const OpCase& one : op_cases(source)) tried.insert(one.spec.op);
    for (const OpCase& one : sample_cases(source)) tried.insert(one.spec.op);
    for (const std::string& op : kernels::rules::rule_ops()) {
        INFO(op);
        CHECK(tried.count(op) == 1);
    }
}

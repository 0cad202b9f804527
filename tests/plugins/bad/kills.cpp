// y = x, and SIGKILL of the process of one rank in the step `at`, once: a file killed-AT in the working folder says
// that it has happened.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "orrery/kernel.h"
#include "orrery/op.h"
#include "orrery/plugin.h"

namespace {

using namespace orrery;

std::vector<Typed> infer(Infer& at) { return {at.typed(0)}; }

FactorRule rule(const Program& program, const Op& op) {
    RuleMaker make;
    FactorRule::Dims dims;
    for (const int64_t size : program.value(op.inputs[0]).type.shape) dims.push_back(make.parallel(size));
    make.rule.inputs = {dims, {}};
    make.rule.outputs = {dims};
    return make.rule;
}

OpKernel kernel(const KernelSpec& spec, int) {
    const auto at = spec.attributes.number("at"), rank = spec.attributes.number("rank");
    const char* text = std::getenv("ORRERY_RANK");
    const bool here = text && std::atof(text) == rank;
    return {[=](const KernelCall& call) {
        if (here && *call.in<float>(1) == at &&
            ::open(fmt::format("killed-{:g}", at).c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644) >= 0)
            std::raise(SIGKILL);
        std::copy_n(call.in<float>(0), call.operands[0].count(), call.out<float>(2));
    }};
}

void add(Registry& registry) {
    using Kind = AttributeDef::Kind;
    registry.add_op({.name = "kills",
                     .operands = {"x", "step"},
                     .types = "f f -> f",
                     .attributes = {{"at", Kind::number, true, 0.0}, {"rank", Kind::number, true, 0.0}},
                     .infer = infer,
                     .rule = rule,
                     .flops = [](const Program&, const Op&) { return int64_t{0}; },
                     .in_place = {{0, 0}}});
    for (const char* device : {"cpu", "reference"}) registry.add_kernel("kills", device, kernel);
}

}  // namespace

ORRERY_PLUGIN("op.kills", "0.1", add);

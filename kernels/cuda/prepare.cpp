#include "kernels/cuda/prepared.h"
#include "kernels/cuda/rules.h"

namespace orrery::kernels::cuda {

namespace {

Call call_on(Context& context) { return {&context, context.stream(), context.chip().multiprocessors}; }

class TableKernel : public Prepared {
public:
    TableKernel(const Spec& spec, Call rehearsal) : kernel_(spec, rehearsal) {}
    std::int64_t scratch_bytes() const override { return kernel_.scratch_bytes(); }
    std::string how() const override { return kernel_.how(); }
    void launch(Context& context, std::span<void* const> operands, void* scratch) override {
        const std::int64_t bytes = kernel_.scratch_bytes();
        if (bytes > 0 && reinterpret_cast<std::uintptr_t>(scratch) % scratch_alignment != 0) {
            throw Failure("misaligned scratch: its address is not a multiple of " + std::to_string(scratch_alignment) +
                          " bytes, which libraries need");
        }
        Call call = call_on(context);
        call.begin(scratch, bytes);
        kernel_.run(call, operands);
    }

private:
    SpecKernel kernel_;
};

}  // namespace

void Prepared::launch_joined(Context& context, std::span<const Joined> batch) {
    for (const Joined& one : batch) one.kernel->launch(context, one.operands, nullptr);
}

std::vector<std::string> ops() { return rules::rule_ops(); }

std::string why_not(const Spec& spec) {
    try {
        resolve(spec);
        return "";
    } catch (const Refused& refused) {
        return refused.what();
    }
}

std::unique_ptr<Prepared> prepare(Context& context, const Spec& spec) {
    if (spec.op == "adamw") {
        resolve(spec);  // throws for a spec that does not fit
        return prepare_adamw(spec);
    }
    return std::make_unique<TableKernel>(spec, call_on(context));
}

}  // namespace orrery::kernels::cuda

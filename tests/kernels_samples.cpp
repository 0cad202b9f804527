// The samples of every op (orrery/op.h) as cases for tables of kernels.
#include "../plugins/device/cpu/resolve.h"
#include "../plugins/device/kernel_spec.h"
#include "kernels_cases.h"
#include "ops/call.h"

namespace orrery::kernels::testing {

namespace {

std::string why_not(const KernelSpec& spec) {
    try {
        cpu_device::resolve(spec, cpu::table(), false);
        return "";
    } catch (const Error& error) {
        return error.what();
    }
}

std::vector<Operand> operands_of(const std::vector<TensorType>& types) {
    std::vector<Operand> operands;
    for (const TensorType& type : types) operands.push_back({kernel_type(type.dtype), type.shape});
    return operands;
}

std::vector<double> numbers(const test::Array& array) {
    std::vector<double> all;
    for (int64_t i = 0; i < array.type.count(); ++i)
        all.push_back(is_float(array.type.dtype)       ? array.f64()[i]
                      : size_of(array.type.dtype) == 4 ? array.i32_at(i)
                      : array.type.dtype == DType::i8
                          ? static_cast<double>(static_cast<int8_t>(array.data[static_cast<size_t>(i)]))
                          : static_cast<double>(static_cast<uint8_t>(array.data[static_cast<size_t>(i)])));
    return all;
}

}  // namespace

std::vector<OpCase> sample_cases(Source& source) {
    Cases cases(source);
    for (const OpDef* def : own_ops())
        for (const op_tests::Call& call : op_tests::calls_of(*def))
            for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
                std::string why;
                const std::optional<Program> program = op_tests::in_type(call, type, why_not, why);
                if (!program) continue;
                const KernelSpec spec = op_tests::spec_of(*program);
                OpCase& one =
                    cases.add(spec.op, spec.attributes.items(), operands_of(spec.inputs), operands_of(spec.outputs));
                for (size_t i = 0; i < spec.inputs.size(); ++i)
                    one.in[i].set(numbers(call.draw(i, spec.inputs[i], source.seed)));
            }
    return std::move(cases.all);
}

}  // namespace orrery::kernels::testing

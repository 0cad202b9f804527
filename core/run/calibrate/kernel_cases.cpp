#include "run/calibrate/kernel_cases.h"

#include <algorithm>
#include <set>

#include "ir/build.h"
#include "ir/op.h"

namespace orrery {
namespace {

/// Outputs that start at the address of an input.
std::vector<std::pair<int, int>> common_places(const RankClass& c, const Instruction& i) {
    const size_t inputs = c.kernels[static_cast<size_t>(i.kernel)].inputs.size();
    std::vector<std::pair<int, int>> common;
    for (size_t out = inputs; out < i.operands.size(); ++out)
        for (size_t in = 0; in < inputs; ++in) {
            const Operand &a = i.operands[out], &b = i.operands[in];
            if (a.buffer != b.buffer || a.offset != b.offset || a.type.bytes() != b.type.bytes()) continue;
            common.emplace_back(static_cast<int>(out - inputs), static_cast<int>(in));
            break;
        }
    return common;
}

/// Collects the cases of a grid. Specs are made through the op definitions, so that attributes and results are
/// complete.
class Grid {
public:
    explicit Grid(Device& device) : device_(device) {}

    void add(std::string_view op, const std::vector<TensorType>& inputs, const Attributes& attributes = {}) {
        add(spec_of(op, inputs, attributes));
    }

    /// Adds every op that maps one or several tensors of x's type to results of the same type.
    void add_alike(const TensorType& x) {
        for (const OpDef* def : all_ops()) {
            if (def->collective || def->alias) continue;
            const auto optional = [](std::string_view operand) { return operand.ends_with('?'); };
            const auto count = std::ranges::count_if(def->operands, [&](auto name) { return !optional(name); });
            if (count == 0) continue;
            try {
                const KernelSpec spec = spec_of(def->name, std::vector(static_cast<size_t>(count), x), {});
                if (std::ranges::all_of(spec.outputs, [&](const TensorType& y) { return y == x; })) add(spec);
            } catch (const Error&) {  // it needs other operands or attributes
            }
        }
    }

    std::vector<KernelCase> take() { return std::move(cases_); }

private:
    static KernelSpec spec_of(std::string_view op, const std::vector<TensorType>& inputs,
                              const Attributes& attributes) {
        Program program;
        Builder build(program);
        std::vector<ValueId> values;
        for (size_t i = 0; i < inputs.size(); ++i)
            values.push_back(build.input("x" + std::to_string(i), inputs[i], {}, {}));
        build.add(op, values, attributes, {});
        const Op& made = program.ops.back();
        KernelSpec spec{made.kind, made.attributes, inputs, {}};
        for (const ValueId output : made.outputs) spec.outputs.push_back(program.value(output).type);
        return spec;
    }

    void add(const KernelSpec& spec) {
        if (!device_.why_not(spec).empty() || !seen_.insert(spec_text(spec)).second) return;
        std::vector<std::pair<int, int>> in_place;
        for (const auto& [output, input] : op_def(spec.op).in_place) {
            const auto o = static_cast<size_t>(output), i = static_cast<size_t>(input);
            if (o < spec.outputs.size() && i < spec.inputs.size() && spec.outputs[o] == spec.inputs[i])
                in_place.emplace_back(output, input);
        }
        cases_.push_back({spec, spec, in_place});
    }

    Device& device_;
    std::set<std::string> seen_;
    std::vector<KernelCase> cases_;
};

/// Products of the forward pass, of the input's gradient and of the weight's: y = x w, dx = dy w', dw = x' dy.
void products(Grid& grid, DType f) {
    constexpr int64_t sizes[] = {64, 256, 1024, 4096};
    for (const int64_t m : sizes)
        for (const int64_t n : sizes)
            for (const int64_t k : sizes) {
                const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
                if (flops > 1.8e10) continue;  // a product of 1,024 x 2,048 x 4,096 is large enough
                grid.add("matmul", {{f, {m, k}}, {f, {k, n}}});
                grid.add("matmul", {{f, {m, k}}, {f, {n, k}}}, {{"trans_b", true}});
                grid.add("matmul_dw", {{f, {m, k}}, {f, {m, n}}});
            }
}

void attentions(Grid& grid, DType f) {
    for (const int64_t head : {64, 128})
        for (const int64_t heads : {4, 16})
            for (const int64_t seq : {128, 512, 2048}) {
                if (seq * seq * heads * head > int64_t{1} << 32) continue;
                const TensorType x{f, {1, seq, heads, head}};
                const Attributes causal = {{"causal", true}};
                grid.add("attention", {x, x, x}, causal);
                grid.add("attention_grad", {x, x, x, x, {DType::f32, {1, heads, seq}}, x}, causal);
            }
}

void rows(Grid& grid, DType f) {
    const DType s = DType::f32;
    for (const int64_t width : {256, 1024, 4096})
        for (const int64_t count : {64, 1024, 8192}) {
            if (width * count > int64_t{1} << 24) continue;
            const TensorType x{f, {count, width}}, vector{s, {width}}, row{s, {count}};
            grid.add("rmsnorm", {x, vector});
            grid.add("rmsnorm_grad", {x, vector, row, x});
            grid.add("layernorm", {x, vector, vector});
            grid.add("layernorm_grad", {x, vector, row, row, x});
            grid.add("sum", {x}, {{"dims", std::vector<int64_t>{0}}});
        }
    for (const int64_t vocab : {256, 8192, 50304})
        for (const int64_t count : {64, 1024}) {
            const TensorType logits{f, {count, vocab}}, ids{DType::i32, {count}};
            grid.add("cross_entropy", {logits, ids}, {{"grad", true}});
            grid.add("embedding", {ids, {f, {vocab, 1024}}});
            grid.add("embedding_grad", {ids, {f, {count, 1024}}}, {{"vocab", vocab}});
        }
}

void elements(Grid& grid, DType f) {
    const DType s = DType::f32;
    for (int64_t n = int64_t{1} << 12; n <= int64_t{1} << 24; n *= 16) {
        const TensorType x{f, {n}}, master{s, {n}}, one{s, {}};
        grid.add_alike({f, {n / 1024, 1024}});
        grid.add("scale", {x}, {{"by", 0.5}});
        grid.add("sumsq", {x});
        grid.add("adamw", {master, master, master, master, one, one, one, {DType::u8, {}}},
                 {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"decay", 0.1}});
        if (f == s) continue;
        grid.add("cast", {x}, {{"dtype", std::string(name_of(s))}});
        grid.add("cast", {master}, {{"dtype", std::string(name_of(f))}});
    }
    for (const int64_t seq : {128, 2048}) {
        const TensorType x{f, {1, seq, 16, 64}};
        grid.add("rope", {x});
        grid.add("transpose", {x}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    }
}

int64_t bytes_of(const KernelCase& c) {
    int64_t bytes = 0;
    for (const auto* types : {&c.run.inputs, &c.run.outputs})
        for (const TensorType& type : *types) bytes += type.bytes();
    return bytes;
}

}  // namespace

std::vector<KernelCase> kernel_cases(const Plan& plan) {
    std::vector<KernelCase> cases;
    std::set<std::string> seen;
    for (const RankClass& c : plan.classes) {
        std::vector<const Instruction*> first(c.kernels.size(), nullptr);
        for (const Instruction& i : c.stream)
            if (i.opcode == Opcode::kernel && !first[static_cast<size_t>(i.kernel)])
                first[static_cast<size_t>(i.kernel)] = &i;
        for (size_t k = 0; k < c.kernels.size(); ++k) {
            if (!first[k] || !seen.insert(spec_text(c.kernels[k])).second) continue;
            cases.push_back({c.kernels[k], kernel_for(c, static_cast<int>(k), plan.mesh, c.ranks.front()),
                             common_places(c, *first[k])});
        }
    }
    return cases;
}

std::vector<KernelCase> kernel_grid(Device& device, DType dtype) {
    Grid grid(device);
    elements(grid, dtype);
    rows(grid, dtype);
    products(grid, dtype);
    attentions(grid, dtype);
    std::vector<KernelCase> cases = grid.take();
    std::stable_sort(cases.begin(), cases.end(),
                     [](const KernelCase& a, const KernelCase& b) { return bytes_of(a) < bytes_of(b); });
    return cases;
}

}  // namespace orrery

#include "run/calibrate/kernel_cases.h"

#include <algorithm>
#include <set>

#include "ir/build.h"
#include "ir/op.h"

namespace orrery {
namespace {

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

KernelSpec spec_of(std::string_view op, const std::vector<TensorType>& inputs, const Attributes& attributes) {
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

void grid_of_products(KernelCases& cases, DType f) {
    constexpr int64_t sizes[] = {64, 256, 1024, 4096};
    for (const int64_t m : sizes)
        for (const int64_t n : sizes)
            for (const int64_t k : sizes) {
                const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
                if (flops > 1.8e10) continue;  // skips matrix products above 1,024 x 2,048 x 4,096
                cases.products(f, m, n, k);
            }
}

void grid_of_attentions(KernelCases& cases, DType f) {
    for (const int64_t head : {64, 128})
        for (const int64_t heads : {4, 16})
            for (const int64_t seq : {128, 512, 2048})
                if (seq * seq * heads * head <= int64_t{1} << 32) cases.attentions(f, {1, seq, heads, head}, heads);
}

void grid_of_rows(KernelCases& cases, DType f) {
    for (const int64_t width : {256, 1024, 4096})
        for (const int64_t count : {64, 1024, 8192})
            if (width * count <= int64_t{1} << 24) cases.norms({f, {count, width}});
    for (const int64_t vocab : {256, 8192, 50304})
        for (const int64_t count : {64, 1024}) {
            cases.losses({f, {count, vocab}});
            cases.lookups({f, {count, 1024}}, vocab);
        }
}

void grid_of_elements(KernelCases& cases, DType f) {
    for (int64_t n = int64_t{1} << 12; n <= int64_t{1} << 24; n *= 16) {
        cases.add_alike({f, {n / 1024, 1024}});
        cases.add("scale", {{f, {n}}}, {{"by", 0.5}});
        cases.updates(f, n);
    }
    for (const int64_t seq : {128, 2048}) cases.heads({f, {1, seq, 16, 64}});
}

int64_t bytes_of(const KernelCase& c) {
    int64_t bytes = 0;
    for (const auto* types : {&c.run.inputs, &c.run.outputs})
        for (const TensorType& type : *types) bytes += type.bytes();
    return bytes;
}

void add_cases(std::vector<KernelCase>& cases, std::set<std::string>& seen, const Plan& plan) {
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
}

}  // namespace

std::vector<KernelCase> kernel_cases(const std::vector<const Plan*>& plans) {
    std::vector<KernelCase> cases;
    std::set<std::string> seen;
    for (const Plan* plan : plans) add_cases(cases, seen, *plan);
    return cases;
}

void KernelCases::add(std::string_view op, const std::vector<TensorType>& inputs, const Attributes& attributes,
                      const std::string& name) {
    const KernelSpec spec = spec_of(op, inputs, attributes);
    if ((device_ && !device_->why_not(spec).empty()) || !seen_.insert(spec_text(spec)).second) return;
    std::vector<std::pair<int, int>> in_place;
    for (const auto& [output, input] : op_def(spec.op).in_place) {
        const auto o = static_cast<size_t>(output), i = static_cast<size_t>(input);
        if (o < spec.outputs.size() && i < spec.inputs.size() && spec.outputs[o] == spec.inputs[i])
            in_place.emplace_back(output, input);
    }
    cases_.push_back({spec, spec, in_place, (name.empty() ? spec.op : name) + suffix_});
}

void KernelCases::add_alike(const TensorType& x) {
    for (const OpDef* def : all_ops()) {
        if (def->collective || def->alias) continue;
        const auto optional = [](std::string_view operand) { return operand.ends_with('?'); };
        const auto count = std::ranges::count_if(def->operands, [&](auto name) { return !optional(name); });
        if (count == 0) continue;
        const std::vector inputs(static_cast<size_t>(count), x);
        try {
            const KernelSpec spec = spec_of(def->name, inputs, {});
            if (std::ranges::all_of(spec.outputs, [&](const TensorType& y) { return y == x; })) add(def->name, inputs);
        } catch (const Error&) {  // the op needs other operands or attributes
        }
    }
}

void KernelCases::products(DType f, int64_t m, int64_t n, int64_t k, const std::string& name, bool bias) {
    const TensorType x{f, {m, k}}, w{f, {k, n}}, y{f, {m, n}};
    std::vector<TensorType> operands{x, w};
    if (bias) operands.push_back({f, {n}});
    add("matmul", operands, {}, name);
    add("matmul", {y, w}, {{"trans_b", true}}, name + " dx");
    add("matmul_dw", {x, y}, {}, name + " dw");
}

void KernelCases::attentions(DType f, const Shape& q, int64_t groups) {
    const TensorType queries{f, q}, keys{f, {q[0], q[1], groups, q[3]}}, rows{DType::f32, {q[0], q[2], q[1]}};
    const Attributes causal = {{"causal", true}};
    add("attention", {queries, keys, keys}, causal);
    add("attention_grad", {queries, keys, keys, queries, rows, queries}, causal);
}

void KernelCases::norms(const TensorType& x) {
    const TensorType vector{DType::f32, {x.shape[1]}}, row{DType::f32, {x.shape[0]}};
    add("rmsnorm", {x, vector});
    add("rmsnorm_grad", {x, vector, row, x});
    add("layernorm", {x, vector, vector});
    add("layernorm_grad", {x, vector, row, row, x});
    add("sum", {x}, {{"dims", std::vector<int64_t>{0}}}, "sum of rows");
}

void KernelCases::losses(const TensorType& logits) {
    add("cross_entropy", {logits, {DType::i32, {logits.shape[0]}}}, {{"grad", true}});
}

void KernelCases::lookups(const TensorType& x, int64_t vocab) {
    const TensorType ids{DType::i32, {x.shape[0]}};
    add("embedding", {ids, {x.dtype, {vocab, x.shape[1]}}});
    add("embedding_grad", {ids, x}, {{"vocab", vocab}});
}

void KernelCases::heads(const TensorType& x) {
    add("rope", {x});
    add("transpose", {x}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}}, "transpose heads");
}

void KernelCases::updates(DType f, int64_t n) {
    const TensorType x{f, {n}}, master{DType::f32, {n}}, one{DType::f32, {}};
    add("sumsq", {x});
    add("adamw", {master, master, master, master, one, one, one, {DType::u8, {}}},
        {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"decay", 0.1}});
    if (f == DType::f32) return;
    add("cast", {x}, {{"dtype", std::string("f32")}}, "cast to f32");
    add("cast", {master}, {{"dtype", std::string(name_of(f))}});
}

std::vector<KernelCase> kernel_grid(Device& device, DType dtype) {
    KernelCases grid(&device);
    grid_of_elements(grid, dtype);
    grid_of_rows(grid, dtype);
    grid_of_products(grid, dtype);
    grid_of_attentions(grid, dtype);
    std::vector<KernelCase> cases = grid.take();
    std::ranges::stable_sort(cases, {}, [](const KernelCase& c) { return bytes_of(c); });
    return cases;
}

}  // namespace orrery

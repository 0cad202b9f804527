// Times the kernels of training steps on a device: of a small GPT and of GPT-2's width on processors, of GPT-2 124M and
// of a Llama of one billion parameters on a GPU.
//
//   bench_kernels [THREADS | DEVICE] [f32|bf16|f16] [name] [seconds]
//
// Products are set against one large product, the rest against scaling a large array, which is read and written once.
// Each is timed as `orrery calibrate` does (core/run/calibrate), in three rounds over all; its median counts. On a GPU
// no cache holds its operands. Where the device cannot run it says why and exits with 77.
#include <fmt/format.h>

#include <map>
#include <span>

#include "ir/op.h"
#include "plugin/loader.h"
#include "run/calibrate/kernel_cases.h"
#include "sim/kernel_prices.h"

using namespace orrery;

namespace {

struct Model {
    const char* name;
    int64_t batch, time, width, inner, heads, groups, vocab;
};
constexpr Model on_processors[] = {{"small gpt", 16, 256, 384, 1536, 6, 6, 256},
                                   {"gpt2", 2, 512, 768, 3072, 12, 12, 50257}};
constexpr Model on_gpus[] = {{"gpt2", 32, 1024, 768, 3072, 12, 12, 50304},
                             {"llama 1b", 8, 2048, 2048, 8192, 32, 8, 32000}};

void add_products(KernelCases& cases, DType f, const Model& z) {
    const int64_t tokens = z.batch * z.time;
    cases.products(f, tokens, z.inner, z.width, "matmul up", true);
    cases.products(f, tokens, z.width, z.inner, "matmul down", true);
    cases.products(f, tokens, z.vocab, z.width, "matmul head");
    const TensorType x{f, {tokens, z.width}}, w{f, {z.width, z.inner}}, y{f, {tokens, z.inner}};
    cases.add("matmul_bias_gelu", {x, w, {f, {z.inner}}});
    cases.add("matmul_gelu_grad", {x, {f, {z.inner, z.width}}, y}, {{"trans_b", true}});
    cases.add("matmul_dw_bias", {x, y});
    cases.attentions(f, {z.batch, z.time, z.heads, z.width / z.heads}, z.groups);
}

void add_rows(KernelCases& cases, DType f, const Model& z) {
    const int64_t tokens = z.batch * z.time;
    const TensorType x{f, {tokens, z.width}}, vector{DType::f32, {z.width}}, row{DType::f32, {tokens}};
    cases.norms(x);
    cases.add("layernorm", {x, vector, vector, x}, {}, "layernorm + residual");
    cases.add("layernorm_grad", {x, vector, row, row, x, x}, {}, "layernorm_grad + residual");
    cases.add("rmsnorm", {x, vector, x}, {}, "rmsnorm + residual");
    cases.add("rmsnorm_grad", {x, vector, row, x, x}, {}, "rmsnorm_grad + residual");
    const TensorType h{f, {tokens, z.inner}};
    for (const auto& [op, operands] : {std::pair{"add", 2},
                                       {"gelu", 1},
                                       {"gelu_grad", 2},
                                       {"silu", 1},
                                       {"swiglu", 2},
                                       {"swiglu_grad", 3},
                                       {"exp", 1}})
        cases.add(op, std::vector<TensorType>(static_cast<size_t>(operands), h));
    cases.add("gelu", {h}, {{"approx", std::string("erf")}}, "gelu erf");
    cases.add("add", {h, {f, {z.inner}}}, {}, "add row");
    cases.add("dropout", {h, {DType::u32, {}}}, {{"p", 0.1}});
    cases.losses({f, {tokens / 4, z.vocab}});
    cases.lookups(x, z.vocab);
    cases.heads({f, {z.batch, z.time, z.heads, z.width / z.heads}});
    cases.add("slice", {x}, {{"dim", int64_t{1}}, {"start", int64_t{128}}, {"size", int64_t{128}}});
    cases.add("roll", {x}, {{"dim", int64_t{0}}, {"by", int64_t{128}}});
    const TensorType o{f, {z.batch, z.time, z.heads, z.width / z.heads}}, merged{DType::f32, o.shape};
    const TensorType lse{DType::f32, {z.batch, z.heads, z.time}};
    cases.add("merge", {merged, lse, o, lse}, {});
    cases.add("merge_grad", {merged, lse, o, lse, merged, lse}, {});
}

/// Routing of tokens among 64 experts, rows of a token by index, and a choice among a vocabulary.
void add_indices(KernelCases& cases, DType f, const Model& z) {
    const int64_t tokens = z.batch * z.time, experts = 64, chosen = 8;
    const TensorType x{f, {tokens, z.width}}, rows{DType::i32, {tokens, 1}}, gates{f, {tokens, experts}};
    const TensorType picked{f, {tokens, chosen}}, ids{DType::i32, {tokens, chosen}};
    const Attributes first{{"dim", int64_t{0}}}, last{{"dim", int64_t{1}}};
    cases.add("gather", {x, rows}, first, "gather rows");
    cases.add("scatter_add", {x, rows}, {{"dim", int64_t{0}}, {"size", tokens}}, "scatter_add rows");
    cases.add("gather", {gates, ids}, last, "gather elements");
    cases.add("scatter_add", {picked, ids}, {{"dim", int64_t{1}}, {"size", experts}}, "scatter_add elements");
    cases.add("top_k", {gates}, {{"k", chosen}}, "top_k 8 of 64");
    cases.add("top_k", {{f, {64, z.vocab}}}, {{"k", int64_t{40}}}, "top_k 40 of the vocabulary");
    const Attributes slots{{"experts", experts}, {"slots", tokens * chosen / experts}};
    cases.add("assign_slots", {ids}, slots);
    cases.add("assign_slots", {ids, picked}, slots, "assign_slots by weight");
    const TensorType held{f, {experts, tokens * chosen / experts, z.width}}, by{DType::f32, ids.shape};
    cases.add("dispatch", {x, ids}, slots);
    cases.add("dispatch", {x, ids, by}, slots, "dispatch with weights");
    cases.add("combine", {held, ids, by});
    cases.add("slot_dots", {held, x, ids});
    cases.add("cumsum", {gates}, last, "cumsum rows");
    cases.add("cumsum", {x}, first, "cumsum columns");
    cases.add("iota", {}, {{"shape", x.shape}, {"dtype", std::string("f32")}});
    cases.add("one_hot", {{DType::i32, {tokens}}}, {{"size", experts}, {"dtype", std::string(name_of(f))}});
}

/// As many rows as tokens, for 8 experts and for 32, each with its matrix, in slabs that are full.
void add_experts(KernelCases& cases, DType f, const Model& z) {
    for (const int64_t experts : {int64_t{8}, int64_t{32}}) {
        const int64_t slots = z.batch * z.time / experts;
        const TensorType x{f, {experts, slots, z.width}}, y{f, {experts, slots, z.inner}};
        const TensorType w{f, {experts, z.width, z.inner}}, counts{DType::i32, {experts}};
        const std::string of = fmt::format(" of {} experts", experts);
        cases.add("grouped_matmul", {x, w, counts}, {}, "grouped_matmul" + of);
        cases.add("grouped_matmul", {y, w, counts}, {{"trans_b", true}}, "grouped_matmul dx" + of);
        cases.add("grouped_matmul_dw", {x, y, counts}, {}, "grouped_matmul_dw" + of);
    }
}

/// Codes of one array: int8, one bit, the largest of blocks.
void add_codes(KernelCases& cases, const TensorType& x) {
    const int64_t n = x.shape[0];
    const auto coded = [](int64_t block, int64_t bits) {
        return Attributes{{"block", block}, {"bits", bits}, {"dtype", std::string("i8")}};
    };
    const Attributes one_bit{{"bits", int64_t{1}}};
    const TensorType q{DType::i8, x.shape};
    cases.add("quantize", {x}, coded(256, 8), "quantize int8");
    cases.add("quantize", {x}, coded(2048, 1), "quantize sign");
    cases.add("dequantize", {q, {DType::bf16, {n / 256}}}, {{"block", int64_t{256}}}, "dequantize int8");
    cases.add("pack", {q}, one_bit, "pack 1 bit");
    cases.add("unpack", {{DType::u8, {n / 8}}}, {{"bits", int64_t{1}}, {"size", n}}, "unpack 1 bit");
    cases.add("block_top_k", {x}, {{"k", int64_t{409}}}, "block_top_k 409 of 4096");
    cases.add("orthogonalize", {{DType::f32, {n / 512, 16}}}, {}, "orthogonalize 16 columns");
}

/// nullptr where it cannot run here, after the reason was printed.
std::unique_ptr<Device> open_device(const std::string& asked, const std::string& name) {
    Registry registry;
    const Loader loader(and_plugin_folders({}));
    loader.load("device", name, registry, {});
    if (const std::string why = loader.cannot_run("device", name); !why.empty()) {
        fmt::print("no bench: {}\n", why);
        return nullptr;
    }
    Config config("device." + name);
    if (name != asked) config.set("threads", {std::stol(asked), {}, true});
    return registry.device(name, {})(config);
}

std::vector<KernelCase> cases_of(DType type, bool gpu, const std::string& wanted) {
    const int64_t side = gpu ? 8192 : 1024;
    KernelCases cases;
    cases.products(type, side, side, side, "a large product");
    cases.add("scale", {{DType::f32, {int64_t{1} << (gpu ? 28 : 24)}}}, {{"by", 0.5}}, "a large array");
    for (const Model& z : gpu ? std::span(on_gpus) : std::span(on_processors)) {
        cases.suffix(fmt::format(" {}", z.name));
        add_products(cases, type, z);
        add_rows(cases, type, z);
        add_indices(cases, type, z);
        add_experts(cases, type, z);
    }
    cases.suffix("");
    const TensorType p{DType::f32, {int64_t{1} << (gpu ? 27 : 22)}};
    cases.updates(type, p.shape[0]);
    cases.add("all_finite", {p});
    add_codes(cases, p);
    cases.add("full", {}, {{"shape", p.shape}, {"value", 0.0}});
    std::vector<KernelCase> all = cases.take();
    std::erase_if(all, [&](const KernelCase& c) {
        return !c.name.starts_with("a large") && c.name.find(wanted) == std::string::npos;
    });
    return all;
}

/// FLOP of a product or of attention, of which a causal mask leaves half; else the bytes that move.
double amount(const KernelSpec& spec) {
    const KernelWork work = work_of(spec);
    if (op_def(spec.op).moves == Moves::cuts) return 2 * static_cast<double>(spec.outputs[0].bytes());
    if (!multiplies(work.work)) return work.bytes;
    const double forward = work.work == Work::attention ? 4 : 10;
    if (work.work == Work::attention || work.work == Work::attention_gradient)
        return forward * work.batch * work.heads * work.seen * work.head;
    return 2 * work.batch * work.m * work.n * work.k;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string asked = argc > 1 ? argv[1] : "1", type = argc > 2 ? argv[2] : "f32";
    const bool threads = asked.find_first_not_of("0123456789") == std::string::npos;
    const std::unique_ptr<Device> device = open_device(asked, threads ? "cpu" : asked);
    if (!device) return 77;
    const bool gpu = device->native(0) != nullptr;
    const std::vector<KernelCase> cases = cases_of(parse_dtype(type).value(), gpu, argc > 3 ? argv[3] : "");
    KernelBench bench;
    bench.budget_s = argc > 4 ? std::stod(argv[4]) : gpu ? 30 : 120;
    bench.pool_bytes = gpu ? int64_t{256} << 20 : 1;
    bench.most_bytes = int64_t{8} << 30;
    std::vector<std::string> notes;
    std::map<std::string, double> seconds;
    for (const KernelCost& row : measure_kernels(*device, cases, bench, notes))
        seconds[spec_text(row.spec)] = row.time.seconds;
    const auto rate = [&](const KernelCase& c) { return amount(c.row) / seconds[spec_text(c.row)]; };
    const double product = rate(cases[0]), copy = rate(cases[3]);
    fmt::print("{}, {}\n{:<36} {:>10} {:>14} {:>9}  whose\n", device->limits().name, type, "kernel", "ms", "rate",
               "of limit");
    for (const KernelCase& c : cases) {
        if (seconds.find(spec_text(c.row)) == seconds.end()) continue;
        const bool multiplied = multiplies(work_of(c.row).work);
        const double limit = multiplied ? product : copy, unit = limit < 1e12 ? 1e9 : 1e12;
        fmt::print("{:<36} {:>10.3f} {:>9.2f} {}{} {:>7.0f} %  {}\n", c.name, 1e3 * seconds[spec_text(c.row)],
                   rate(c) / unit, unit == 1e9 ? "G" : "T", multiplied ? "F/s" : "B/s", 100 * rate(c) / limit,
                   device->prepare(c.run)->how());
    }
    for (const std::string& note : notes) fmt::print("{}\n", note);
}

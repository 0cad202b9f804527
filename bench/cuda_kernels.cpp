// Times each CUDA kernel at the sizes of GPT-2 124M (32 x 1024 tokens) and of a Llama of one billion parameters.
//
//   bench_cuda_kernels [bf16|f16|f32] [name]
//
// Products are set against one large product, the rest against a copy within the device, both measured first. Inputs
// are random; each line is the median of 20 runs timed by events, over two sets of operands in turn so that the cache
// holds none of them. Without a GPU it says so and exits with 77.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "kernels/cuda/check.h"
#include "kernels/cuda/kernels.h"
#include "plugins/device/cuda/resolve.h"

using namespace orrery;
using orrery::cuda_device::spec_of;
namespace cuda = orrery::kernels::cuda;
using namespace orrery::kernels::cuda;
using i64 = std::int64_t;

namespace {

class Memory {
public:
    explicit Memory(i64 bytes) { check(cudaMalloc(&data, static_cast<size_t>(bytes + 16)), "allocating"); }
    ~Memory() { cudaFree(data); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    void* data = nullptr;
};

class Bench {
public:
    Bench(DType type, std::string wanted) : type_(type), wanted_(std::move(wanted)) {
        check(cudaSetDevice(0), "choosing the GPU");
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
        context_ = std::make_unique<cuda::Context>(read_chip(0), stream_, "");
        check(cudaEventCreate(&begin_), "making an event");
        check(cudaEventCreate(&end_), "making an event");
    }
    ~Bench() {
        context_.reset();
        cudaEventDestroy(begin_);
        cudaEventDestroy(end_);
        cudaStreamDestroy(stream_);
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;

    DType type() const { return type_; }

    void limits() {
        const i64 bytes = i64{2} << 30;
        const Memory from(bytes), to(bytes);
        copy_ = 2 * static_cast<double>(bytes) / median([&](int) {
                    check(cudaMemcpyAsync(to.data, from.data, bytes, cudaMemcpyDeviceToDevice, stream_), "copying");
                });
        const i64 n = 8192;
        const TensorType square{type_, {n, n}};
        product_ = 2.0 * static_cast<double>(n * n * n) / seconds({"matmul", {}, {square, square}, {square}});
        std::printf("%s: copy %.2f TB/s, product of 8192 %.1f TFLOP/s\n", context_->chip().name.c_str(), copy_ / 1e12,
                    product_ / 1e12);
        std::printf("%-34s %10s %14s %9s  %s\n", "kernel", "ms", "rate", "of limit", "whose");
    }

    /// flops > 0: against the product; otherwise the bytes of all operands, each moved once, against the copy.
    void line(const std::string& name, const KernelSpec& spec, double flops = 0, i64 bytes = 0) {
        if (name.find(wanted_) == std::string::npos) return;
        if (const std::string why = cuda::why_not(spec_of(spec)); !why.empty()) {
            std::printf("%-34s %s\n", name.c_str(), why.c_str());
            return;
        }
        if (bytes == 0) bytes = bytes_of(spec.inputs) + bytes_of(spec.outputs);
        const double time = seconds(spec), rate = (flops > 0 ? flops : static_cast<double>(bytes)) / time;
        std::printf("%-34s %10.3f %9.2f %s %7.0f %%  %s\n", name.c_str(), time * 1e3, rate / 1e12,
                    flops > 0 ? "TF/s" : "TB/s", 100 * rate / (flops > 0 ? product_ : copy_), how_.c_str());
        std::fflush(stdout);
    }

private:
    static i64 bytes_of(const std::vector<TensorType>& operands) {
        i64 bytes = 0;
        for (const TensorType& o : operands) bytes += o.bytes();
        return bytes;
    }

    /// Random floats; tokens 0 to 255; seeds and flags of 1.
    void fill(void* to, const TensorType& o) {
        if (o.dtype == DType::u8 || o.dtype == DType::u32) {
            check(cudaMemsetAsync(to, 1, static_cast<size_t>(o.bytes()), stream_), "filling");
            return;
        }
        const Memory seed(4), draw(o.count() * 4);
        check(cudaMemsetAsync(seed.data, 3, 4, stream_), "filling");
        const TensorType wide{DType::f32, o.shape};
        const bool tokens = o.dtype == DType::i32;
        const double scale = tokens ? 255.0 : 1.0;
        const Attributes constants{{"kind", std::string("uniform")}, {"scale", scale}, {"stream", i64{5}}};
        launch({"random", constants, {{DType::u32, {}}}, {wide}}, {seed.data, draw.data});
        if (tokens) launch({"abs", {}, {wide}, {wide}}, {draw.data, draw.data});
        launch({"cast", {}, {wide}, {o}}, {draw.data, to});
        check(cudaStreamSynchronize(stream_), "filling");
    }

    void launch(const KernelSpec& spec, std::vector<void*> operands) {
        const auto kernel = prepare(*context_, spec_of(spec));
        const Memory scratch(kernel->scratch_bytes());
        kernel->launch(*context_, operands, scratch.data);
        check(cudaStreamSynchronize(stream_), spec.op.c_str());
    }

    double seconds(const KernelSpec& spec) {
        std::vector<std::unique_ptr<Memory>> memory;
        std::vector<void*> sets[2];
        for (std::vector<void*>& set : sets) {
            for (const std::vector<TensorType>* side : {&spec.inputs, &spec.outputs}) {
                for (const TensorType& o : *side) {
                    memory.push_back(std::make_unique<Memory>(o.bytes()));
                    set.push_back(memory.back()->data);
                    fill(set.back(), o);
                }
            }
        }
        // In place, as plans have it.
        for (std::vector<void*>& set : sets) {
            const size_t y = spec.inputs.size();
            if (spec.op == "adamw") set[y] = set[0], set[y + 1] = set[2], set[y + 2] = set[3];
            if (spec.op == "cross_entropy") set[y + 2] = set[0];
        }
        const auto kernel = prepare(*context_, spec_of(spec));
        how_ = kernel->how();
        const Memory scratch(kernel->scratch_bytes());
        return median([&](int i) { kernel->launch(*context_, sets[i % 2], scratch.data); });
    }

    template <class F>
    double median(F f) {
        for (int i = 0; i < 3; ++i) f(i);
        std::vector<float> times;
        for (int i = 0; i < 20; ++i) {
            check(cudaEventRecord(begin_, stream_), "timing");
            f(i);
            check(cudaEventRecord(end_, stream_), "timing");
            check(cudaEventSynchronize(end_), "timing");
            float ms = 0;
            check(cudaEventElapsedTime(&ms, begin_, end_), "timing");
            times.push_back(ms);
        }
        std::sort(times.begin(), times.end());
        return static_cast<double>(times[times.size() / 2]) * 1e-3;
    }

    DType type_;
    std::string wanted_, how_;
    double copy_ = 0, product_ = 0;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
    std::unique_ptr<cuda::Context> context_;
};

void products(Bench& bench, const char* model, i64 tokens, i64 width, i64 inner, i64 vocab) {
    const DType f = bench.type();
    const auto one = [&](const std::string& name, i64 n, i64 k) {
        const double flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(n) * static_cast<double>(k);
        const TensorType x{f, {tokens, k}}, w{f, {k, n}}, y{f, {tokens, n}}, bias{f, {n}};
        bench.line(name, {"matmul", {}, {x, w, bias}, {y}}, flops);
        bench.line(name + " dx", {"matmul", {{"trans_b", true}}, {y, w}, {x}}, flops);
        bench.line(name + " dw", {"matmul_dw", {}, {x, y}, {{DType::f32, {k, n}}}}, flops);
    };
    one(std::string("matmul up ") + model, inner, width);
    one(std::string("matmul down ") + model, width, inner);
    one(std::string("matmul head ") + model, vocab, width);
    const double flops = 2.0 * static_cast<double>(tokens * width) * static_cast<double>(inner);
    const TensorType x{f, {tokens, width}}, w{f, {width, inner}}, y{f, {tokens, inner}}, bias{f, {inner}};
    bench.line(std::string("matmul_bias_gelu ") + model, {"matmul_bias_gelu", {}, {x, w, bias}, {y, y}}, flops);
    bench.line(std::string("matmul_gelu_grad ") + model,
               {"matmul_gelu_grad", {{"trans_b", true}}, {x, {f, {inner, width}}, y}, {y}}, flops);
    bench.line(std::string("matmul_dw_bias ") + model,
               {"matmul_dw_bias", {}, {x, y}, {{DType::f32, {width, inner}}, {DType::f32, {inner}}}}, flops);
}

void attention(Bench& bench, const char* model, i64 batch, i64 time, i64 heads, i64 groups, i64 dim) {
    const DType f = bench.type();
    const TensorType q{f, {batch, time, heads, dim}}, k{f, {batch, time, groups, dim}},
        lse{DType::f32, {batch, heads, time}};
    const Attributes constants{{"causal", true}, {"scale", 0.125}};
    // Half of the scores are masked; two products forward, five backward.
    const double flops = static_cast<double>(batch * heads * time) * static_cast<double>(time * dim);
    bench.line(std::string("attention ") + model, {"attention", constants, {q, k, k}, {q, lse}}, 2 * flops);
    bench.line(std::string("attention_grad ") + model, {"attention_grad", constants, {q, k, k, q, lse, q}, {q, k, k}},
               5 * flops);
}

void rows(Bench& bench, const char* model, i64 tokens, i64 width, i64 inner, i64 vocab) {
    const DType f = bench.type();
    const std::string of = std::string(" ") + model;
    const TensorType x{f, {tokens, width}}, gain{DType::f32, {width}}, row{DType::f32, {tokens}},
        sums{DType::f32, {width}};
    bench.line("layernorm" + of, {"layernorm", {}, {x, gain, gain}, {x, row, row}});
    bench.line("layernorm_grad" + of, {"layernorm_grad", {}, {x, gain, row, row, x}, {x, sums, sums}});
    bench.line("rmsnorm" + of, {"rmsnorm", {}, {x, gain}, {x, row}});
    bench.line("rmsnorm_grad" + of, {"rmsnorm_grad", {}, {x, gain, row, x}, {x, sums}});
    bench.line("layernorm + residual" + of, {"layernorm", {}, {x, gain, gain, x}, {x, row, row, x}});
    bench.line("layernorm_grad + residual" + of, {"layernorm_grad", {}, {x, gain, row, row, x, x}, {x, sums, sums}});
    bench.line("rmsnorm + residual" + of, {"rmsnorm", {}, {x, gain, x}, {x, row, x}});
    bench.line("rmsnorm_grad + residual" + of, {"rmsnorm_grad", {}, {x, gain, row, x, x}, {x, sums}});
    const TensorType h{f, {tokens, inner}}, t{DType::i32, {tokens}}, table{f, {vocab, width}}, scalar{DType::f32, {}};
    for (const char* op : {"add", "swiglu"}) bench.line(op + of, {op, {}, {h, h}, {h}});
    bench.line("gelu" + of, {"gelu", {}, {h}, {h}});
    bench.line("gelu_grad" + of, {"gelu_grad", {}, {h, h}, {h}});
    bench.line("swiglu_grad" + of, {"swiglu_grad", {}, {h, h, h}, {h, h}});
    bench.line("dropout" + of, {"dropout", {{"p", 0.1}}, {h, {DType::u32, {}}}, {h}});
    bench.line("sum of rows" + of, {"sum", {{"dims", std::vector<i64>{0}}}, {h}, {{DType::f32, {inner}}}});
    bench.line("embedding" + of, {"embedding", {}, {t, table}, {x}}, 0, 2 * x.count() * size_of(f));
    bench.line("embedding_grad" + of, {"embedding_grad", {}, {t, x}, {{DType::f32, {vocab, width}}}});
    const TensorType logits{f, {tokens / 4, vocab}}, targets{DType::i32, {tokens / 4}};
    bench.line("cross_entropy" + of, {"cross_entropy", {{"grad", true}}, {logits, targets}, {scalar, scalar, logits}});
    const TensorType heads{f, {1, tokens, width / 64, 64}};
    bench.line("rope" + of, {"rope", {{"theta", 10000.0}}, {heads}, {heads}});
}

/// Routing of tokens among 64 experts, rows of a token by index, and a choice among a vocabulary.
void indices(Bench& bench, const char* model, i64 tokens, i64 width, i64 vocab) {
    const DType f = bench.type();
    const std::string of = std::string(" ") + model;
    const i64 experts = 64, chosen = 8;
    const TensorType x{f, {tokens, width}}, rows{DType::i32, {tokens, 1}}, gates{f, {tokens, experts}};
    const TensorType picked{f, {tokens, chosen}}, ids{DType::i32, {tokens, chosen}};
    const Attributes first{{"dim", i64{0}}}, last{{"dim", i64{1}}};
    bench.line("gather rows" + of, {"gather", first, {x, rows}, {x}}, 0, 2 * x.count() * size_of(f));
    bench.line("scatter_add rows" + of, {"scatter_add", first, {x, rows}, {x}});
    bench.line("gather elements" + of, {"gather", last, {gates, ids}, {picked}});
    bench.line("scatter_add elements" + of, {"scatter_add", last, {picked, ids}, {gates}});
    bench.line("top_k 8 of 64" + of, {"top_k", last, {gates}, {picked, ids}});
    const TensorType logits{f, {64, vocab}}, values{f, {64, 40}}, places{DType::i32, {64, 40}};
    bench.line("top_k 40 of a vocabulary" + of, {"top_k", last, {logits}, {values, places}});
    bench.line("cumsum rows" + of, {"cumsum", last, {gates}, {gates}});
    bench.line("cumsum columns" + of, {"cumsum", first, {x}, {x}});
    bench.line("iota" + of, {"iota", first, {}, {x}});
    bench.line("one_hot" + of, {"one_hot", {}, {{DType::i32, {tokens}}}, {gates}});
}

void updates(Bench& bench) {
    const i64 n = i64{1} << 27;
    const TensorType p{DType::f32, {n}}, s{DType::f32, {}};
    // p, m and v are read and written, g is read.
    bench.line("adamw f32 g", {"adamw", {}, {p, p, p, p, s, s, s}, {p, p, p}}, 0, 28 * n);
    bench.line("sumsq", {"sumsq", {}, {p}, {s}});
    bench.line("all_finite", {"all_finite", {}, {p}, {{DType::u8, {}}}});
    bench.line("cast", {"cast", {}, {p}, {{DType::bf16, {n}}}});
    bench.line("full", {"full", {}, {}, {p}});
}

}  // namespace

int main(int argc, char** argv) {
    int count = 0;
    if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess || count == 0) {
        std::printf("no bench: %s\n", status != cudaSuccess ? cudaGetErrorString(status) : "no GPU");
        return 77;
    }
    const std::string type = argc > 1 ? argv[1] : "bf16";
    Bench bench(type == "f32" ? DType::f32 : type == "f16" ? DType::f16 : DType::bf16, argc > 2 ? argv[2] : "");
    bench.limits();
    products(bench, "gpt2", 32 * 1024, 768, 3072, 50304);
    products(bench, "llama 1b", 8 * 2048, 2048, 8192, 32000);
    attention(bench, "gpt2", 32, 1024, 12, 12, 64);
    attention(bench, "llama 1b", 8, 2048, 32, 8, 64);
    rows(bench, "gpt2", 32 * 1024, 768, 3072, 50304);
    rows(bench, "llama 1b", 8 * 2048, 2048, 8192, 32000);
    indices(bench, "gpt2", 32 * 1024, 768, 50304);
    indices(bench, "llama 1b", 8 * 2048, 2048, 32000);
    updates(bench);
    return 0;
}

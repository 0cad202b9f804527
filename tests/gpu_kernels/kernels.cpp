// Every kernel on a GPU against the reference in double.
#include <cuda_runtime_api.h>

#include "kernels/cuda/check.h"
#include "kernels_specs.h"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;
using cuda::check;

namespace {

/// A buffer on the GPU, `shift` elements behind an aligned address.
class OnGpu {
public:
    OnGpu(const Buffer& host, i64 shift)
        : bytes_(host.count() * size_of(host.type())), shift_(shift * size_of(host.type())) {
        check(cudaMalloc(&data_, static_cast<size_t>(bytes_ + shift_ + guard)), "allocating");
        check(cudaMemset(data_, 0xa5, static_cast<size_t>(bytes_ + shift_ + guard)), "filling");
        upload(host);
    }
    ~OnGpu() { cudaFree(data_); }
    OnGpu(const OnGpu&) = delete;
    OnGpu& operator=(const OnGpu&) = delete;
    void* at() const { return static_cast<char*>(data_) + shift_; }
    void upload(const Buffer& host) const {
        check(cudaMemcpy(at(), host.in().data, static_cast<size_t>(bytes_), cudaMemcpyHostToDevice), "copying");
        check(cudaDeviceSynchronize(), "copying");  // streams that do not block would overtake the copy
    }
    void download(Buffer& host) const {
        check(cudaMemcpy(host.out().data, at(), static_cast<size_t>(bytes_), cudaMemcpyDeviceToHost), "copying");
        unsigned char behind[guard];
        check(cudaMemcpy(behind, static_cast<char*>(at()) + bytes_, guard, cudaMemcpyDeviceToHost), "copying");
        for (const unsigned char byte : behind) REQUIRE(byte == 0xa5);
    }

private:
    static constexpr i64 guard = 64;
    void* data_ = nullptr;
    i64 bytes_, shift_;
};

class Gpu {
public:
    Gpu() {
        check(cudaSetDevice(0), "choosing the GPU");
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
        context_ = std::make_unique<cuda::Context>(cuda::read_chip(0), stream_, "");
    }
    ~Gpu() {
        context_.reset();
        cudaStreamDestroy(stream_);
    }
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    void run(const Spec& spec, const Buffers& in, Buffers& out) {
        std::vector<std::unique_ptr<OnGpu>> memory;
        std::vector<void*> operands;
        for (const Buffers* side : {&in, static_cast<const Buffers*>(&out)}) {
            for (const Buffer& b : *side) {
                memory.push_back(std::make_unique<OnGpu>(b, shift_));
                operands.push_back(memory.back()->at());
            }
        }
        const std::unique_ptr<cuda::Prepared> kernel = cuda::prepare(*context_, spec);
        void* scratch = nullptr;
        const i64 bytes = kernel->scratch_bytes();
        check(cudaMalloc(&scratch, static_cast<size_t>(bytes + 1)), "allocating");
        check(cudaMemset(scratch, 0xff, static_cast<size_t>(bytes + 1)), "filling");
        check(cudaDeviceSynchronize(), "waiting");
        if (graph_) {  // a first launch may load modules, which a capture forbids
            kernel->launch(*context_, operands, scratch);
            check(cudaStreamSynchronize(stream_), spec.op.c_str());
            for (size_t i = 0; i < memory.size(); ++i) memory[i]->upload(i < in.size() ? in[i] : out[i - in.size()]);
        }
        launch(*kernel, operands, scratch);
        check(cudaStreamSynchronize(stream_), spec.op.c_str());
        for (size_t i = 0; i < out.size(); ++i) memory[in.size() + i]->download(out[i]);
        cudaFree(scratch);
    }
    /// How the next runs have it: operands so many elements behind aligned addresses, launches out of a graph.
    void set(i64 shift, bool graph) {
        shift_ = shift;
        graph_ = graph;
    }
    cuda::Context& context() { return *context_; }
    void wait() { check(cudaStreamSynchronize(stream_), "waiting"); }

private:
    void launch(cuda::Prepared& kernel, std::span<void* const> operands, void* scratch) {
        if (!graph_) return kernel.launch(*context_, operands, scratch);
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t ready = nullptr;
        check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capturing");
        kernel.launch(*context_, operands, scratch);
        check(cudaStreamEndCapture(stream_, &graph), "capturing");
        check(cudaGraphInstantiate(&ready, graph, 0), "making a graph");
        check(cudaGraphLaunch(ready, stream_), "launching a graph");
        check(cudaStreamSynchronize(stream_), "waiting for a graph");
        cudaGraphExecDestroy(ready);
        cudaGraphDestroy(graph);
    }

    i64 shift_ = 0;
    bool graph_ = false;
    cudaStream_t stream_ = nullptr;
    std::unique_ptr<cuda::Context> context_;
};

RunSpec on(Gpu& gpu) {
    return [&](const Spec& spec, const Buffers& in, Buffers& out) { gpu.run(spec, in, out); };
}

}  // namespace

namespace {

/// At aligned addresses, at others, and from a graph, on one GPU: planning all attention takes longer than running it.
void each_way(const std::function<void(Gpu&)>& check_all) {
    Gpu gpu;
    for (const auto& [shift, graph, name] :
         {std::tuple(0, false, "aligned"), {1, false, "shifted"}, {0, true, "graph"}}) {
        INFO(name);
        gpu.set(shift, graph);
        check_all(gpu);
    }
}

}  // namespace

TEST_CASE("gpu kernels: every op agrees with the reference and repeats its bits, at any address, and from a graph") {
    each_way([](Gpu& gpu) { check_cases(on(gpu)); });
}

TEST_CASE("gpu kernels: products of all forms, at any address, and from a graph") {
    Source source;
    for (const auto& [m, n, k] : {std::tuple<i64, i64, i64>{5, 7, 3}, {70, 65, 33}, {64, 128, 48}, {16, 24, 8}})
        each_way([&, cases = product_cases(source, m, n, k)](Gpu& gpu) { check_cases(on(gpu), source, cases); });
}

TEST_CASE("gpu kernels: products in tf32 are within 1e-3") {
    Gpu gpu;
    gpu.context().tf32 = true;
    Source source;
    const Spec spec{"matmul", {}, {{Type::f32, {256, 512}}, {Type::f32, {512, 128}}}, {{Type::f32, {256, 128}}}};
    const Buffers in{source.uniform(Type::f32, 256 * 512), source.uniform(Type::f32, 512 * 128)};
    Buffers got{Buffer(Type::f32, 256 * 128)}, expected = got;
    gpu.run(spec, in, got);
    run_reference(spec, in, expected);
    double error = 0, norm = 0;
    const std::vector<double> g = got[0].values(), e = expected[0].values();
    for (size_t i = 0; i < g.size(); ++i) error += (g[i] - e[i]) * (g[i] - e[i]), norm += e[i] * e[i];
    CHECK(std::sqrt(error / norm) < 1e-3);
}

TEST_CASE("gpu kernels: attention of the sizes that models have") {
    Gpu gpu;
    Source source;
    for (const Type type : {Type::bf16, Type::f16}) {
        for (const i64 groups : {4, 2}) {
            for (const i64 dim : {64, 128}) {
                const i64 batch = 2, time = 256, heads = 4;
                const Operand q{type, {batch, time, heads, dim}}, k{type, {batch, time, groups, dim}};
                const Operand lse{Type::f32, {batch, heads, time}};
                const std::vector<std::pair<std::string, cuda::Attribute>> attributes{
                    {"causal", true}, {"scale", 1 / std::sqrt(static_cast<double>(dim))}};
                const Spec forward{"attention", attributes, {q, k, k}, {q, lse}};
                const Spec backward{"attention_grad", attributes, {q, k, k, q, lse, q}, {q, k, k}};
                INFO(forward.text());
                Buffers in;
                for (const Operand& o : forward.inputs) in.push_back(source.uniform(o.type, o.count()));
                Buffers got{Buffer(type, q.count()), Buffer(Type::f32, lse.count())}, expected = got;
                gpu.run(forward, in, got);
                run_reference(forward, in, expected);
                for (size_t i = 0; i < 2; ++i) check_close(got[i], expected[i]);
                in.insert(in.end(), expected.begin(), expected.end());
                in.push_back(source.uniform(type, q.count()));
                Buffers grads{Buffer(type, q.count()), Buffer(type, k.count()), Buffer(type, k.count())};
                Buffers again = grads, wanted = grads;
                gpu.run(backward, in, grads);
                gpu.run(backward, in, again);
                run_reference(backward, in, wanted);
                for (size_t i = 0; i < 3; ++i) {
                    check_close(grads[i], wanted[i]);
                    CHECK(grads[i].same_bits(again[i]));
                }
                gpu.context().deterministic = false;  // cuDNN's other form
                gpu.run(backward, in, again);
                gpu.context().deterministic = true;
                for (size_t i = 0; i < 3; ++i) check_close(again[i], wanted[i]);
            }
        }
    }
}

TEST_CASE("gpu kernels: the gradient of attention repeats its bits at the size of a model") {
    Gpu gpu;
    Source source;
    const i64 batch = 16, heads = 25, time = 1024, dim = 64;
    const Operand q{Type::bf16, {batch, time, heads, dim}}, lse{Type::f32, {batch, heads, time}};
    const std::vector<std::pair<std::string, cuda::Attribute>> attributes{{"causal", true}, {"scale", 0.125}};
    const Spec forward{"attention", attributes, {q, q, q}, {q, lse}};
    const Spec backward{"attention_grad", attributes, {q, q, q, q, lse, q}, {q, q, q}};
    INFO(cuda::prepare(gpu.context(), backward)->how());
    Buffers in;
    for (const Operand& o : forward.inputs) in.push_back(source.uniform(o.type, o.count()));
    Buffers made{Buffer(q.type, q.count()), Buffer(lse.type, lse.count())};
    gpu.run(forward, in, made);
    in.insert(in.end(), made.begin(), made.end());
    in.push_back(source.uniform(q.type, q.count()));
    Buffers first{Buffer(q.type, q.count()), Buffer(q.type, q.count()), Buffer(q.type, q.count())};
    gpu.run(backward, in, first);
    for (int repetition = 0; repetition < 4; ++repetition) {
        Buffers again{Buffer(q.type, q.count()), Buffer(q.type, q.count()), Buffer(q.type, q.count())};
        gpu.run(backward, in, again);
        for (size_t i = 0; i < 3; ++i) CHECK(first[i].same_bits(again[i]));
    }
}

TEST_CASE("gpu kernels: AdamW over many tensors in one call is AdamW over each") {
    Gpu gpu;
    Source source;
    std::vector<std::unique_ptr<cuda::Prepared>> kernels;
    std::vector<std::unique_ptr<OnGpu>> memory;
    std::vector<std::vector<void*>> operands;
    std::vector<Buffers> expected;
    for (i64 i = 0; i < 70; ++i) {
        const i64 n = 1 + i * 977 % 9001;
        const Operand p{Type::f32, {n}}, s{Type::f32, {}};
        const Spec spec{"adamw",
                        {{"beta1", 0.9}, {"beta2", 0.95}, {"decay", 0.01 * static_cast<double>(i)}, {"eps", 1e-8}},
                        {p, {Type::bf16, {n}}, p, p, s, s, s},
                        {p, p, p}};
        Buffers in;
        for (const Operand& o : spec.inputs) in.push_back(source.uniform(o.type, o.count(), 0.1, 1));
        Buffers out{in[0], in[2], in[3]};
        gpu.run(spec, in, out);
        expected.push_back(out);
        kernels.push_back(cuda::prepare(gpu.context(), spec));
        std::vector<void*> at;
        for (const Buffer& b : in) {
            memory.push_back(std::make_unique<OnGpu>(b, i % 3));
            at.push_back(memory.back()->at());
        }
        for (const size_t place : {0, 2, 3}) at.push_back(at[place]);  // in place
        operands.push_back(at);
    }
    std::vector<cuda::Joined> batch;
    for (size_t i = 0; i < kernels.size(); ++i) batch.push_back({kernels[i].get(), operands[i]});
    REQUIRE(kernels[0]->joins() > 0);
    kernels[0]->launch_joined(gpu.context(), batch);
    gpu.wait();
    for (size_t i = 0; i < kernels.size(); ++i) {
        const size_t places[] = {0, 2, 3};
        for (size_t j = 0; j < 3; ++j) {
            Buffer got = expected[i][j];
            memory[i * 7 + places[j]]->download(got);
            CHECK(got.same_bits(expected[i][j]));
        }
    }
}

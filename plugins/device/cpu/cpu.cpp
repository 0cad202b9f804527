// The CPU as a device: one queue, which is the calling thread; kernels run inline with `threads` threads.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "memory.h"
#include "op_kernels.h"
#include "orrery/plugin.h"
#include "products.h"
#include "resolve.h"

namespace orrery {

namespace {

class CpuKernel : public Kernel {
public:
    CpuKernel(cpu_device::Launch launch, int64_t scratch) : launch(std::move(launch)), scratch(scratch) {}
    int64_t scratch_bytes() const override { return scratch; }
    cpu_device::Launch launch;
    int64_t scratch;
};

/// The processors that this process may run on.
int allowed_threads() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
    return std::max(1, CPU_COUNT(&set));
}

std::string model_name() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
    }
    return "cpu";
}

std::string cpuinfo() {
    std::ifstream file("/proc/cpuinfo");
    return {std::istreambuf_iterator<char>(file), {}};
}

/// The kernels take no notice of a word that they do not know, nor of one that this machine cannot honour.
void check_isa() {
    using kernels::cpu::Isa;
    const char* asked = std::getenv("ORRERY_CPU_ISA");
    if (!asked || !*asked) return;
    for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
        if (cpu_device::name_of(isa) != asked) continue;
        if (kernels::cpu::available(isa)) return;
        throw Error(
            "ORRERY_CPU_ISA = " + std::string(asked) +
            ": this machine does not support these instructions\n  take a narrower one, or leave the variable unset");
    }
    throw Error("ORRERY_CPU_ISA = \"" + std::string(asked) +
                "\": expected portable, avx2 or avx512\n  leave the variable unset for the widest of this machine");
}

class CpuDevice : public Device {
public:
    explicit CpuDevice(Config& config)
        : reference_(config.flag("reference", false)),
          context_(threads(config)),
          kernels_(reference_ ? kernels::reference::table() : kernels::cpu::table()) {
        check_isa();
        choose_products(config);
    }

    DeviceLimits limits() override {
        DeviceLimits limits;
        limits.threads = context_.threads();
        limits.name =
            model_name() + ", " + std::to_string(limits.threads) + (limits.threads == 1 ? " thread" : " threads");
        limits.memory_bytes = cpu_device::memory_total();
        if (!reference_ && matrix_flops_ == 0) matrix_flops_ = measure_matrix_rate();
        limits.matrix_flops_f32 = matrix_flops_;
        return limits;
    }

    Memory allocate(int64_t bytes, MemoryKind kind) override { return arenas_.allocate(bytes, kind); }
    void release(Memory& memory) override { arenas_.release(memory); }

    std::string why_not(const KernelSpec& spec) override {
        try {
            resolve(spec);
            return "";
        } catch (const Error& error) {
            return error.what();
        }
    }

    std::unique_ptr<Kernel> prepare(const KernelSpec& spec) override {
        cpu_device::OpLaunch own = resolve(spec);
        return std::make_unique<CpuKernel>(std::move(own.launch), own.scratch);
    }

    void launch(int, Kernel& kernel, std::span<const Tensor> operands, void* scratch) override {
        auto& resolved = static_cast<CpuKernel&>(kernel);
        if (!lacks_.empty()) throw Error(lacks_);
        context_.lend(scratch, resolved.scratch);
        try {
            resolved.launch(context_, operands);
        } catch (const Error&) {
            throw;
        } catch (const std::bad_alloc&) {
            throw;
        } catch (const std::exception& error) {  // oneDNN's, or of scratch that was not counted
            throw Error(std::string("device cpu: ") + error.what(), Fault::failed);
        }
    }

    void copy(int, void* to, const void* from, int64_t bytes) override {
        if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
    }

    Event record(int) override { return {}; }
    void wait(int, const Event& event) override { event.wait(); }
    void synchronize(int) override {}
    void* native(int) override { return nullptr; }

    ProductKinds products() override {
        if (reference_) return {};
        return {cpu_device::product_names(), cpu_device::name_of(context_.products())};
    }

    std::string arithmetic() override { return cpu_device::arithmetic_of(cpuinfo(), reference_); }

    std::string machine() override { return reference_ ? "" : cpu_device::machine_of(cpuinfo(), context_.threads()); }

private:
    /// What this machine lacks is an error when a kernel is launched: a plan may be checked on another.
    void choose_products(Config& config) {
        const std::string name = config.text("products", ""), key = config.path() + ".products";
        if (name.empty()) return;
        if (reference_)
            throw Error(config.where("products"),
                        key + ": the reference kernels have only one kind of matrix products\n  leave it out, or " +
                            "leave reference out");
        const std::optional<kernels::Products> kind = cpu_device::parse_products(name);
        if (!kind) {
            std::string there;
            for (const std::string& one : cpu_device::product_names()) there += (there.empty() ? "" : ", ") + one;
            throw Error(config.where("products"),
                        key + " \"" + name + "\": unknown kind of matrix products\n  there are: " + there);
        }
        if (const std::string why = kernels::cpu::why_not(*kind); !why.empty())
            lacks_ = key + " \"" + name + "\": " + why;
        context_.use(*kind);
    }

    /// Ops of the table by their rules, others by the kernels of their plugins. Throws Error with the reason.
    cpu_device::OpLaunch resolve(const KernelSpec& spec) const {
        const int threads = context_.threads();
        if (auto brought = cpu_device::plugin_launch(spec, threads, reference_)) return std::move(*brought);
        cpu_device::Launch launch = cpu_device::resolve(spec, kernels_, reference_);
        const int64_t scratch = reference_ ? 0 : cpu_device::scratch_of(spec, launch, threads);
        return {std::move(launch), scratch};
    }

    /// Best rate of a product of two [n,n] matrices, in FLOP/s: what a step can be compared with also when another
    /// process disturbed some of them. About 0.3 s at 80 GFLOP/s, 40 ms with one thread, which waits for no other.
    double measure_matrix_rate() {
        const int64_t n = context_.threads() == 1 ? 512 : 1024;
        const TensorType square{DType::f32, {n, n}};
        const auto kernel = prepare({"matmul", {}, {square, square}, {square}});
        const auto size = static_cast<size_t>(n * n);
        std::vector<float> a(size), b(size), c(size);
        for (size_t i = 0; i < a.size(); ++i)
            a[i] = static_cast<float>(i % 17) - 8, b[i] = static_cast<float>(i % 13) - 6;
        const Tensor operands[] = {
            {a.data(), DType::f32, {n, n}}, {b.data(), DType::f32, {n, n}}, {c.data(), DType::f32, {n, n}}};
        Memory scratch = allocate(std::max<int64_t>(64, kernel->scratch_bytes()), MemoryKind::device);
        double best = std::numeric_limits<double>::infinity();
        for (int i = 0; i < 12; ++i) {
            const auto begin = std::chrono::steady_clock::now();
            launch(0, *kernel, operands, scratch.data);
            best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
        }
        release(scratch);
        return 2.0 * static_cast<double>(n * n * n) / best;
    }

    static int threads(Config& config) {
        const int64_t asked = config.integer("threads", 0);
        if (asked < 0 || asked > 1024) {
            throw Error(config.where("threads"), "threads is " + std::to_string(asked) +
                                                     ", expected 1 to 1024, or 0 for all processors of this process");
        }
        return asked == 0 ? allowed_threads() : static_cast<int>(asked);
    }

    bool reference_;
    double matrix_flops_ = 0;  ///< measured at the first limits(), with the products in use
    std::string lacks_;        ///< why products cannot run as they should
    kernels::Context context_;
    const kernels::Kernels& kernels_;
    cpu_device::Arenas arenas_;
};

void add(Registry& registry) {
    registry.add_device("cpu", [](Config& config) { return std::make_unique<CpuDevice>(config); });
}

}  // namespace

}  // namespace orrery

ORRERY_FACTS("host_memory leaves_nothing");
ORRERY_PLUGIN("device.cpu", "0.1", orrery::add);

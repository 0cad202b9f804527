// A GPU as a device: queue 0 runs kernels and copies in order, queue 1 copies beside it, further ones join events.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#ifdef ORRERY_CUDNN
#include <cudnn.h>
#endif

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include "driver.h"
#include "events.h"
#include "failure.h"
#include "graph.h"
#include "launcher.h"
#include "limits.h"
#include "memory.h"
#include "op_kernels.h"
#include "orrery/plugin.h"
#include "resolve.h"

namespace orrery::cuda_device {

namespace {

/// A stream that ends with its owner.
class Stream {
public:
    Stream() { require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a queue"); }
    ~Stream() { cudaStreamDestroy(stream_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    cudaStream_t get() const { return stream_; }

private:
    cudaStream_t stream_ = nullptr;
};

struct Options {
    int device = 0;
    bool tf32 = false, graph = true, check_each = false, deterministic = true;
    std::filesystem::path cache;
};

std::filesystem::path default_cache() {
    const char* const home = std::getenv("HOME");
    const char* const given = std::getenv("XDG_CACHE_HOME");
    if (given && given[0] == '/') return std::filesystem::path(given) / "orrery" / "cuda";
    if (home && home[0] == '/') return std::filesystem::path(home) / ".cache" / "orrery" / "cuda";
    return {};
}

/// The GPU of a rank with these options: that of device.cuda.device; the only one that it sees; or the one with the
/// rank's place on its host.
int chosen_gpu(Config& config) {
    if (const std::string why = cannot_run(); !why.empty())
        throw Error(config.origin(),
                    "device cuda cannot run here: " + why +
                        "\n  run.device = \"cpu\" runs the same "
                        "script on the processors",
                    Fault::failed);
    const int gpus = visible_gpus();
    const int64_t mine = config.integer("local_rank", 0), ranks = config.integer("local_ranks", 1);
    // Where another launcher started the ranks, each may see a GPU of its own.
    const bool alone = gpus == 1 && config.flag("own_environment", false);
    const int64_t asked = config.integer("device", -1);
    if (asked < -1 || asked >= gpus)
        throw Error(config.where("device"), "device.cuda.device is " + std::to_string(asked) + ", the driver shows " +
                                                std::to_string(gpus) + (gpus == 1 ? " GPU: 0" : " GPUs, from 0 on"));
    if (asked < 0 && !alone && std::max(mine + 1, ranks) > gpus)
        throw Error(
            config.origin(),
            "rank " + std::to_string(mine) + " of the " + std::to_string(std::max(mine + 1, ranks)) +
                " on this host sees " + std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs") +
                ", and each rank needs its own\n  start a rank for each GPU, show each rank one GPU alone (srun "
                "--gpus-per-task=1), or set device.cuda.device for all");
    // Without CUDA_VISIBLE_DEVICES the GPUs of other Slurm jobs may be visible, too.
    const char* text = std::getenv("SLURM_GPUS_ON_NODE");
    const int given = text ? std::atoi(text) : 0;
    if (asked < 0 && given > 0 && given < gpus && !std::getenv("CUDA_VISIBLE_DEVICES"))
        throw Error(config.origin(), "SLURM_GPUS_ON_NODE=" + std::string(text) + ", but " + std::to_string(gpus) +
                                         " GPUs of this host are visible, and CUDA_VISIBLE_DEVICES, which names those "
                                         "of this job, is not set\n  set it to this job's GPUs, or, for one rank, set "
                                         "device.cuda.device");
    return static_cast<int>(asked >= 0 ? asked : alone ? 0 : mine);
}

Options read(Config& config) {
    Options options;
    options.device = chosen_gpu(config);
    options.tf32 = config.flag("tf32", false);
    options.deterministic = config.flag("deterministic", true);
    options.graph = config.flag("graph", true);
    options.check_each = config.flag("check_launches", false);
    options.cache = config.text("cache", default_cache().string());
    require_architecture(options.device);
    require(cudaSetDevice(options.device), "choosing the GPU");
    return options;
}

/// Other failures than the device's own (kernels::cuda::Failure, memory that is out) as errors that say what was done.
template <class Work>
auto named(const char* what, Work work) {
    try {
        return work();
    } catch (const Error&) {
        throw;
    } catch (const std::exception& failure) {
        throw Error(std::string("device cuda: ") + what + ": " + failure.what(), Fault::failed);
    }
}

class CudaDevice : public Device {
public:
    explicit CudaDevice(Config& config)
        : options_(read(config)),
          context_(kernels::cuda::read_chip(options_.device), queues_[0].stream.get(), options_.cache),
          launcher_(context_, options_.check_each),
          arenas_(options_.device),
          staging_(options_.device, arenas_) {
        context_.tf32 = options_.tf32;
        context_.deterministic = options_.deterministic;
    }

    DeviceLimits limits() override {
        choose();
        if (!measured_) {
            DeviceLimits l;
            const kernels::cuda::Chip& chip = context_.chip();
            l.name = chip.name;
            l.memory_bytes = chip.memory_bytes;
            l.host_visible = false;
            synchronize(0);
            l.matrix_flops_f32 =
                named("measuring products", [&] { return measure_product(context_, kernels::Type::f32); });
            l.matrix_flops_bf16 =
                named("measuring products", [&] { return measure_product(context_, kernels::Type::bf16); });
            l.copy_bytes_per_s = named("measuring copies", [&] { return measure_copy(stream(0)); });
            measured_ = l;
        }
        DeviceLimits limits = *measured_;
        // At most once a second, as a step is not launched before the driver has answered.
        const auto now = std::chrono::steady_clock::now();
        if (used_bytes_ == 0 || now - used_at_ > std::chrono::seconds(1)) {
            used_at_ = now;
            size_t free = 0, total = 0;
            require(cudaMemGetInfo(&free, &total), "reading the free memory");
            used_bytes_ = static_cast<int64_t>(total - free);
        }
        limits.used_bytes = used_bytes_;
        return limits;
    }

    std::string arithmetic() override {
        int driver = 0;
        require(cudaDriverGetVersion(&driver), "reading the driver's version");
        std::string lines = "processor=" + context_.chip().name + "\ndriver=" + std::to_string(driver) +
                            "\ncuBLASLt=" + std::to_string(cublasLtGetVersion()) +
                            "\ndevice.cuda.tf32=" + (options_.tf32 ? "true" : "false") + "\n";
        lines += options_.deterministic ? "order of sums=fixed\n"
                                        : "order of sums=any (device.cuda.deterministic = false)\n";
#ifdef ORRERY_CUDNN
        lines += "cuDNN=" + std::to_string(cudnnGetVersion()) + "\n";
#endif
        if (const char* const forced = std::getenv("NVIDIA_TF32_OVERRIDE"))
            lines += std::string("NVIDIA_TF32_OVERRIDE=") + forced + "\n";
        return lines;
    }

    Memory allocate(int64_t bytes, MemoryKind kind) override {
        used_bytes_ = 0;
        return arenas_.allocate(bytes, kind);
    }
    void release(Memory& memory) override {
        used_bytes_ = 0;
        arenas_.release(memory);
    }

    std::string why_not(const KernelSpec& spec) override {
        try {
            if (plugin_kernel(spec)) return "";
            const std::string why = kernels::cuda::why_not(spec_of(spec));
            return why.empty() ? why : "device cuda: " + why;
        } catch (const Error& error) {
            return error.what();
        }
    }

    std::unique_ptr<Kernel> prepare(const KernelSpec& spec) override {
        choose();
        used_bytes_ = 0;
        try {
            auto prepared = plugin_kernel(spec);
            if (!prepared) prepared = kernels::cuda::prepare(context_, spec_of(spec));
            return std::make_unique<CudaKernel>(spec.op, spec.inputs.size(), std::move(prepared));
        } catch (const kernels::cuda::Refused& refused) {
            throw Error(std::string("device cuda: ") + refused.what());
        } catch (const Error&) {
            throw;
        } catch (const std::exception& failure) {
            throw Error("device cuda: preparing " + spec.op + ": " + failure.what(), Fault::failed);
        }
    }

    void launch(int queue, Kernel& kernel, std::span<const Tensor> operands, void* scratch) override {
        if (queue != 0) throw Error("device cuda: kernels run on queue 0, not " + std::to_string(queue), Fault::failed);
        if (const auto* graph = dynamic_cast<const GraphKernel*>(&kernel)) {
            launcher_.flush();
            graph->launch(stream(0));
            return launcher_.note(step_);
        }
        auto& own = static_cast<CudaKernel&>(kernel);
        if (reinterpret_cast<uintptr_t>(scratch) % scratch_alignment != 0 && own.scratch_bytes() > 0)
            throw Error("device cuda: " + *own.name + ": its scratch is misaligned: the address is not a multiple of " +
                            std::to_string(scratch_alignment),
                        Fault::failed);
        launcher_.launch(own, operands, scratch);
    }

    void copy(int queue, void* to, const void* from, int64_t bytes) override {
        if (queue >= first_free_queue)
            throw Error("device cuda: queue " + std::to_string(queue) + " only supports waits and records",
                        Fault::failed);
        if (queue == 0) launcher_.flush();
        staging_.copy(stream(queue), to, from, bytes);
    }

    Event record(int queue) override {
        if (queue == 0) launcher_.flush();
        return at(queue).events.record();
    }

    Event gate(int queue) override {
        if (queue == 0) launcher_.flush();
        Queue& own = at(queue);
        if (!own.gate) own.gate = std::make_unique<Gate>(options_.device);
        return own.gate->close(own.stream.get());
    }

    void wait(int queue, const Event& event) override {
        if (queue == 0) launcher_.flush();
        wait_for(stream(queue), event);
    }

    void synchronize(int queue) override {
        if (queue == 0) launcher_.flush();
        const cudaError_t status = cudaStreamSynchronize(stream(queue));
        // A kernel's fault shows at the next wait, long after its launch.
        require(status, status == cudaSuccess || launcher_.recent().empty()
                            ? "the queued work"
                            : "one of the kernels before this wait (newest first: " + launcher_.recent() +
                                  "; device.cuda.check_launches = true waits for each and names it)");
        if (queue == 0) launcher_.settled();
    }

    void* native(int queue) override { return stream(queue); }

    bool captures() override { return true; }
    std::unique_ptr<Kernel> capture(const std::function<void()>& work, std::string& why_not) override {
        if (!options_.graph || options_.check_each) {
            why_not = options_.graph ? "device.cuda.check_launches is true" : "device.cuda.graph is false";
            return nullptr;
        }
        launcher_.flush();
        used_bytes_ = 0;
        return cuda_device::capture(
            stream(0),
            [&] {
                try {
                    work();
                    launcher_.flush();
                } catch (...) {
                    launcher_.drop();  // nothing of it runs: what waits would be launched with the next work
                    throw;
                }
            },
            why_not);
    }

private:
    struct Queue {
        Stream stream;
        EventRing events{stream.get()};
        std::unique_ptr<Gate> gate;
    };
    /// Those that join events are made when they are named first.
    Queue& at(int queue) {
        const auto found = queues_.find(queue);
        if (found != queues_.end()) return found->second;
        if (queue < 0) throw Error("device cuda: there is no queue " + std::to_string(queue), Fault::failed);
        choose();
        return queues_[queue];
    }
    cudaStream_t stream(int queue) { return at(queue).stream.get(); }
    /// The calling thread's GPU, which another plugin or thread may have changed.
    void choose() const { require(cudaSetDevice(options_.device), "choosing the GPU"); }

    const Options options_;
    std::map<int, Queue> queues_;
    kernels::cuda::Context context_;
    Launcher launcher_;
    Arenas arenas_;
    Staging staging_;
    int64_t used_bytes_ = 0;  ///< as the driver reported at used_at_; 0: memory was asked for or released since
    std::chrono::steady_clock::time_point used_at_;
    std::optional<DeviceLimits> measured_;
    const std::shared_ptr<const std::string> step_ = std::make_shared<const std::string>("the captured step");
};

void add(Registry& registry) {
    registry.add_device(
        "cuda", [](Config& config) { return named("starting", [&] { return std::make_unique<CudaDevice>(config); }); });
}

}  // namespace

}  // namespace orrery::cuda_device

/// Loader::device_address
extern "C" ORRERY_API std::string orrery_device_address(orrery::Config& options);
std::string orrery_device_address(orrery::Config& options) {
    return orrery::cuda_device::address_of(orrery::cuda_device::chosen_gpu(options));
}

ORRERY_PLUGIN_IF("device.cuda", "0.1", orrery::cuda_device::add, orrery::cuda_device::cannot_run);

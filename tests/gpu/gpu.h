// What the GPU tests share.
#pragma once
#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/cuda/kernels.h"
#include "orrery/registry.h"

namespace orrery::gpu {

/// "" when there is a GPU to test on; otherwise why not.
std::string cannot_run();

/// Where the plugins are that are tested.
std::string plugin_folder();

/// The plugin's device on GPU 0, with these options of [device.cuda].
std::unique_ptr<Device> device(std::vector<std::pair<std::string, ConfigValue>> options = {});

/// For kernels without the device: GPU 0, a stream of its own, no cache on disk.
class Bench {
public:
    Bench();
    ~Bench();
    kernels::cuda::Context& context() { return *context_; }
    void wait() { kernels::cuda::check(cudaStreamSynchronize(stream_), "waiting"); }

private:
    cudaStream_t stream_ = nullptr;
    std::unique_ptr<kernels::cuda::Context> context_;
};

/// Elements on the GPU.
template <class T>
class DeviceArray {
public:
    explicit DeviceArray(size_t count) : count_(count) {
        kernels::cuda::check(cudaMalloc(&data_, std::max<size_t>(1, count) * sizeof(T)), "allocating");
    }
    explicit DeviceArray(std::span<const T> host) : DeviceArray(host.size()) { upload(host); }
    ~DeviceArray() { cudaFree(data_); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;

    void upload(std::span<const T> host) {
        kernels::cuda::check(cudaMemcpy(data_, host.data(), host.size_bytes(), cudaMemcpyHostToDevice), "copying");
    }
    std::vector<T> download() const {
        std::vector<T> host(count_);
        kernels::cuda::check(cudaMemcpy(host.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "copying");
        return host;
    }
    T* data() const { return static_cast<T*>(data_); }
    size_t size() const { return count_; }

private:
    void* data_ = nullptr;
    size_t count_;
};

}  // namespace orrery::gpu

// CUDA's runtime: devices, memory, copies, errors.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "standin/calls.h"
#include "standin/memory.h"
#include "standin/stream.h"

namespace orrery::standin {

namespace {

thread_local int device_of_thread = 0;
thread_local cudaError_t last_error = cudaSuccess;

struct Name {
    cudaError_t status;
    const char* name;
    const char* text;
};

constexpr Name names[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capture"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

const Name& name_of(cudaError_t status) {
    static constexpr Name unknown{cudaErrorInvalidValue, "an error", "that the stand-in has no name for"};
    const auto* const found =
        std::find_if(std::begin(names), std::end(names), [&](const Name& one) { return one.status == status; });
    return found == std::end(names) ? unknown : *found;
}

int variable(const char* name, int otherwise) {
    const char* const text = std::getenv(name);
    return text ? std::atoi(text) : otherwise;
}

/// The number of GPUs that this process sees.
int visible() { return std::min(gpus, variable("ORRERY_STANDIN_GPUS", gpus)); }

bool is_device(int device) { return device >= 0 && device < visible(); }

/// The bytes of a copy, or why not. `host`: ordinary memory, which the host copies itself.
struct End {
    char* data = nullptr;
    bool host = false;
};

cudaError_t end_of(const void* data, size_t bytes, bool device, bool host, End& end) {
    const Allocation found = allocation_of(data);
    end.host = found.type == cudaMemoryTypeUnregistered;
    if (found.type == cudaMemoryTypeDevice ? host : device) return cudaErrorInvalidValue;
    try {
        end.data = end.host ? static_cast<char*>(const_cast<void*>(data)) : static_cast<char*>(kept(data, bytes));
    } catch (const KernelFault&) {
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

cudaError_t ends_of(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, End& out, End& in) {
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool to_host = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    const bool from_host = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
    const cudaError_t status = end_of(to, bytes, to_device, to_host, out);
    return status == cudaSuccess ? end_of(from, bytes, from_device, from_host, in) : status;
}

}  // namespace

cudaError_t told(cudaError_t status) {
    if (status != cudaSuccess) last_error = status;
    return status;
}

int current_device() { return device_of_thread; }

cudaError_t launch(cudaStream_t stream, const std::function<std::function<void()>()>& make) {
    if (!stream || stream->device != device_of_thread) return told(cudaErrorInvalidResourceHandle);
    try {
        return told(stream->add(make()));
    } catch (const KernelFault& fault) {  // a GPU would see it when the kernel runs
        return told(stream->add([fault] { throw fault; }));
    }
}

namespace {

cudaError_t free_of(cudaMemoryType kind, void* data) {
    if (const cudaError_t status = refuse_unsafe(); status != cudaSuccess) return told(status);
    if (!data) return cudaSuccess;
    const Allocation found = allocation_of(data);
    if (found.at != data) return told(cudaErrorInvalidValue);
    const bool on_device = kind == cudaMemoryTypeDevice;  // any GPU may still read what is the host's
    for (int device = on_device ? found.device : 0; device < (on_device ? found.device + 1 : gpus); ++device)
        drain(device);
    if (!release(kind, data)) return told(cudaErrorInvalidValue);
    return told(on_device ? fault_of(found.device) : cudaSuccess);
}

}  // namespace

}  // namespace orrery::standin

using namespace orrery::standin;

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
const char* cudaGetErrorName(cudaError_t error) { return name_of(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return name_of(error).text; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaGetDeviceCount(int* count) { return *count = visible(), cudaSuccess; }

cudaError_t cudaSetDevice(int device) {
    if (!is_device(device)) return told(cudaErrorInvalidDevice);
    device_of_thread = device;
    return told(fault_of(device));
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (!is_device(device)) return told(cudaErrorInvalidDevice);
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "stand-in");
    properties->totalGlobalMem = gpu_bytes;
    properties->major = 9;
    properties->multiProcessorCount = 4;
    properties->l2CacheSize = 1 << 20;
    properties->sharedMemPerBlockOptin = 227 << 10;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
    if (!is_device(device)) return told(cudaErrorInvalidDevice);
    std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0",
                  variable("ORRERY_STANDIN_FIRST_GPU", 0) + device + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    if (!is_device(device) || !is_device(peer)) return told(cudaErrorInvalidDevice);
    *can = device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int) {
    thread_local bool open[gpus] = {};
    if (!is_device(peer)) return told(cudaErrorInvalidDevice);
    return std::exchange(open[peer], true) ? told(cudaErrorPeerAccessAlreadyEnabled) : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
    if (const cudaError_t status = refuse_unsafe(); status != cudaSuccess) return told(status);
    drain(device_of_thread);
    return told(fault_of(device_of_thread));
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

cudaError_t cudaMalloc(void** data, size_t bytes) {
    if (const cudaError_t status = refuse_unsafe(); status != cudaSuccess) return told(status);
    if (bytes == 0) return *data = nullptr, cudaSuccess;
    return told(allocate(cudaMemoryTypeDevice, device_of_thread, bytes, data));
}

cudaError_t cudaFree(void* data) { return free_of(cudaMemoryTypeDevice, data); }

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned int) {
    if (const cudaError_t status = refuse_unsafe(); status != cudaSuccess) return told(status);
    return told(allocate(cudaMemoryTypeHost, device_of_thread, bytes, data));
}

cudaError_t cudaFreeHost(void* data) { return free_of(cudaMemoryTypeHost, data); }

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    *total = gpu_bytes;
    *free = gpu_bytes - bytes_in_use(device_of_thread);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* about, const void* data) {
    const Allocation found = allocation_of(data);
    const bool known = found.type != cudaMemoryTypeUnregistered;
    void* const given = const_cast<void*>(data);
    *about = {found.type, known ? found.device : -1, known ? given : nullptr,
              found.type == cudaMemoryTypeDevice ? nullptr : given};
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (const cudaError_t status = refuse_unsafe(); status != cudaSuccess) return told(status);
    End out, in;
    if (const cudaError_t status = ends_of(to, from, bytes, kind, out, in); status != cudaSuccess) return told(status);
    std::memcpy(out.data, in.data, bytes);
    return told(fault_of(device_of_thread));
}

/// Ordinary memory is read before the call returns, and written before it does, as the real one's manual says.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    if (!stream) return told(cudaErrorInvalidResourceHandle);
    End out, in;
    if (const cudaError_t status = ends_of(to, from, bytes, kind, out, in); status != cudaSuccess) return told(status);
    if (out.host || in.host) {
        if (const cudaError_t status = refuse_unsafe(); status != cudaSuccess) return told(status);
    }
    std::shared_ptr<std::vector<char>> staged;
    if (in.host) staged = std::make_shared<std::vector<char>>(in.data, in.data + bytes);
    // What goes to pinned memory without pieces, as saves do: ORRERY_STANDIN_DOWNLOAD_MS makes it slow.
    const bool down = allocation_of(from).type == cudaMemoryTypeDevice && allocation_of(to).type == cudaMemoryTypeHost;
    const bool slowed = down && kind == cudaMemcpyDefault && bytes >= 16384;
    const char* const slow = slowed ? std::getenv("ORRERY_STANDIN_DOWNLOAD_MS") : nullptr;
    const std::chrono::milliseconds pause(slow ? std::atoi(slow) : 0);
    const cudaError_t status = stream->add([out, in, bytes, staged, pause] {
        std::this_thread::sleep_for(pause);
        std::memcpy(out.data, staged ? staged->data() : in.data, bytes);
    });
    if (status != cudaSuccess || !out.host) return told(status);
    stream->mark()->wait();
    return told(fault_of(stream->device));
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
    if (const cudaError_t status = refuse_unsafe(); status != cudaSuccess) return told(status);
    End end;
    if (const cudaError_t status = end_of(to, bytes, false, false, end); status != cudaSuccess) return told(status);
    std::memset(end.data, value, bytes);
    return told(fault_of(device_of_thread));
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
    if (!stream) return told(cudaErrorInvalidResourceHandle);
    End end;
    const cudaError_t status = end_of(to, bytes, true, false, end);
    if (status != cudaSuccess) return told(status);
    return told(stream->add([end, value, bytes] { std::memset(end.data, value, bytes); }));
}

}  // extern "C"

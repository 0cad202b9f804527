#include "kernels/cuda/context.h"

#include <cublasLt.h>

#include "kernels/cuda/check.h"
#ifdef ORRERY_CUDNN
#include <cudnn.h>
#endif

namespace orrery::kernels::cuda {

void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    throw Failure(std::string(what) + ": " + cudaGetErrorName(status) + ", " + cudaGetErrorString(status));
}

void check_blas(int status, const char* what) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    const auto code = static_cast<cublasStatus_t>(status);
    throw Failure(std::string(what) + ": " + cublasLtGetStatusName(code) + ", " + cublasLtGetStatusString(code));
}

#ifdef ORRERY_CUDNN
void check_dnn(int status, const char* what) {
    if (status == CUDNN_STATUS_SUCCESS) return;
    char message[512] = "";
    cudnnGetLastErrorString(message, sizeof message);
    throw Failure(std::string(what) + ": " + cudnnGetErrorString(static_cast<cudnnStatus_t>(status)) +
                  (message[0] ? ", " + std::string(message) : ""));
}
#else
void check_dnn(int status, const char* what) {
    if (status != 0) throw Failure(std::string(what) + ": status " + std::to_string(status));
}
#endif

Chip read_chip(int device) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "reading the GPU's properties");
    Chip chip;
    chip.device = device;
    chip.name = properties.name;
    chip.major = properties.major, chip.minor = properties.minor;
    chip.multiprocessors = properties.multiProcessorCount;
    chip.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
    chip.l2_bytes = properties.l2CacheSize;
    chip.shared_bytes_per_block = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin);
    return chip;
}

Context::Context(Chip chip, CUstream_st* stream, std::filesystem::path cache)
    : chip_(std::move(chip)), stream_(stream), cache_(std::move(cache)) {}

Context::~Context() {
    kept_.clear();  // plans before their handles
    if (blas_) cublasLtDestroy(blas_);
#ifdef ORRERY_CUDNN
    if (dnn_) cudnnDestroy(dnn_);
#endif
}

cublasLtContext* Context::blas() {
    if (!blas_) check_blas(cublasLtCreate(&blas_), "starting cuBLASLt");
    return blas_;
}

#ifdef ORRERY_CUDNN
cudnnContext* Context::dnn() {
    if (dnn_) return dnn_;
    cudnnHandle_t made = nullptr;
    check_dnn(cudnnCreate(&made), "starting cuDNN");
    const cudnnStatus_t bound = cudnnSetStream(made, stream_);
    if (bound != CUDNN_STATUS_SUCCESS) cudnnDestroy(made);  // a handle on another stream would be wrong
    check_dnn(bound, "giving cuDNN its stream");
    return dnn_ = made;
}

bool Context::has_dnn() {
    try {
        return dnn() != nullptr;
    } catch (const Failure&) {
        return false;
    }
}
#else
cudnnContext* Context::dnn() { throw Refused("this build has no cuDNN"); }
bool Context::has_dnn() { return false; }
#endif

}  // namespace orrery::kernels::cuda

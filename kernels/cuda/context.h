// The chip, the stream and the vendor's handles for CUDA kernels. Includes no CUDA header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "kernels/rules/spec.h"

struct CUstream_st;      // cudaStream_t
struct cublasLtContext;  // cublasLtHandle_t
struct cudnnContext;     // cudnnHandle_t

namespace orrery::kernels::cuda {

/// A failed call: "cublasLtMatmul: CUBLAS_STATUS_...". The device prepends the op.
class Failure : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

using rules::Refused;

/// Properties of one GPU, read once.
struct Chip {
    int device = 0;  ///< the driver's number
    std::string name;
    int major = 0, minor = 0;  ///< 9, 0: compute capability 9.0
    int multiprocessors = 1;
    std::int64_t memory_bytes = 0;
    std::int64_t l2_bytes = 0;
    std::int64_t shared_bytes_per_block = 0;  ///< with cudaFuncSetAttribute
};

/// Reads a device. Throws Failure.
Chip read_chip(int device);

/// One per compute queue, used by the thread that drives the device. Handles are made at their first use, which must be
/// in prepare(): a launch may be captured in a graph, so it must not make any.
class Context {
public:
    /// `cache`: folder for the results of searches for algorithms, made when needed; empty: memory only.
    Context(Chip chip, CUstream_st* stream, std::filesystem::path cache);
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    const Chip& chip() const { return chip_; }
    CUstream_st* stream() const { return stream_; }
    const std::filesystem::path& cache() const { return cache_; }
    /// Throws Failure.
    cublasLtContext* blas();
    /// Bound to the stream. Throws Refused when this build or machine has no cuDNN; has_dnn() does not throw.
    cudnnContext* dnn();
    bool has_dnn();
    /// The object of this key, made by `make` at the first call; lives as long as the context. For plans that are slow
    /// to make. The key starts with the kind of object, because T must be the same for a key.
    template <class T, class Make>
    std::shared_ptr<T> keep(const std::string& key, Make make) {
        std::shared_ptr<void>& place = kept_[key];
        if (!place) place = std::shared_ptr<T>(make());
        return std::static_pointer_cast<T>(place);
    }
    /// Whether f32 products use tf32 tensor cores (about 1e-3) instead of full f32.
    bool tf32 = false;
    /// Whether repetitions must give the same bits; kernels that cannot guarantee it refuse.
    bool deterministic = true;

private:
    Chip chip_;
    CUstream_st* stream_;
    std::filesystem::path cache_;
    cublasLtContext* blas_ = nullptr;
    cudnnContext* dnn_ = nullptr;
    std::map<std::string, std::shared_ptr<void>> kept_;
};

}  // namespace orrery::kernels::cuda

// NCCL's words for dtypes, operations and failures.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>
#include <string>
#include <type_traits>

#include "orrery/communicator.h"

namespace orrery::nccl_transport {

/// "" when there is a GPU; otherwise why not, in one sentence.
std::string cannot_run();

/// A type that NCCL adds and compares. Throws Fault::failed naming it where there is none (u16).
ncclDataType_t reducible(DType type);
ncclRedOp_t operation(ReduceOp op);

/// Throws Fault::failed "transport nccl: WHAT: ...".
void require(cudaError_t status, const char* what);
void require(ncclResult_t status, const char* what);
/// NCCL's own words, with its last error.
std::string text_of(ncclResult_t status);

/// Owners of what CUDA makes.
struct Free {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
    void operator()(void* memory) const { cudaFree(memory); }
};
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Free>;
using Mark = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Free>;
using Room = std::unique_ptr<void, Free>;

/// Bytes as text that a rendezvous can keep, and back.
std::string to_hex(const void* data, size_t bytes);
void from_hex(const std::string& text, void* data, size_t bytes);

}  // namespace orrery::nccl_transport

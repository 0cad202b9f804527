// NCCL's dtypes, operations and failures.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>
#include <string>
#include <type_traits>

#include "orrery/communicator.h"

namespace orrery::nccl_transport {

/// Why this machine cannot run NCCL, in one sentence; "" when it has a GPU.
std::string cannot_run();

/// The NCCL type that can be reduced. Throws Fault::failed, naming the dtype, when there is none (u16).
ncclDataType_t reducible(DType type);
ncclRedOp_t operation(ReduceOp op);

/// Throws Fault::failed "transport nccl: WHAT: ...".
void require(cudaError_t status, const char* what);
void require(ncclResult_t status, const char* what);
/// NCCL's error text, with its last error.
std::string text_of(ncclResult_t status);

struct Free {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
    void operator()(void* memory) const { cudaFree(memory); }
};
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Free>;
using Mark = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Free>;
using Room = std::unique_ptr<void, Free>;

/// Bytes as text for a rendezvous, and back.
std::string to_hex(const void* data, size_t bytes);
void from_hex(const std::string& text, void* data, size_t bytes);

}  // namespace orrery::nccl_transport

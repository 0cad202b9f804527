// NCCL's words for dtypes, operations and failures.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>

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

/// Bytes as text that a rendezvous can keep, and back.
std::string to_hex(const void* data, size_t bytes);
void from_hex(const std::string& text, void* data, size_t bytes);

}  // namespace orrery::nccl_transport

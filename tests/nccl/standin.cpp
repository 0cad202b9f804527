#include "nccl/standin.h"

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdlib>
#include <thread>

using orrery::nccl_standin::state;

struct CUstream_st {};
struct CUevent_st {
    std::atomic<uint64_t> after{0};  // never recorded: done
};
struct ncclComm {
    std::atomic<bool> finalizing{false};
};

namespace orrery::nccl_standin {

State& state() {
    static State one;
    return one;
}

void reset() {
    State& s = state();
    s.starts = s.runs = s.finalizes = s.destroys = true;
    s.error = ncclSuccess;
    for (int i = 0; s.communicators > 0 && i < 10'000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    s.finalized = s.destroyed = s.aborted = 0;
}

namespace {

ncclResult_t queue() {
    ++state().queued;
    return ncclSuccess;
}

ncclResult_t free_communicator(ncclComm_t comm) {
    delete comm;
    --state().communicators;
    return ncclSuccess;
}

}  // namespace

}  // namespace orrery::nccl_standin

using orrery::nccl_standin::free_communicator;
using orrery::nccl_standin::queue;

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) { return *version = 0, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { return *count = 0, cudaErrorNoDevice; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = *greatest = 0, cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "an error"; }
const char* cudaGetErrorString(cudaError_t) { return "of the stand-in"; }
cudaError_t cudaMalloc(void** data, size_t bytes) { return *data = std::malloc(bytes), cudaSuccess; }
cudaError_t cudaFree(void* data) { return std::free(data), cudaSuccess; }
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) { return queue(), cudaSuccess; }

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int, int) {
    *stream = new CUstream_st;
    ++state().streams;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete stream;
    --state().streams;
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned int) { return cudaSuccess; }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
    *event = new CUevent_st;
    ++state().events;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    --state().events;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    event->after = state().queued.load();
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    return state().runs || event->after <= state().done ? cudaSuccess : cudaErrorNotReady;
}

const char* ncclGetErrorString(ncclResult_t) { return "NCCL's words"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int, ncclUniqueId, int, ncclConfig_t*) {
    *comm = new ncclComm;
    ++state().communicators;
    return state().starts ? ncclSuccess : ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    const bool busy = comm->finalizing ? !state().finalizes : !state().starts;
    *error = busy ? ncclInProgress : static_cast<ncclResult_t>(state().error.load());
    return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    ++state().finalized;
    comm->finalizing = true;
    return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    while (!state().destroys) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ++state().destroyed;
    return free_communicator(comm);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    ++state().aborted;
    return free_communicator(comm);
}

ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclSuccess; }
ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) { return queue(); }
ncclResult_t ncclRecv(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) { return queue(); }
ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) {
    return queue();
}
ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t) { return queue(); }
ncclResult_t ncclReduceScatter(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) {
    return queue();
}
ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
    return queue();
}

}  // extern "C"

#include "events.h"

#include "failure.h"

namespace orrery::cuda_device {

EventRing::EventRing(cudaStream_t stream) : stream_(stream), ring_(256) {
    for (OwnedEvent& owner : ring_) {
        cudaEvent_t event = nullptr;
        require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making events");
        owner.reset(event);
    }
}

Event EventRing::record() {
    require(cudaEventRecord(at(++last_), stream_), "recording an event");
    return {this, last_};
}

bool EventRing::done(uint64_t ticket) {
    const cudaError_t status = cudaEventQuery(at(ticket));
    if (status == cudaErrorNotReady) return false;
    require(status, "the work before an event");
    return true;
}

void EventRing::wait(uint64_t ticket) { require(cudaEventSynchronize(at(ticket)), "the work before an event"); }

Gate::Gate(int device) : device_(device) {
    choose();
    cudaEvent_t event = nullptr;
    require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "making events");
    event_.reset(event);
}

void Gate::choose() const { require(cudaSetDevice(device_), "choosing the GPU"); }

Event Gate::close(cudaStream_t stream) {
    require(cudaEventRecord(event_.get(), stream), "recording an event");
    return {this, 0};
}

bool Gate::done(uint64_t) {
    choose();
    const cudaError_t status = cudaEventQuery(event_.get());
    if (status == cudaErrorNotReady) return false;
    require(status, "the work before a gate");
    return true;
}

void Gate::wait(uint64_t) {
    choose();
    require(cudaEventSynchronize(event_.get()), "the work before a gate");
}

void wait_for(cudaStream_t stream, const Event& event) {
    auto* const native = static_cast<cudaEvent_t>(event.native());
    if (!native) return event.wait();
    unsigned flags = 0;
    if (dynamic_cast<const Gate*>(event.owner)) {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        require(cudaStreamIsCapturing(stream, &status), "asking for a capture");
        if (status == cudaStreamCaptureStatusActive) flags = cudaEventWaitExternal;
    }
    require(cudaStreamWaitEvent(stream, native, flags), "waiting for other work");
}

}  // namespace orrery::cuda_device

#include "events.h"

#include "failure.h"

namespace orrery::cuda_device {

namespace {

bool is_done(cudaEvent_t event) {
    const cudaError_t status = cudaEventQuery(event);
    if (status == cudaErrorNotReady) return false;
    require(status, "the work before an event");
    return true;
}

void await(cudaEvent_t event) { require(cudaEventSynchronize(event), "the work before an event"); }

}  // namespace

OwnedEvent make_event(unsigned flags) {
    cudaEvent_t event = nullptr;
    require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | flags), "making events");
    return OwnedEvent(event);
}

EventRing::EventRing(cudaStream_t stream) : stream_(stream), ring_(256) {
    for (OwnedEvent& event : ring_) event = make_event();
}

Event EventRing::record() {
    require(cudaEventRecord(at(++last_), stream_), "recording an event");
    return {this, last_};
}

bool EventRing::done(uint64_t ticket) { return is_done(at(ticket)); }

void EventRing::wait(uint64_t ticket) { await(at(ticket)); }

Gate::Gate(int device) : device_(device) {
    choose();
    event_ = make_event(cudaEventBlockingSync);
}

void Gate::choose() const { require(cudaSetDevice(device_), "choosing the GPU"); }

Event Gate::close(cudaStream_t stream) {
    require(cudaEventRecord(event_.get(), stream), "recording an event");
    return {this, 0};
}

bool Gate::done(uint64_t) {
    choose();
    return is_done(event_.get());
}

void Gate::wait(uint64_t) {
    choose();
    await(event_.get());
}

void wait_for(cudaStream_t stream, const Event& event) {
    auto* const native = static_cast<cudaEvent_t>(event.native());
    if (!native) return event.wait();
    unsigned flags = 0;
    if (dynamic_cast<const Gate*>(event.owner)) {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        require(cudaStreamIsCapturing(stream, &status), "checking for a stream capture");
        if (status == cudaStreamCaptureStatusActive) flags = cudaEventWaitExternal;
    }
    require(cudaStreamWaitEvent(stream, native, flags), "waiting for other work");
}

}  // namespace orrery::cuda_device

#include "events.h"

#include "failure.h"

namespace orrery::cuda_device {

EventRing::EventRing(cudaStream_t stream) : stream_(stream), ring_(256) {
    for (Owner& owner : ring_) {
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

}  // namespace orrery::cuda_device

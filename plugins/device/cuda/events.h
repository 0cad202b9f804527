// Events of a GPU's queues.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>
#include <vector>

#include "orrery/device.h"

namespace orrery::cuda_device {

struct DestroyEvent {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using OwnedEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

/// On the thread's GPU. Takes no times; `flags`: more than that.
OwnedEvent make_event(unsigned flags = 0);

/// A ring of CUDA events for one stream. A ticket older than the ring stands for a later point of the same stream,
/// which is safe: nothing waits for less than it asked for.
class EventRing : public EventSource {
public:
    explicit EventRing(cudaStream_t stream);
    Event record();
    bool done(uint64_t ticket) override;
    void wait(uint64_t ticket) override;
    void* native(uint64_t ticket) override { return at(ticket); }

private:
    cudaEvent_t at(uint64_t ticket) const { return ring_[ticket % ring_.size()].get(); }
    cudaStream_t stream_;
    std::vector<OwnedEvent> ring_;
    uint64_t last_ = 0;
};

/// One event that is recorded again and again, for waits that stand in graphs. Whoever waits on the host sleeps.
class Gate : public EventSource {
public:
    explicit Gate(int device);
    Event close(cudaStream_t stream);
    bool done(uint64_t) override;
    void wait(uint64_t) override;
    void* native(uint64_t) override { return event_.get(); }

private:
    /// Any thread may ask, also one that has chosen no GPU.
    void choose() const;
    const int device_;
    OwnedEvent event_;
};

/// Makes the stream wait; a stream that is captured waits for a gate's newest record at each launch.
void wait_for(cudaStream_t stream, const Event& event);

}  // namespace orrery::cuda_device

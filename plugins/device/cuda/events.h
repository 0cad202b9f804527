// Events of a GPU's queues.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "orrery/device.h"

namespace orrery::cuda_device {

/// A ring of CUDA events for one stream. A ticket older than the ring stands for a later point of the same stream,
/// which is safe: nothing waits for less than it asked for.
class EventRing : public Completer {
public:
    explicit EventRing(cudaStream_t stream);
    ~EventRing() override;
    EventRing(const EventRing&) = delete;
    EventRing& operator=(const EventRing&) = delete;

    Event record();
    bool done(uint64_t ticket) override;
    void wait(uint64_t ticket) override;
    void* native(uint64_t ticket) override { return at(ticket); }

private:
    cudaEvent_t at(uint64_t ticket) const { return ring_[ticket % ring_.size()]; }
    cudaStream_t stream_;
    std::vector<cudaEvent_t> ring_;
    uint64_t last_ = 0;
};

}  // namespace orrery::cuda_device

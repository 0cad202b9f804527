// Events of a GPU's queues.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>
#include <vector>

#include "orrery/device.h"

namespace orrery::cuda_device {

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
    struct Destroy {
        void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
    };
    using Owner = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy>;
    cudaEvent_t at(uint64_t ticket) const { return ring_[ticket % ring_.size()].get(); }
    cudaStream_t stream_;
    std::vector<Owner> ring_;
    uint64_t last_ = 0;
};

}  // namespace orrery::cuda_device

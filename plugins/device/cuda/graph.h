// A captured step.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

#include "orrery/device.h"

namespace orrery::cuda_device {

/// A CUDA graph that is ready to run. Needs no operands and no scratch: it holds the addresses.
class GraphKernel : public Kernel {
public:
    explicit GraphKernel(cudaGraphExec_t graph) : graph_(graph) {}
    ~GraphKernel() override { cudaGraphExecDestroy(graph_); }
    void launch(cudaStream_t stream) const;
    std::string how() const override {
        return "device.cuda.check_launches = true runs its kernels one by one and names the one that fails";
    }

private:
    cudaGraphExec_t graph_;
};

/// Records what `work` queues on the stream and on those that join it by events. nullptr with the reason when a call
/// in it cannot be captured; nothing of it has run then.
std::unique_ptr<Kernel> capture(cudaStream_t stream, const std::function<void()>& work, std::string& why_not);

}  // namespace orrery::cuda_device

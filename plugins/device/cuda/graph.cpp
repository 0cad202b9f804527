#include "graph.h"

#include "failure.h"

namespace orrery::cuda_device {

void GraphKernel::launch(cudaStream_t stream) const { require(cudaGraphLaunch(graph_, stream), "a captured step"); }

std::unique_ptr<Kernel> capture(cudaStream_t stream, const std::function<void()>& work, std::string& why_not) {
    const auto text = [](cudaError_t status) {
        cudaGetLastError();  // it stays for the next caller otherwise
        return std::string(cudaGetErrorName(status)) + ", " + cudaGetErrorString(status);
    };
    why_not.clear();
    // Only this thread's calls are judged: others may copy and wait meanwhile.
    cudaError_t status = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (status != cudaSuccess) {
        why_not = text(status);
        return nullptr;
    }
    try {
        work();
    } catch (const std::exception& error) {
        why_not = error.what();
    }
    cudaGraph_t graph = nullptr;
    status = cudaStreamEndCapture(stream, &graph);
    if (why_not.empty() && status != cudaSuccess) why_not = "the step's work: " + text(status);
    cudaGraphExec_t ready = nullptr;
    if (why_not.empty()) {
        status = cudaGraphInstantiate(&ready, graph, 0);
        if (status != cudaSuccess) why_not = "making the graph: " + text(status);
    }
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    if (!ready) return nullptr;
    auto kernel = std::make_unique<GraphKernel>(ready);
    // Only spares the first launch: what is wrong with the GPU shows there, too.
    if (cudaGraphUpload(ready, stream) != cudaSuccess) cudaGetLastError();
    return kernel;
}

}  // namespace orrery::cuda_device

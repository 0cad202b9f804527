// Puts kernels on a stream, several at once where they may be joined.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/kernels.h"
#include "orrery/device.h"

namespace orrery::cuda_device {

constexpr int64_t most_product_scratch = int64_t{32} << 20;  ///< what kernels/cuda lets cuBLASLt have

/// A spec that one GPU is ready to run, or a captured step.
class CudaKernel : public Kernel {
public:
    CudaKernel(std::string name, size_t inputs, std::unique_ptr<kernels::cuda::Prepared> prepared)
        : name(std::make_shared<const std::string>(std::move(name))), inputs(inputs), prepared(std::move(prepared)) {}
    /// Products are searched for by timing, so ranks may choose others; their plans must agree, so all get the most.
    int64_t scratch_bytes() const override {
        const bool searched = name->starts_with("matmul");
        return std::max(prepared->scratch_bytes(), searched ? most_product_scratch : 0);
    }

    std::string how() const override { return prepared->how(); }

    const std::shared_ptr<const std::string> name;  ///< the op's; a late failure may outlive the kernel
    const size_t inputs;  ///< operands that are only read, as far as they are not outputs, too
    const std::unique_ptr<kernels::cuda::Prepared> prepared;
};

/// Launches wait in a batch while the next one may be joined to them: same joins() of their kernels, nothing written
/// that another one touches. Whoever else queues work calls flush() first. Keeps its memory: a step allocates nothing.
class Launcher {
public:
    explicit Launcher(kernels::cuda::Context& context, bool check_each) : context_(context), check_each_(check_each) {}

    void launch(CudaKernel& kernel, std::span<const Tensor> operands, void* scratch);
    /// Something of this name was put on the stream.
    void note(std::shared_ptr<const std::string> name);
    void flush();
    /// Forgets what waits: it never runs.
    void drop();
    /// The ops launched since the last call of settled(), newest first, for the message of a late failure.
    std::string recent() const;
    void settled() { recent_.clear(); }

private:
    struct Waiting {
        CudaKernel* kernel = nullptr;
        size_t first = 0, count = 0;  ///< in pointers_
    };
    struct Range {
        const char* begin;
        const char* end;
        bool written;
    };
    bool may_join(const CudaKernel& kernel, std::span<const Tensor> operands) const;
    template <class Work>
    void run(const std::string& name, Work work);

    kernels::cuda::Context& context_;
    bool check_each_;
    std::vector<Waiting> waiting_;
    std::vector<void*> pointers_;
    std::vector<Range> ranges_;  ///< of what waits
    std::vector<kernels::cuda::Joined> joined_;
    std::vector<std::shared_ptr<const std::string>> recent_;
};

}  // namespace orrery::cuda_device

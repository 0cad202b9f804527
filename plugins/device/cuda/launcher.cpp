#include "launcher.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "failure.h"

namespace orrery::cuda_device {

namespace {

constexpr size_t most_joined = 512;
constexpr size_t most_recent = 64;
constexpr size_t most_named = 6;

}  // namespace

void Launcher::note(std::shared_ptr<const std::string> name) {
    if (recent_.size() == most_recent) recent_.erase(recent_.begin(), recent_.begin() + most_recent / 2);
    recent_.push_back(std::move(name));
}

std::string Launcher::recent() const {
    std::string text;
    size_t named = 0;
    const std::string* last = nullptr;
    for (auto name = recent_.rbegin(); name != recent_.rend() && named < most_named; ++name) {
        if (last && **name == *last) continue;
        last = name->get();
        text += (named++ ? ", " : "") + *last;
    }
    return text;
}

/// Errors that name the op.
template <class Work>
void Launcher::run(const std::string& name, Work work) {
    try {
        work();
        if (check_each_) kernels::cuda::check(cudaStreamSynchronize(context_.stream()), "running it");
    } catch (const Error&) {
        throw;
    } catch (const std::exception& error) {
        throw Error("device cuda: " + name + ": " + error.what(), Fault::failed);
    }
}

bool Launcher::may_join(const CudaKernel& kernel, std::span<const Tensor> operands) const {
    if (waiting_.empty()) return true;
    const CudaKernel& first = *waiting_.front().kernel;
    if (first.prepared->joins() != kernel.prepared->joins() || waiting_.size() == most_joined) return false;
    for (size_t i = 0; i < operands.size(); ++i) {
        const auto* begin = static_cast<const char*>(operands[i].data);
        const auto* end = begin + operands[i].bytes();
        for (const Range& other : ranges_)
            if ((other.written || i >= kernel.inputs) && begin < other.end && other.begin < end) return false;
    }
    return true;
}

void Launcher::launch(CudaKernel& kernel, std::span<const Tensor> operands, void* scratch) {
    note(kernel.name);
    const bool joins = kernel.prepared->joins() > 0;
    if (!joins || !may_join(kernel, operands)) flush();
    const size_t first = pointers_.size();
    for (const Tensor& tensor : operands) pointers_.push_back(tensor.data);
    if (joins) {
        waiting_.push_back({&kernel, first, operands.size()});
        for (size_t i = 0; i < operands.size(); ++i) {
            const auto* begin = static_cast<const char*>(operands[i].data);
            ranges_.push_back({begin, begin + operands[i].bytes(), i >= kernel.inputs});
        }
        if (check_each_) flush();
        return;
    }
    try {
        run(*kernel.name, [&] { kernel.prepared->launch(context_, pointers_, scratch); });
    } catch (...) {
        pointers_.clear();
        throw;
    }
    pointers_.clear();
}

void Launcher::drop() {
    waiting_.clear();
    pointers_.clear();
    ranges_.clear();
}

void Launcher::flush() {
    if (waiting_.empty()) return;
    joined_.clear();
    for (const Waiting& one : waiting_)
        joined_.push_back(
            {one.kernel->prepared.get(), std::span<void* const>(pointers_).subspan(one.first, one.count)});
    const std::string& name = *waiting_.front().kernel->name;
    try {
        run(name, [&] { joined_.front().kernel->launch_joined(context_, joined_); });
    } catch (...) {
        drop();
        throw;
    }
    drop();
}

}  // namespace orrery::cuda_device

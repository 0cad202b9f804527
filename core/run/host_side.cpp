#include "run/host_side.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace orrery {

HostMemory::HostMemory(Device& device, int64_t bytes)
    : device_(device), memory_(device.allocate(std::max<int64_t>(64, bytes), MemoryKind::pinned)) {}

HostMemory::~HostMemory() { device_.release(memory_); }

HostResults::HostResults(Device& device, const Executor& executor)
    : device_(device), memory_(device, executor.results().bytes) {
    for (const Result& result : executor.plan().program.results)
        held_.push_back({result.name, executor.holds(result.value) ? executor.tensor(result.value) : Tensor{},
                         executor.results().offset(result.value)});
}

const HostResults::Held& HostResults::find(std::string_view name) const {
    const auto found = std::find_if(held_.begin(), held_.end(), [&](const Held& held) { return held.name == name; });
    if (found == held_.end() || !found->at.data)
        throw Error("this rank holds no result '" + std::string(name) + "'", Fault::failed);
    return *found;
}

double HostResults::scalar(std::string_view name) const {
    const bool known = std::any_of(held_.begin(), held_.end(), [&](const Held& held) { return held.name == name; });
    if (!known) return 0;
    if (const Tensor& at = find(name).at; at.dtype != DType::f32 || at.count() != 1)
        throw Error("result '" + std::string(name) + "' is not one f32", Fault::failed);
    float value = 0;
    read(name, &value);
    return value;
}

void HostResults::read(std::string_view name, void* to) const {
    const Held& held = find(name);
    const int64_t bytes = held.at.bytes();
    if (held.offset) {
        std::memcpy(to, memory_.data() + *held.offset, static_cast<size_t>(bytes));
        return;
    }
    device_.copy(0, to, held.at.data, bytes);
    device_.synchronize(0);
}

}  // namespace orrery

#include "run/whole.h"

#include <fmt/format.h>

#include <cstring>

#include "run/feed.h"
#include "run/initial.h"

namespace orrery {
namespace {

template <class T>
std::vector<std::byte> bytes_of(const T* data, size_t count) {
    const auto* first = reinterpret_cast<const std::byte*>(data);
    return {first, first + count * sizeof(T)};
}

}  // namespace

std::vector<std::byte> WholeSources::operator()(const Value& value, int64_t step) {
    const std::lock_guard lock(mutex_);
    if (step != step_) known_.clear();
    step_ = step;
    auto found = known_.find(value.name);
    if (found == known_.end())
        found = known_.emplace(value.name, value.role == Role::input ? input(value, step) : initial(value)).first;
    return found->second;
}

std::vector<std::byte> WholeSources::initial(const Value& value) {
    std::vector<std::byte> whole(static_cast<size_t>(value.type.bytes()));
    const KernelSpec spec = initial_kernel(value, value.type, Shape(value.type.shape.size(), 0));
    uint32_t word = seed_word(seed_);
    std::vector<Tensor> operands;
    if (!spec.inputs.empty()) operands.push_back({&word, DType::u32, {}});
    Memory made = device_.allocate(std::max<int64_t>(64, value.type.bytes()), MemoryKind::device);
    operands.push_back({made.data, value.type.dtype, value.type.shape});
    const auto kernel = device_.prepare(spec);
    Memory scratch = device_.allocate(std::max<int64_t>(64, kernel->scratch_bytes()), MemoryKind::device);
    device_.launch(0, *kernel, operands, scratch.data);
    device_.copy(0, whole.data(), made.data, value.type.bytes());
    device_.synchronize(0);
    device_.release(scratch);
    device_.release(made);
    return whole;
}

std::vector<std::byte> WholeSources::input(const Value& value, int64_t step) const {
    if (value.name == "step") {
        const auto number = static_cast<float>(step);
        return bytes_of(&number, 1);
    }
    if (value.name == "seed") {
        const uint32_t seed = step_seed(seed_, step);
        return bytes_of(&seed, 1);
    }
    const bool targets = value.name == "targets";
    if (!data_ || (!targets && value.name != "tokens"))
        throw Error(value.origin,
                    fmt::format("nothing fills the input \"{}\"\n  the script must train on data: run:train(data)",
                                value.name));
    const int64_t batch = value.type.shape.at(0), sequence = value.type.shape.at(1);
    const auto count = static_cast<size_t>(sequence);
    std::vector<int32_t> tokens(count), after(count), whole;
    for (int64_t i = 0; i < batch; ++i) {
        data_->read(Split::train, (step - 1) * batch + i, 0, sequence, tokens.data(), after.data());
        const auto& part = targets ? after : tokens;
        whole.insert(whole.end(), part.begin(), part.end());
    }
    return bytes_of(whole.data(), whole.size());
}

}  // namespace orrery

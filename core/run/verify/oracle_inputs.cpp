#include "run/verify/oracle_inputs.h"

#include <fmt/format.h>

#include "compile/program_set.h"
#include "run/checkpoint/restore/init.h"
#include "run/data/input_feed.h"

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
    std::vector<std::byte> whole(value.type.bytes());
    Memory made = device_.allocate(std::max<int64_t>(64, value.type.bytes()), MemoryKind::device);
    const Tensor to{made.data, value.type.dtype, value.type.shape};
    draw_initial(device_, value, to, Shape(value.type.shape.size(), 0), seed_);
    device_.copy(0, whole.data(), made.data, value.type.bytes());
    device_.synchronize(0);
    device_.release(made);
    return whole;
}

std::vector<std::byte> WholeSources::input(const Value& value, int64_t step) const {
    if (value.name == "step") {
        const auto number = static_cast<float>(step);
        return bytes_of(&number, 1);
    }
    if (value.name == "seed") {
        const uint32_t seed = step_seed(island_seed(seed_, island_), step);
        return bytes_of(&seed, 1);
    }
    if (filler_of(value) == Filler::status)  // all zeros: the status word of ranks that continue
        return std::vector<std::byte>(value.type.bytes());
    if (!data_)
        throw Error(
            value.origin,
            fmt::format("no data for the input \"{}\"\n  the script must train on data: run:train(data)", value.name));
    const auto known = ids_.find(value.name);
    Value all = value;
    all.type.shape[0] *= islands_;
    std::vector<std::byte> whole(all.type.bytes());
    read_batch(*data_, Split::train, (step - 1) * all.type.shape[0], all,
               known == ids_.end() ? IdRange{} : known->second, order_, whole.data());
    const auto first = whole.begin() + island_ * value.type.bytes();
    return {first, first + value.type.bytes()};
}

}  // namespace orrery

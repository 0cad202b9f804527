#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "run/executor.h"

namespace orrery {

/// Host memory that a device copies from and to without a copy of its own.
class HostMemory {
public:
    /// Throws as Device::allocate does. `device` must outlive it.
    HostMemory(Device& device, int64_t bytes);
    ~HostMemory();
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;

    std::byte* data() const { return static_cast<std::byte*>(memory_.data); }
    int64_t bytes() const { return memory_.bytes; }

private:
    Device& device_;
    Memory memory_;
};

/// What a program's steps leave behind as results on this rank: `data()` is for Executor::run, which fills it.
class HostResults {
public:
    /// Device and executor must outlive it.
    HostResults(Device& device, const Executor& executor);

    void* data() const { return memory_.data(); }
    /// A result of one f32; 0 where the program has none of the name.
    double scalar(std::string_view name) const;
    /// The local elements of a result that this rank holds. One that is a param, state or input
    /// itself, or larger than small_result_bytes, is fetched from the device by a copy of its own.
    void read(std::string_view name, void* to) const;
    /// Local elements of the result.
    int64_t count(std::string_view name) const { return find(name).at.count(); }

private:
    struct Held {
        std::string name;
        Tensor at;                      ///< on the device; without data where other ranks have it
        std::optional<int64_t> offset;  ///< in memory_
    };
    const Held& find(std::string_view name) const;

    Device& device_;
    HostMemory memory_;
    std::vector<Held> held_;  ///< all results of the program
};

}  // namespace orrery

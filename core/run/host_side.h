#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "run/executor.h"

namespace orrery {

/// Host memory that a device can copy from and to directly.
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

/// Results of a program's steps on this rank. Pass `data()` to Executor::run, which fills it.
class HostResults {
public:
    /// `device` and `executor` must outlive it.
    HostResults(Device& device, const Executor& executor);

    void* data() const { return memory_.data(); }
    /// A result of one f32; 0 if the program has no result of that name.
    double scalar(std::string_view name) const;
    /// Copies this rank's elements of a result. A result that is itself a param, state or input, or is larger than
    /// small_result_bytes, is copied from the device by this call.
    void read(std::string_view name, void* to) const;
    /// Number of this rank's elements of the result.
    int64_t count(std::string_view name) const { return find(name).at.count(); }

private:
    struct Held {
        std::string name;
        Tensor at;                      ///< on the device; null data if only other ranks hold it
        std::optional<int64_t> offset;  ///< offset in memory_
    };
    const Held& find(std::string_view name) const;

    Device& device_;
    HostMemory memory_;
    std::vector<Held> held_;  ///< all results of the program
};

}  // namespace orrery

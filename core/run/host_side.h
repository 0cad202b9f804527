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
    /// Throws what Device::allocate throws. `device` must outlive the memory.
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

/// Host memory for the results of a program's steps on this rank. Executor::run fills it through data().
class HostResults {
public:
    /// `device` and `executor` must outlive this object.
    HostResults(Device& device, const Executor& executor);

    void* data() const { return memory_.data(); }
    /// The value of a result that is one f32; 0 if the program has no result of that name.
    double scalar(std::string_view name) const;
    /// Copies this rank's elements of a result to `to`. If the result is itself a param, state or input, or is larger
    /// than small_result_bytes, this call copies it from the device.
    void read(std::string_view name, void* to) const;
    int64_t count(std::string_view name) const { return find(name).at.count(); }

private:
    struct Held {
        std::string name;
        Tensor at;                      ///< the result on the device; null data if only other ranks hold it
        std::optional<int64_t> offset;  ///< byte offset in memory_; none: only on the device
    };
    const Held& find(std::string_view name) const;

    Device& device_;
    HostMemory memory_;
    std::vector<Held> held_;
};

}  // namespace orrery

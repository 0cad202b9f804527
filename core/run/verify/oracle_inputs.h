#pragma once
#include <map>
#include <mutex>

#include "compile/ids.h"
#include "layout/token_order.h"
#include "run/data/data.h"
#include "run/verify/oracle.h"

namespace orrery {

/// Returns the contents of a run's inputs as whole arrays: params and states as `Session` draws them, the samples of
/// the step, the step number and its seed. Callable from several threads.
class WholeSources {
public:
    /// `data`: nullptr if the script trains on none. `program`: as recorded. `order`: of the tokens in rows. Device and
    /// data must outlive this object. The arrays are those of `island` of `islands`, with its part of the samples.
    WholeSources(Device& device, uint64_t seed, const Program& program, const Dataset* data, TokenOrder order,
                 int64_t island = 0, int64_t islands = 1)
        : device_(device),
          seed_(seed),
          ids_(ids_of(program)),
          data_(data),
          order_(std::move(order)),
          island_(island),
          islands_(islands) {}

    /// The value's array before a step. Throws Error with the script line of an input that nothing fills.
    std::vector<std::byte> operator()(const Value& value, int64_t step);

private:
    std::vector<std::byte> initial(const Value& value);
    std::vector<std::byte> input(const Value& value, int64_t step) const;

    Device& device_;
    const uint64_t seed_;
    const std::map<std::string, IdRange> ids_;
    const Dataset* data_;
    const TokenOrder order_;
    const int64_t island_, islands_;
    std::mutex mutex_;
    int64_t step_ = 0;
    std::map<std::string, std::vector<std::byte>> known_;  ///< by name: arrays of the current step
};

}  // namespace orrery

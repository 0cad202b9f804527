#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "compile/ids.h"
#include "orrery/plan.h"
#include "run/data/data.h"

namespace orrery {

/// The conformance suite of data sources: what `orrery/data.h` says of DataSource::read. Each block is read twice, into
/// memory filled with two patterns and guarded on both sides, and compared with the sample that was read as a whole.
///
/// All throw Error of Fault::failed at the first block that is wrong, naming the plugin, the input, the sample, the
/// element and the fault: not filled, random, ignores the offset, cuts samples another way, wrote past the end, id out
/// of range. What the source throws passes.
class SourceCheck {
public:
    /// `data` must outlive it.
    explicit SourceCheck(const Dataset& data) : data_(data) {}

    /// The first samples drawn, at most `samples` of them, of every array: whole, halved along each dim, and a block
    /// inside of all.
    void cuts(Split split, int64_t samples);
    /// What each rank of the plan reads for a step, by `ids`, the ranges of the inputs that hold ids.
    void ranks(const Plan& plan, const std::map<std::string, IdRange>& ids, int64_t step);

    int64_t blocks() const { return blocks_; }  ///< that were read twice

private:
    struct Block;

    std::vector<std::byte> whole(const Block& sample, const IdRange& allowed);
    std::vector<std::byte> read(const Block& block);
    void compare(const Block& block, const std::vector<std::byte>& whole);
    [[noreturn]] void fail(const Block& block, const std::string& fault, const std::string& element,
                           const std::string& more) const;

    const Dataset& data_;
    int64_t blocks_ = 0;
};

}  // namespace orrery

#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "compile/ids.h"
#include "orrery/plan.h"
#include "run/data/data.h"

namespace orrery {

/// The conformance suite of data sources: checks the contract of DataSource::read in `orrery/data.h`. Each block is
/// read twice, into memory filled with two patterns and with guards on both sides, and compared with the sample read as
/// a whole.
///
/// All functions throw Error of Fault::failed at the first wrong block. The message names the plugin, the input, the
/// sample, the element and the fault: not filled, random, ignores the offset, cuts samples another way, wrote past the
/// end, id out of range. Exceptions of the source pass through.
class SourceCheck {
public:
    /// `data` must outlive this object.
    explicit SourceCheck(const Dataset& data) : data_(data) {}

    /// Checks every array of the first samples drawn, at most `samples` of them: whole, halved along each dim, and a
    /// block from the middle.
    void cuts(Split split, int64_t samples);
    /// Checks what each rank of the plan reads for a step. `ids`: the valid ranges of inputs that are ids.
    void ranks(const Plan& plan, const std::map<std::string, IdRange>& ids, int64_t step);

    int64_t blocks() const { return blocks_; }  ///< number of blocks that were read twice

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

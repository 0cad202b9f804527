#include "run/verify/source_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/text.h"
#include "plan/host_places.h"
#include "run/data/input_feed.h"
#include "run/verify/float_distance.h"

namespace orrery {

/// A block of one array of a drawn sample.
struct SourceCheck::Block {
    Split split;
    int64_t index;
    size_t array;
    Shape offset, shape;
    std::string reader;  ///< end of a message: ", read by rank 1"
};

namespace {

using Bytes = std::vector<std::byte>;

constexpr std::byte patterns[2] = {std::byte{0xa5}, std::byte{0x5a}};
constexpr const char* rule =
    "a block depends only on the sample and its offset, and is written completely (orrery/data.h)";

/// Memory for one read: the block between two guards, all filled with a pattern.
class Guarded {
public:
    /// A guard is larger than a whole sample, which a wrong source may write instead of a block.
    Guarded(std::byte pattern, int64_t bytes, int64_t sample_bytes)
        : pattern_(pattern),
          guard_((65'536 + sample_bytes) / 64 * 64),
          bytes_(bytes),
          all_(guard_ + bytes_ + guard_, pattern) {}

    std::byte* block() { return all_.data() + guard_; }
    Bytes take() const { return {all_.begin() + offset(guard_), all_.begin() + offset(guard_ + bytes_)}; }
    /// Number of bytes from the block's end to the last byte that the source wrote after it; 0: none.
    size_t past_end() const {
        for (size_t i = guard_; i > 0; --i)
            if (all_[guard_ + bytes_ + i - 1] != pattern_) return i;
        return 0;
    }
    size_t before_begin() const {
        for (size_t i = 0; i < guard_; ++i)
            if (all_[i] != pattern_) return guard_ - i;
        return 0;
    }

private:
    static std::ptrdiff_t offset(size_t i) { return static_cast<std::ptrdiff_t>(i); }

    std::byte pattern_;
    size_t guard_, bytes_;
    Bytes all_;
};

Shape place_of(const Shape& shape, int64_t element) {
    Shape at(shape.size());
    for (size_t d = shape.size(); d-- > 0; element /= shape[d]) at[d] = element % shape[d];
    return at;
}

int64_t element_of(const Shape& whole, const Shape& offset, const Shape& at) {
    int64_t element = 0;
    for (size_t d = 0; d < whole.size(); ++d) element = element * whole[d] + offset[d] + at[d];
    return element;
}

Bytes cut(const Bytes& whole, const Shape& sample, const Shape& offset, const Shape& shape, size_t item) {
    Bytes block;
    for (int64_t i = 0, count = count_of(shape); i < count; ++i) {
        const size_t at = element_of(sample, offset, place_of(shape, i)) * item;
        block.insert(block.end(), whole.begin() + at, whole.begin() + (at + item));
    }
    return block;
}

/// Index of the first element in which two arrays differ; -1: none.
int64_t first_difference(const Bytes& one, const Bytes& other, size_t item) {
    if (one == other) return -1;
    for (size_t i = 0; i + item <= one.size(); i += item)
        if (std::memcmp(one.data() + i, other.data() + i, item) != 0) return static_cast<int64_t>(i / item);
    return -1;
}

Shape sum(Shape a, const Shape& b) {
    for (size_t d = 0; d < a.size(); ++d) a[d] += b[d];
    return a;
}

}  // namespace

void SourceCheck::fail(const Block& block, const std::string& fault, const std::string& element,
                       const std::string& more) const {
    const DataSource& source = data_.source(block.split);
    const DataArray& array = source.arrays()[block.array];
    const bool all = block.shape == array.shape();
    const std::string author = data_.plugin_of_last_read(block.split), &asked = data_.plugin(block.split);
    const std::string position = data_.where(block.split, block.index);
    throw Error(
        fmt::format("plugin {}: {}\n"
                    "{}  input    {} {}{}\n"
                    "  sample   {}\n"
                    "  block    {}{}\n"
                    "  element  {}\n"
                    "  {}",
                    author, fault, author == asked ? "" : fmt::format("  through  plugin {}\n", asked),
                    quote(array.name), name_of(array.dtype), text_of(array.shape()), position,
                    all ? "the whole sample" : fmt::format("{} at {}", text_of(block.shape), text_of(block.offset)),
                    block.reader, element, more),
        Fault::failed);
}

Bytes SourceCheck::read(const Block& block) {
    const DataArray& array = data_.source(block.split).arrays()[block.array];
    const Shape sample = array.shape();
    const size_t item = size_of(array.dtype);
    Bytes made[2];
    for (size_t fill = 0; fill < 2; ++fill) {
        Tensor tensor{nullptr, array.dtype, block.shape};
        Guarded memory(patterns[fill], tensor.bytes(), count_of(sample) * static_cast<int64_t>(item));
        tensor.data = memory.block();
        data_.read(block.split, block.index, block.array, block.offset, tensor);
        const auto elements = [&](size_t bytes) {
            return plural(static_cast<int64_t>((bytes + item - 1) / item), "element");
        };
        if (const size_t bytes = memory.past_end(); bytes > 0)
            fail(block, fmt::format("it wrote past the end of the block, {} too many", elements(bytes)),
                 "after the last one", rule);
        if (const size_t bytes = memory.before_begin(); bytes > 0)
            fail(block, fmt::format("it wrote before the beginning of the block, {} too many", elements(bytes)),
                 "before the first one", rule);
        made[fill] = memory.take();
    }
    ++blocks_;
    const int64_t first = first_difference(made[0], made[1], item);
    if (first < 0) return made[0];
    const auto left = [&](size_t fill) {
        const auto at = made[fill].begin() + first * static_cast<std::ptrdiff_t>(item);
        return std::all_of(at, at + item, [&](std::byte b) { return b == patterns[fill]; });
    };
    const std::string element = text_of(sum(place_of(block.shape, first), block.offset));
    if (left(0) && left(1)) {
        int64_t count = 0;
        for (int64_t i = first; i < count_of(block.shape); ++i)
            count += std::memcmp(made[0].data() + i * item, made[1].data() + i * item, item) != 0;
        fail(block,
             fmt::format("it did not fill {} of {} of the block", count, plural(count_of(block.shape), "element")),
             element + ", the first one", rule);
    }
    fail(block, "it is not deterministic: two reads of one block differ",
         fmt::format("{}: {:.9g}, then {:.9g}", element, number_at(array.dtype, made[0].data(), first),
                     number_at(array.dtype, made[1].data(), first)),
         "random values must follow from DataSample (number, drawn, seed, split) alone, on every rank");
}

Bytes SourceCheck::whole(const Block& sample, const IdRange& allowed) {
    Bytes bytes = read(sample);
    const DataArray& array = data_.source(sample.split).arrays()[sample.array];
    if (allowed.count == 0 || array.dtype != DType::i32) return bytes;
    for (int64_t i = 0; i < count_of(sample.shape); ++i) {
        int32_t id = 0;
        std::memcpy(&id, bytes.data() + i * sizeof id, sizeof id);
        if (id < allowed.least || id >= allowed.count)
            fail(sample, fmt::format("id out of range: {}", id), text_of(place_of(sample.shape, i)),
                 text_of(allowed) + ": give the model more ids, or fix the data or the plugin");
    }
    return bytes;
}

void SourceCheck::compare(const Block& block, const Bytes& whole) {
    const DataArray& array = data_.source(block.split).arrays()[block.array];
    const Shape sample = array.shape();
    const size_t item = size_of(array.dtype);
    const Bytes have = read(block), want = cut(whole, sample, block.offset, block.shape, item);
    const int64_t first = first_difference(have, want, item);
    if (first < 0) return;
    const Bytes at_zero = cut(whole, sample, Shape(sample.size(), 0), block.shape, item);
    const Bytes flat(whole.begin(), whole.begin() + have.size());
    const bool ignores = have == at_zero || have == flat;
    fail(block,
         ignores ? "it ignores the block's offset: it wrote the beginning of the sample"
                 : "it cuts samples another way: the block differs from that part of the whole sample",
         fmt::format("{}: {:.9g}, in the whole sample {:.9g}", text_of(sum(place_of(block.shape, first), block.offset)),
                     number_at(array.dtype, have.data(), first), number_at(array.dtype, want.data(), first)),
         "a block begins at `offset` and has block.shape, dense and row-major (orrery/data.h)");
}

void SourceCheck::cuts(Split split, int64_t samples) {
    const std::vector<DataArray> arrays = data_.source(split).arrays();
    const int64_t count = std::min(samples, data_.samples(split));
    for (size_t array = 0; array < arrays.size(); ++array)
        for (int64_t index = 0; index < count; ++index) {
            const Shape shape = arrays[array].shape(), zero(shape.size(), 0);
            const Bytes all = whole({split, index, array, zero, shape, ""}, {});
            Block inside{split, index, array, zero, shape, ""};
            for (size_t d = 0; d < shape.size(); ++d) {
                if (shape[d] < 2) continue;
                inside.offset[d] = shape[d] / 3;
                inside.shape[d] = std::max<int64_t>(1, shape[d] / 3);
                for (const bool second : {false, true}) {
                    Block half{split, index, array, zero, shape, ""};
                    half.shape[d] = second ? shape[d] - shape[d] / 2 : shape[d] / 2;
                    half.offset[d] = second ? shape[d] / 2 : 0;
                    compare(half, all);
                }
            }
            if (inside.shape != shape) compare(inside, all);
        }
}

void SourceCheck::ranks(const Plan& plan, const std::map<std::string, IdRange>& ids, int64_t step) {
    const RowOrders orders(data_, token_order(plan.program, plan.mesh));
    for (const ValueId id : plan.program.inputs()) {
        const Value& value = plan.program.value(id);
        if (!is_data_input(value)) continue;
        const RowReader reader(value, data_, orders, {});
        if (!reader.array()) continue;
        const size_t array = *reader.array();
        const Shape& all = value.type.shape;
        const auto known = ids.find(value.name);
        const IdRange allowed = known == ids.end() ? IdRange{} : known->second;
        std::map<int64_t, Bytes> wholes;
        std::vector<int64_t> draws;
        data_.rows(Split::train, (step - 1) * all[0], all[0], draws);
        std::set<std::pair<int64_t, std::pair<Shape, Shape>>> done;
        const auto check = [&](const Block& block) {
            if (!done.insert({block.index, {block.offset, block.shape}}).second) return;
            auto found = wholes.find(block.index);
            if (found == wholes.end())
                found = wholes
                            .emplace(block.index, whole({Split::train, block.index, array, Shape(all.size() - 1, 0),
                                                         without_batch(all), block.reader},
                                                        allowed))
                            .first;
            if (block.shape != without_batch(all)) compare(block, found->second);
        };
        for (int64_t rank = 0; rank < plan.mesh.ranks(); ++rank) {
            if (!host_inputs(plan.program, plan.class_of(rank)).offset(id)) continue;
            const Shape local = value.layout.local_shape(all, plan.mesh);
            for (int64_t micro = 0; micro < plan.mesh.microbatches(); ++micro) {
                const Shape offset = value.layout.offset(all, plan.mesh, rank, micro);
                for (int64_t i = 0; i < local[0]; ++i) {
                    const int64_t index = draws[static_cast<size_t>(offset[0] + i)];
                    reader.blocks(
                        Split::train, index, without_batch(offset), without_batch(local),
                        [&](const Shape& from, const Shape& shape, int64_t) {
                            check({Split::train, index, array, from, shape, fmt::format(", read by rank {}", rank)});
                        });
                }
            }
        }
    }
}

}  // namespace orrery

#include "run/checkpoint/format/block_reader.h"

#include <algorithm>

namespace orrery {

ObjectReader& BlockReader::object(int64_t number, const std::string& tensor) {
    constexpr size_t most = 32;
    const auto found = std::find_if(open_.begin(), open_.end(), [&](const Open& one) { return one.object == number; });
    if (found != open_.end()) {
        open_.splice(open_.begin(), open_, found);
    } else {
        if (open_.size() == most) open_.pop_back();
        open_.push_front({number, std::make_unique<ObjectReader>(store_, manifest_, number)});
    }
    if (checked_.insert(number).second) open_.front().reader->check_header(tensor);
    return *open_.front().reader;
}

void BlockReader::read(const ManifestTensor& tensor, const Block& block, std::span<std::byte> out) {
    const int64_t size = size_of(tensor.type.dtype);
    for (const ManifestShard& shard : tensor.shards) {
        const std::optional<Block> part = intersect(block, shard.box);
        if (!part) continue;
        ObjectReader& reader = object(shard.object, tensor.name);
        for_runs(*part, shard.box, block, [&](int64_t from, int64_t to, int64_t count) {
            reader.read(shard.begin + from * size,
                        out.subspan(static_cast<size_t>(to * size), static_cast<size_t>(count * size)), tensor.name);
        });
    }
}

}  // namespace orrery

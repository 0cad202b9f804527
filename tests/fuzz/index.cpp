// Indexes of ranks: run/checkpoint/format/rank_index. What a parsed one says is added to a root that knows its tensors.
#include "orrery/error.h"
#include "run/checkpoint/format/rank_index.h"
#include "target.h"

namespace orrery::fuzz {
namespace {

void run(std::string_view input) {
    try {
        const RankIndex index = RankIndex::parse(input);
        const std::string text = index.text();
        require(RankIndex::parse(text).text() == text, "what is written reads back");
        Manifest root;
        root.step = index.step;
        root.piece_bytes = index.piece_bytes;
        root.tensors = {{"a", {DType::f32, {2, 8}}, "", {}}, {"b", {DType::u8, {3, 2}}, "", {}}};
        root.arrange();
        add_index(root, index);
        for (const ManifestTensor& tensor : root.tensors)
            for (const ManifestShard& shard : tensor.shards) {
                const ManifestObject& object = root.objects.at(static_cast<size_t>(shard.object));
                require(byte_count(tensor.type.dtype, shard.box.shape) <= object.bytes - shard.begin,
                        "a shard lies in its object");
            }
    } catch (const Error&) {
    } catch (const Json::exception&) {  // who reads an index calls it damaged
    }
}

std::vector<std::string> seeds() {
    RankIndex index;
    index.step = 5;
    index.rank = 1;
    index.piece_bytes = 64;
    index.objects = {{"rank-00001-000.safetensors", 1, 200, std::string(64, 'a'), {1, 2, 3, 4294967295u}, 5},
                     {"rank-00001-001.safetensors", 1, 60, std::string(64, 'b'), {7}, 3}};
    index.tensors = {"a", "b"};
    index.shards = {{0, 0, 100, {{0, 4}, {2, 4}}}, {1, 1, 10, {{0, 1}, {3, 1}}}};
    std::vector<std::string> all = {index.text()};
    RankIndex::parse(all[0]);  // throws unless it is good
    index.shards[0].box.shape = {int64_t{1} << 60, 8};
    all.push_back(index.text());
    index.shards[0] = {9, 9, INT64_MAX, {{INT64_MAX, 0}, {INT64_MAX, INT64_MAX}}};
    all.push_back(index.text());
    index.piece_bytes = INT64_MAX;
    all.push_back(index.text());
    return all;
}

}  // namespace

Target index_target() { return {"index", run, seeds}; }

}  // namespace orrery::fuzz

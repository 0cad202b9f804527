// Indexes of ranks: run/checkpoint/format/rank_index. What a parsed one says is written to a store and read again, and
// added to a root that knows its tensors.
#include "held_store.h"
#include "orrery/error.h"
#include "run/checkpoint/format/rank_index.h"
#include "target.h"

namespace orrery::fuzz {
namespace {

Manifest root_for(const RankIndex& index) {
    Manifest root;
    root.step = index.step;
    root.piece_bytes = index.piece_bytes;
    root.tensors = {{"a", {DType::f32, {2, 8}}}, {"b", {DType::u8, {3, 2}}}};
    root.arrange();
    return root;
}

/// An index that is not what the root says is refused, whatever is different.
void store(const RankIndex& index) {
    HeldStore store;
    const IndexEntry entry = put_index(store, index);
    require(index_of(store, root_for(index), entry).text() == index.text(), "what is put reads back");
    const auto refused = [&](Manifest root, IndexEntry other) {
        try {
            root.indexes = {entry};
            index_of(store, root, other);
            return false;
        } catch (const Damaged&) {
            return true;
        }
    };
    Manifest root = root_for(index);
    require(refused(root, {entry.rank, entry.bytes + 1, entry.sha256}), "another size is refused");
    require(refused(root, {entry.rank, entry.bytes, std::string(64, '0')}), "another digest is refused");
    require(refused(root, {index.rank == 0 ? 1 : 0, entry.bytes, entry.sha256}), "one that is missing is refused");
    root.step = index.step == 0 ? 1 : 0;
    require(refused(root, entry), "one of another step is refused");
    root = root_for(index);
    root.piece_bytes = index.piece_bytes == 1 ? 2 : 1;
    require(refused(root, entry), "one of other pieces is refused");
    store.objects[IndexEntry{index.rank == 0 ? 1 : 0, 0, ""}.key()] = store.objects.at(entry.key());
    require(refused(root_for(index), {index.rank == 0 ? 1 : 0, entry.bytes, entry.sha256}),
            "another rank's is refused");
    require(refused(root_for(index), {index.rank == 0 ? 1 : 0, entry.bytes, std::string(64, '0')}),
            "one in the place of another is refused");
}

void add(const RankIndex& index) {
    Manifest root = root_for(index);
    add_index(root, index);
    root.arrange();
    for (const ManifestTensor& tensor : root.tensors)
        for (const ManifestShard& shard : tensor.shards) {
            const ManifestObject& object = root.objects.at(static_cast<size_t>(shard.object));
            require(byte_count(tensor.type.dtype, shard.box.shape) <= object.bytes - shard.begin,
                    "a shard lies in its object");
        }
    const std::vector<RankIndex> again = indexes_of(root);
    require(again.size() == (index.objects.empty() ? 0u : 1u), "all of it is one rank's");
    if (again.empty()) return;
    require(again[0].shards.size() == index.shards.size(), "all shards are some rank's");
    Manifest twice = root_for(index);
    add_index(twice, again[0]);
    require(indexes_of(twice)[0].text() == again[0].text(), "an index of a manifest reads back");
}

void run(std::string_view input) {
    try {
        const RankIndex index = RankIndex::parse(input);
        const std::string text = index.text();
        promised("what is written reads back", [&] {
            require(RankIndex::parse(text).text() == text, "what is written reads back alike");
            store(index);
        });
        add(index);
    } catch (const Error&) {
    }
}

std::string with(const std::string& text, const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    require(at != std::string::npos, "a seed has what is to be changed");
    return changed.replace(at, from.size(), to);
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
    std::vector<std::string> all = {index.text(), "[]", "{}"};
    const std::string good = all[0];
    store(RankIndex::parse(good));  // throws unless it is good
    add(RankIndex::parse(good));
    for (const auto& [from, to] : std::initializer_list<std::pair<std::string, std::string>>{
             {"\"rank-00001-001", "\"rank-00001-000"},
             {"\"rank-00001-001", "\"rank-00002-001"},
             {"\"rank-00001-001", "\"../rank-00001-001"},
             {"\"written\":3", "\"written\":9"},
             {"\"written\":3", "\"rank\":1"},
             {"4294967295", "4294967296"},
             {"[1,2,3,", "[2,3,"},
             {"\"piece_bytes\":64", "\"piece_bytes\":0"},
             {"[\"a\",\"b\"]", "[\"a\",\"c\"]"},
             {"[\"a\",\"b\"]", "[\"a\",\"b\",\"b\"]"},
             {"[0,0,100,", "[2,0,100,"},
             {"[0,0,100,", "[0,2,100,"},
             {"[0,0,100,", "[0,100,"},
             {"[0,0,100,", "[0,0,199,"},
             {"[0,4],[2,4]", "[0,4],[2,5]"},
             {"[0,4],[2,4]", "[4],[2,4]"},
             {"[0,4],[2,4]", "7,[2,4]"},
             {"[0,4],[2,4]", "[0,4],[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]"}})
        all.push_back(with(good, from, to));
    index.shards[0].box.shape = {int64_t{1} << 60, 8};
    all.push_back(index.text());
    index.shards[0] = {9, 9, INT64_MAX, {{INT64_MAX, 0}, {INT64_MAX, INT64_MAX}}};
    all.push_back(index.text());
    index.piece_bytes = INT64_MAX;
    all.push_back(index.text());
    return all;
}

std::vector<std::string> words() {
    return {"\"format\":\"orrery checkpoint index\"",
            "\"step\":",
            "\"rank\":",
            "\"piece_bytes\":",
            "\"objects\":[",
            "\"key\":\"rank-00001-002\"",
            "\"bytes\":",
            "\"sha256\":\"\"",
            "\"written\":",
            "\"crc32c\":[",
            "\"tensors\":[",
            "\"shards\":[",
            "[0,0,0,[0,0],[0,0]],",
            "\"a\"",
            "\"b\"",
            "4294967296"};
}

}  // namespace

Target index_target() { return {"index", run, seeds, words}; }

}  // namespace orrery::fuzz

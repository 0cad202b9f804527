#include "run/checkpoint/format/object_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/hash.h"
#include "base/text.h"
#include "run/checkpoint/format/safetensors.h"

namespace orrery {

namespace {

std::span<const std::byte> bytes_of(const Tensor& tensor) {
    return {static_cast<const std::byte*>(tensor.data), static_cast<size_t>(tensor.bytes())};
}

std::vector<uint32_t> crcs_of(std::span<const std::span<const std::byte>> parts, int64_t piece_bytes) {
    std::vector<uint32_t> crcs;
    size_t left = 0;  // bytes that the current piece still needs
    for (std::span<const std::byte> part : parts)
        while (!part.empty()) {
            if (left == 0) {
                crcs.push_back(0);
                left = static_cast<size_t>(piece_bytes);
            }
            const size_t count = std::min(left, part.size());
            crcs.back() = crc32c(part.first(count), crcs.back());
            part = part.subspan(count);
            left -= count;
        }
    return crcs;
}

std::string digest_of(std::span<const std::span<const std::byte>> parts) {
    Sha256 digest;
    for (const auto& part : parts) digest.update(part);
    return digest.hex();
}

/// The offset, in elements, of a contiguous part in a row-major local block.
int64_t place_of(const Block& part, const Block& local) {
    int64_t at = 0;
    for (size_t dim = 0; dim < local.shape.size(); ++dim)
        at = at * local.shape[dim] + part.offset[dim] - local.offset[dim];
    return at;
}

}  // namespace

std::string vote_of(const StateValue& value) {
    const std::span<const std::byte> local = bytes_of(value.local);
    return sha256(fmt::format("{}", fmt::join(crcs_of({&local, 1}, 1 << 20), " ")));
}

ManifestObject described(std::string key, int64_t rank, int64_t step, std::span<const std::span<const std::byte>> parts,
                         int64_t piece_bytes) {
    int64_t bytes = 0;
    for (const auto& part : parts) bytes += static_cast<int64_t>(part.size());
    return {std::move(key), rank, bytes, digest_of(parts), crcs_of(parts, piece_bytes), step};
}

Manifest manifest_of(std::span<const StateValue> state, const RankIndex& index) {
    Manifest manifest;
    manifest.step = index.step;
    manifest.piece_bytes = index.piece_bytes;
    for (const StateValue& value : state) manifest.tensors.push_back({value.name, value.global});
    manifest.arrange();
    add_index(manifest, index);
    manifest.arrange();
    return manifest;
}

ObjectWriter::ObjectWriter(CheckpointStore& store, int64_t step, int64_t rank, int64_t object_bytes,
                           int64_t piece_bytes, const WrittenStep* before)
    : store_(store), object_bytes_(object_bytes), before_(before), links_(before && store.contract().links) {
    index_.step = step;
    index_.rank = entry_.rank = rank;
    index_.piece_bytes = piece_bytes;
}

void ObjectWriter::write(std::span<const StateValue> state, const std::vector<Share>& shares,
                         const std::vector<std::string>& votes) {
    state_ = state;
    for (size_t i = 0; i < state.size(); ++i) votes_[state[i].name] = votes[i];
    for (const bool fixed : {true, false}) {
        for (size_t i = 0; i < state.size(); ++i)
            if (state[i].fixed == fixed)
                for (const Block& box : shares[i].blocks) add(state[i], shares[i].local, box);
        close();
    }
    if (index_.objects.empty()) return;
    entry_ = put_index(store_, index_);
}

void ObjectWriter::add(const StateValue& value, const Block& local, const Block& box) {
    std::string name = stored_name(value.name, held_[value.name]);
    if (stored_.count(name) > 0) {  // another tensor has the name "w#1", which a second shard of w would get
        close();
        name = value.name;
    }
    ++held_[value.name];
    stored_[name] = true;
    const int64_t at = place_of(box, local) * size_of(value.local.dtype);
    open_.push_back(
        {&value, box, {static_cast<std::byte*>(value.local.data) + at, value.local.dtype, box.shape}, name});
    open_bytes_ += open_.back().tensor.bytes();
    if (open_bytes_ >= object_bytes_) close();
}

void ObjectWriter::close() {
    if (open_.empty()) return;
    const std::string key = fmt::format("rank-{:05}-{:03}.safetensors", index_.rank, index_.objects.size());
    const auto object = static_cast<int64_t>(index_.objects.size());
    std::vector<NamedTensor> named;
    std::vector<std::span<const std::byte>> parts{{}};  // bytes of the header, then of each tensor, without copies
    for (const Part& part : open_) {
        named.push_back({part.name, part.tensor});
        parts.push_back(bytes_of(part.tensor));
    }
    std::vector<std::byte> start;
    const auto begin_for = [&](int64_t step) {
        const std::pair<std::string, std::string> says{step_key, std::to_string(step)};
        start = safetensors_start(named, {&says, 1});
        parts[0] = start;
    };
    const ManifestObject* earlier = nullptr;
    if (links_)
        for (const ManifestObject& one : before_->index.objects)
            if (one.key == key) earlier = &one;
    if (earlier) {
        begin_for(earlier->written);
        if (!same_parts(*earlier, static_cast<int64_t>(start.size())) || digest_of(parts) != earlier->sha256 ||
            !sound(*earlier))
            earlier = nullptr;
    }
    if (!earlier) begin_for(index_.step);
    int64_t at = static_cast<int64_t>(start.size());
    for (const Part& part : open_) {
        const auto [place, fresh] = names_.try_emplace(part.value->name, index_.tensors.size());
        if (fresh) index_.tensors.push_back(part.value->name);
        index_.shards.push_back({place->second, object, at, part.box});
        at += part.tensor.bytes();
    }
    if (earlier) {
        index_.objects.push_back(*earlier);
        store_.link(index_.step, key, before_->index.step, key);
        linked_bytes_ += open_bytes_;
    } else {
        index_.objects.push_back(described(key, index_.rank, index_.step, parts, index_.piece_bytes));
        store_.put_parts(index_.step, key, parts);
    }
    data_bytes_ += open_bytes_;
    open_.clear(), held_.clear(), stored_.clear();
    open_bytes_ = 0;
}

/// Whether the object that is being filled has the same shards as an object of the previous step, and their values have
/// the same digests.
bool ObjectWriter::same_parts(const ManifestObject& earlier, int64_t start) const {
    const RankIndex& before = before_->index;
    const auto number = &earlier - before.objects.data();
    int64_t at = start;
    size_t next = 0;
    for (const RankIndex::Shard& shard : before.shards) {
        if (shard.object != number) continue;
        if (next == open_.size()) return false;
        const Part& part = open_[next++];
        const std::string& name = part.value->name;
        const auto vote = before_->votes.find(name);
        if (before.tensors[shard.tensor] != name || shard.box != part.box || shard.begin != at ||
            vote == before_->votes.end() || vote->second != votes_.at(name))
            return false;
        at += part.tensor.bytes();
    }
    return next == open_.size() && at == earlier.bytes;
}

/// Reads an object of the previous step before the new step links to it, since its damage would damage the new step,
/// too. Returns false if the object is missing, damaged or not readable.
bool ObjectWriter::sound(const ManifestObject& earlier) {
    bool sound = false;
    try {
        const Manifest manifest = manifest_of(state_, before_->index);
        const auto number = &earlier - before_->index.objects.data();
        sound = ObjectReader(store_, manifest, number).verify(false).empty();
    } catch (const Error&) {
        // An object that cannot be read is treated like a damaged one.
    }
    unsound_ = unsound_ || !sound;
    return sound;
}

}  // namespace orrery

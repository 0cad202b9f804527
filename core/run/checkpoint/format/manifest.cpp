#include "run/checkpoint/format/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "run/checkpoint/format/problem_of.h"
#include "run/checkpoint/format/rank_index.h"
#include "run/checkpoint/format/tiling.h"

namespace orrery {

namespace {

constexpr const char* format_name = "orrery checkpoint";
constexpr int64_t most_ranks = int64_t{1} << 24;

Json json_of(const Manifest& manifest) {
    Json axes = Json::array(), tensors = Json::array(), indexes = Json::array();
    for (const Axis& axis : manifest.axes.axes()) axes.push_back(Json::array({axis.name, axis.size}));
    for (const ManifestTensor& tensor : manifest.tensors) {
        Json entry = {{"name", tensor.name}, {"dtype", name_of(tensor.type.dtype)}, {"shape", tensor.type.shape}};
        entry["splits"] = tensor.splits.splits();
        if (!tensor.stages.empty()) entry["stages"] = tensor.stages;
        tensors.push_back(std::move(entry));
    }
    for (const IndexEntry& index : manifest.indexes)
        indexes.push_back(Json::array({index.rank, index.bytes, index.sha256}));
    Json json = {{"format", format_name},
                 {"version", Manifest::version},
                 {"orrery", ORRERY_VERSION},
                 {"step", manifest.step},
                 {"mesh", manifest.mesh}};
    json["axes"] = std::move(axes);
    if (manifest.stage_axis != none) json["stage_axis"] = manifest.stage_axis;
    json["host"] = parse_json(manifest.host, {"", "the host's part of the manifest", 0, 0});
    json["piece_bytes"] = manifest.piece_bytes;
    json["tensors"] = std::move(tensors);
    json["indexes"] = std::move(indexes);
    return json;
}

ManifestTensor tensor_of(const Json& entry) {
    ManifestTensor tensor{entry.at("name"), {}};
    const std::string what = "tensor " + quote(tensor.name);
    const auto dtype = parse_dtype(entry.at("dtype").get<std::string>());
    if (!dtype) throw Error(what + " has an unknown dtype");
    tensor.type = {*dtype, shape_of(entry.at("shape"), what + ": its shape")};
    try {
        tensor.type.bytes();
    } catch (const Error& problem) {
        throw Error(what + ": " + problem.what());
    }
    return tensor;
}

Mesh axes_of(const Json& list) {
    constexpr size_t most = 16;
    std::vector<Axis> axes;
    int64_t ranks = 1;
    if (!list.is_array() || list.size() > most) throw Error("its mesh is not a list of at most 16 axes");
    for (const Json& entry : list) {
        if (!entry.is_array() || entry.size() != 2) throw Error("an axis of its mesh is not a pair of name and size");
        axes.push_back({entry[0].get<std::string>(), whole_number(entry[1], "the size of an axis"), false});
        if (__builtin_mul_overflow(ranks, axes.back().size, &ranks) || ranks > most_ranks)
            throw Error("its mesh has more ranks than the maximum");
    }
    return Mesh(axes);
}

/// Fills the tensor's layout and stages from its JSON. Throws Error if they do not fit the manifest's mesh.
void read_place(const Manifest& manifest, const Json& entry, ManifestTensor& tensor) {
    const auto axes = static_cast<int64_t>(manifest.axes.axes().size());
    const size_t dims = tensor.type.shape.size();
    tensor.splits = Layout(dims);
    std::set<int64_t> used;
    const Json& splits = entry.at("splits");
    if (!splits.is_array() || (!splits.empty() && splits.size() != dims)) throw Error("its splits are not one a dim");
    for (size_t dim = 0; dim < splits.size(); ++dim)
        for (const Json& item : splits[dim]) {
            const int64_t axis = whole_number(item, "an axis that splits it");
            if (axis >= axes || !used.insert(axis).second)
                throw Error(fmt::format("invalid split over axis {}: it is used twice, or the mesh has only {} axes",
                                        axis, axes));
            tensor.splits.set(static_cast<AxisId>(axis), Placement::split(static_cast<int>(dim)));
        }
    tensor.splits.local_shape(tensor.type.shape, manifest.axes);  // throws unless the axes divide the shape
    if (!entry.contains("stages")) return;
    if (manifest.stage_axis == none) throw Error("it lists pipeline stages, but the mesh has no pipeline axis");
    for (const Json& item : entry["stages"]) {
        const int64_t stage = whole_number(item, "a stage of it");
        if (stage >= manifest.axes.size(manifest.stage_axis) ||
            (!tensor.stages.empty() && stage <= tensor.stages.back()))
            throw Error("its pipeline stages are out of range or not in ascending order");
        tensor.stages.push_back(stage);
    }
}

void read_root(Manifest& manifest, const Json& json) {
    manifest.axes = axes_of(json.at("axes"));
    if (json.contains("stage_axis")) {
        const int64_t axis = whole_number(json["stage_axis"], "its axis of stages");
        if (axis >= static_cast<int64_t>(manifest.axes.axes().size())) throw Error("its axis of stages is none");
        manifest.stage_axis = static_cast<AxisId>(axis);
    }
    for (const Json& entry : json.at("tensors")) {
        ManifestTensor& tensor = manifest.tensors.emplace_back(tensor_of(entry));
        try {
            read_place(manifest, entry, tensor);
        } catch (const Error& problem) {
            throw Error("tensor " + quote(tensor.name) + ": " + problem.what());
        }
    }
    const int64_t ranks = manifest.axes.ranks();
    for (const Json& entry : json.at("indexes")) {
        if (!entry.is_array() || entry.size() != 3)
            throw Error("an entry of indexes is not a list of rank, bytes and digest");
        IndexEntry index{whole_number(entry[0], "the rank of an index"), whole_number(entry[1], "an index's bytes"),
                         entry[2].get<std::string>()};
        if (index.rank >= ranks || (!manifest.indexes.empty() && index.rank <= manifest.indexes.back().rank))
            throw Error("the ranks of its indexes are out of range or not in ascending order");
        if (index.bytes > Manifest::longest)
            throw Error(fmt::format("{} has {} bytes, more than the maximum of an index", index.key(), index.bytes));
        manifest.indexes.push_back(std::move(index));
    }
}

/// Throws Error unless a tensor's shards cover each element exactly once: digests that match do not prove it.
void check_tensor(const Manifest& manifest, const ManifestTensor& tensor) {
    int64_t elements = 0;
    std::vector<Block> boxes;
    for (const ManifestShard& shard : tensor.shards) {
        check_shard(manifest, tensor, shard);
        boxes.push_back(shard.box);
        if (__builtin_add_overflow(elements, shard.box.count(), &elements)) throw Error("its shards overlap");
    }
    if (elements != tensor.type.count())
        throw Error(fmt::format("it has {} elements, but its shards have {} elements", tensor.type.count(), elements));
    if (byte_count(tensor.type.dtype, tensor.type.shape) > 0 && !tiling_of(tensor.type.shape, boxes).exact)
        throw Error("its shards overlap");  // element counts are equal, so that a hole means an overlap, too
}

/// Throws Error unless a tensor's shards cover each element of the block `part` exactly once. Ignores other elements.
void check_part(const ManifestTensor& tensor, const Block& part) {
    int64_t elements = 0;
    std::vector<Block> boxes;
    for (const ManifestShard& shard : tensor.shards) {
        std::optional<Block> box = intersect(part, shard.box);
        if (!box) continue;
        for (size_t dim = 0; dim < box->offset.size(); ++dim) box->offset[dim] -= part.offset[dim];
        if (__builtin_add_overflow(elements, box->count(), &elements)) throw Error("its shards overlap");
        boxes.push_back(*std::move(box));
    }
    if (elements != part.count())
        throw Error(fmt::format("its part of {} elements at {} is incomplete: its shards have {} elements",
                                part.count(), part.text(), elements));
    if (elements > 0 && !tiling_of(part.shape, boxes).exact) throw Error("its shards overlap");
}

template <class Check>
void check_named(const ManifestTensor& tensor, Check check) {
    try {
        check();
    } catch (const Error& problem) {
        throw Error("tensor " + quote(tensor.name) + ": " + problem.what());
    }
}

/// In each dim of a tensor, the numbers of the first and last of its blocks that overlap a wanted block.
using Touched = std::vector<std::pair<int64_t, int64_t>>;

Touched touched_by(const Manifest& manifest, const ManifestTensor& tensor, const Block& box) {
    const Shape local = tensor.splits.local_shape(tensor.type.shape, manifest.axes);
    Touched touched;
    for (size_t dim = 0; dim < local.size(); ++dim) {
        const int64_t size = std::max<int64_t>(1, local[dim]), end = box.offset[dim] + box.shape[dim];
        touched.emplace_back(box.offset[dim] / size, std::max(box.offset[dim], end - 1) / size);
    }
    return touched;
}

/// For each entry of manifest.indexes, whether its rank may have written a part of a wanted block. Many tensors have
/// the same layout, so each distinct combination of layout, stages and range is compared with the ranks once.
std::vector<bool> writers_of(const Manifest& manifest, std::span<const Wanted> wanted) {
    std::vector<std::vector<int64_t>> coordinates;
    for (const IndexEntry& index : manifest.indexes) coordinates.push_back(manifest.axes.coordinates(index.rank));
    std::vector<bool> needed(manifest.indexes.size(), false);
    std::set<std::tuple<std::vector<std::vector<AxisId>>, std::vector<int64_t>, Touched>> ways;
    for (const Wanted& want : wanted) {
        const ManifestTensor* const tensor = manifest.find(want.name);
        if (!tensor || tensor->type.shape.size() != want.box.shape.size()) continue;
        const auto& splits = tensor->splits.splits();
        const std::vector<int64_t>& stages = tensor->stages;
        const Touched touched = touched_by(manifest, *tensor, want.box);
        if (!ways.emplace(splits, stages, touched).second) continue;
        const auto touches = [&](const std::vector<int64_t>& at) {
            if (!stages.empty() &&
                !std::binary_search(stages.begin(), stages.end(), at[static_cast<size_t>(manifest.stage_axis)]))
                return false;
            for (size_t dim = 0; dim < splits.size(); ++dim) {
                int64_t block = 0;
                for (const AxisId axis : splits[dim])
                    block = block * manifest.axes.size(axis) + at[static_cast<size_t>(axis)];
                if (block < touched[dim].first || block > touched[dim].second) return false;
            }
            return true;
        };
        for (size_t i = 0; i < needed.size(); ++i) needed[i] = needed[i] || touches(coordinates[i]);
    }
    return needed;
}

Manifest parsed(std::string_view text) {
    if (static_cast<int64_t>(text.size()) > Manifest::longest)
        throw Error(fmt::format("it has {} bytes, more than the maximum of a manifest", text.size()));
    Json json = parse_json(text, {});
    if (!json.is_object() || !json.contains("format") || json["format"] != format_name)
        throw Error("it is not a checkpoint manifest");
    Manifest manifest;
    const int64_t version = whole_number(json.at("version"), "its version");
    if (version < Manifest::version)
        throw Error(
            fmt::format("unsupported version {}: this orrery no longer reads it, commit 5b67068 does", version));
    if (version > Manifest::version)
        throw Error(fmt::format("unsupported version {}: orrery {} reads up to version {}; use a newer orrery", version,
                                ORRERY_VERSION, Manifest::version));
    const auto digest = json.at("digest").get<std::string>();
    json.erase("digest");
    if (sha256(json.dump()) != digest) throw Error("the manifest is damaged: its contents do not match its digest");
    manifest.step = whole_number(json.at("step"), "its step");
    if (manifest.step > Manifest::last_step)
        throw Error(fmt::format("it is for step {}, the maximum step is {}", manifest.step, Manifest::last_step));
    manifest.mesh = json.at("mesh");
    manifest.host = json.at("host").dump();
    manifest.piece_bytes = whole_number(json.at("piece_bytes"), "piece_bytes");
    if (manifest.piece_bytes < 1) throw Error("piece_bytes must be positive");
    read_root(manifest, json);
    manifest.arrange();
    return manifest;
}

/// Adds the indexes that are marked in `needed` to the manifest, then runs `check`. Throws Damaged.
template <class Check>
void add_indexes(CheckpointStore& store, Manifest& manifest, const std::vector<bool>& needed, Check check) {
    for (size_t i = 0; i < needed.size(); ++i) {
        if (!needed[i]) continue;
        const RankIndex index = index_of(store, manifest, manifest.indexes[i]);
        try {
            add_index(manifest, index);
        } catch (const Error& problem) {
            throw Damaged(fmt::format("step {}, {}", manifest.step, problem.what()));
        }
    }
    try {
        check();
        manifest.arrange();
    } catch (const Error& problem) {
        throw Damaged(fmt::format("step {}, indexes: {}", manifest.step, problem.what()));
    }
}

}  // namespace

std::string IndexEntry::key() const { return RankIndex::key(rank); }

void Manifest::arrange() {
    held.assign(objects.size(), {});
    places.clear();
    for (size_t i = 0; i < tensors.size(); ++i) {
        if (!places.emplace(tensors[i].name, i).second) throw Error("two tensors are called " + quote(tensors[i].name));
        for (size_t j = 0; j < tensors[i].shards.size(); ++j)
            held[static_cast<size_t>(tensors[i].shards[j].object)].emplace_back(i, j);
    }
    const auto key = [&](const std::pair<size_t, size_t>& at) {
        const ManifestShard& shard = tensors[at.first].shards[at.second];
        return std::tuple(shard.begin, shard.box.count() > 0, std::string_view(tensors[at.first].name));
    };
    for (auto& list : held)
        std::sort(list.begin(), list.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
}

std::string Manifest::text() const {
    try {
        Json json = json_of(*this);
        json["digest"] = sha256(json.dump());
        return json.dump();
    } catch (const Json::exception& problem) {
        throw Error("the manifest cannot be written: " + reason_of(problem));
    }
}

Manifest Manifest::parse(std::string_view text, const std::string& place) {
    const Origin where{"", place, 0, 0};
    try {
        return parsed(text);
    } catch (const Error& problem) {
        throw Damaged(where, problem.what());
    } catch (const Json::exception& problem) {
        throw Damaged(where, "the manifest is damaged: " + reason_of(problem));
    }
}

Manifest Manifest::root_of(CheckpointStore& store, int64_t step) {
    if (step > last_step) throw Damaged(fmt::format("step {}: the maximum step is {}", step, last_step));
    Manifest manifest = parse(store.manifest(step), fmt::format("step {}, manifest", step));
    if (manifest.step != step)
        throw Damaged(fmt::format("step {}: its manifest is for step {}: the checkpoint was copied or renamed", step,
                                  manifest.step));
    return manifest;
}

Manifest Manifest::of(CheckpointStore& store, int64_t step) {
    Manifest manifest = root_of(store, step);
    add_indexes(store, manifest, std::vector<bool>(manifest.indexes.size(), true), [&] {
        for (const ManifestTensor& tensor : manifest.tensors)
            check_named(tensor, [&] { check_tensor(manifest, tensor); });
    });
    return manifest;
}

void Manifest::load(CheckpointStore& store, std::span<const Wanted> wanted) {
    add_indexes(store, *this, writers_of(*this, wanted), [&] { check_cover(wanted); });
}

void Manifest::check_cover(std::span<const Wanted> wanted) const {
    for (const Wanted& want : wanted)
        if (const ManifestTensor* tensor = find(want.name);
            tensor && tensor->type.shape.size() == want.box.shape.size())
            check_named(*tensor, [&] { check_part(*tensor, want.box); });
}

const ManifestTensor* Manifest::find(std::string_view name) const {
    const auto place = places.find(name);
    return place == places.end() ? nullptr : &tensors[place->second];
}

std::string of_step(int64_t step, const std::string& problem) {
    const std::string name = fmt::format("step {}", step);
    return problem.empty() || problem.starts_with(name) ? problem : name + ": " + problem;
}

bool has_step(CheckpointStore& store, int64_t step) {
    const std::vector<int64_t> steps = store.steps();
    return std::find(steps.begin(), steps.end(), step) != steps.end();
}

std::string damage_of(CheckpointStore& store, int64_t step) {
    try {
        const Manifest manifest = Manifest::of(store, step);
        for (size_t i = 0; i < manifest.objects.size(); ++i) {
            std::string problem = ObjectReader(store, manifest, static_cast<int64_t>(i)).verify();
            if (!problem.empty()) return problem;
        }
    } catch (const Damaged& problem) {
        return problem.what();
    }
    return "";
}

}  // namespace orrery

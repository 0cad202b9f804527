#include "run/checkpoint/retain/copy.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "base/text.h"
#include "layout/shards.h"
#include "run/checkpoint/format/block_reader.h"
#include "run/checkpoint/format/manifest.h"
#include "run/checkpoint/format/object_writer.h"
#include "run/checkpoint/format/rank_index.h"
#include "run/checkpoint/format/safetensors.h"

namespace orrery {
namespace {

class Objects {
public:
    Objects(CheckpointStore& to, Manifest& manifest, const CopyOptions& options)
        : to_(to), manifest_(manifest), options_(options) {}

    /// Adds a block of a tensor to the current object. Returns the block's memory, for the caller to fill.
    std::span<std::byte> add(size_t tensor, const Block& box) {
        const TensorType type{manifest_.tensors[tensor].type.dtype, box.shape};
        Part& part = open_.emplace_back(Part{tensor, box, std::vector<std::byte>(static_cast<size_t>(type.bytes()))});
        bytes_ += type.bytes();
        return part.bytes;
    }

    bool full() const { return bytes_ >= options_.object_bytes; }

    void close(int64_t rank) {
        if (open_.empty()) return;
        std::vector<NamedTensor> named;
        for (Part& part : open_) {
            const ManifestTensor& tensor = manifest_.tensors[part.tensor];
            named.push_back({tensor.name, {part.bytes.data(), tensor.type.dtype, part.box.shape}});
        }
        const std::pair<std::string, std::string> step{step_key, std::to_string(manifest_.step)};
        const std::vector<std::byte> start = safetensors_start(named, {&step, 1});
        int64_t at = static_cast<int64_t>(start.size());
        std::vector<std::span<const std::byte>> parts{start};
        for (const Part& part : open_) {
            manifest_.tensors[part.tensor].shards.push_back(
                {static_cast<int64_t>(manifest_.objects.size()), at, part.box});
            at += static_cast<int64_t>(part.bytes.size());
            parts.push_back(part.bytes);
        }
        manifest_.objects.push_back(described(key(rank), rank, manifest_.step, parts, options_.piece_bytes));
        to_.put_parts(manifest_.step, manifest_.objects.back().key, parts);
        open_.clear();
        bytes_ = 0;
    }

private:
    struct Part {
        size_t tensor;
        Block box;
        std::vector<std::byte> bytes;
    };

    std::string key(int64_t rank) {
        if (rank != rank_) number_ = 0;
        rank_ = rank;
        return fmt::format("rank-{:05}-{:03}.safetensors", rank, number_++);
    }

    CheckpointStore& to_;
    Manifest& manifest_;
    const CopyOptions& options_;
    std::vector<Part> open_;
    int64_t bytes_ = 0, rank_ = -1, number_ = 0;
};

/// Copies a step's objects and indexes unchanged. Compares each piece of an object with its checksum, and each object
/// with its digest and header.
void put_same(CheckpointStore& from, const Manifest& manifest, CheckpointStore& to) {
    for (size_t i = 0; i < manifest.objects.size(); ++i) {
        const ManifestObject& object = manifest.objects[i];
        ObjectReader reader(from, manifest, static_cast<int64_t>(i));
        reader.check_header();  // also compares the object's size, before memory of that size is allocated
        std::vector<std::byte> bytes(static_cast<size_t>(object.bytes));
        reader.read(0, bytes, "");
        if (sha256(bytes) != object.sha256)
            throw Damaged(fmt::format("step {}, {} is damaged: its SHA-256 does not match the manifest", manifest.step,
                                      object.key));
        to.put(manifest.step, object.key, bytes);
    }
    for (const IndexEntry& entry : manifest.indexes) {
        std::vector<std::byte> bytes(static_cast<size_t>(entry.bytes));  // Manifest::of has checked the index's digest
        from.get(manifest.step, entry.key(), 0, bytes);
        to.put(manifest.step, entry.key(), bytes);
    }
}

/// Calls `visit(rank, tensor, block)` for each tensor block on `mesh`, for the lowest rank that holds it, by rank.
template <class Visit>
void for_blocks(const Manifest& manifest, const Mesh& mesh, Visit visit) {
    std::vector<Layout> layouts;
    for (const ManifestTensor& tensor : manifest.tensors)
        layouts.push_back(layout_on(tensor.splits, manifest.axes, tensor.type.shape, mesh));
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
        for (size_t i = 0; i < layouts.size(); ++i)
            if (first_holder(layouts[i], mesh, rank))
                visit(rank, i, block_of(layouts[i], manifest.tensors[i].type.shape, mesh, rank));
}

std::string put_resharded(CheckpointStore& from, const Manifest& manifest, CheckpointStore& to, const Mesh& mesh,
                          const CopyOptions& options) {
    Manifest made;
    made.step = manifest.step, made.mesh = mesh.text(), made.host = manifest.host;
    made.piece_bytes = options.piece_bytes;
    made.axes = mesh;
    for (const ManifestTensor& tensor : manifest.tensors) {
        const Layout layout = layout_on(tensor.splits, manifest.axes, tensor.type.shape, mesh);
        made.tensors.push_back({tensor.name, tensor.type, {}, layout});
    }
    for (size_t i = 0; i < manifest.objects.size(); ++i)  // checked before memory of sizes in the manifest is allocated
        ObjectReader(from, manifest, static_cast<int64_t>(i)).check_header();
    Objects objects(to, made, options);
    BlockReader reader(from, manifest);
    int64_t last = 0;
    for_blocks(manifest, mesh, [&](int64_t rank, size_t tensor, const Block& box) {
        if (rank != last || objects.full()) objects.close(last);
        last = rank;
        reader.read(manifest.tensors[tensor], box, objects.add(tensor, box));
    });
    objects.close(last);
    for (const RankIndex& index : indexes_of(made)) made.indexes.push_back(put_index(to, index));
    return made.text();
}

StepCopy look(const Manifest& manifest, const std::optional<Mesh>& mesh) {
    StepCopy copy;
    if (!mesh) {
        for (const ManifestObject& object : manifest.objects) ++copy.objects, copy.bytes += object.bytes;
        return copy;
    }
    copy.resharded = true;
    for_blocks(manifest, *mesh, [&](int64_t, size_t tensor, const Block& box) {
        copy.bytes += byte_count(manifest.tensors[tensor].type.dtype, box.shape);
    });
    return copy;
}

/// Discards an unfinished copy. Ignores errors, because the caller has a more important one to throw.
void drop(CheckpointStore& to, int64_t step) {
    try {
        to.discard(step);
    } catch (const Error&) {  // the next copy or commit in that store discards the unfinished copy
    }
}

}  // namespace

Layout layout_on(const Layout& split, const Mesh& from, const Shape& shape, const Mesh& mesh) {
    Layout layout(shape.size());
    for (size_t dim = 0; dim < shape.size(); ++dim) {
        int64_t parts = 1;
        for (const AxisId of : split.splits()[dim]) {
            const auto axis = mesh.find(from.axis(of).name);
            if (!axis || shape[dim] % (parts * mesh.size(*axis)) != 0) continue;
            parts *= mesh.size(*axis);
            layout.set(*axis, Placement::split(static_cast<int>(dim)));
        }
    }
    return layout;
}

namespace {

/// The suspect mark of a step; its earlier mark `before` if the step was removed meanwhile.
std::string mark_of(CheckpointStore& from, int64_t step, const std::string& before) {
    try {
        return from.mark_of(step);
    } catch (const Error&) {
        if (has_step(from, step)) throw;
        return before;
    }
}

void write_there(CheckpointStore& from, const Manifest& manifest, CheckpointStore& to, const StepCopy& copy,
                 const CopyOptions& options) {
    const int64_t step = manifest.step;
    if (const int64_t free = to.free_bytes(); free >= 0 && free < copy.bytes)
        throw Error(fmt::format("not enough space: {} has {} free, but step {} of {} needs {}\n  free space there, or "
                                "choose another destination",
                                to.place(), bytes_text(free), step, from.place(), bytes_text(copy.bytes)),
                    Fault::failed);
    to.discard(step);
    try {
        std::string text = from.manifest(step);
        if (copy.resharded)
            text = put_resharded(from, manifest, to, *options.mesh, options);
        else
            put_same(from, manifest, to);
        to.flush(step);
        to.commit(step, text);
    } catch (...) {
        drop(to, step);
        throw;
    }
}

/// Whether the step in `to` is a copy of the step of `manifest`, for the mesh `resharded` if that is given.
bool is_copy(CheckpointStore& from, const Manifest& manifest, CheckpointStore& to, const Mesh* resharded) {
    if (!resharded) return to.manifest(manifest.step) == from.manifest(manifest.step);
    const Manifest there = Manifest::root_of(to, manifest.step);
    return there.mesh == resharded->text() && there.host == manifest.host;
}

StepCopy copy_there(CheckpointStore& from, int64_t step, CheckpointStore& to, const CopyOptions& options) {
    const bool there = has_step(to, step);
    const Error exists(fmt::format("step {} already exists in {}\n  remove it there, or choose another destination",
                                   step, to.place()));
    if (there && !options.finishes) throw exists;
    const Manifest manifest = Manifest::of(from, step);
    const std::string marked = from.mark_of(step);
    const bool resharded = options.mesh && options.mesh->text() != manifest.mesh;
    StepCopy copy = look(manifest, resharded ? options.mesh : std::nullopt);
    if (there && !is_copy(from, manifest, to, resharded ? &*options.mesh : nullptr)) throw exists;
    if (options.only_look) return copy;
    if (!there) write_there(from, manifest, to, copy, options);
    if (const std::string damage = damage_of(to, step); !damage.empty()) {
        std::string left;
        try {
            to.remove(step);
        } catch (const Error& failure) {
            left = failure.what();
        }
        throw Error(fmt::format("the copy in {} could not be read back: {}\n  it {}", to.place(), damage,
                                left.empty() ? "was removed" : "could not be removed: " + left),
                    Fault::failed);
    }
    if (const std::string mark = mark_of(from, step, marked); !mark.empty()) to.mark(step, mark);
    const Manifest made = Manifest::of(to, step);
    copy.objects = static_cast<int64_t>(made.objects.size());
    copy.bytes = 0;
    for (const ManifestObject& object : made.objects) copy.bytes += object.bytes;
    return copy;
}

}  // namespace

StepCopy copy_step(CheckpointStore& from, int64_t step, CheckpointStore& to, const CopyOptions& options) {
    const bool there = has_step(from, step);
    try {
        return copy_there(from, step, to, options);
    } catch (const Error&) {  // a step that is removed while it is read looks damaged
        if (!there || has_step(from, step)) throw;
    }
    throw Error(
        fmt::format("step {} in {} was removed before it was copied\n  a running job removes old steps there: pin the "
                    "step first, or copy a newer one",
                    step, from.place()));
}

}  // namespace orrery

#include "run/export/published_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "compile/islands.h"
#include "run/checkpoint/format/tiling.h"
#include "run/export/convert.h"

namespace orrery {

namespace {

/// A param in the checkpoint, and its shape without rows of islands.
struct StoredParam {
    const ManifestTensor* tensor = nullptr;
    Shape shape = {};
};

StoredParam param_of(const Manifest& manifest, const WeightSource& source, bool islands) {
    const ManifestTensor* param = manifest.find(source.param);
    const ManifestTensor* const outer = islands ? manifest.find(source.param + std::string(outer_ending)) : nullptr;
    if (param && outer && outer->type == param->type) param = outer;
    if (param == nullptr)
        throw Error(
            fmt::format("export: the checkpoint of step {} has no param {}\n  the checkpoint and the record of "
                        "the published model are from different scripts",
                        manifest.step, source.param));
    Shape shape = param->type.shape;
    if (islands && !shape.empty()) shape.erase(shape.begin());
    const size_t rank = shape.size();
    if (!is_exported(param->type.dtype) || (source.transpose && rank > 3) || (source.stacked && rank == 0))
        throw Error(fmt::format("export: param {} is {}, expected f32, bf16 or f16{}", source.param, param->type.text(),
                                source.transpose ? " with at most three dims"
                                : source.stacked ? " with a dim"
                                                 : ""));
    return {param, std::move(shape)};
}

struct NamedPiece {
    std::string tensor;
    TensorPiece piece;
};

/// Returns the pieces that a param is stored in: one for each index of its first dim if it is stacked, or if it is a
/// stack of matrices that are transposed.
std::vector<NamedPiece> pieces_of(const Manifest& manifest, const WeightSource& source, bool islands) {
    const StoredParam stored = param_of(manifest, source, islands);
    TensorPiece piece;
    piece.param = stored.tensor;
    piece.rows = islands;
    const Shape& whole = stored.shape;
    Shape shape = source.stored_shape(whole), offset(shape.size(), 0);
    piece.transpose = source.transpose && shape.size() >= 2;
    const auto cut = [&](int dim, int64_t least, int64_t most) {
        const bool fits = static_cast<size_t>(dim) < shape.size() && least <= shape[static_cast<size_t>(dim)] &&
                          shape[static_cast<size_t>(dim)] <= most;
        if (!fits)
            throw Error(
                fmt::format("export: param {} is {} in the checkpoint of step {}, which does not match "
                            "tensor {} of the published model",
                            source.param, piece.param->type.text(), manifest.step, source.tensor));
    };
    if (source.dim >= 0) {
        cut(source.dim, source.size, source.size);
        offset[static_cast<size_t>(source.dim)] = source.start;
    }
    if (source.stride > 1) {
        if (source.transpose || shape.size() < 2 || static_cast<size_t>(source.dim) + 1 != shape.size() ||
            source.start >= source.stride)
            throw Error(
                fmt::format("export: param {} is interleaved in tensor {}, which can be written only along the "
                            "last of several dims, without transpose",
                            source.param, source.tensor));
        offset.back() = 0, shape.back() *= source.stride;
        piece.interleaved.resize(static_cast<size_t>(source.stride));
        piece.interleaved[static_cast<size_t>(source.start)] = piece.param;
    }
    if (source.padded >= 0) {
        cut(source.padded, source.rows, INT64_MAX);
        shape[static_cast<size_t>(source.padded)] = source.rows;
    }
    const bool matrices = piece.transpose && shape.size() == 3;
    if (!source.stacked && !matrices) {
        piece.place = {offset, shape};
        return {{source.tensor, piece}};
    }
    std::vector<NamedPiece> pieces;
    if (matrices) shape[0] = 1;
    for (piece.index = 0; piece.index < whole[0]; ++piece.index) {
        piece.place = {offset, shape};
        if (matrices) piece.place.offset[0] += piece.index;
        pieces.push_back({source.tensor_at(piece.index), piece});
    }
    return pieces;
}

/// Adds a piece to a tensor: to the piece that its params are interleaved with, if there is one.
void add_piece(OutTensor& tensor, TensorPiece piece) {
    const auto with = std::ranges::find_if(tensor.pieces, [&](const TensorPiece& one) {
        return !piece.interleaved.empty() && one.interleaved.size() == piece.interleaved.size() &&
               one.index == piece.index && one.place.shape == piece.place.shape &&
               one.place.offset == piece.place.offset;
    });
    if (with == tensor.pieces.end()) {
        tensor.pieces.push_back(std::move(piece));
        return;
    }
    for (size_t i = 0; i < piece.interleaved.size(); ++i)
        if (piece.interleaved[i] != nullptr) std::swap(with->interleaved[i], piece.interleaved[i]);
}

/// Returns the shape of the tensor that the pieces form. Throws Error if they overlap or leave a hole.
Shape shape_of(const OutTensor& tensor) {
    Shape shape(tensor.pieces.front().place.shape.size(), 0);
    std::vector<Block> boxes;
    std::string params;
    bool fits = true;
    for (const TensorPiece& piece : tensor.pieces) {
        params += (params.empty() ? "" : ", ") + piece.param->name + " at " + piece.place.text();
        boxes.push_back(piece.place);
        fits = fits && std::ranges::find(piece.interleaved, nullptr) == piece.interleaved.end() &&
               piece.place.shape.size() == shape.size();
        for (size_t dim = 0; fits && dim < shape.size(); ++dim)
            shape[dim] = std::max(shape[dim], piece.place.offset[dim] + piece.place.shape[dim]);
    }
    int64_t elements = 0;
    for (const Block& box : boxes) elements += box.count();
    if (!fits || elements != count_of(shape) || (elements > 0 && !tiling_of(shape, boxes).exact))
        throw Error(
            fmt::format("export: the params of tensor {} do not cover it exactly once: {}\n  list each part once "
                        "in the model's tensors()",
                        tensor.name, params));
    return shape;
}

}  // namespace

std::vector<OutTensor> published_tensors(const PublishedRecord& record, const Manifest& manifest, DType dtype) {
    std::vector<OutTensor> tensors;
    std::map<std::string, size_t> places;
    for (const WeightSource& source : record.params) {
        if (source.tensor.empty()) throw Error("export: no published tensor has param " + source.param);
        for (NamedPiece& one : pieces_of(manifest, source, record.islands)) {
            const auto [place, fresh] = places.try_emplace(one.tensor, tensors.size());
            if (fresh) tensors.push_back({one.tensor, {dtype, {}}, {}});
            add_piece(tensors[place->second], std::move(one.piece));
        }
    }
    for (OutTensor& tensor : tensors) tensor.type.shape = shape_of(tensor);
    return tensors;
}

std::vector<OutTensor> own_tensors(const PublishedRecord& record, const Manifest& manifest, DType dtype) {
    std::vector<OutTensor> tensors;
    std::set<std::string> written;
    for (const WeightSource& source : record.params) {
        if (!written.insert(source.param).second) continue;
        WeightSource own;
        own.param = own.tensor = source.param;
        TensorPiece piece = std::move(pieces_of(manifest, own, record.islands).front().piece);
        TensorType type{dtype, piece.place.shape};
        tensors.push_back({source.param, std::move(type), {std::move(piece)}});
    }
    return tensors;
}

std::vector<std::vector<size_t>> files_of(const std::vector<OutTensor>& tensors, int64_t most) {
    std::vector<std::vector<size_t>> files;
    int64_t bytes = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
        const int64_t more = tensors[i].type.bytes();
        if (files.empty() || (bytes > 0 && more > most - bytes)) files.emplace_back(), bytes = 0;
        files.back().push_back(i);
        bytes += more;
    }
    return files;
}

std::string file_name_of(size_t file, size_t files) {
    if (files == 1) return "model.safetensors";
    return fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, files);
}

}  // namespace orrery

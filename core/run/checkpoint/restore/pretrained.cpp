#include "run/checkpoint/restore/pretrained.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "layout/shards.h"
#include "run/checkpoint/restore/decoded.h"

namespace orrery {
namespace {

bool has(const WeightFiles& files, const std::string& tensor) { return !stored_names_of(files, tensor).empty(); }

/// A file with the tensor, or with a part of it.
const std::string& file_with(const WeightFiles& files, const std::string& tensor) {
    return files.file_of(stored_names_of(files, tensor).at(0)).path();
}

/// Throws Error if the files have some tensors of a stacked param and lack others.
void check_all_there(const WeightFiles& files, const Value& param, const WeightSource& source) {
    const std::vector<std::string> names = source.tensors(param.type.shape);
    const auto there = std::ranges::count_if(names, [&](const auto& name) { return has(files, name); });
    if (there == 0 || there == std::ssize(names)) return;
    const auto lacking = std::ranges::find_if(names, [&](const auto& name) { return !has(files, name); });
    throw Error(source.origin,
                fmt::format("{}: no tensor {}: param {} is {} and needs {} of them, for indices 0 to {} along its dim "
                            "{}, but the files have {}\n  give the model the number that the files have, or copy the "
                            "missing files",
                            files.path(), quote(*lacking), param.name, param.type.text(), names.size(),
                            names.size() - 1, param.dims.empty() ? "0" : param.dims[0], there));
}

void check_one(const WeightFiles& files, const Value& param, const WeightSource& source, const std::string& name) {
    const TensorType stored = decoded_type(files, name);
    Shape want = source.stored_shape(param.type.shape);
    if (source.padded >= 0) want[static_cast<size_t>(source.padded)] = source.rows;
    const auto refuse = [&](const std::string& why) {
        throw Error(
            source.origin,
            fmt::format(
                "{}: tensor {} is {}, {}\n  param {} is {}: give the model the sizes of the file, or another file",
                file_with(files, name), name, stored.text(), why, param.name, param.type.text()));
    };
    if (stored.shape.size() != want.size()) refuse(fmt::format("expected {}", text_of(want)));
    for (size_t d = 0; d < want.size(); ++d) {
        const bool cut = static_cast<int>(d) == source.dim;
        const int64_t last = source.start + (source.size - 1) * source.stride;
        if (cut ? last >= stored.shape[d] || source.size != want[d] : stored.shape[d] != want[d])
            refuse(fmt::format("expected {}{}", text_of(want),
                               cut ? fmt::format(" from {} of dim {}", source.start, d) : ""));
    }
}

void check_param(const WeightFiles& files, const Value& param, const WeightSource& source) {
    check_all_there(files, param, source);
    for (const std::string& tensor : source.tensors(param.type.shape)) check_one(files, param, source, tensor);
}

const WeightSource& source_of(std::span<const WeightSource> sources, const Value& param, const std::string& path) {
    for (const WeightSource& source : sources)
        if (source.param == param.name) return source;
    throw Error(param.origin,
                fmt::format("checkpoint.load = {}: the model does not name the tensor of param {} in the file\n"
                            "  add it to the model's tensors()",
                            path, param.name));
}

/// Params, and states that have a source.
std::vector<ValueId> loaded_values(const Program& program, const PublishedWeights& weights) {
    std::vector<ValueId> values = program.params();
    for (const WeightSource& source : weights.sources)
        if (const auto id = program.find(source.param); id && program.value(*id).role == Role::state)
            values.push_back(*id);
    return values;
}

/// Replaces numbers by *, so that messages list the tensors of all layers as one: "h.11.attn.bias" -> "h.*.attn.bias".
std::string kind_of(const std::string& tensor) {
    std::vector<std::string> parts = split(tensor, '.');
    for (std::string& part : parts)
        if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) part = "*";
    return join(parts, ".");
}

/// Reads a block as f32; along the source's dim only every stride-th element.
std::vector<float> read_every(const WeightFiles& files, const std::string& tensor, const WeightSource& source,
                              Shape offset, const Shape& shape) {
    if (source.stride == 1) return read_decoded(files, tensor, offset, shape);
    const auto dim = static_cast<size_t>(source.dim);
    Shape all = shape;
    all[dim] = (shape[dim] - 1) * source.stride + 1;
    offset[dim] = source.start + (offset[dim] - source.start) * source.stride;
    const std::vector<float> read = read_decoded(files, tensor, offset, all);
    std::vector<float> values;
    values.reserve(static_cast<size_t>(count_of(shape)));
    int64_t inner = 1;
    for (size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
    for (size_t at = 0; at < read.size(); at += static_cast<size_t>(all[dim] * inner))
        for (int64_t i = 0; i < shape[dim]; ++i) {
            const auto first = read.begin() + static_cast<std::ptrdiff_t>(at) + i * source.stride * inner;
            values.insert(values.end(), first, first + inner);
        }
    return values;
}

/// Reads a block of a tensor at `offset` and puts it into `values`, of shape `shape`; its last two dims are swapped
/// there if the source is transposed. The file has only the block's leading part, of shape `stored`; the rest is
/// padding and is not changed. Reads 4 Mi elements at a time.
void read_block(const WeightFiles& files, const std::string& tensor, const WeightSource& source, const Shape& offset,
                const Shape& stored, const Shape& shape, std::span<float> values) {
    const int64_t rows = stored.empty() ? 1 : stored[0];
    if (count_of(stored) == 0) return;
    const int64_t step = std::max<int64_t>(1, (int64_t{4} << 20) / (count_of(stored) / rows));
    const int64_t columns = shape.size() >= 2 ? shape.back() : 1, height = shape.size() >= 2 ? shape.end()[-2] : 1;
    for (int64_t row = 0; row < rows; row += step) {
        Shape from = offset, piece = stored, place(shape.size(), 0);
        if (!stored.empty()) from[0] += row, place[0] = row, piece[0] = std::min(step, rows - row);
        const std::vector<float> read = read_every(files, tensor, source, from, piece);
        const Block part{place, piece};
        for_runs(part, part, whole(shape), [&](int64_t at, int64_t to, int64_t count) {
            const float* const first = read.data() + at;
            if (!source.transpose || shape.size() < 2) {
                std::copy(first, first + count, values.data() + to);
                return;
            }
            int64_t r = to / columns, c = to % columns;
            for (int64_t i = 0; i < count; ++i) {
                const int64_t matrix = r / height * height * columns;
                values[static_cast<size_t>(matrix + c * height + r % height)] = first[i];
                if (++c == columns) c = 0, ++r;
            }
        });
    }
}

/// Reads the block of a param from one tensor: at `offset`, of shape `shape`, both in dims of a matrix of the param.
void read_tensor(const WeightFiles& files, const std::string& tensor, const WeightSource& source, Shape offset,
                 Shape shape, std::span<float> values) {
    if (source.transpose && shape.size() >= 2) {
        std::swap(offset.end()[-2], offset.back());
        std::swap(shape.end()[-2], shape.back());
    }
    if (source.dim >= 0) offset[static_cast<size_t>(source.dim)] += source.start;
    Shape stored = shape;  // shape of the block's part that the file has, without padding
    if (source.padded >= 0) {
        const auto dim = static_cast<size_t>(source.padded);
        offset[dim] = std::min(offset[dim], source.rows);
        stored[dim] = std::min(shape[dim], source.rows - offset[dim]);
    }
    read_block(files, tensor, source, offset, stored, shape, values);
}

/// The names of the tensors that a source is read from. If the program lacks the param or state, which only training
/// reads then: of those that the files have.
std::vector<std::string> tensors_of(const Program& program, const WeightFiles& files, const WeightSource& source) {
    if (const auto id = program.find(source.param)) return source.tensors(program.value(*id).type.shape);
    std::vector<std::string> names;
    const bool several = source.tensor_at(0) != source.tensor;
    for (int64_t i = 0; has(files, source.tensor_at(i)) && (several || i == 0); ++i)
        names.push_back(source.tensor_at(i));
    return names;
}

bool keeps_initial(const WeightFiles& files, const std::vector<std::string>& names, const WeightSource& source) {
    return source.fresh && std::ranges::none_of(names, [&](const std::string& name) { return has(files, name); });
}

/// Throws if params read parts of a tensor that overlap, or that do not cover it. Params may share the same part.
void check_parts(const Program& program, const WeightFiles& files, const PublishedWeights& weights) {
    struct Parts {
        const WeightSource* first;
        std::set<std::pair<int64_t, int64_t>> ranges;  // [start, end) of each part along the dim
    };
    std::map<std::string, Parts> cut;
    for (const WeightSource& source : weights.sources) {
        if (source.dim < 0) continue;
        const std::vector<std::string> names = tensors_of(program, files, source);
        if (keeps_initial(files, names, source)) continue;
        for (const std::string& tensor : names) {
            Parts& parts = cut.try_emplace(tensor, Parts{&source, {}}).first->second;
            if (parts.first->dim != source.dim || parts.first->stride != source.stride)
                throw Error(
                    source.origin,
                    fmt::format("{}: tensor {} is split along dim {} for param {}, but along dim {} for param {}\n"
                                "  split it along one dim in the model's tensors()",
                                file_with(files, tensor), tensor, source.dim + 1, source.param, parts.first->dim + 1,
                                parts.first->param));
            const int64_t start =
                source.stride > 1 ? source.start * source.size : source.start;  // as if not interleaved
            parts.ranges.insert({start, start + source.size});
        }
    }
    for (const auto& [name, parts] : cut) {
        const Shape shape = decoded_type(files, name).shape;
        const auto dim = static_cast<size_t>(parts.first->dim);
        std::string ranges;
        int64_t at = 0;
        bool tiled = true;
        for (const auto& [start, end] : parts.ranges) {
            ranges += fmt::format("{}{} to {}", ranges.empty() ? "" : ", ", start + 1, end);
            tiled = tiled && start == at;
            at = end;
        }
        if (tiled && at == shape.at(dim)) continue;
        throw Error(parts.first->origin,
                    fmt::format("{}: tensor {} is {}, but params are read from {} of {} along dim {}\n"
                                "  give the model the sizes of the file, or name every part once in tensors()",
                                file_with(files, name), name, text_of(shape), ranges, shape[dim], dim + 1));
    }
}

bool is_copy(const WeightFiles& files, const std::string& tensor, const PublishedWeights& weights,
             const Origin& origin) {
    for (const WeightCopy& copy : weights.copies) {
        if (copy.tensor != tensor || !files.has(copy.of)) continue;
        if (files.file_of(tensor).same(tensor, files.file_of(copy.of), copy.of)) return true;
        throw Error(origin, fmt::format("{}: tensor {} differs from {}, but this model ties them to one param\n"
                                        "  give the model tied = false (script.tied = \"no\"), or leave out the module "
                                        "that repeats it (script.mtp_weight = 0)",
                                        files.file_of(tensor).path(), tensor, copy.of));
    }
    return false;
}

/// Throws if the files have tensors that no param reads and that are neither ignored nor copies.
void check_unread(const Program& program, const WeightFiles& files, const PublishedWeights& weights) {
    const Origin origin = weights.sources.empty() ? Origin{} : weights.sources.front().origin;
    std::set<std::string> read;
    for (const WeightSource& source : weights.sources)
        for (const std::string& tensor : tensors_of(program, files, source))
            for (std::string& name : stored_names_of(files, tensor)) read.insert(std::move(name));
    std::map<std::string, int64_t> left;
    int64_t count = 0;
    const std::vector<const StoredTensor*> tensors = files.tensors();
    for (const StoredTensor* tensor : tensors) {
        const auto ignored = [&](const std::string& pattern) { return matches(pattern, tensor->name); };
        if (read.count(tensor->name) > 0 || std::any_of(weights.ignore.begin(), weights.ignore.end(), ignored))
            continue;
        if (is_copy(files, tensor->name, weights, origin)) continue;
        ++left[kind_of(tensor->name)];
        ++count;
    }
    if (count == 0) return;
    constexpr size_t most = 8;
    std::vector<std::string> kinds;
    for (const auto& [kind, n] : left)
        if (kinds.size() < most) kinds.push_back(n > 1 ? fmt::format("{} ({})", kind, n) : kind);
    if (left.size() > most) kinds.push_back(fmt::format("and {} more kinds", left.size() - most));
    throw Error(origin,
                fmt::format("{}: the model has no param for {} of its {} tensors: {}\n"
                            "  make the model match the file: its kind, its layers, a head of its own (script.model, "
                            "script.layers, script.tied),\n"
                            "  or name tensors that training does not need in `ignore` of the model's tensors()",
                            files.path(), count, tensors.size(), join(kinds, ", ")));
}

std::vector<std::string> check_files(const Program& program, const WeightFiles& files,
                                     const PublishedWeights& weights) {
    std::vector<std::string> fresh;
    for (ValueId id : loaded_values(program, weights)) {
        const Value& param = program.value(id);
        const WeightSource& source = source_of(weights.sources, param, files.path());
        if (keeps_initial(files, source.tensors(param.type.shape), source))
            fresh.push_back(source.param);
        else
            check_param(files, param, source);
    }
    check_parts(program, files, weights);
    check_unread(program, files, weights);
    return fresh;
}

}  // namespace

PublishedWeights as_named(PublishedWeights weights, const WeightFiles& files) {
    const auto rename = [&](std::string& name) {
        if (weights.prefix.empty() || has(files, name) || !name.starts_with(weights.prefix)) return;
        std::string bare = name.substr(weights.prefix.size());
        if (has(files, bare)) name = std::move(bare);
    };
    for (WeightSource& source : weights.sources) {
        if (!source.from.empty()) source.tensor = source.from;
        std::string first = source.tensor_at(0);
        rename(first);
        if (first != source.tensor_at(0)) source.tensor = source.tensor.substr(weights.prefix.size());
    }
    for (WeightCopy& copy : weights.copies) rename(copy.tensor), rename(copy.of);
    return weights;
}

std::string fresh_text(const std::vector<std::string>& params, const std::string& path) {
    return fmt::format("{} has no tensor for {}: initialized as in a new run", path, join_few(params, 8));
}

std::vector<std::string> check_weights(const Program& program, const std::string& path,
                                       const PublishedWeights& weights) {
    const WeightFiles files(path);
    return check_files(program, files, as_named(weights, files));
}

std::vector<float> read_weights(const WeightFiles& files, const Value& param, const WeightSource& source, Shape offset,
                                Shape shape) {
    check_all_there(files, param, source);
    std::vector<float> values(static_cast<size_t>(count_of(shape)));
    if (!source.stacked) {
        check_one(files, param, source, source.tensor);
        read_tensor(files, source.tensor, source, std::move(offset), std::move(shape), values);
        return values;
    }
    const Shape from(offset.begin() + 1, offset.end()), matrix(shape.begin() + 1, shape.end());
    const auto elements = static_cast<size_t>(count_of(matrix));
    for (int64_t i = 0; i < shape[0]; ++i) {
        const std::string tensor = source.tensor_at(offset[0] + i);
        check_one(files, param, source, tensor);
        read_tensor(files, tensor, source, from, matrix,
                    std::span(values).subspan(static_cast<size_t>(i) * elements, elements));
    }
    return values;
}

std::vector<std::string> load_weights(Session& session, const std::string& path, const PublishedWeights& table) {
    const WeightFiles files(path);
    const PublishedWeights weights = as_named(table, files);
    Executor& executor = session.main();
    const Islands& islands = session.compiled().islands;  // each of which gets a copy
    const Program slices = islands.any() ? slices_of(executor.plan().program, islands) : Program();
    const Program& program = islands.any() ? slices : executor.plan().program;
    std::vector<std::string> fresh;
    if (session.job().rank == 0) fresh = check_files(program, files, weights);
    // Rank 0 decides for all ranks: the copies of the files on other hosts may differ.
    const std::string listed = session.from_first("params without a tensor", join(fresh, "\n"), WaitLimit::files);
    const std::vector<std::string> initial = split(listed, '\n');
    for (ValueId id : loaded_values(program, weights)) {
        if (!executor.holds(id)) continue;
        const Value& param = program.value(id);
        const Tensor local = executor.tensor(id);
        const Shape offset = param.layout.offset(param.type.shape, executor.plan().mesh, session.job().rank);
        const Shape shape = param.layout.local_shape(param.type.shape, executor.plan().mesh);
        const WeightSource& source = source_of(weights.sources, param, path);
        if (std::ranges::find(initial, source.param) != initial.end()) continue;
        session.upload(local, read_weights(files, param, source, offset, shape).data());
    }
    return fresh;
}

}  // namespace orrery

#include "run/export/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/hash.h"
#include "base/regular_file.h"
#include "base/text.h"
#include "run/checkpoint/format/block_reader.h"
#include "run/checkpoint/format/row_sum.h"
#include "run/checkpoint/format/safetensors.h"
#include "run/control/stop_request.h"
#include "run/export/beside.h"
#include "run/export/convert.h"
#include "run/export/output_folder.h"
#include "run/export/published_tensors.h"

namespace orrery {

namespace {

/// Returns the first `bytes` bytes of a buffer, which grows if needed and never shrinks.
std::span<std::byte> first_of(std::vector<std::byte>& buffer, int64_t bytes) {
    const auto size = static_cast<size_t>(bytes);
    if (buffer.size() < size) buffer.resize(size);
    return std::span(buffer).first(size);
}

constexpr int64_t batch_bytes = int64_t{16} << 20;

constexpr const char* generation_file = "generation_config.json";

void end_when_asked() {
    if (const int signal = stop_signal())
        throw Error(fmt::format("export: stopped by signal {}, nothing was written: start the export again", signal),
                    Fault::requeue);
}

/// A file of tensors, written in blocks; a second thread reads the same blocks back.
class TensorFile {
public:
    TensorFile(const OutputFolder& folder, std::string name, const std::vector<OutTensor>& all,
               const std::vector<size_t>& chosen)
        : path_(folder.path(name)), name_(std::move(name)) {
        std::vector<NamedTensor> named;
        for (const size_t i : chosen) {
            tensors_.push_back(&all[i]);
            named.push_back({all[i].name, {nullptr, all[i].type.dtype, all[i].type.shape}});
        }
        const std::pair<std::string, std::string> format{"format", "pt"};  // metadata that transformers requires
        start_ = safetensors_start(named, {&format, 1});
        bytes_ = static_cast<int64_t>(start_.size());
        for (const OutTensor* tensor : tensors_) begins_.push_back(bytes_), bytes_ += tensor->type.bytes();
        file_.emplace(path_, bytes_);
    }

    int64_t bytes() const { return bytes_; }
    bool rounded() const { return rounded_; }

    /// Writes the whole file. Throws Error unless it reads back as written, including its header.
    void write(BlockReader& params, int64_t block_bytes) {
        file_->write(0, start_);
        Beside beside;
        for (size_t i = 0; i < tensors_.size(); ++i) {
            // Blocks of columns are scattered over the tensor, so the tensor is read back only when it is complete.
            for (const TensorPiece& piece : tensors_[i]->pieces) write(params, i, piece, block_bytes);
            if (pending_ >= batch_bytes || i + 1 == tensors_.size()) hand_over(beside);
        }
        beside.finish();
        file_->settle();
        check_header();
    }

private:
    struct Written {
        size_t tensor = 0;
        Block part;
        uint32_t crc = 0;
    };

    void hand_over(Beside& beside) {
        if (blocks_.empty()) return;
        const int64_t begin = begins_[blocks_.front().tensor], last = begins_[blocks_.back().tensor];
        const int64_t bytes = last + tensors_[blocks_.back().tensor]->type.bytes() - begin;
        file_->send(begin, bytes);
        beside.add([this, blocks = std::move(blocks_)] {
            for (const Written& block : blocks) check(block);
        });
        blocks_.clear();
        pending_ = 0;
    }

    void check(const Written& block) {
        const OutTensor& tensor = *tensors_[block.tensor];
        uint32_t crc = 0;
        runs(block.tensor, block.part, [&](int64_t at, int64_t, int64_t bytes) {
            const std::span<std::byte> back = first_of(back_, bytes);
            file_->read(at, back);
            crc = crc32c(back, crc);
        });
        if (crc != block.crc)
            throw Error(fmt::format("{}: tensor {}: data read back differs from what was written, at {}\n  check the "
                                    "disk and memory for faults",
                                    name_, tensor.name, block.part.text()),
                        Fault::failed);
    }

    void check_header() const {
        const SafetensorsFile written(path_);
        for (size_t i = 0; i < tensors_.size(); ++i) {
            const StoredTensor& stored = written.tensor(tensors_[i]->name);
            if (!(stored.type == tensors_[i]->type) || stored.begin != begins_[i])
                throw Error(fmt::format("{}: verification failed: tensor {} reads back as {} at byte {}", name_,
                                        stored.name, stored.text(), stored.begin),
                            Fault::failed);
        }
    }

    /// Calls `visit(offset in the file, offset in the part, bytes)` for each contiguous run of a tensor's block `part`.
    /// Runs are short enough to stay in the processor's cache between write and checksum.
    template <class Visit>
    void runs(size_t tensor, const Block& part, Visit&& visit) const {
        constexpr int64_t most = int64_t{512} << 10;
        const TensorType& type = tensors_[tensor]->type;
        const int64_t size = size_of(type.dtype);
        for_runs(part, part, whole(type.shape), [&](int64_t from, int64_t to, int64_t count) {
            for (int64_t at = 0; at < count * size; at += most)
                visit(begins_[tensor] + to * size + at, from * size + at, std::min(most, count * size - at));
        });
    }

    /// Writes the part of a tensor that comes from one param: reads and converts blocks of whole rows of the param.
    void write(BlockReader& params, size_t tensor, const TensorPiece& piece, int64_t block_bytes) {
        const size_t rank = piece.place.shape.size(), matrix = piece.transpose ? rank - 2 : 0;
        Shape shape(piece.place.shape.begin() + static_cast<std::ptrdiff_t>(matrix), piece.place.shape.end());
        if (piece.transpose) std::swap(shape[0], shape[1]);
        if (count_of(shape) == 0) return;
        const int64_t rows = shape.empty() ? 1 : shape[0], columns = count_of(shape) / rows;
        const int64_t widest = std::max(size_of(piece.param->type.dtype), size_of(tensors_[tensor]->type.dtype));
        // a transposed block has short runs, so it is larger to make them longer
        const int64_t most = piece.transpose ? 3 * block_bytes : block_bytes;
        const int64_t step = std::max<int64_t>(1, most / (columns * widest));
        for (int64_t row = 0; row < rows; row += step) {
            const int64_t count = std::min(step, rows - row);
            Block source{Shape(shape.size(), 0), shape}, part = piece.place;
            if (!shape.empty()) {
                source.offset[0] = row, source.shape[0] = count;
                const size_t dim = piece.transpose ? rank - 1 : 0;
                part.offset[dim] += row, part.shape[dim] = count;
            }
            if (!piece.interleaved.empty()) source.shape.back() /= std::ssize(piece.interleaved);
            if (piece.index >= 0) {
                source.offset.insert(source.offset.begin(), piece.index);
                source.shape.insert(source.shape.begin(), 1);
            }
            write_block(params, tensor, piece, source, part, columns);
        }
    }

    void write_block(BlockReader& params, size_t tensor, const TensorPiece& piece, const Block& source,
                     const Block& part, int64_t columns) {
        end_when_asked();
        const TensorType& type = tensors_[tensor]->type;
        std::span<std::byte> turned;
        if (piece.interleaved.empty())
            turned = converted(params, piece, *piece.param, type.dtype, source, piece.transpose ? columns : 0);
        else
            turned = interleaved(params, piece, type.dtype, source);
        uint32_t crc = 0;
        runs(tensor, part, [&](int64_t at, int64_t from, int64_t bytes) {
            const auto run = turned.subspan(static_cast<size_t>(from), static_cast<size_t>(bytes));
            crc = crc32c(run, crc);
            file_->write(at, run);
        });
        blocks_.push_back({tensor, part, crc});
        pending_ += static_cast<int64_t>(turned.size());
    }

    /// Reads a block of each row of a param, and writes their mean.
    static void read_mean(BlockReader& params, const ManifestTensor& param, Block source, std::span<std::byte> to) {
        const int64_t rows = param.type.shape[0];
        RowSum sum(source.count());
        source.offset.insert(source.offset.begin(), 0);
        source.shape.insert(source.shape.begin(), 1);
        for (int64_t& row = source.offset[0]; row < rows; ++row) {
            params.read(param, source, to);
            sum.add(param.type.dtype, to.data());
        }
        sum.write(static_cast<double>(rows), param.type.dtype, to.data());
    }

    /// Reads a block of a param and converts it; transposes it if `columns` > 0. Valid until the next call.
    std::span<std::byte> converted(BlockReader& params, const TensorPiece& piece, const ManifestTensor& param,
                                   DType dtype, const Block& source, int64_t columns) {
        const DType stored = param.type.dtype;
        const std::span<std::byte> raw = first_of(raw_, byte_count(stored, source.shape));
        if (piece.rows)
            read_mean(params, param, source, raw);
        else
            params.read(param, source, raw);
        if (stored == dtype && columns == 0) return raw;
        rounded_ = rounded_ || rounds(raw.data(), stored, dtype, source.count());
        const std::span<std::byte> turned = first_of(turned_, byte_count(dtype, source.shape));
        const int64_t width = columns > 0 ? columns : source.count();
        const int64_t lost =
            convert(raw.data(), stored, turned.data(), dtype, source.count() / width, width, columns > 0);
        if (lost >= 0)
            throw Error(fmt::format(
                "export: param {} has a value that overflows {}, in its block {}\n  choose another type: --dtype bf16 "
                "or f32",
                param.name, name_of(dtype), source.text()));
        return turned;
    }

    /// Reads the same block of several params and alternates their elements.
    std::span<std::byte> interleaved(BlockReader& params, const TensorPiece& piece, DType dtype, const Block& source) {
        const auto size = static_cast<size_t>(size_of(dtype)), stride = piece.interleaved.size();
        const std::span<std::byte> all =
            first_of(joined_, byte_count(dtype, source.shape) * std::ssize(piece.interleaved));
        for (size_t i = 0; i < stride; ++i) {
            const std::span<std::byte> one = converted(params, piece, *piece.interleaved[i], dtype, source, 0);
            for (size_t at = 0; at < one.size() / size; ++at)
                std::memcpy(all.data() + (at * stride + i) * size, one.data() + at * size, size);
        }
        return all;
    }

    std::string path_, name_;
    std::vector<const OutTensor*> tensors_;
    std::vector<int64_t> begins_;  ///< offset of each tensor in the file, in bytes
    std::vector<std::byte> start_, raw_, turned_, joined_;
    std::vector<std::byte> back_;
    int64_t bytes_ = 0;
    std::optional<OutputFile> file_;
    std::vector<Written> blocks_;  ///< blocks that are written but not yet passed to the reader
    int64_t pending_ = 0;
    bool rounded_ = false;
};

std::string json_text(const Json& json) {
    try {
        return json.dump(2) + "\n";
    } catch (const Json::exception& problem) {
        throw Error("export: " + reason_of(problem));
    }
}

/// Returns config.json: dtype under the names of transformers 4 and 5; keys sorted as save_pretrained does.
std::string config_text(const PublishedRecord& record, DType dtype) {
    const std::string name = dtype == DType::f32 ? "float32" : dtype == DType::bf16 ? "bfloat16" : "float16";
    std::map<std::string, Json> keys;
    for (const auto& [key, value] : record.config.items()) keys[key] = value;
    keys["dtype"] = keys["torch_dtype"] = name;
    Json sorted = Json::object();
    for (auto& [key, value] : keys) append(sorted, key, std::move(value));
    return json_text(sorted);
}

std::string generation_text(const PublishedRecord& record) {
    if (!record.generation.is_null()) return json_text(record.generation);
    Json json = {{"_from_model_config", true}};
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "transformers_version"})
        if (record.config.contains(key) && !record.config[key].is_null()) json[key] = record.config[key];
    return json_text(json);
}

std::string index_text(const std::vector<OutTensor>& tensors, const std::vector<std::vector<size_t>>& files,
                       const Exported& exported) {
    std::map<std::string, std::string> places;
    for (size_t file = 0; file < files.size(); ++file)
        for (const size_t i : files[file]) places[tensors[i].name] = file_name_of(file, files.size());
    Json map = Json::object();
    for (const auto& [tensor, file] : places) append(map, tensor, file);
    const Json metadata = {{"total_parameters", exported.elements}, {"total_size", exported.bytes}};
    return json_text({{"metadata", metadata}, {"weight_map", std::move(map)}});
}

std::string name_of_file(const std::string& path) { return std::filesystem::path(path).filename().string(); }

/// Copies additional files, such as a tokenizer's; generation_config.json only if `with_generation`.
void copy_beside(const OutputFolder& folder, const std::vector<std::string>& files, bool with_generation) {
    for (const std::string& path : files) {
        if (name_of_file(path) == generation_file && !with_generation) continue;
        const RegularFile file(path);
        if (!file.problem().empty()) throw Error(fmt::format("export: {} {}", path, file.problem()), Fault::failed);
        folder.write(name_of_file(path), file.text(static_cast<size_t>(file.bytes())));
    }
}

}  // namespace

Exported export_checkpoint(CheckpointStore& store, const Manifest& manifest, const PublishedRecord& record,
                           const std::string& folder, const ExportOptions& options) {
    Exported exported;
    exported.dtype = options.dtype.value_or(options.raw ? DType::f32 : record.dtype());
    const std::vector<OutTensor> tensors = options.raw ? own_tensors(record, manifest, exported.dtype)
                                                       : published_tensors(record, manifest, exported.dtype);
    exported.tensors = static_cast<int64_t>(tensors.size());
    for (const OutTensor& tensor : tensors) {
        exported.elements += tensor.type.count();
        exported.bytes += tensor.type.bytes();
    }
    const std::vector<std::vector<size_t>> files = files_of(tensors, options.file_bytes);
    exported.files = static_cast<int64_t>(files.size());

    StopAnswer answer(nullptr);
    answer.keep();  // so that a stop signal does not end the process before the partial folder is removed
    OutputFolder out(folder);
    out.require_room(exported.bytes);
    BlockReader params(store, manifest);
    for (size_t i = 0; i < files.size(); ++i) {
        TensorFile file(out, file_name_of(i, files.size()), tensors, files[i]);
        file.write(params, options.block_bytes);
        exported.rounded |= file.rounded();
    }
    if (files.size() > 1) out.write("model.safetensors.index.json", index_text(tensors, files, exported));
    const bool copied =
        record.generation.is_null() && std::any_of(options.beside.begin(), options.beside.end(),
                                                   [](auto& path) { return name_of_file(path) == generation_file; });
    if (!options.raw) {
        out.write("config.json", config_text(record, exported.dtype));
        if (!copied) out.write(generation_file, generation_text(record));
    }
    copy_beside(out, options.beside, copied);
    end_when_asked();
    out.finish();
    return exported;
}

}  // namespace orrery

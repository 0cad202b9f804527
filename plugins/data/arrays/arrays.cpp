// Named arrays of one safetensors file, one .npy file, or a folder of .npy files; the first dim counts samples.
#include <algorithm>
#include <filesystem>

#include "orrery/data.h"
#include "orrery/plugin.h"

namespace {

namespace fs = std::filesystem;
using orrery::DataArray;
using orrery::DataFile;
using orrery::Error;
using orrery::Shape;
using orrery::StoredArray;

/// "images f32[100,16]"
std::string text_of(const StoredArray& array) { return array.name + " " + array.type.text(); }

class Arrays final : public orrery::DataSource {
public:
    Arrays(orrery::Config& options, const orrery::Origin& asked)
        : asked_(asked), path_(options.text("path", "")), wanted_(options.texts("arrays")) {
        if (path_.empty())
            throw Error(
                asked,
                "o.data.arrays: path is missing, and shapes come from its header\n  give path = or data.path: a "
                "safetensors file, a .npy, or a folder of .npy");
        look();
    }

    const std::vector<DataArray>& arrays() const override { return arrays_; }
    std::string path() const override { return path_; }
    int64_t samples() const override { return samples_; }
    const std::string& digest() const override { return digest_; }
    std::string place() const override { return "data file " + path_; }

    void open(int64_t) override {
        const std::vector<DataArray> known = std::move(arrays_);
        look();
        const auto same = [](const DataArray& a, const DataArray& b) {
            return a.name == b.name && a.dtype == b.dtype && a.dims == b.dims;
        };
        if (!std::equal(arrays_.begin(), arrays_.end(), known.begin(), known.end(), same))
            throw Error(
                asked_,
                place() + " changed its arrays since the script started\n  start again when the file is complete",
                orrery::Fault::failed);
        digest_.clear();
        for (const auto& file : files_) digest_ += (digest_.empty() ? "" : "-") + file->digest();
    }

    /// Reads in runs: elements of a block that are contiguous in the file.
    void read(size_t array, const orrery::DataSample& sample, const Shape& offset,
              const orrery::Tensor& block) const override {
        const Stored& stored = stored_[array];
        const Shape whole = arrays_[array].shape();
        size_t rank = whole.size(), split = rank;
        int64_t run = 1, size = orrery::size_of(block.dtype);
        while (split > 0 && (split == rank || block.shape[split] == whole[split])) run *= block.shape[--split];
        const int64_t first = stored.array.begin + sample.number * orrery::count_of(whole) * size;
        auto* to = static_cast<std::byte*>(block.data);
        Shape at(split, 0);
        for (int64_t left = block.count(); left > 0; left -= run, to += run * size) {
            int64_t element = 0;
            for (size_t dim = 0; dim < rank; ++dim)
                element = element * whole[dim] + offset[dim] + (dim < split ? at[dim] : 0);
            stored.file->read(sample.number, first + element * size, to, run * size);
            for (size_t dim = split; dim > 0 && ++at[dim - 1] == block.shape[dim - 1]; --dim) at[dim - 1] = 0;
        }
    }

    std::string require_unchanged() override {
        std::string said;
        for (const auto& file : files_)
            if (const std::string one = file->require_unchanged(); !one.empty())
                said += (said.empty() ? "" : "\n") + one;
        return said;
    }

private:
    struct Stored {
        const DataFile* file;
        StoredArray array;
    };

    std::vector<std::string> paths() const {
        std::error_code none;
        if (!fs::is_directory(path_, none)) return {path_};
        std::vector<std::string> found;
        for (const auto& entry : fs::directory_iterator(path_, none))
            if (entry.path().extension() == ".npy") found.push_back(entry.path().string());
        std::sort(found.begin(), found.end());
        return found;
    }

    bool is_wanted(const std::string& name) const {
        return wanted_.empty() || std::find(wanted_.begin(), wanted_.end(), name) != wanted_.end();
    }

    void look() {
        files_.clear(), stored_.clear(), arrays_.clear();
        std::string there;
        for (const std::string& path : paths()) {
            auto file = std::make_unique<DataFile>(path, "a safetensors file, a .npy or a folder of .npy", asked_);
            bool used = false;
            for (StoredArray& array : file->arrays()) {
                there += (there.empty() ? "" : ", ") + text_of(array);
                if (!is_wanted(array.name)) continue;
                used = true;
                stored_.push_back({file.get(), std::move(array)});
            }
            if (used) files_.push_back(std::move(file));
        }
        std::sort(stored_.begin(), stored_.end(),
                  [](const Stored& a, const Stored& b) { return a.array.name < b.array.name; });
        for (const std::string& name : wanted_)
            if (std::none_of(stored_.begin(), stored_.end(), [&](const Stored& one) { return one.array.name == name; }))
                throw Error(asked_,
                            place() + " has no array \"" + name + "\"\n  it has " + (there.empty() ? "none" : there));
        if (stored_.empty())
            throw Error(asked_, place() + " has no arrays\n  name a safetensors file, a .npy or a folder of .npy");
        for (const Stored& one : stored_) add(one.array);
    }

    void add(const StoredArray& array) {
        const Shape& shape = array.type.shape;
        if (shape.empty() || shape[0] < 1 || (!arrays_.empty() && shape[0] != samples_))
            throw Error(asked_, place() + ": the array " + text_of(array) + " has no sample for each of " +
                                    (arrays_.empty() ? "at least one" : std::to_string(samples_)) +
                                    "\n  give all the same first dim, or choose with arrays = { ... }");
        samples_ = shape[0];
        DataArray offered{array.name, array.type.dtype, {}};
        for (size_t dim = 1; dim < shape.size(); ++dim)
            offered.dims.emplace_back(array.name + "_" + std::to_string(dim), shape[dim]);
        arrays_.push_back(std::move(offered));
    }

    orrery::Origin asked_;
    std::string path_;
    std::vector<std::string> wanted_;
    std::vector<std::unique_ptr<DataFile>> files_;
    std::vector<Stored> stored_;  ///< like arrays_, by name
    std::vector<DataArray> arrays_;
    int64_t samples_ = 0;
    std::string digest_;
};

void add(orrery::Registry& registry) {
    registry.add_data("arrays", [](orrery::Config& options, const orrery::Origin& asked) {
        return std::make_unique<Arrays>(options, asked);
    });
}

}  // namespace

ORRERY_PLUGIN("data.arrays", "0.1", add);

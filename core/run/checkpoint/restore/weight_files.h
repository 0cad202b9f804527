#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "run/checkpoint/format/safetensors.h"

namespace orrery {

/// The tensors of a published model: one safetensors file, or a folder with either model.safetensors or
/// model.safetensors.index.json and the files that it names.
class WeightFiles {
public:
    /// Opens every file and reads its header. Throws Error naming file and tensor if a file or tensor of the index is
    /// missing, or if a tensor is in two files, in another file than the index says, or not in the index.
    explicit WeightFiles(std::string path);

    const std::string& path() const { return path_; }
    bool has(std::string_view tensor) const { return places_.find(tensor) != places_.end(); }
    /// All tensors, sorted by name.
    std::vector<const StoredTensor*> tensors() const;
    /// The file that has a tensor. Throws Error that lists similar names if no file has it.
    const SafetensorsFile& file_of(std::string_view tensor) const;
    const StoredTensor& tensor(std::string_view name) const;

private:
    struct Place {
        const SafetensorsFile* file = nullptr;
        const StoredTensor* tensor = nullptr;
    };
    const SafetensorsFile& open(const std::string& path);
    void open_index(const std::string& index);
    const Place& place(std::string_view tensor) const;

    std::string path_;
    std::vector<std::unique_ptr<SafetensorsFile>> files_;
    std::map<std::string, Place, std::less<>> places_;
};

}  // namespace orrery

#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "run/checkpoint/format/safetensors.h"

namespace orrery {

/// The tensors of a published model: of one safetensors file, or of a folder with model.safetensors, or with
/// model.safetensors.index.json and the files that it names.
class WeightFiles {
public:
    /// Opens every file and reads its header. Throws Error naming file, tensor and what is wrong: an index whose files
    /// or tensors are not there, a tensor in two files, one that the index gives to another file or does not name.
    explicit WeightFiles(std::string path);

    const std::string& path() const { return path_; }  ///< as it was asked for
    bool has(std::string_view tensor) const { return places_.find(tensor) != places_.end(); }
    /// All of them, by name.
    std::vector<const StoredTensor*> tensors() const;
    /// The file that holds a tensor. Throws Error with the names there are when none does.
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

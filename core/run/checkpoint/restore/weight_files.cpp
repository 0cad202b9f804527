#include "run/checkpoint/restore/weight_files.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/files/json_file.h"
#include "base/json.h"
#include "base/suggest.h"
#include "base/text.h"

namespace orrery {
namespace {

constexpr int64_t longest_index = 100'000'000;  // max bytes of an index file

bool is_there(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
}

std::string look_alikes(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code problem;
    for (std::filesystem::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem)) {
        const std::string name = at->path().filename().string();
        for (const char* ending : {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json"})
            if (name.ends_with(ending)) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names.empty() ? "it has no other weights" : "it has " + join_few(names, 4);
}

/// Reads an index file's weight_map, as a map from file to tensors. Throws Error that starts with the file's path.
std::map<std::string, std::vector<std::string>> files_of_index(const std::string& path) {
    const Json json = read_json(path, longest_index);
    if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
        throw Error(path + ": expected an object weight_map from tensors to files\n  copy or download it again");
    std::map<std::string, std::vector<std::string>> files;
    for (const auto& [tensor, name] : json["weight_map"].items()) {
        const std::string said = name.is_string() ? name.get<std::string>() : "";
        if (said.empty() || said.find('/') != std::string::npos || said.find('\0') != std::string::npos ||
            said.starts_with('.'))
            throw Error(fmt::format("{}: tensor {} is mapped to {}, expected the name of a file in this folder", path,
                                    quote(tensor), quote(name.is_string() ? said : name.dump())));
        files[said].push_back(tensor);
    }
    if (files.empty()) throw Error(path + ": its weight_map names no tensor\n  copy or download it again");
    return files;
}

}  // namespace

WeightFiles::WeightFiles(std::string path) : path_(std::move(path)) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path_, ignored)) {
        open(path_);
        return;
    }
    const std::string one = path_ + "/model.safetensors", index = one + ".index.json";
    if (is_there(one) && is_there(index))
        throw Error(
            fmt::format("{} has both model.safetensors and model.safetensors.index.json\n  move away the one that is "
                        "not this model's",
                        path_));
    if (is_there(one))
        open(one);
    else if (is_there(index))
        open_index(index);
    else
        throw Error(
            fmt::format("{} has neither model.safetensors nor model.safetensors.index.json; {}\n  give the "
                        "folder that a model was published in, or a safetensors file",
                        path_, look_alikes(path_)));
}

const SafetensorsFile& WeightFiles::open(const std::string& path) {
    const SafetensorsFile& file = *files_.emplace_back(std::make_unique<SafetensorsFile>(path));
    for (const StoredTensor& tensor : file.tensors()) {
        const auto [at, first] = places_.try_emplace(tensor.name, Place{&file, &tensor});
        if (!first)
            throw Error(
                fmt::format("{}: duplicate tensor {}, also in {}\n  one of the files is not this model's: copy both "
                            "again",
                            path, quote(tensor.name), at->second.file->path()));
    }
    return file;
}

void WeightFiles::open_index(const std::string& index) {
    const auto files = files_of_index(index);
    std::map<std::string_view, std::string_view> told;
    for (const auto& [name, tensors] : files)
        for (const std::string& tensor : tensors) told[tensor] = name;
    for (const auto& [name, tensors] : files) {
        const std::string path = path_ + "/" + name;
        if (!is_there(path))
            throw Error(
                fmt::format("{} is missing: according to {} it has {} of {}, for example {}\n  copy or download "
                            "it, too",
                            path, index, plural(static_cast<int64_t>(tensors.size()), "tensor"), told.size(),
                            quote(tensors.front())));
        const SafetensorsFile& file = open(path);
        for (const std::string& tensor : tensors)
            if (!file.has(tensor))
                throw Error(
                    fmt::format("{}: tensor {} is missing, but {} lists it\n  the files are from different downloads: "
                                "copy both again",
                                path, quote(tensor), index));
        for (const StoredTensor& tensor : file.tensors()) {
            const auto at = told.find(tensor.name);
            if (at != told.end() && at->second == name) continue;
            throw Error(
                fmt::format("{}: unexpected tensor {}: {} {}\n  the files are from different downloads: copy both "
                            "again",
                            path, quote(tensor.name), index,
                            at == told.end() ? "does not name it" : fmt::format("maps it to {}", at->second)));
        }
    }
}

std::vector<const StoredTensor*> WeightFiles::tensors() const {
    std::vector<const StoredTensor*> all;
    for (const auto& [name, place] : places_) all.push_back(place.tensor);
    return all;
}

const WeightFiles::Place& WeightFiles::place(std::string_view tensor) const {
    if (const auto found = places_.find(tensor); found != places_.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [name, unused] : places_) names.push_back(name);
    throw Error(path_ + ": no tensor " + quote(tensor) + choices("it has", tensor, std::move(names)));
}

const SafetensorsFile& WeightFiles::file_of(std::string_view tensor) const { return *place(tensor).file; }

const StoredTensor& WeightFiles::tensor(std::string_view name) const { return *place(name).tensor; }

}  // namespace orrery

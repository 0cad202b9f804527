#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "compile/recipe.h"
#include "orrery/program.h"

namespace orrery {

/// Describes how a model is published and where its params are stored there: all that an export needs besides a
/// checkpoint. Stored as JSON in the run's folder and, under `key`, in each checkpoint's manifest.
struct PublishedRecord {
    static constexpr const char* key = "published";
    /// 3: of islands. 2: with tensors for each index of a param (*), or interleaved params. Other records are of
    /// version 1.
    static constexpr int64_t version = 3;

    std::string architecture;               ///< model_type in transformers; "": not a published architecture
    std::string problem;                    ///< why the model is not a published architecture; "": it is one
    std::vector<std::string> unnamed;       ///< params without a published name, although others have one
    bool islands = false;                   ///< whether params have a row for each island: the mean is exported; of
                                            ///< outer params where the checkpoint has them
    Json config = Json::object();           ///< content of config.json
    Json generation = nullptr;              ///< content of generation_config.json; null: derived from config
    std::vector<WeightSource> params = {};  ///< all params, again for each tensor that repeats one; a tensor name is
                                            ///< empty if no table names the param

    /// The record as JSON, of the lowest version that has all of it, so that older programs can read it.
    std::string text() const;
    /// Parses a record. Throws Error that begins with `place` if the record is of a newer version or invalid.
    static PublishedRecord parse(std::string_view text, const std::string& place);
    /// The record of a training program, from what its script declares about published files.
    static PublishedRecord of(const Program& program, const PublishedWeights& weights);

    /// The dtype of the published weights that config.json names; f32 if it names none.
    DType dtype() const;
    /// If config.json names no dtype, takes the dtype of the files that the run starts from.
    void take_dtype(const std::string& weights);
    /// Throws Error naming params that have no name in the published model.
    void require_published(const std::string& run) const;
};

}  // namespace orrery

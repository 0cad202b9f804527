#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "compile/recipe.h"
#include "orrery/program.h"

namespace orrery {

/// How a model is published, and where its params lie there: all that an export needs beside a checkpoint. Kept as JSON
/// in the run's folder and in each checkpoint's manifest, where readers find it under `key`.
struct PublishedRecord {
    static constexpr const char* key = "published";
    static constexpr int64_t version = 1;

    std::string architecture;               ///< model_type of transformers; "": of none that is published
    std::string problem;                    ///< why it is of none
    std::vector<std::string> unnamed;       ///< params that have no name there, where some have
    Json config = Json::object();           ///< config.json
    Json generation = nullptr;              ///< generation_config.json; null: what config says
    std::vector<WeightSource> params = {};  /// all of them; tensor "": no table names them

    std::string text() const;
    /// Throws Error that begins with `place` when it is of a newer version, or says what cannot be.
    static PublishedRecord parse(std::string_view text, const std::string& place);
    /// Of a training program, by what its script says of published files.
    static PublishedRecord of(const Program& program, const PublishedWeights& weights);

    /// Of the published weights, as config.json says; f32 where it does not.
    DType dtype() const;
    /// Where config.json does not say it: that of the files (a safetensors file or folder) which the run begins with.
    void take_dtype(const std::string& weights);
    /// Throws Error naming params that have no name in a published model.
    void require_published(const std::string& run) const;
};

}  // namespace orrery

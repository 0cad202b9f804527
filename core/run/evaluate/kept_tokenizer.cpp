#include "run/evaluate/kept_tokenizer.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/env.h"
#include "base/regular_file.h"
#include "tokenizer/folder.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
using tokenizer::Tokenizer;
using tokenizer::tokenizer_file;

constexpr const char* kept_folder = "tokenizer";

bool there(const std::string& path) { return RegularFile(tokenizer_file(path)).there(); }

/// Path and configuration key of the run's tokenizer, without loading it; nullopt if the run has none.
std::optional<ChosenTokenizer> place_of(Config& config) {
    Config& data = config.table("data");
    const std::string given = data.text("tokenizer", "");
    const std::string folder = config.table("run").text("folder", "");
    const std::string kept = folder.empty() ? "" : (fs::path(folder) / kept_folder).string();
    const bool has_kept = !kept.empty() && there(kept);
    if (!given.empty()) {
        // On a machine without the configured tokenizer, a moved run uses the copy in its folder.
        if (has_kept && !there(given)) return ChosenTokenizer{kept, data.where("tokenizer"), nullptr};
        return ChosenTokenizer{given, data.where("tokenizer"), nullptr};
    }
    Config& checkpoint = config.table("checkpoint");
    const std::string weights = checkpoint.text("load", "");
    std::error_code ignored;
    if (!weights.empty() && fs::is_directory(weights, ignored) && there(weights))
        return ChosenTokenizer{weights, checkpoint.where("load"), nullptr};
    if (has_kept) return ChosenTokenizer{kept, {"", kept}, nullptr};
    return std::nullopt;
}

}  // namespace

std::optional<ChosenTokenizer> choose_tokenizer(Config& config) {
    std::optional<ChosenTokenizer> chosen = place_of(config);
    if (!chosen) return chosen;
    try {
        chosen->tokenizer = Tokenizer::load(chosen->path);
    } catch (const Error& error) {
        throw Error(chosen->asked, fmt::format("the tokenizer {}: {}", chosen->path, error.what()), error.fault());
    }
    Config& data = config.table("data");
    if (!data.has("vocab"))
        data.set("vocab", {chosen->tokenizer->vocabulary(), {"", "default of tokenizer " + chosen->path, 0, 0}, true});
    return chosen;
}

void require_rows(const ChosenTokenizer& chosen, int64_t rows) {
    const int64_t ids = chosen.tokenizer->vocabulary();
    if (rows == 0 || ids <= rows) return;
    throw Error(chosen.asked,
                fmt::format("the tokenizer {} has {} token ids, but the model's vocabulary has {}\n  name the "
                            "tokenizer that the data was made with (data.tokenizer), or increase the vocabulary "
                            "(data.vocab)",
                            chosen.path, ids, rows));
}

void require_kept(const ChosenTokenizer& chosen, const std::string& folder) {
    const std::string kept = (fs::path(folder) / kept_folder).string();
    if (!there(kept)) return;
    const RegularFile copy(tokenizer_file(kept));
    if (!copy.problem().empty()) throw Error(chosen.asked, tokenizer_file(kept) + " " + copy.problem());
    if (system_env()->read_file(tokenizer_file(chosen.path)) == copy.text(static_cast<size_t>(copy.bytes()))) return;
    throw Error(chosen.asked,
                fmt::format("the tokenizer {} differs from the one that the run in {} was trained with, whose copy is "
                            "{}\n  name that copy (data.tokenizer), or choose another run.folder",
                            chosen.path, folder, kept));
}

void keep_tokenizer(const ChosenTokenizer& chosen, const std::string& folder) {
    const fs::path kept = fs::path(folder) / kept_folder, partial = fs::path(folder) / "tokenizer.part";
    if (there(kept.string())) return require_kept(chosen, folder);
    const auto env = system_env();
    std::error_code problem;
    fs::remove_all(partial, problem);  // removes a partial copy that a killed start left
    env->make_folders(partial.string());
    const fs::path main = tokenizer_file(chosen.path);
    const std::vector<std::string>& names = tokenizer::published_files();
    env->replace_file((partial / names.front()).string(), env->read_file(main.string()));
    // Files next to the tokenizer belong to it only if it is named tokenizer.json.
    for (const std::string& name : names)
        if (const fs::path beside = main.parent_path() / name;
            main.filename() == names.front() && beside != main && RegularFile(beside.string()).problem().empty())
            env->replace_file((partial / name).string(), env->read_file(beside.string()));
    fs::rename(partial, kept, problem);
    if (problem)
        throw Error(fmt::format("cannot rename {} to {}: {}", partial.string(), kept.string(), problem.message()),
                    Fault::failed);
}

}  // namespace orrery

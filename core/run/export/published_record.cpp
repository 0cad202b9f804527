#include "run/export/published_record.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "compile/islands.h"
#include "run/checkpoint/restore/weight_files.h"

namespace orrery {

namespace {

Json json_of(const WeightSource& source) {
    Json json = {{"param", source.param}};
    if (source.tensor.empty()) return json;
    json["tensor"] = source.tensor;
    if (source.transpose) json["turned"] = true;
    if (source.dim >= 0) json["piece"] = {{"dim", source.dim}, {"start", source.start}, {"size", source.size}};
    if (source.stride > 1) json["piece"]["stride"] = source.stride;
    if (source.padded >= 0) json["padded"] = {{"dim", source.padded}, {"count", source.rows}};
    return json;
}

WeightSource source_of(const Json& json) {
    WeightSource source;
    source.param = json.at("param").get<std::string>();
    const std::string what = "param " + quote(source.param);
    if (json.contains("tensor")) source.tensor = json["tensor"].get<std::string>();
    source.stacked = source.tensor.find('*') != std::string::npos;
    if (json.contains("turned")) source.transpose = json["turned"].get<bool>();
    const auto dim_of = [&](const Json& part) {
        const int64_t dim = whole_number(part.at("dim"), what + ": a dim");
        if (dim > 64) throw Error(fmt::format("{}: a dim is {}", what, dim));
        return static_cast<int>(dim);
    };
    if (json.contains("piece")) {
        source.dim = dim_of(json["piece"]);
        source.start = whole_number(json["piece"].at("start"), what + ": its start");
        source.size = whole_number(json["piece"].at("size"), what + ": its size");
        if (json["piece"].contains("stride"))
            source.stride = std::max<int64_t>(1, whole_number(json["piece"]["stride"], what + ": its stride"));
    }
    if (json.contains("padded")) {
        source.padded = dim_of(json["padded"]);
        source.rows = whole_number(json["padded"].at("count"), what + ": its count");
    }
    return source;
}

/// Replaces the numbers of layers: "layers.11.mlp.up.weight" -> "layers.*.mlp.up.weight".
std::string kind_of(const std::string& param) {
    std::vector<std::string> parts = split(param, '.');
    for (std::string& part : parts)
        if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) part = "*";
    return join(parts, ".");
}

/// Lists params by names without layer numbers, at most eight: "layers.*.self_attn.q.bias (2), head.weight".
std::string told_by_kind(const std::vector<std::string>& params) {
    std::vector<std::pair<std::string, int64_t>> kinds;
    for (const std::string& param : params) {
        const std::string kind = kind_of(param);
        const auto known = std::find_if(kinds.begin(), kinds.end(), [&](const auto& one) { return one.first == kind; });
        if (known == kinds.end())
            kinds.emplace_back(kind, 1);
        else
            ++known->second;
    }
    std::vector<std::string> told;
    for (const auto& [kind, count] : kinds) told.push_back(count > 1 ? fmt::format("{} ({})", kind, count) : kind);
    return join_few(told, 8);
}

}  // namespace

std::string PublishedRecord::text() const {
    const bool plain =
        std::ranges::none_of(params, [](const auto& source) { return source.stacked || source.stride > 1; });
    Json json = {{"version", islands ? version : plain ? 1 : 2}, {"architecture", architecture}};
    if (islands) json["islands"] = true;
    if (!problem.empty()) json["problem"] = problem;
    if (!unnamed.empty()) json["unnamed"] = unnamed;
    json["config"] = config;
    if (!generation.is_null()) json["generation"] = generation;
    json["params"] = Json::array();
    for (const WeightSource& source : params) json["params"].push_back(json_of(source));
    return json.dump();
}

PublishedRecord PublishedRecord::parse(std::string_view text, const std::string& place) {
    const Origin where{"", place, 0, 0};
    const Json json = parse_json(text, where);
    try {
        if (!json.is_object()) throw Error("it is not an object");
        if (const int64_t found = whole_number(json.at("version"), "its version"); found > version)
            throw Error(fmt::format("unsupported version {}: orrery {} reads up to version {}; use a newer orrery",
                                    found, ORRERY_VERSION, version));
        PublishedRecord record;
        record.architecture = json.at("architecture").get<std::string>();
        if (json.contains("problem")) record.problem = json["problem"].get<std::string>();
        if (json.contains("unnamed")) record.unnamed = json["unnamed"].get<std::vector<std::string>>();
        if (json.contains("islands")) record.islands = json["islands"].get<bool>();
        record.config = json.at("config");
        if (!record.config.is_object()) throw Error("its config is not an object");
        if (json.contains("generation")) record.generation = json["generation"];
        for (const Json& param : json.at("params")) record.params.push_back(source_of(param));
        return record;
    } catch (const Error& problem) {
        throw Error(where, problem.what());
    } catch (const Json::exception& problem) {
        throw Error(where, reason_of(problem));
    }
}

PublishedRecord PublishedRecord::of(const Program& program, const PublishedWeights& weights) {
    PublishedRecord record;
    record.params = weights.sources;
    if (record.params.empty())
        for (const ValueId id : program.params()) {
            WeightSource source;
            source.param = program.value(id).name;
            record.params.push_back(std::move(source));
        }
    record.islands = !program.axes_with(islands_option).empty();
    if (weights.published.empty()) {
        record.problem = weights.sources.empty() ? "its script names no published tensors (program:weights)"
                                                 : "its table of weights has no `published`";
        return record;
    }
    const Json said = parse_json(weights.published, {"", "weights: published", 0, 0});
    try {
        const auto text = [&](const char* key) { return said.contains(key) ? said[key].get<std::string>() : ""; };
        record.architecture = text("type");
        record.problem = text("problem");
        if (said.contains("unnamed") && !said["unnamed"].empty())
            record.unnamed = said["unnamed"].get<std::vector<std::string>>();
        if (said.contains("config")) record.config = said["config"];
        if (said.contains("generation")) record.generation = said["generation"];
        if (said.contains("repeats"))
            for (const auto& [tensor, of] : said["repeats"].items())
                for (const WeightSource& source : weights.sources)
                    if (source.tensor == of.get<std::string>()) record.params.emplace_back(source).tensor = tensor;
        if (!record.config.is_object()) throw Error("weights: published.config is not a table of keys");
        if (record.architecture.empty() && record.problem.empty())
            throw Error("weights: published has no type, such as \"llama\"");
    } catch (const Json::exception& problem) {
        throw Error("weights: published: " + reason_of(problem));
    }
    return record;
}

DType PublishedRecord::dtype() const {
    for (const char* name : {"dtype", "torch_dtype"}) {
        if (!config.contains(name) || !config[name].is_string()) continue;
        const auto said = config[name].get<std::string>();
        if (said == "bfloat16") return DType::bf16;
        if (said == "float16") return DType::f16;
        break;
    }
    return DType::f32;
}

void PublishedRecord::take_dtype(const std::string& weights) {
    for (const char* name : {"dtype", "torch_dtype"})
        if (config.contains(name) && config[name].is_string()) return;
    try {
        const WeightFiles files(weights);
        for (const StoredTensor* tensor : files.tensors()) {
            if (!tensor->foreign.empty() || !is_float(tensor->type.dtype)) continue;
            const DType dtype = tensor->type.dtype;
            config["dtype"] = dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
            return;
        }
    } catch (const Error&) {
        // Ignored: a resumed run does not read the files, and a new run reports the error when it loads them.
    }
}

void PublishedRecord::require_published(const std::string& run) const {
    if (!architecture.empty()) return;
    std::vector<std::string> without = unnamed;
    if (without.empty() && config.empty())
        for (const WeightSource& param : params)
            if (param.tensor.empty()) without.push_back(param.param);
    const std::string names = without.empty() ? ""
                                              : fmt::format("\n  {} of its {} params have no published name: {}",
                                                            without.size(), params.size(), told_by_kind(without));
    throw Error(
        fmt::format("export: the model of {} has no published architecture: {}{}\n  write the params under "
                    "their own names with --raw",
                    run, problem, names));
}

}  // namespace orrery

#include "run/products/product_cache.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "base/hash.h"
#include "base/json.h"
#include "base/regular_file.h"
#include "base/text.h"

namespace orrery {
namespace {

constexpr const char* format_name = "orrery products";
constexpr int64_t version = 1;
constexpr size_t most_bytes = 1 << 20;

Json json_of(const std::vector<TriedProducts>& tried) {
    Json list = Json::array();
    for (const TriedProducts& one : tried) {
        Json entry = {{"name", one.name}};
        if (one.why_not.empty() && one.rate == 0) {
            entry["timed"] = false;
        } else if (one.why_not.empty()) {
            entry["flop_s"] = one.rate;
            entry["best_flop_s"] = one.best;
        } else {
            entry["why_not"] = one.why_not;
        }
        list.push_back(std::move(entry));
    }
    return list;
}

double rate_of(const Json& entry, const char* key) {
    const double rate = entry.at(key).get<double>();
    if (!std::isfinite(rate) || rate <= 0) throw Error(fmt::format("a rate is {}", rate));
    return rate;
}

std::vector<TriedProducts> tried_of(const Json& list) {
    if (!list.is_array()) throw Error("its kinds are no list");
    std::vector<TriedProducts> tried;
    for (const Json& entry : list) {
        TriedProducts one{entry.at("name").get<std::string>()};
        if (entry.contains("why_not")) {
            one.why_not = entry["why_not"].get<std::string>();
            if (one.why_not.empty()) throw Error("a reason is empty");
        } else if (entry.contains("timed")) {
            if (entry["timed"].get<bool>()) throw Error("a rate is missing");
        } else {
            one.rate = rate_of(entry, "flop_s");
            one.best = rate_of(entry, "best_flop_s");
        }
        tried.push_back(std::move(one));
    }
    return tried;
}

/// One document of this project's, with `reason_of` in place of the library's words.
template <class F>
auto parsed(std::string_view text, F read) {
    try {
        return read(parse_json(text, {}));
    } catch (const Json::exception& problem) {
        throw Error(reason_of(problem));
    }
}

/// What a file holds for this machine. Throws Error with why it cannot be used.
std::vector<TriedProducts> read_file(std::string_view text, const ProductKinds& kinds, DType dtype) {
    return parsed(text, [&](const Json& json) {
        if (!json.is_object() || !json.contains("format") || json["format"] != format_name)
            throw Error("it is no file of measured products");
        if (const int64_t found = whole_number(json.at("version"), "its version"); found != version)
            throw Error(fmt::format("it has version {}, expected {}", found, version));
        Json whole = json;
        const auto digest = whole.at("digest").get<std::string>();
        whole.erase("digest");
        if (sha256(whole.dump()) != digest) throw Error("it is damaged: its contents do not match its digest");
        if (json.at("machine") != kinds.machine || json.at("type") != name_of(dtype))
            throw Error("it is of another machine");
        std::vector<TriedProducts> tried = tried_of(json.at("kinds"));
        std::vector<std::string> names;
        for (const TriedProducts& one : tried) names.push_back(one.name);
        if (names != kinds.names) throw Error("it has other kinds: " + join(names, ", "));
        return tried;
    });
}

}  // namespace

std::string text_of(const std::vector<TriedProducts>& tried) { return message_text(json_of(tried)); }

std::vector<TriedProducts> parse_tried(std::string_view text) { return parsed(text, tried_of); }

std::string ProductCache::path(const ProductKinds& kinds, DType dtype) const {
    const std::string key = fmt::format("{}\n{}\n{}", version, kinds.machine, name_of(dtype));
    return fmt::format("{}/products/{}-{}.json", folder_, sha256(key).substr(0, 16), name_of(dtype));
}

std::optional<std::vector<TriedProducts>> ProductCache::find(const ProductKinds& kinds, DType dtype,
                                                             std::vector<std::string>& notes) const {
    if (folder_.empty()) return std::nullopt;
    const std::string file = path(kinds, dtype);
    try {
        const RegularFile found(file);
        if (!found.there() && !env_.exists(file)) return std::nullopt;
        if (!found.problem().empty()) throw Error("it " + found.problem());
        return read_file(found.text(most_bytes), kinds, dtype);
    } catch (const Error& problem) {
        notes.push_back(fmt::format("products: {} cannot be used, they are measured anew: {}", file, problem.what()));
        return std::nullopt;
    }
}

void ProductCache::keep(const ProductKinds& kinds, DType dtype, const std::vector<TriedProducts>& tried,
                        std::vector<std::string>& notes) const {
    if (folder_.empty()) {
        notes.push_back("products: what was measured is not kept: there is neither XDG_CACHE_HOME nor HOME");
        return;
    }
    Json json = {{"format", format_name},
                 {"version", version},
                 {"machine", kinds.machine},
                 {"type", name_of(dtype)},
                 {"kinds", json_of(tried)}};
    try {
        json["digest"] = sha256(json.dump());
        env_.make_folders(folder_ + "/products");
        env_.replace_file(path(kinds, dtype), json.dump(1) + "\n");
    } catch (const std::exception& problem) {  // also a name that is not UTF-8
        notes.push_back(fmt::format("products: what was measured is not kept: {}", problem.what()));
    }
}

std::string cache_folder() {
    const char* const given = std::getenv("XDG_CACHE_HOME");
    if (given && *given == '/') return std::string(given) + "/orrery";
    const char* const home = std::getenv("HOME");
    return home && *home == '/' ? std::string(home) + "/.cache/orrery" : "";
}

}  // namespace orrery

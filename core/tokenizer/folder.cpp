#include "tokenizer/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/files/json_file.h"
#include "base/json.h"
#include "base/text.h"

namespace orrery::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr const char* main_file = "tokenizer.json";
constexpr int64_t longest = 64 << 20;  ///< max bytes of a JSON file

fs::path folder_of(const std::string& path) {
    std::error_code ignored;
    return fs::is_directory(path, ignored) ? fs::path(path) : fs::path(path).parent_path();
}

/// Returns the value of a key in a file of a published folder; null when the file or key is missing.
Json key_of(const fs::path& file, const std::string& key) {
    std::error_code ignored;
    if (!fs::exists(file, ignored)) return nullptr;
    const Json json = read_json(file.string(), longest);
    const bool has = json.is_object() && json.contains(key);
    return has ? json.at(key) : Json(nullptr);
}

/// Returns the ids of eos_token_id in generation_config.json, which is a number or a list of numbers.
EndOfText generation_end(const fs::path& file, const Tokenizer& tokenizer) {
    const Json value = key_of(file, "eos_token_id");
    if (value.is_null()) return {};
    EndOfText end{{}, file.string()};
    for (const Json& id : value.is_array() ? value : Json::array({value})) {
        const int64_t whole = whole_number(id, file.string() + ": eos_token_id");
        if (!tokenizer.has(whole))
            throw Error({"", file.string()},
                        fmt::format("eos_token_id is {}, but the tokenizer has no such token: its ids are below {}",
                                    whole, tokenizer.vocabulary()));
        end.ids.push_back(static_cast<int32_t>(whole));
    }
    return end;
}

}  // namespace

const std::vector<std::string>& published_files() {
    static const std::vector<std::string> names = {
        main_file,    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",     "vocab.json",
        "merges.txt", "tokenizer.model",       "chat_template.jinja",     "generation_config.json"};
    return names;
}

std::string tokenizer_file(const std::string& path) {
    std::error_code ignored;
    return fs::is_directory(path, ignored) ? (fs::path(path) / main_file).string() : path;
}

NamedToken named_token(const std::string& path, const std::string& key) {
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
        const fs::path file = folder_of(path) / name;
        Json value = key_of(file, key);
        if (value.is_object() && value.contains("content")) value = Json(value.at("content"));
        if (value.is_string()) return {value.get<std::string>(), file.string()};
    }
    return {};
}

std::vector<std::string> template_notes(const std::string& path, const Tokenizer& tokenizer) {
    struct Side {
        const char *key, *token, *where;
        const std::vector<int32_t>& ids;
    };
    const Side sides[] = {{"add_bos_token", "bos_token", "before", tokenizer.before()},
                          {"add_eos_token", "eos_token", "after", tokenizer.behind()}};
    const fs::path config = folder_of(path) / "tokenizer_config.json";
    std::vector<std::string> notes;
    for (const Side& side : sides) {
        const Json asked = key_of(config, side.key);
        if (!asked.is_boolean()) continue;
        const std::string name = named_token(path, side.token).token;
        const auto id = tokenizer.id_of(name);
        const bool does = id ? std::find(side.ids.begin(), side.ids.end(), *id) != side.ids.end() : !side.ids.empty();
        if (does == asked.get<bool>()) continue;
        notes.push_back(
            fmt::format("settings differ: {} has {} = {}, but the template of {} puts {} {} a text; the "
                        "template is used",
                        config.string(), side.key, asked.get<bool>(), tokenizer_file(path),
                        does ? name.empty() ? "a token" : name : "no " + std::string(side.token), side.where));
    }
    return notes;
}

const std::vector<std::string>& usual_ends() {
    static const std::vector<std::string> names = {"<|endoftext|>", "</s>", "<|end_of_text|>"};
    return names;
}

EndOfText end_of_text(const std::string& path, const Tokenizer& tokenizer) {
    if (EndOfText end = generation_end(folder_of(path) / "generation_config.json", tokenizer); !end.ids.empty())
        return end;
    if (const NamedToken named = named_token(path, "eos_token"); !named.token.empty()) {
        const auto id = tokenizer.id_of(named.token);
        if (!id)
            throw Error({"", named.file},
                        fmt::format("eos_token is {}, which is missing in the tokenizer", quote(named.token)));
        return {{*id}, named.file};
    }
    for (const std::string& usual : usual_ends())
        if (const auto id = tokenizer.id_of(usual)) return {{*id}, "its usual name"};
    return {};
}

}  // namespace orrery::tokenizer

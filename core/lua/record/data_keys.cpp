#include "lua/record/data_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/toml_text.h"
#include "lua/given.h"

namespace orrery::lua {

namespace {

void add_given(Data& data, const char* key, decltype(ConfigValue::data) value, const std::string& shown = "") {
    const Origin& line = data.spec.origin;
    data.given.push_back({"data", key, line, ConfigValue{std::move(value), line, true}, shown});
}

const GivenKey* find_given(const Data& data, const std::string& key) {
    const auto found = std::ranges::find(data.given, key, &GivenKey::key);
    return found == data.given.end() ? nullptr : &*found;
}

bool has_dim(const DataSource& source, std::string_view name, const ConfigValue& size) {
    const int64_t* const wanted = std::get_if<int64_t>(&size.data);
    const auto is = [&](const auto& dim) { return dim.first == name && wanted && dim.second == *wanted; };
    return std::ranges::any_of(source.arrays(),
                               [&](const DataArray& array) { return std::ranges::any_of(array.dims, is); });
}

bool all_give(const std::vector<const Data*>& sources, const GivenKey& key) {
    return key.value && std::ranges::all_of(sources, [&](const Data* other) {
               const GivenKey* const same = find_given(*other, key.key);
               return same && same->value && toml_value(*same->value) == toml_value(*key.value);
           });
}

/// Sets each configuration key that a mixture's source sets: to the sources' common value, or to none if they differ.
void give_of_sources(Data& data, const std::vector<const Data*>& sources) {
    for (const Data* source : sources) {
        data.read.insert(source->read.begin(), source->read.end());
        for (const GivenKey& given : source->given) {
            if (given.table != "data" || given.key == "mix" || given.key == "path" || find_given(data, given.key))
                continue;
            data.given.push_back(given);
            if (all_give(sources, given)) continue;
            data.given.back().value.reset();
            data.given.back().shown = fmt::format("sets {} of only one of the sources", given.key);
        }
    }
}

}  // namespace

std::set<std::string> keys_read(Config& table, const std::function<void()>& part) {
    std::set<std::string> before, read;
    for (const std::string& key : table.keys())
        if (std::exchange(table.find(key)->used, false)) before.insert(key);
    part();
    for (const std::string& key : table.keys()) {
        ConfigValue& value = *table.find(key);
        if (value.used) read.insert(key);
        value.used = value.used || before.count(key) > 0;
    }
    return read;
}

void give_options(Data& data, const Config& options) {
    for (const char* key : {"path", "token_bytes", "vocab", "tokens_per_sequence", "separator", "field"})
        if (const ConfigValue* value = options.find(key)) {
            add_given(data, key, value->data);
            data.read.erase(key);
        }
    const ConfigValue* const sequence = options.find("seq");
    if (!sequence || !has_dim(*data.spec.source, "seq", *sequence)) return;
    add_given(data, "tokens_per_sequence", sequence->data);
    data.read.erase("tokens_per_sequence");  // the source's own size applies, not the configuration's
}

void give_alone(Data& data) {
    const std::string shown = "trains on " + data.function;
    add_given(data, "mix", ConfigValue::List(), shown);
    if (!find_given(data, "path") && data.read.count("path") == 0)
        add_given(data, "path", std::string(), shown + ", which reads no file");
}

void give_mixture(Data& data, const std::vector<DataPart>& parts, const std::vector<const Data*>& sources,
                  bool configured) {
    give_of_sources(data, sources);
    if (configured) return;
    const Origin& line = data.spec.origin;
    ConfigValue::List entries;
    for (const DataPart& part : parts)
        if (const std::string path = part.source->path(); !path.empty())
            entries.push_back({fmt::format("{} {}", part.weight, path), line, true});
    const std::string shown = "trains on " + data.function;
    if (entries.size() == parts.size())
        add_given(data, "mix", std::move(entries));
    else
        data.given.push_back({"data", "mix", line, {}, shown});
    if (data.read.count("path") == 0) add_given(data, "path", std::string(), shown);
}

void give_held_out(Data& data, double share, const std::string& path) {
    add_given(data, "validation", share);
    add_given(data, "validation_path", path, path.empty() ? "gives validation" : "");
}

void give_keys(lua_State* L, const Data& data) {
    for (GivenKey given : data.given) {
        given.read_too = given.table == "data" && data.read.count(given.key) > 0;
        give(L, std::move(given));
    }
}

}  // namespace orrery::lua

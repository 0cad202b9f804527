#include "orrery/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/suggest.h"
#include "base/text.h"

namespace orrery {

namespace {

std::string found(const ConfigValue& value) {
    return std::visit(
        [](const auto& data) -> std::string {
            using T = std::decay_t<decltype(data)>;
            if constexpr (std::is_same_v<T, bool>)
                return data ? "true" : "false";
            else if constexpr (std::is_same_v<T, int64_t>)
                return fmt::format("the integer {}", data);
            else if constexpr (std::is_same_v<T, double>)
                return fmt::format("the number {}", data);
            else if constexpr (std::is_same_v<T, std::string>)
                return "the text " + quote(data);
            else if constexpr (std::is_same_v<T, ConfigValue::List>)
                return "a list";
            else
                return "a table";
        },
        value.data);
}

[[noreturn]] void wrong_type(const Config& table, std::string_view key, const ConfigValue& value,
                             std::string_view expected) {
    const std::string name = table.path().empty() ? std::string(key) : table.path() + "." + std::string(key);
    std::string text = fmt::format("{} is {}, expected {}", name, found(value), expected);
    const double* number = std::get_if<double>(&value.data);
    if (number && *number == std::floor(*number) && std::abs(*number) < 9e15)
        text += fmt::format("\n  write it as {:.0f}", *number);
    throw Error(value.origin, text);
}

[[noreturn]] void absent(const Config& table, std::string_view key, std::string_view expected) {
    const std::string place = table.path().empty() ? "" : " in [" + table.path() + "]";
    throw Error(table.origin(), fmt::format("missing {}{}, expected {}{}", key, place, expected,
                                            choices("keys here", key, table.keys())));
}

template <class T>
const T* read(Config& table, std::string_view key, std::string_view expected) {
    ConfigValue* value = table.find(key);
    if (!value) return nullptr;
    value->used = true;
    const T* data = std::get_if<T>(&value->data);
    if (!data) wrong_type(table, key, *value, expected);
    return data;
}

void remember(std::vector<std::string>& asked, std::string_view key) {
    if (std::find(asked.begin(), asked.end(), key) == asked.end()) asked.emplace_back(key);
}

}  // namespace

std::vector<std::string> Config::keys() const {
    std::vector<std::string> names;
    for (const auto& [key, value] : items_) names.push_back(key);
    return names;
}

/// Returns the table of defaults if the key is to be read there, because this table lacks it; otherwise nullptr.
Config* Config::behind(std::string_view key) {
    if (!defaults_ || !find(key)) return defaults_;
    remember(defaults_->asked_, key);
    if (ConfigValue* hidden = defaults_->find(key)) hidden->used = true;
    return nullptr;
}

bool Config::flag(std::string_view key, bool fallback) {
    remember(asked_, key);
    if (Config* defaults = behind(key)) return defaults->flag(key, fallback);
    const bool* data = read<bool>(*this, key, "true or false");
    return data ? *data : fallback;
}

int64_t Config::integer(std::string_view key, int64_t fallback) {
    remember(asked_, key);
    if (Config* defaults = behind(key)) return defaults->integer(key, fallback);
    const int64_t* data = read<int64_t>(*this, key, "an integer");
    return data ? *data : fallback;
}

double Config::number(std::string_view key, double fallback) {
    remember(asked_, key);
    if (Config* defaults = behind(key)) return defaults->number(key, fallback);
    if (ConfigValue* value = find(key)) {
        if (const int64_t* whole = std::get_if<int64_t>(&value->data)) {
            value->used = true;
            return static_cast<double>(*whole);
        }
    }
    const double* data = read<double>(*this, key, "a number");
    return data ? *data : fallback;
}

std::string Config::text(std::string_view key, std::string_view fallback) {
    remember(asked_, key);
    if (Config* defaults = behind(key)) return defaults->text(key, fallback);
    const std::string* data = read<std::string>(*this, key, "a text");
    return data ? *data : std::string(fallback);
}

std::vector<std::string> Config::texts(std::string_view key) {
    remember(asked_, key);
    if (Config* defaults = behind(key)) return defaults->texts(key);
    std::vector<std::string> out;
    // Lua does not distinguish an empty list from an empty table.
    if (const ConfigValue* item = find(key))
        if (const auto* table = std::get_if<std::shared_ptr<Config>>(&item->data); table && (*table)->keys().empty())
            return out;
    const auto* list = read<ConfigValue::List>(*this, key, "a list of texts");
    if (!list) return out;
    for (const ConfigValue& item : *list) {
        const std::string* text = std::get_if<std::string>(&item.data);
        if (!text) wrong_type(*this, fmt::format("{}[{}]", key, out.size() + 1), item, "a text");
        out.push_back(*text);
    }
    return out;
}

Config& Config::table(std::string_view key) {
    remember(asked_, key);
    if (Config* defaults = behind(key)) return defaults->table(key);
    if (const auto* data = read<std::shared_ptr<Config>>(*this, key, "a table")) return **data;
    const std::string path = path_.empty() ? std::string(key) : path_ + "." + std::string(key);
    auto empty = std::make_shared<Config>(path, origin_);
    items_.emplace_back(std::string(key), ConfigValue{empty, origin_, true});
    return *empty;
}

int64_t Config::require_integer(std::string_view key) {
    if (!has(key)) absent(*this, key, "an integer");
    return integer(key, 0);
}

std::string Config::require_text(std::string_view key) {
    if (!has(key)) absent(*this, key, "a text");
    return text(key, "");
}

void Config::reject_unused() const {
    for (const auto& [key, value] : items_) {
        const auto* below = std::get_if<std::shared_ptr<Config>>(&value.data);
        if (value.used && below) (*below)->reject_unused();
        if (value.used) continue;
        const std::string what = below ? "table" : "key";
        const std::string place = path_.empty() ? "" : " in [" + path_ + "]";
        throw Error(value.origin,
                    fmt::format("unknown {} {}{}{}", what, quote(key), place,
                                asked_.empty() ? "\n  nothing is read here" : choices("known here", key, asked_)));
    }
}

Origin Config::where(std::string_view key) const {
    const ConfigValue* value = find(key);
    if (!value && defaults_ && defaults_->has(key)) return defaults_->where(key);
    return value ? value->origin : origin_;
}

void Config::set(std::string_view key, ConfigValue value) {
    if (ConfigValue* old = find(key)) {
        *old = std::move(value);
    } else {
        items_.emplace_back(std::string(key), std::move(value));
    }
}

void Config::of_host(std::string_view key) {
    if (ConfigValue* value = find(key)) value->per_host = true;
    if (defaults_) defaults_->of_host(key);
}

const ConfigValue* Config::find(std::string_view key) const {
    for (const auto& [name, value] : items_) {
        if (name == key) return &value;
    }
    return nullptr;
}

ConfigValue* Config::find(std::string_view key) {
    return const_cast<ConfigValue*>(static_cast<const Config*>(this)->find(key));
}

}  // namespace orrery

#include "cli/run_record/given_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "config/load.h"
#include "config/toml_text.h"

namespace orrery {
namespace {

/// Whether two values are equal; 1 and 1.0 are.
bool same(const ConfigValue& a, const ConfigValue& b) {
    const auto text = [](const ConfigValue& value) {
        const int64_t* const whole = std::get_if<int64_t>(&value.data);
        return whole ? toml_value({static_cast<double>(*whole), {}}) : toml_value(value);
    };
    return text(a) == text(b);
}

bool is_empty(const ConfigValue& value) {
    const std::string text = toml_value(value);
    return text == "[]" || text == "\"\"";
}

bool is_asked(const ConfigValue* value) {
    if (!value) return false;
    const Source source = source_of(value->origin);
    return source == Source::set || source == Source::file;
}

std::string line_of(Origin origin) {
    origin.column = 0;
    return origin.text();
}

Config& own_table(Config& root, const std::string& name) {
    const ConfigValue* const known = root.find(name);
    if (!known) return root.table(name);
    ConfigValue copy = *known;
    copy.data = std::make_shared<Config>(*std::get<std::shared_ptr<Config>>(known->data));
    root.set(name, std::move(copy));
    return root.table(name);
}

}  // namespace

void GivenKeys::keep(GivenKey key) {
    std::erase_if(keys_, [&](const GivenKey& old) { return old.table == key.table && old.key == key.key; });
    if (key.value) keys_.push_back(std::move(key));
}

std::string GivenKeys::add(Config& config, const GivenKey& key) {
    const ConfigValue* const was = config.table(key.table).find(key.key);
    const bool equal = was && key.value && same(*was, *key.value);
    const bool asked = is_asked(was) && !(is_empty(*was) && !key.shown.empty());
    const bool ran = key.value && (key.shown.empty() || was) && !(equal && (asked || !key.shown.empty()));
    GivenKey kept = key;
    // the script also reads the key, so the configured value may be in use
    if (!ran || (key.read_too && !key.shown.empty())) kept.value.reset();
    keep(std::move(kept));
    if (!asked || equal || key.read_too) return "";
    const std::string name = key.table + "." + key.key, call = line_of(key.line);
    const std::string does = key.shown.empty() ? "gives " + toml_value(*key.value) : key.shown;
    if (source_of(was->origin) == Source::set)
        throw Error(was->origin,
                    fmt::format("{} has no effect: the script at {} {}\n  remove the value from the script, or "
                                "leave --set {} out",
                                name, call, does, name));
    return fmt::format("{} = {} of {} has no effect: the script at {} {}", name, toml_value(*was), line_of(was->origin),
                       call, does);
}

Config GivenKeys::over(const Config& config) const {
    Config all = config;
    ConfigValue::List list;
    for (const GivenKey& key : keys_) {
        Config& table = own_table(all, key.table);
        const ConfigValue* const was = table.find(key.key);
        std::string entry = key.table + "." + key.key;
        if (was && source_of(was->origin) != Source::fallback) entry += "=" + toml_value(*was);
        list.push_back({std::move(entry), {}});
        table.set(key.key, *key.value);
    }
    if (list.empty()) return all;
    const Origin why{"", "set by calls of the script; after =, the value of the configuration", 0, 0};
    own_table(all, "run").set("given", {std::move(list), why});
    return all;
}

}  // namespace orrery

#include "config/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#define TOML_HEADER_ONLY 1
// toml++ asserts that a key follows "[" before it reports that none does, but "[!]" is an error of the user.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>

#include "base/regular_file.h"
#include "base/suggest.h"
#include "base/text.h"
#include "config/bounds.h"
#include "config/schema.h"
#include "config/toml_text.h"

namespace orrery {

namespace {

std::string path_of(std::string_view table, std::string_view key) {
    return table.empty() ? std::string(key) : fmt::format("{}.{}", table, key);
}

/// Which keys a file may have: those of the schema, as a run's configuration, or any.
enum class Keys : uint8_t { schema, own };

class Copy {
public:
    /// `fixed`: the origin of all values (a --set text); nullptr: each value has its file, line and column.
    Copy(std::string file, const Origin* fixed, Keys keys = Keys::schema)
        : file_(std::move(file)), fixed_(fixed), keys_(keys) {}

    void table(const toml::table& from, Config& to) const {
        std::vector<std::pair<const toml::key*, const toml::node*>> entries;
        for (auto&& [key, node] : from) entries.emplace_back(&key, &node);
        std::ranges::stable_sort(entries, {}, [](const auto& e) {  // in the order of the file; toml++ sorts by name
            return std::pair(e.first->source().begin.line, e.first->source().begin.column);
        });
        for (const auto& [key, node] : entries) entry(std::string(key->str()), key->source(), *node, to);
    }

private:
    Origin at(const toml::source_region& source) const {
        if (fixed_) return *fixed_;
        return {"", file_, static_cast<int>(source.begin.line), static_cast<int>(source.begin.column)};
    }

    void entry(const std::string& key, const toml::source_region& key_source, const toml::node& node,
               Config& to) const {
        const std::string path = path_of(to.path(), key);
        if (keys_ == Keys::own) return own_entry(key, path, node, to);
        if (const toml::table* below = node.as_table()) {
            if (find_schema(to.path(), key) && !is_known_table(path)) wrong_type(to.path(), key, node);
            if (!is_known_table(path) && !is_open_table(to.path())) unknown(to.path(), key, key_source, "table");
            table(*below, sub_table(to, key, at(below->source())));
            return;
        }
        if (is_known_table(path) && !find_schema(to.path(), key) && !is_open_table(to.path()))
            throw Error(at(key_source), fmt::format("{} is {}, expected a table{}", path, found(node), owner_of(key)));
        check(to.path(), key, key_source, node);
        ConfigValue made = value(path, node);
        made.per_host = is_per_host(to.path(), key);
        to.set(key, std::move(made));
    }

    void own_entry(const std::string& key, const std::string& path, const toml::node& node, Config& to) const {
        const toml::table* below = node.as_table();
        if (below)
            table(*below, sub_table(to, key, at(below->source())));
        else
            to.set(key, value(path, node));
    }

    Config& sub_table(Config& to, const std::string& key, const Origin& origin) const {
        ConfigValue* old = to.find(key);
        if (old && std::holds_alternative<std::shared_ptr<Config>>(old->data))
            return *std::get<std::shared_ptr<Config>>(old->data);
        auto made = std::make_shared<Config>(path_of(to.path(), key), origin);
        to.set(key, ConfigValue{made, origin, false});
        return *made;
    }

    ConfigValue value(const std::string& path, const toml::node& node) const {
        const Origin origin = at(node.source());
        if (const auto* flag = node.as_boolean()) return {flag->get(), origin, false};
        if (const auto* integer = node.as_integer()) return {integer->get(), origin, false};
        if (const auto* number = node.as_floating_point()) {
            if (!std::isfinite(number->get()))
                throw Error(origin, fmt::format("{} is {}, expected a finite number", path, found(node)));
            return {number->get(), origin, false};
        }
        if (const auto* text = node.as_string()) return {text->get(), origin, false};
        if (const toml::array* array = node.as_array()) {
            ConfigValue::List list;
            for (const toml::node& item : *array) list.push_back(value(path, item));
            return {std::move(list), origin, false};
        }
        if (const toml::table* below = node.as_table()) {
            auto made = std::make_shared<Config>(path, origin);
            table(*below, *made);
            return {std::move(made), origin, false};
        }
        throw Error(origin,
                    fmt::format("unsupported type: {} is {}\n  write it as text, in quotes", path, found(node)));
    }

    static std::string found(const toml::node& node) {
        if (const auto* text = node.as_string()) return "the text " + quote(text->get());
        if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
        if (const auto* integer = node.as_integer()) return fmt::format("the integer {}", integer->get());
        if (const auto* number = node.as_floating_point()) return fmt::format("the number {}", number->get());
        if (node.is_array()) return "a list";
        return node.is_table() ? "a table" : "a date or time";
    }

    static std::string owner_of(const std::string& key) {
        for (const SchemaKey& known : schema())
            if (known.key == key) return fmt::format("\n  did you mean {} below [{}]?", key, known.table);
        return is_known_table(key) ? fmt::format("\n  write [{}] and its keys below it", key) : "";
    }

    [[noreturn]] void unknown(std::string_view table, const std::string& key, const toml::source_region& source,
                              std::string_view what) const {
        const std::string place = table.empty() ? "" : fmt::format(" in [{}]", table);
        const std::string remedy = table.empty() && what == "key" ? owner_of(key) : "";
        throw Error(at(source), fmt::format("unknown {} {}{}{}{}", what, quote(key), place,
                                            choices("known here", key, schema_names(table)), remedy));
    }

    [[noreturn]] void wrong_type(std::string_view table, const std::string& key, const toml::node& node) const {
        const SchemaKey* known = find_schema(table, key);
        std::string text = fmt::format("{} is {}, expected {}", path_of(table, key), found(node), name_of(known->kind));
        const auto* quoted = node.as_string();
        if (quoted && known->kind != ConfigKind::texts) text += "\n  write it without the quotes";
        if (known->kind == ConfigKind::text && !node.is_table() && !node.is_array()) text += "\n  write it in quotes";
        throw Error(at(node.source()), text);
    }

    void check(std::string_view table, const std::string& key, const toml::source_region& key_source,
               const toml::node& node) const {
        const SchemaKey* known = find_schema(table, key);
        if (!known && is_open_table(table)) return;
        if (!known) unknown(table, key, key_source, "key");
        const auto is_text = [](const toml::node& n) { return n.is_string(); };
        bool fits = false;
        switch (known->kind) {
            case ConfigKind::flag: fits = node.is_boolean(); break;
            case ConfigKind::integer: fits = node.is_integer(); break;
            case ConfigKind::number: fits = node.is_number(); break;
            case ConfigKind::text: fits = node.is_string(); break;
            case ConfigKind::texts: fits = node.is_array() && std::ranges::all_of(*node.as_array(), is_text); break;
        }
        if (!fits) wrong_type(table, key, node);
        bounds(*known, path_of(table, key), node);
    }

    void bounds(const SchemaKey& known, const std::string& path, const toml::node& node) const {
        const auto number = node.value<double>();
        if (number && !(*number >= known.least))
            throw Error(at(node.source()), fmt::format("{} is {}, expected at least {}", path, *number, known.least));
        if (known.one_of.empty()) return;
        const std::vector<std::string> allowed = split(known.one_of, '|');
        const std::string& given = node.as_string()->get();
        if (std::ranges::find(allowed, given) == allowed.end())
            throw Error(at(node.source()),
                        fmt::format("{} is {}{}", path, quote(given), choices("it can be", given, allowed)));
    }

    std::string file_;
    const Origin* fixed_;
    Keys keys_;
};

toml::table parse(std::string_view text, const std::string& name) {
    check_toml_bounds(text, name);
    try {
        return toml::parse(text, std::string_view(name));
    } catch (const toml::parse_error& error) {
        const auto& begin = error.source().begin;
        throw Error({"", name, static_cast<int>(begin.line), static_cast<int>(begin.column)},
                    "bad TOML: " + std::string(error.description()));
    }
}

/// Whether the value in a --set text is a bare word, that is, does not begin with a quote or bracket of a TOML value.
bool bare(std::string_view text) {
    return !text.empty() && std::string_view("\"'[{").find(text.front()) == std::string_view::npos &&
           text.find('\n') == std::string_view::npos;
}

/// Throws Error for "table.key=" without a value, unless the key takes a text, or belongs to a plugin or the script.
void refuse_no_value(const SchemaKey* known, const Origin& origin) {
    if (!known || known->kind == ConfigKind::text) return;
    const bool list = known->kind == ConfigKind::texts;
    throw Error(origin, fmt::format("missing value after the \"=\", expected {}\n  {}", name_of(known->kind),
                                    list ? "an empty list is written []" : "omit the key to use its default"));
}

toml::table parse_set(const std::string& set, const Origin& origin) {
    const size_t equals = set.find('=');
    const std::string key(trim(std::string_view(set).substr(0, equals)));
    if (equals == std::string::npos || key.empty() || key.find('.') == std::string::npos)
        throw Error(origin, "expected table.key=value, for example --set mesh.tp=2");
    const std::string text(trim(std::string_view(set).substr(equals + 1)));
    const size_t dot = key.rfind('.');
    const SchemaKey* known = find_schema(key.substr(0, dot), key.substr(dot + 1));
    if (text.empty()) refuse_no_value(known, origin);
    const bool ascii = std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    const bool as_text = text.empty() || (bare(text) && (!ascii || (known && known->kind == ConfigKind::text)));
    check_toml_bounds(key + (bare(text) ? "=1" : "=" + text), "--set " + set);
    try {
        if (!as_text) return toml::parse(key + " = " + text);
    } catch (const toml::parse_error& error) {
        if (!bare(text)) throw Error(origin, "bad TOML value: " + std::string(error.description()));
    }
    try {
        return toml::parse(key + " = " + toml_string(text));
    } catch (const toml::parse_error& error) {
        throw Error(origin, "bad key: " + std::string(error.description()));
    }
}

/// Returns the keys that have a default, with the default values, which are parsed only once: parsing a hundred texts
/// takes longer than parsing a configuration.
const std::vector<std::pair<const SchemaKey*, ConfigValue>>& defaults() {
    static const auto all = [] {
        const Origin origin{"", "default", 0, 0};
        std::vector<std::pair<const SchemaKey*, ConfigValue>> made;
        for (const SchemaKey& known : schema()) {
            if (known.fallback.empty()) continue;
            const toml::table one = toml::parse(fmt::format("{} = {}", known.key, known.fallback));
            Config wrapped(std::string(known.table), origin);
            Copy("", &origin).table(one, wrapped);
            made.emplace_back(&known, *wrapped.find(known.key));
        }
        return made;
    }();
    return all;
}

void add_defaults(Config& root) {
    for (const auto& [known, value] : defaults()) {
        Config& table = root.table(known->table);  // tables with defaults are not nested
        if (!table.has(known->key)) table.set(known->key, value);
    }
}

void unmark(Config& config) {
    for (const auto& [key, value] : config.items()) {
        config.find(key)->used = false;
        if (const auto* below = std::get_if<std::shared_ptr<Config>>(&value.data)) unmark(**below);
    }
}

/// For keys that the script of a run has set: whether to read the values that the run used or those configured.
enum class GivenKeys : uint8_t { as_ran, as_configured };

constexpr std::string_view given_list = "run.given of ";

std::vector<std::string> take_given(toml::table& file) {
    std::vector<std::string> entries;
    toml::table* const run = file["run"].as_table();
    const toml::array* const list = run ? (*run)["given"].as_array() : nullptr;
    if (!list) return entries;
    for (const toml::node& entry : *list)
        if (const auto* text = entry.as_string()) entries.push_back(text->get());
    run->erase("given");
    return entries;
}

void take_out(toml::table& file, const std::string& entry) {
    const std::string path = entry.substr(0, entry.find('='));
    const size_t dot = std::min(path.rfind('.'), path.size());
    if (toml::table* const table = file[path.substr(0, dot)].as_table()) table->erase(path.substr(dot + 1));
}

Config parse_with(std::string_view toml, const std::string& name, std::span<const std::string> sets, Keys keys,
                  GivenKeys given = GivenKeys::as_ran) {
    Config root("", Origin{"", name, 0, 0});
    toml::table file = parse(toml, name);
    const std::vector<std::string> entries = keys == Keys::schema ? take_given(file) : std::vector<std::string>();
    if (given == GivenKeys::as_configured)
        for (const std::string& entry : entries) take_out(file, entry);
    Copy(name, nullptr, keys).table(file, root);
    const Origin listed{"", std::string(given_list) + name, 0, 0};
    for (const std::string& entry : entries)
        if (given == GivenKeys::as_configured && entry.find('=') != std::string::npos)
            Copy("", &listed, keys).table(parse_set(entry, listed), root);
    for (const std::string& set : sets) {
        const Origin origin{"", "--set " + set, 0, 0};
        Copy("", &origin, keys).table(parse_set(set, origin), root);
    }
    return root;
}

}  // namespace

Config parse_toml(std::string_view toml, const std::string& name, std::span<const std::string> sets) {
    return parse_with(toml, name, sets, Keys::own);
}

Config load_toml(const std::filesystem::path& file, std::span<const std::string> sets) {
    const Origin origin{"", file.string(), 0, 0};
    const RegularFile in(file.string());
    if (!in.problem().empty()) throw Error(origin, in.problem());
    return parse_toml(in.text(max_toml_bytes + 1), file.string(), sets);
}

namespace {

Config parse_run(std::string_view toml, const std::string& name, std::span<const std::string> sets, GivenKeys given) {
    Config root = parse_with(toml, name, sets, Keys::schema, given);
    add_defaults(root);
    unmark(root);
    return root;
}

/// Reads a file, up to one byte more than the limit, so that larger files are detected.
std::string text_of(const std::filesystem::path& file) {
    const RegularFile in(file.string());
    if (!in.problem().empty())
        throw Error({"", file.string(), 0, 0}, fmt::format("{}\n  name a TOML file with --config", in.problem()));
    return in.text(max_toml_bytes + 1);
}

}  // namespace

Config parse_config(std::string_view toml, const std::string& name, std::span<const std::string> sets) {
    return parse_run(toml, name, sets, GivenKeys::as_ran);
}

Config load_config(const std::filesystem::path& file, std::span<const std::string> sets) {
    return parse_config(file.empty() ? "" : text_of(file), file.string(), sets);
}

Config load_run_config(const std::filesystem::path& file, std::span<const std::string> sets) {
    return parse_run(text_of(file), file.string(), sets, GivenKeys::as_configured);
}

Source source_of(const Origin& origin) {
    if (origin.line > 0) return Source::file;  // only files have lines
    if (origin.file.starts_with("--set ")) return Source::set;
    if (origin.file.starts_with("default")) return Source::fallback;
    return origin.file.starts_with(given_list) ? Source::given : Source::file;
}

}  // namespace orrery

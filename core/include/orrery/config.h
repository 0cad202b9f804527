#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "orrery/error.h"

namespace orrery {

class Config;

struct ConfigValue {
    using List = std::vector<ConfigValue>;
    std::variant<bool, int64_t, double, std::string, List, std::shared_ptr<Config>> data;
    Origin origin;
    bool used = false;
    bool per_host = false;  ///< each host may have its own value; set by Config::of_host
};

/// One table of the resolved configuration (defaults, then TOML, then --set), or a Lua table of options. Reading a key
/// marks it as used, so that `reject_unused` finds keys that nothing reads. A wrong type throws Error with the place,
/// the key, the type found and the type expected. Keys keep their order.
class ORRERY_API Config {
public:
    Config() = default;
    explicit Config(std::string path, Origin origin = {}) : path_(std::move(path)), origin_(std::move(origin)) {}

    const std::string& path() const { return path_; }  ///< "transport.gloo", "" for the root
    const Origin& origin() const { return origin_; }
    bool has(std::string_view key) const { return find(key) || (defaults_ && defaults_->has(key)); }
    std::vector<std::string> keys() const;

    // Return the value of a key, or `fallback` when the key is absent. number() accepts an integer.
    bool flag(std::string_view key, bool fallback);
    int64_t integer(std::string_view key, int64_t fallback);
    double number(std::string_view key, double fallback);
    std::string text(std::string_view key, std::string_view fallback);
    std::vector<std::string> texts(std::string_view key);
    /// Returns the sub-table `key`, an empty one when it is absent.
    Config& table(std::string_view key);

    // Return the value of a key. Throw Error when the key is absent.
    int64_t require_integer(std::string_view key);
    std::string require_text(std::string_view key);

    /// Declares that each host may have its own value for the key (a network interface): ranks do not compare it.
    void of_host(std::string_view key);

    /// Throws Error naming the first key of this table or a sub-table that nothing has read, with a "did you mean"
    /// among the keys that were read or asked for.
    void reject_unused() const;
    /// The origin of a key: script or file, line and column; that of the table when the key is absent.
    Origin where(std::string_view key) const;

    /// Makes later reads, has() and where() search absent keys in `defaults`, which must outlive this table. A key that
    /// is set in this table counts as used in `defaults` too.
    void fall_back_on(Config& defaults) { defaults_ = &defaults; }

    void set(std::string_view key, ConfigValue value);
    const ConfigValue* find(std::string_view key) const;
    ConfigValue* find(std::string_view key);
    const std::vector<std::pair<std::string, ConfigValue>>& items() const { return items_; }

private:
    Config* behind(std::string_view key);

    std::string path_;
    Origin origin_;
    Config* defaults_ = nullptr;
    std::vector<std::pair<std::string, ConfigValue>> items_;
    std::vector<std::string> asked_;
};

}  // namespace orrery

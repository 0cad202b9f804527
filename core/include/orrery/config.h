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

/// One value of a configuration, with the place it came from.
struct ConfigValue {
    using List = std::vector<ConfigValue>;
    std::variant<bool, int64_t, double, std::string, List, std::shared_ptr<Config>> data;
    Origin origin;
    bool used = false;
    bool per_host = false;  ///< Config::of_host
};

/// One table of the resolved configuration (defaults, then TOML, then --set; or a Lua table of options).
/// A read marks its key as used, so that `reject_unused` finds what nobody reads. Wrong types throw Error with the
/// place, the key, what was found and what is expected. Keys keep their order.
class ORRERY_API Config {
public:
    Config() = default;
    explicit Config(std::string path, Origin origin = {}) : path_(std::move(path)), origin_(std::move(origin)) {}

    const std::string& path() const { return path_; }  ///< "transport.gloo", "" for the root
    const Origin& origin() const { return origin_; }
    bool has(std::string_view key) const { return find(key) || (defaults_ && defaults_->has(key)); }
    std::vector<std::string> keys() const;

    // Reads with a fallback. A number may be written as an integer.
    bool flag(std::string_view key, bool fallback);
    int64_t integer(std::string_view key, int64_t fallback);
    double number(std::string_view key, double fallback);
    std::string text(std::string_view key, std::string_view fallback);
    std::vector<std::string> texts(std::string_view key);
    /// The sub-table; an empty one when absent.
    Config& table(std::string_view key);

    // Reads that throw when the key is absent.
    int64_t require_integer(std::string_view key);
    std::string require_text(std::string_view key);

    /// Says of a key that each host may have another value, as a network interface: ranks do not compare it.
    void of_host(std::string_view key);

    /// Throws naming the first key, here or below, that nothing has read, with a "did you mean" among the keys read
    /// or asked for here.
    void reject_unused() const;
    /// Origin of a key, or of the table when absent.
    Origin where(std::string_view key) const;

    /// From here on the reads, has() and where() look in `defaults`, which must outlive them, for what is not here.
    /// What is here counts as used there, too.
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

#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "base/env.h"

namespace orrery {

/// Lines for people: "12:04:31.250 [rank 1] warning: text". A log without a sink drops everything: the library never
/// prints by itself. Lines of a text are prefixed one by one.
class Log {
public:
    using Sink = std::function<void(std::string_view line)>;
    enum class Level { debug, info, warning };

    Log() = default;
    /// `who` is the prefix, "rank 1"; the env must outlive the log.
    Log(Sink sink, std::string who, Env& env, Level least = Level::info)
        : sink_(std::move(sink)), who_(std::move(who)), env_(&env), least_(least) {}

    void debug(std::string_view text) const { write(Level::debug, text); }
    void info(std::string_view text) const { write(Level::info, text); }
    void warning(std::string_view text) const { write(Level::warning, text); }

private:
    void write(Level level, std::string_view text) const;

    Sink sink_;
    std::string who_;
    Env* env_ = nullptr;
    Level least_ = Level::info;
};

}  // namespace orrery

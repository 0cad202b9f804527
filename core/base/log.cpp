#include "base/log.h"

#include <fmt/format.h>

#include <chrono>

#include "base/text.h"

namespace orrery {

void Log::write(Level level, std::string_view text) const {
    if (!sink_ || level < least_) return;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(env_->wall_clock()).count();
    const int64_t second = ms / 1000 % 86400;
    std::string prefix =
        fmt::format("{:02}:{:02}:{:02}.{:03} ", second / 3600, second / 60 % 60, second % 60, ms % 1000);
    if (!who_.empty()) prefix += "[" + who_ + "] ";
    if (level == Level::warning) prefix += "warning: ";
    for (const std::string& line : split(text, '\n')) sink_(prefix + line);
}

}  // namespace orrery

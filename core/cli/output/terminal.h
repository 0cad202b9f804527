#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace orrery {

/// Whether two open descriptors are of the same file, pipe or terminal.
bool same_file(int a, int b);

/// The standard output and standard error of a command, to which several sources write lines, and the progress line.
/// A line of one source never continues a line of another; the progress line is removed before text and drawn after it.
class Terminal {
public:
    enum Stream : uint8_t { output, errors };

    /// The descriptors; -1: closed. `dumb`: the terminal cannot clear a line, so that it gets no progress line.
    Terminal(int out, int err, bool dumb);

    /// Whether a progress line is shown: standard output is a terminal.
    bool shows_progress() const { return progress_; }
    /// Writes text of a source as it is. Blocks while it is not read; text that cannot be written is dropped.
    void write(Stream stream, int64_t source, std::string_view text);
    /// Sets the progress line, which is drawn at most ten times a second: by this call or by tick().
    void progress(std::string text);
    void tick();
    /// Removes the progress line.
    void clear();
    /// Returns how long write() was blocked since the last call, if that was more than a few seconds, else 0.
    double blocked_s();

private:
    using Clock = std::chrono::steady_clock;
    struct Target {
        int file = -1;
        std::optional<int64_t> open = {};  ///< source of the last line, which has no end yet
    };
    Target& target(Stream stream) { return targets_[one_ ? 0 : stream]; }
    void put(int file, std::string_view text);

    std::array<Target, 2> targets_;
    bool one_ = false, progress_ = false;
    std::string line_;  ///< the progress line; "": none
    bool drawn_ = false, changed_ = false;
    Clock::time_point drawn_at_{};
    double blocked_s_ = 0;
};

}  // namespace orrery

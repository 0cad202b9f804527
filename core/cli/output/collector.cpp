#include "cli/output/collector.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "cli/output/log_writer.h"
#include "cli/output/message.h"
#include "cli/output/terminal.h"
#include "cli/signals.h"

namespace orrery {
namespace {

constexpr size_t last_lines = 20, longest_line = 4096;
constexpr size_t most_held = 1 << 20;
constexpr size_t largest_pipe = 1 << 20;  // what a drained stream may still hold
constexpr auto disk_limit = std::chrono::seconds(5);

/// The last lines of a stream.
class Tail {
public:
    void add(std::string_view text) {
        while (!text.empty()) {
            const size_t end = text.find('\n');
            const std::string_view part = text.substr(0, end);
            open_ += part.substr(0, longest_line - std::min(longest_line, open_.size()));
            if (end == std::string_view::npos) return;
            push();
            text.remove_prefix(end + 1);
        }
    }
    /// Returns the lines and forgets them. `left_out`: whether there were more.
    std::deque<std::string> take(bool& left_out) {
        if (!open_.empty()) push();
        left_out = count_ > lines_.size();
        count_ = 0;
        return std::exchange(lines_, {});
    }

private:
    void push() {
        lines_.push_back(std::exchange(open_, ""));
        ++count_;
        if (lines_.size() > last_lines) lines_.pop_front();
    }

    std::deque<std::string> lines_;
    std::string open_;
    size_t count_ = 0;
};

/// A process, or the ranks that are threads of one, with its streams.
struct Source {
    int64_t number = 0;                                     ///< names it to the terminal and to the logs
    int64_t rank = -1;                                      ///< -1: not a rank, or not known yet
    std::optional<Shown> shown = {};                        ///< not known at first, of the command itself
    std::vector<std::pair<size_t, std::string>> held = {};  ///< text of each stream until `shown` is known
    size_t held_bytes = 0;
    std::array<int, 2> files = {-1, -1};      ///< stdout and stderr; -1: at its end, or the same as stdout
    std::array<std::string, 2> open = {};     ///< a line without its end, if lines are prefixed
    std::array<std::string, 2> unended = {};  ///< a line without its end, not in the log yet
    std::optional<size_t> torn = {};          ///< the stream of the log's last line, which has no end
    Tail errors = {};
    std::string folder = {};  ///< the run's folder; "": not known
    bool one = false;         ///< both streams come through the first pipe
    bool logged = true, has_log = false, ended = false;
    bool unless_logged = false;  ///< shown if it gets no log
    bool follows = false;        ///< it ends because another rank has failed

    bool at_end() const { return files[0] < 0 && files[1] < 0; }
};

class Collector {
public:
    explicit Collector(const CollectedStreams& streams)
        : control_(streams.control), terminal_(streams.terminal, streams.terminal_errors, dumb()) {
        add({.files = {streams.output, streams.errors}});
        send_message(control_, {{"done", 0}});  // the command waits for this
    }

    int run() {
        while (control_ >= 0 || !all_at_end()) turn();
        for (Source& source : sources_) close(source);
        terminal_.progress("");
        logs_.flush(std::chrono::hours(1));
        tell_problems();
        terminal_.clear();
        return 0;
    }

private:
    static bool dumb() {
        const char* term = std::getenv("TERM");
        return !term || !*term || std::string_view(term) == "dumb";
    }

    Source& add(Source source) {
        source.one = source.files[1] < 0;
        for (const int file : source.files)
            if (file >= 0) ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) | O_NONBLOCK);
        return sources_.emplace_back(std::move(source));
    }

    bool all_at_end() const {
        for (const Source& source : sources_)
            if (!source.at_end()) return false;
        return true;
    }

    void turn() {
        std::vector<pollfd> wait = {{control_, POLLIN, 0}};
        for (const Source& source : sources_)
            for (const int file : source.files) wait.push_back({file, POLLIN, 0});
        const bool idle = ::poll(wait.data(), wait.size(), idle_ ? 1000 : 100) == 0;
        if (idle && !idle_)
            for (Source& source : sources_) put_unended(source);
        idle_ = idle;
        size_t i = 1;
        for (Source& source : sources_) {
            // A line on stdout before one on stderr was often flushed for the sake of their order.
            const bool any = wait[i].revents != 0 || wait[i + 1].revents != 0;
            i += 2;
            if (any) read(source, 1 << 16);
        }
        if (wait[0].revents != 0) hear();
        if (control_ < 0) lost();
        sources_.remove_if([this](Source& source) {
            const bool over = source.at_end() && source.number != 0 && source.ended;
            if (over) close(source);
            return over;
        });
        tell_problems();
        terminal_.tick();
    }

    /// Reads `most` bytes of each stream at most.
    void read(Source& source, size_t most) {
        for (const size_t stream : {0, 1}) {
            int& file = source.files[stream];
            std::array<char, 1 << 16> bytes;
            for (size_t all = 0; file >= 0 && all < most;) {
                const ssize_t got = ::read(file, bytes.data(), bytes.size());
                if (got < 0 && errno == EINTR) continue;
                if (got < 0 && errno == EAGAIN) break;
                if (got <= 0) {
                    ::close(std::exchange(file, -1));
                    break;
                }
                all += static_cast<size_t>(got);
                take(source, stream, {bytes.data(), static_cast<size_t>(got)});
            }
        }
    }

    void take(Source& source, size_t stream, std::string_view text) {
        if (source.logged) write_log(source, stream, text);
        if (!source.shown) {
            source.held.emplace_back(stream, text);
            if ((source.held_bytes += text.size()) > most_held) decide(source, unlogged(source));
            return;
        }
        if (source.shown == Shown::nothing && (stream == 1 || source.one)) source.errors.add(text);
        show(source, stream, text);
    }

    /// Writes lines when they are complete, so that lines of the two streams do not tear each other.
    void write_log(Source& source, size_t stream, std::string_view text) {
        std::string& unended = source.unended[stream];
        const size_t end = source.one ? text.size() : text.rfind('\n') + 1;  // npos + 1 is 0
        if (end > 0) put_log(source, stream, std::exchange(unended, "").append(text.substr(0, end)));
        unended += text.substr(end);
        if (unended.size() > largest_pipe) put_log(source, stream, std::exchange(unended, ""));
    }

    void put_log(Source& source, size_t stream, const std::string& text) {
        if (text.empty()) return;
        if (source.torn && *source.torn != stream) logs_.write(source.number, "\n");
        logs_.write(source.number, text);
        source.torn.reset();
        if (text.back() != '\n') source.torn = stream;
    }

    void put_unended(Source& source) {
        for (const size_t stream : {0, 1})
            if (std::string text = std::exchange(source.unended[stream], ""); source.logged)
                put_log(source, stream, text);
    }

    void decide(Source& source, Shown shown) {
        source.shown = shown;
        const bool logged = std::exchange(source.logged, false);  // what was held is in the log
        for (const auto& [stream, text] : std::exchange(source.held, {})) take(source, stream, text);
        source.logged = logged;
    }

    void show(Source& source, size_t stream, std::string_view text) {
        const auto to = stream == 0 ? Terminal::output : Terminal::errors;
        if (source.shown == Shown::plain) terminal_.write(to, source.number, text);
        if (source.shown != Shown::prefixed) return;
        std::string& open = source.open[stream];
        open += text;
        std::string lines;
        size_t begin = 0;
        for (size_t end; (end = open.find('\n', begin)) != std::string::npos; begin = end + 1)
            lines += with_rank(source.rank, std::string_view(open).substr(begin, end - begin));
        open.erase(0, begin);
        if (open.size() > largest_pipe) lines += with_rank(source.rank, std::exchange(open, ""));
        terminal_.write(to, source.number, lines);
    }

    static std::string with_rank(int64_t rank, std::string_view line) {
        const std::string name = fmt::format("[rank {}]", rank);
        const bool named = rank < 0 || line.find(name) != std::string_view::npos;
        return fmt::format("{}{}{}\n", named ? "" : name, named ? "" : " ", line);
    }

    void hear() {
        for (;;) {
            OutputMessage message;
            const Received received = receive(control_, message);
            if (received == Received::nothing) return;
            if (received == Received::end) {
                ::close(std::exchange(control_, -1));
                return;
            }
            if (message.text.is_object()) obey(message);
        }
    }

    Source* of_rank(int64_t rank) {
        Source* found = nullptr;
        for (Source& source : sources_)
            if (source.rank == rank)
                found = &source;  // the newest: a rank of an earlier generation may not be at its end
        return found;
    }

    void obey(const OutputMessage& message) {
        const Json& text = message.text;
        const std::string what = text.value("do", "");
        const int64_t rank = text.value("rank", int64_t{-1});
        if (what == "progress") return terminal_.progress(text.value("text", ""));
        if (what == "rank") {
            if (own().logged) finish_log(own());  // of a launcher: it has no file
            if (message.cut) tell_cut(rank);
            explained_ = false;
            log(add({.number = ++numbers_, .rank = rank, .shown = shown_in(text), .files = message.files}), text);
        } else if (what == "show") {
            own().rank = rank;
            own().unless_logged = !text.contains("shown");
            if (!own().unless_logged) decide(own(), shown_in(text));
        } else if (Source* const source = of_rank(rank); source && what == "place") {
            log(*source, text);
        } else if (source && what == "follows") {
            source->follows = true;
        } else if (source && what == "ended") {
            end(*source, text.value("code", 1), text.value("killed", false));
            acknowledge(text);
        } else if (what == "finish") {
            end(own(), text.value("code", 1));
            finish_log(own());
            logs_.flush(disk_limit);
            tell_problems();
            terminal_.progress("");
            terminal_.clear();
            acknowledge(text);
        }
    }

    void log(Source& source, const Json& text) {
        source.folder = text.value("folder", "");
        if (std::exchange(source.unless_logged, false)) {
            close_lines(source);
            decide(source, Shown::nothing);
        }
        const int64_t generation = text.value("generation", int64_t{0});
        if (generation == 0) return;
        source.has_log = true;
        logs_.begin(source.number, source.folder, generation, source.rank);
    }

    /// Shows the rest of a process that has ended: what it wrote before, and, after a failure, its last lines.
    void end(Source& source, int code, bool killed = false) {
        read(own(), largest_pipe);
        read(source, largest_pipe);
        if (!source.shown) decide(source, unlogged(source));
        close_lines(source);
        source.ended = true;
        if (source.rank <= 0) terminal_.progress("");
        name_log(source);
        const bool stopped = code == stopped_code(SIGTERM) || code == stopped_code(SIGINT);
        if (code != 0 && !stopped && !(source.follows && explained_)) {
            tell_last(source);
            explained_ |= source.rank >= 0 && !killed;
        }
        close(source);
    }

    /// How the output of a source without a log is shown.
    static Shown unlogged(const Source& source) { return source.rank > 0 ? Shown::prefixed : Shown::plain; }

    void tell_cut(int64_t rank) {
        terminal_.write(Terminal::errors, -1,
                        fmt::format("orrery: the output of rank {} is lost: no file descriptors are left to collect "
                                    "it; the run continues\n  raise the limit: ulimit -n\n",
                                    rank));
    }

    void close_lines(Source& source) {
        for (const size_t stream : {0, 1})
            if (!source.open[stream].empty()) show(source, stream, "\n");
    }

    void tell_last(Source& source) {
        bool more = false;
        const auto lines = source.errors.take(more);
        if (source.shown != Shown::nothing) return;
        for (const std::string& line : lines) terminal_.write(Terminal::errors, -1, with_rank(source.rank, line));
        if (more && source.has_log)
            terminal_.write(Terminal::errors, -1,
                            fmt::format("orrery: these are the last {} lines of rank {}; all are in {}/logs\n",
                                        last_lines, source.rank, source.folder));
    }

    /// Gives a rank that ended before it had a generation a log, if the run's folder exists.
    void name_log(Source& source) {
        std::error_code ignored;
        if (source.logged && !source.has_log && !source.folder.empty() &&
            std::filesystem::is_directory(source.folder, ignored)) {
            source.has_log = true;
            logs_.begin(source.number, source.folder, 0, source.rank);
        }
    }

    void close(Source& source) {
        name_log(source);
        put_unended(source);
        if (source.at_end()) finish_log(source);
    }

    void finish_log(Source& source) {
        put_unended(source);
        logs_.finish(source.number);
        source.logged = false;
    }

    /// The command and its ranks have ended; those that did not say so were killed.
    void lost() {
        for (Source& source : sources_)
            if (source.at_end() && !source.ended) end(source, 1);
    }

    void acknowledge(const Json& text) { send_message(control_, {{"done", text.value("number", 0)}}); }

    void tell_problems() {
        const std::string problems = logs_.problems();
        for (size_t begin = 0, end; (end = problems.find('\n', begin)) != std::string::npos; begin = end + 1)
            terminal_.write(Terminal::errors, -1,
                            fmt::format("orrery: {}; the run continues\n", problems.substr(begin, end - begin)));
        if (const double seconds = terminal_.blocked_s(); seconds > 0)
            terminal_.write(Terminal::errors, -1,
                            fmt::format("orrery: the output was not read for {:.0f} s, in which processes that print "
                                        "had to wait\n",
                                        seconds));
    }

    Source& own() { return sources_.front(); }

    int control_;
    Terminal terminal_;
    std::list<Source> sources_;  ///< the first one is the command itself
    int64_t numbers_ = 0;
    bool explained_ = false;  ///< a rank of this generation has printed why it ends
    bool idle_ = false;       ///< nothing came in the last tenth of a second
    LogWriter logs_;
};

}  // namespace

int collect(const CollectedStreams& streams) { return Collector(streams).run(); }

}  // namespace orrery

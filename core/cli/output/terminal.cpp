#include "cli/output/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace orrery {
namespace {

constexpr auto redraw = std::chrono::milliseconds(100);
constexpr double worth_telling_s = 2;
constexpr std::string_view clear_line = "\r\033[K";

size_t columns(int file) {
    winsize size{};
    return ::ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

bool same_file(int a, int b) {
    struct stat of_a {
    }, of_b{};
    return ::fstat(a, &of_a) == 0 && ::fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

Terminal::Terminal(int out, int err, bool dumb)
    : targets_{Target{out}, Target{err}}, one_(same_file(out, err)), progress_(!dumb && ::isatty(out) == 1) {}

void Terminal::put(int file, std::string_view text) {
    const auto begin = Clock::now();
    while (file >= 0 && !text.empty()) {
        const ssize_t written = ::write(file, text.data(), text.size());
        if (written > 0) text.remove_prefix(static_cast<size_t>(written));
        if (written > 0 || errno == EINTR) continue;
        if (errno != EAGAIN) break;  // no reader, a full disk: the command continues without this text
        pollfd reader{file, POLLOUT, 0};
        ::poll(&reader, 1, -1);
    }
    const double took = std::chrono::duration<double>(Clock::now() - begin).count();
    if (took > 0.1) blocked_s_ += took;
}

void Terminal::write(Stream stream, int64_t source, std::string_view text) {
    if (text.empty()) return;
    if (one_ || stream == output || ::isatty(targets_[errors].file) == 1) clear();
    Target& to = target(stream);
    if (to.open && *to.open != source) put(to.file, "\n");
    put(to.file, text);
    to.open.reset();
    if (text.back() != '\n') to.open = source;
    changed_ = true;
}

void Terminal::progress(std::string text) {
    if (!progress_) return;
    line_ = std::move(text);
    if (line_.empty()) clear();
    changed_ = true;
    tick();
}

void Terminal::tick() {
    if (!changed_ || line_.empty() || targets_[output].open || Clock::now() - drawn_at_ < redraw) return;
    const std::string_view fits = std::string_view(line_).substr(0, columns(targets_[output].file) - 1);
    put(targets_[output].file, std::string(clear_line) + std::string(fits));
    drawn_ = true;
    changed_ = false;
    drawn_at_ = Clock::now();
}

void Terminal::clear() {
    if (std::exchange(drawn_, false)) put(targets_[output].file, clear_line);
}

double Terminal::blocked_s() { return blocked_s_ > worth_telling_s ? std::exchange(blocked_s_, 0) : 0; }

}  // namespace orrery

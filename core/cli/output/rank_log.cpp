#include "cli/output/rank_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/env.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view before = "\n[orrery: ", after = " bytes of output are left out here]\n";
constexpr int64_t digits = 20, line_bytes = static_cast<int64_t>(before.size() + after.size()) + digits;

/// Position of the line that says how much is left out; npos: `text` has none.
size_t line_in(std::string_view text) {
    for (size_t at = text.find(before); at != std::string_view::npos; at = text.find(before, at + 1)) {
        const std::string_view rest = text.substr(at + before.size());
        if (rest.size() >= digits + after.size() && rest.substr(digits, after.size()) == after &&
            rest.find_first_not_of("0123456789") == digits)
            return at;
    }
    return std::string_view::npos;
}

}  // namespace

std::string rank_log_path(const std::string& folder, int64_t generation, int64_t rank) {
    return fmt::format("{}/logs/g{}-rank{}.txt", folder, generation, rank);
}

void remove_old_logs(const std::string& folder, int64_t generation) {
    std::error_code problem;
    for (const auto& entry : fs::directory_iterator(folder + "/logs", problem)) {
        const std::string name = entry.path().filename();
        long long of = 0, rank = 0;
        int end = 0;
        if (std::sscanf(name.c_str(), "g%lld-rank%lld.txt%n", &of, &rank, &end) == 2 &&
            end == static_cast<int>(name.size()) && of <= generation - kept_logs)
            fs::remove(entry.path(), problem);
    }
}

RankLog::~RankLog() {
    if (file_ >= 0) ::close(file_);
}

bool RankLog::failed(int code) {
    problem_ = std::strerror(code);
    return false;
}

bool RankLog::open() {
    if (file_ >= 0) return true;
    std::error_code problem;
    fs::create_directory(fs::path(path_).parent_path(), problem);  // the run's folder itself is not created
    // O_NONBLOCK: a named pipe without a reader would block.
    const int file = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (file < 0) return failed(errno);
    struct stat found {};
    if (::fstat(file, &found) != 0 || !S_ISREG(found.st_mode) || ::ftruncate(file, 0) != 0) {
        ::close(file);
        return failed(ENOTSUP);
    }
    file_ = file;
    return true;
}

bool RankLog::put(std::string_view bytes, int64_t at) {
    while (!bytes.empty()) {
        const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), at);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return failed(written == 0 ? ENOSPC : errno);
        bytes.remove_prefix(static_cast<size_t>(written));
        at += written;
    }
    return true;
}

/// Writes to the ring: `at` counts from the start of all output.
bool RankLog::ring(std::string_view bytes, int64_t at) {
    const int64_t half = limit_ / 2, place = (at - half) % half;
    const auto first = static_cast<size_t>(std::min<int64_t>(half - place, static_cast<int64_t>(bytes.size())));
    return put(bytes.substr(0, first), half + place) && put(bytes.substr(first), half);
}

/// The line in a file of `total` bytes of output.
std::string RankLog::line(int64_t total) const {
    return fmt::format("{}{:0{}}{}", before, total - limit_ + line_bytes, digits, after);
}

/// Writes output to its place, with the line if it does not all fit; false: none of it counts as written.
bool RankLog::store(std::string_view bytes) {
    if (!open()) return false;
    const int64_t half = limit_ / 2, end = total_ + static_cast<int64_t>(bytes.size());
    const std::string_view head = bytes.substr(0, static_cast<size_t>(half - std::min(half, total_)));
    std::string_view rest = bytes.substr(head.size());
    if (end <= limit_) {
        if (put(bytes, total_)) return total_ = end, true;
        [[maybe_unused]] const int cut = ::ftruncate(file_, total_);
        return false;
    }
    if (const auto fits = static_cast<size_t>(half - line_bytes); rest.size() > fits)
        rest.remove_prefix(rest.size() - fits);  // it would be overwritten at once
    const int64_t at = end - static_cast<int64_t>(rest.size());
    if (!put(head, total_) || !ring(std::string(rest) + line(end), at)) return false;
    total_ = end;
    return true;
}

void RankLog::write(std::string_view bytes) {
    if (bytes.empty() || finished_) return;
    const auto lose = [&] { lost_ += static_cast<int64_t>(bytes.size()); };
    if (lost_ > 0) {
        if (!store(fmt::format("\n[orrery: {} bytes of output could not be written here: {}]\n", lost_, problem_)))
            return lose();
        lost_ = 0;
    }
    if (!store(bytes)) return lose();
    problem_.clear();
}

void RankLog::finish() {
    if (std::exchange(finished_, true) || file_ < 0 || total_ <= limit_) return;
    const int64_t half = limit_ / 2, place = (total_ - half) % half;
    std::string last(static_cast<size_t>(half), '\0');
    if (::pread(file_, last.data(), last.size(), half) != half) return;
    std::rotate(last.begin(), last.begin() + place, last.end());
    put(last, half);
}

std::string RankLogReader::next() {
    std::string all = system_env()->read_file(path_);
    const auto size = static_cast<int64_t>(all.size());
    if (size < std::min(told_, limit_)) told_ = 0;  // the file was replaced
    const int64_t half = limit_ / 2;
    const std::string_view last = std::string_view(all).substr(static_cast<size_t>(std::min(size, half)));
    const size_t line =
        size < limit_ ? std::string_view::npos : line_in(std::string(last) + std::string(last.substr(0, line_bytes)));
    if (line == std::string_view::npos) {
        if (told_ > size) return "";  // the line is being written
        return all.substr(static_cast<size_t>(std::exchange(told_, size)));
    }
    std::rotate(all.begin() + half, all.begin() + half + static_cast<int64_t>(line), all.end());
    int64_t left_out = 0;
    std::from_chars(all.data() + half + before.size(), all.data() + half + before.size() + digits, left_out);
    const int64_t total = left_out + limit_ - line_bytes, had = std::exchange(told_, total);
    const int64_t at = had > total                       ? 0
                       : had < half                      ? had
                       : total - had > half - line_bytes ? half
                                                         : size - (total - had);
    return all.substr(static_cast<size_t>(at));
}

}  // namespace orrery

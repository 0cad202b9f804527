#include "run/metrics/breakdown.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace orrery {

std::string breakdown_text(std::vector<TimeShare> shares, double total_seconds) {
    std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
    double named = 0;
    std::string text = "where the time went\n";
    for (const TimeShare& share : shares) {
        if (share.seconds < 0.001 * total_seconds) continue;  // too small for a row: counts as the rest
        named += share.seconds;
        text += fmt::format("  {:<28} {:>9.3f} s {:>5.1f} %\n", share.what, share.seconds,
                            total_seconds > 0 ? 100 * share.seconds / total_seconds : 0);
    }
    const double rest = std::max(0.0, total_seconds - named);
    text += fmt::format("  {:<28} {:>9.3f} s {:>5.1f} %", "host, data and the rest", rest,
                        total_seconds > 0 ? 100 * rest / total_seconds : 0);
    return text;
}

std::map<std::string, double> parts_of(const std::vector<TimeShare>& shares, double total_seconds) {
    std::map<std::string, double> parts;
    double named = 0;
    for (const TimeShare& share : shares) {
        parts[share.part] += share.seconds;
        named += share.seconds;
    }
    parts["the rest"] += std::max(0.0, total_seconds - named);
    return parts;
}

ResidentSet::ResidentSet() : file_(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC)) {}

ResidentSet::~ResidentSet() {
    if (file_ >= 0) ::close(file_);
}

int64_t ResidentSet::bytes() const {
    char text[128];
    const ssize_t got = file_ < 0 ? 0 : ::pread(file_, text, sizeof text, 0);
    const std::string_view line(text, static_cast<size_t>(std::max<ssize_t>(0, got)));
    const size_t second = line.find(' ');  // the file has numbers of pages: of all memory, of resident memory, ...
    if (second == std::string_view::npos) return 0;
    int64_t pages = 0;
    std::from_chars(line.data() + second + 1, line.data() + line.size(), pages);
    return pages * ::sysconf(_SC_PAGESIZE);
}

}  // namespace orrery

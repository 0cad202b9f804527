#include "cli/submit/logs.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "base/regular_file.h"
#include "orrery/error.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// Returns the generation in a log's name "g12-rank3.txt" of the rank; -1 for other files.
int64_t generation_in(const std::string& name, int64_t rank) {
    const std::string end = fmt::format("-rank{}.txt", rank);
    int64_t generation = -1;
    if (!name.starts_with("g") || !name.ends_with(end)) return -1;
    const char* const last = name.data() + name.size() - end.size();
    const auto [at, problem] = std::from_chars(name.data() + 1, last, generation);
    return problem == std::errc() && at == last ? generation : -1;
}

}  // namespace

std::string newest_log(const std::string& run, int64_t rank) {
    std::string newest;
    int64_t most = -1;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(run + "/logs", ignored))
        if (const int64_t one = generation_in(entry.path().filename().string(), rank); one > most) {
            most = one;
            newest = entry.path().string();
        }
    return newest;
}

int show_logs(const std::string& run, int64_t rank, bool follow) {
    std::string shown;
    int64_t at = 0;
    char bytes[1 << 16];
    for (;;) {
        const std::string newest = newest_log(run, rank);
        if (newest != shown && !shown.empty()) std::printf("%s:\n", newest.c_str());
        if (newest != shown) at = 0;
        shown = newest;
        if (!shown.empty()) {
            const RegularFile file(shown);
            if (!file.problem().empty()) throw Error(shown + " " + file.problem(), Fault::failed);
            if (file.bytes() < at) at = 0;  // its middle was left out
            while (const size_t got = file.read(at, bytes, sizeof bytes)) {
                std::fwrite(bytes, 1, got, stdout);
                at += static_cast<int64_t>(got);
            }
        }
        if (!follow) return 0;
        std::fflush(stdout);
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
}

}  // namespace orrery

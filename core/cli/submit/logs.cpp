#include "cli/submit/logs.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>

#include "cli/output/rank_log.h"
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
    int64_t newest = -1;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(run + "/logs", ignored))
        newest = std::max(newest, generation_in(entry.path().filename().string(), rank));
    if (newest < 0) return "";
    // The last start may have failed before it had a generation.
    const std::string log = rank_log_path(run, newest, rank), failed = rank_log_path(run, 0, rank);
    const auto written = [](const std::string& path) {
        std::error_code none;
        return fs::last_write_time(path, none);  // the earliest time if there is none
    };
    return written(failed) > written(log) ? failed : log;
}

int show_logs(const std::string& run, int64_t rank, bool follow) {
    std::string shown;
    std::optional<RankLogReader> log;
    const auto print = [&] {
        const std::string text = log ? log->next() : "";
        std::fwrite(text.data(), 1, text.size(), stdout);
    };
    for (;;) {
        if (const std::string newest = newest_log(run, rank); newest != shown) {
            print();
            if (!shown.empty()) std::printf("%s:\n", newest.c_str());
            shown = newest;
            log.emplace(newest);
        }
        print();
        if (!follow) return 0;
        std::fflush(stdout);
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
}

}  // namespace orrery

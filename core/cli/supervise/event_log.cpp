#include "cli/supervise/event_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/env.h"
#include "orrery/error.h"
#include "run/metrics/step_metrics.h"

namespace orrery {
namespace {

double rounded(double seconds) { return std::round(seconds * 1000) / 1000; }

}  // namespace

Json Goodput::json() const {
    return {{"starts_s", rounded(starts)},       {"restore_s", rounded(restore)}, {"repeated_s", rounded(repeated)},
            {"detection_s", rounded(detection)}, {"waiting_s", rounded(waiting)}, {"steps_s", rounded(steps)},
            {"goodput", rounded(share())}};
}

std::string Goodput::text(int64_t restarts) const {
    return fmt::format(
        "goodput {:.1f} %: {:.1f} s of {:.1f} s in new steps; start {:.1f} s, detection {:.1f} s, restore {:.1f} s, "
        "repeated steps {:.1f} s, waiting {:.1f} s; {} restart{}",
        100 * share(), steps, all(), starts, detection, restore, repeated, waiting, restarts, restarts == 1 ? "" : "s");
}

void add(Goodput& goodput, const GenerationTimes& t, bool first) {
    double& start = first ? goodput.starts : goodput.restore;
    if (t.began == 0) {
        start += t.ended - t.started;
        return;
    }
    start += t.began - t.started;
    const double again = std::max(t.began, t.repeated);
    goodput.repeated += again - t.began;
    const double last = std::max(again, t.last);
    goodput.steps += last - again;
    (t.failed ? goodput.detection : goodput.steps) += t.ended - last;
}

EventLog::EventLog(const std::string& folder) {
    if (folder.empty()) return;
    path_ = folder + "/events.jsonl";
    file_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (file_ < 0)
        throw Error(fmt::format("cannot write {}: {}\n  move away what is there", path_, std::strerror(errno)),
                    Fault::failed);
    mend_last_line();
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the thread that waits for them
    writer_ = std::thread([this] { write_lines(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

/// Readers take each line for one of JSON, and the next would be glued to this.
void EventLog::mend_last_line() {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path_, ignored)) return;
    const std::string all = system_env()->read_file(path_);
    const size_t begin = all.rfind('\n') + 1;  // 0 where there is none
    if (begin == all.size()) return;
    const bool whole = Json::accept(all.begin() + static_cast<std::ptrdiff_t>(begin), all.end());
    const int failed = whole ? append("\n") : ::ftruncate(file_, static_cast<off_t>(begin)) == 0 ? 0 : errno;
    if (failed != 0) throw Error(fmt::format("cannot write {}: {}", path_, std::strerror(failed)), Fault::failed);
}

int EventLog::append(std::string_view line) {
    struct stat before {};
    const bool known = ::fstat(file_, &before) == 0 && S_ISREG(before.st_mode);
    while (!line.empty()) {
        const ssize_t done = ::write(file_, line.data(), line.size());
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) {
            const int failed = errno;
            [[maybe_unused]] const int cut = known ? ::ftruncate(file_, before.st_size) : 0;  // no half of it stays
            return failed;
        }
        line.remove_prefix(static_cast<size_t>(done));
    }
    return 0;
}

EventLog::~EventLog() {
    if (file_ < 0) return;
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    changed_.notify_all();
    writer_.join();
    ::close(file_);
}

void EventLog::tell(int64_t generation, const std::string& event, const Json& more) {
    if (file_ < 0) return;
    Json line = {{"time", rounded(wall_time())}, {"generation", generation}, {"event", event}};
    line.update(more);
    {
        const std::lock_guard lock(mutex_);
        lines_.push_back(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    }
    changed_.notify_all();
}

void EventLog::write_lines() {
    bool said = false;
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return ends_ || !lines_.empty(); });
        if (lines_.empty()) return;
        const std::string line = std::move(lines_.front());
        lines_.pop_front();
        lock.unlock();
        const int failed = append(line);
        if (failed != 0 && !std::exchange(said, true))
            std::fprintf(stderr, "orrery: cannot write %s: %s; the job goes on\n", path_.c_str(),
                         std::strerror(failed));
        lock.lock();
    }
}

}  // namespace orrery

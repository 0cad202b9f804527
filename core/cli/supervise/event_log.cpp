#include "cli/supervise/event_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <mutex>
#include <utility>

#include "base/env.h"
#include "base/json.h"
#include "orrery/error.h"
#include "run/metrics/appended_file.h"
#include "run/metrics/step_metrics.h"

namespace orrery {
namespace {

constexpr std::chrono::seconds last_lines(2);

double rounded_s(double seconds) { return std::round(seconds * 1000) / 1000; }

}  // namespace

Json Goodput::json() const {
    return {{"starts_s", rounded_s(starts)},     {"restore_s", rounded_s(restore)},
            {"repeated_s", rounded_s(repeated)}, {"detection_s", rounded_s(detection)},
            {"waiting_s", rounded_s(waiting)},   {"steps_s", rounded_s(steps)},
            {"goodput", rounded_s(share())}};
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

class EventLog::Writer {
public:
    explicit Writer(std::string path) : file_(std::move(path), O_NOFOLLOW) {}

    /// Completes or removes an incomplete last line, since readers expect JSON on each line.
    void mend_last_line() {
        std::error_code ignored;
        if (!std::filesystem::is_regular_file(file_.path(), ignored)) return;
        const std::string all = system_env()->read_file(file_.path());
        const size_t begin = all.rfind('\n') + 1;  // 0 if there is no line break
        if (begin == all.size()) return;
        if (Json::accept(all.begin() + static_cast<std::ptrdiff_t>(begin), all.end())) return file_.write("\n");
        std::error_code problem;
        std::filesystem::resize_file(file_.path(), begin, problem);
        if (problem) throw Error(fmt::format("cannot write {}: {}", file_.path(), problem.message()), Fault::failed);
    }

    void add(std::string line) {
        const std::lock_guard lock(mutex_);
        waiting_.push_back(std::move(line));
        changed_.notify_all();
    }

    void run() {
        bool said = false;
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
            if (waiting_.empty()) break;
            const std::string line = std::move(waiting_.front());
            waiting_.pop_front();
            lock.unlock();
            try {
                file_.write(line);
            } catch (const Error& error) {
                if (!std::exchange(said, true)) std::fprintf(stderr, "orrery: %s; the job continues\n", error.what());
            }
            lock.lock();
        }
        over_ = true;
        changed_.notify_all();
    }

    /// Waits for all lines to be written, at most `last_lines`. Reports on stderr and returns false if some are not.
    bool end() {
        std::unique_lock lock(mutex_);
        ends_ = true;
        changed_.notify_all();
        if (changed_.wait_for(lock, last_lines, [&] { return over_; })) return true;
        std::fprintf(stderr,
                     "orrery: cannot write %s: its disk has not answered for %lld s; the last events are missing\n",
                     file_.path().c_str(), static_cast<long long>(last_lines.count()));
        return false;
    }

private:
    AppendedFile file_;
    std::mutex mutex_;  // guards waiting_, ends_ and over_
    std::deque<std::string> waiting_;
    bool ends_ = false, over_ = false;
    std::condition_variable changed_;
};

EventLog::EventLog(const std::string& folder) {
    if (folder.empty()) return;
    writer_ = std::make_shared<Writer>(folder + "/events.jsonl");
    writer_->mend_last_line();
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the thread that writes must not receive signals
    thread_ = std::thread([writer = writer_] { writer->run(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

EventLog::~EventLog() {
    if (!writer_) return;
    writer_->end() ? thread_.join() : thread_.detach();
}

void EventLog::tell(int64_t generation, const std::string& event, const Json& more) {
    if (!writer_) return;
    Json line = {{"time", rounded_s(wall_time())}, {"generation", generation}, {"event", event}};
    line.update(more);
    writer_->add(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace orrery

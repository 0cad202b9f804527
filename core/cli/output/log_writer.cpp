#include "cli/output/log_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace orrery {
namespace {

constexpr size_t first_waiting = 8 << 20, last_waiting = 8 << 20, max_waiting = 24 << 20;

}  // namespace

LogWriter::LogWriter() : thread_([this] { run(); }) {}

LogWriter::~LogWriter() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    wake_.notify_one();
    thread_.join();
}

void LogWriter::write(int64_t source, std::string_view bytes) {
    const std::lock_guard lock(mutex_);
    Log& log = logs_[source];
    if (log.finished) return;
    log.waiting += bytes;
    if (log.waiting.size() > max_waiting) {
        const size_t middle = log.waiting.size() - first_waiting - last_waiting;
        log.waiting.erase(first_waiting, middle);
        log.left_out += middle;
    }
    if (log.file) wake_.notify_one();
}

void LogWriter::begin(int64_t source, const std::string& folder, int64_t generation, int64_t rank) {
    std::string path = rank_log_path(folder, generation, rank);
    const std::lock_guard lock(mutex_);
    Log& log = logs_[source];
    if (log.file || log.finished) return;
    log.file = std::make_unique<RankLog>(std::move(path));
    log.folder = folder;
    log.generation = generation;
    wake_.notify_one();
}

void LogWriter::finish(int64_t source) {
    const std::lock_guard lock(mutex_);
    const auto found = logs_.find(source);
    if (found == logs_.end()) return;
    found->second.finished = true;
    wake_.notify_one();
}

void LogWriter::flush(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    idle_.wait_for(lock, limit, [this] { return !writing_ && due() == logs_.end(); });
}

std::string LogWriter::problems() {
    const std::lock_guard lock(mutex_);
    return std::exchange(problems_, "");
}

std::map<int64_t, LogWriter::Log>::iterator LogWriter::due() {
    const auto waits = [](const auto& log) {
        return log.second.finished || (log.second.file && (!log.second.opened || !log.second.waiting.empty()));
    };
    const auto begin = logs_.upper_bound(served_), found = std::find_if(begin, logs_.end(), waits);
    if (found != logs_.end()) return found;
    const auto before = std::find_if(logs_.begin(), begin, waits);
    return before == begin ? logs_.end() : before;
}

void LogWriter::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        wake_.wait(lock, [this] { return ending_ || due() != logs_.end(); });
        const auto next = due();
        if (next == logs_.end()) return;
        served_ = next->first;
        Log& log = next->second;  // stays in place while others are added
        std::string bytes = std::exchange(log.waiting, "");
        if (log.left_out > 0)
            bytes.insert(
                first_waiting,
                fmt::format("\n[orrery: {} bytes of output are left out here: they came faster than they could "
                            "be written]\n",
                            std::exchange(log.left_out, 0)));
        const bool last = log.finished;
        if (log.file) {
            writing_ = log.opened = true;
            lock.unlock();
            const std::pair now(log.folder, log.generation);  // written by begin() alone, before
            if (std::exchange(cleaned_, now) != now) remove_old_logs(log.folder, log.generation);
            log.file->open();
            log.file->write(bytes);
            if (last) log.file->finish();
            lock.lock();
            writing_ = false;
            const std::string& problem = log.file->problem();
            if (!problem.empty() && !std::exchange(log.told, true))
                problems_ += fmt::format("cannot write {}: {}\n", log.file->path(), problem);
        }
        if (last) logs_.erase(next);
        idle_.notify_all();
    }
}

}  // namespace orrery

#include "base/processors.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <ctime>
#include <exception>
#include <fstream>
#include <string>
#include <thread>

#include "base/control_groups.h"
#include "base/text.h"

namespace orrery {

namespace {
constexpr size_t bits = sizeof(unsigned long) * CHAR_BIT;
constexpr size_t most_threads = 4;
}  // namespace

std::vector<int> allowed_processors() {
    for (size_t processors = 1024; processors <= 1 << 20; processors *= 2) {
        std::vector<unsigned long> words(processors / bits);  // holds a cpu_set_t of variable size
        const size_t bytes = words.size() * sizeof words[0];
        if (::sched_getaffinity(0, bytes, reinterpret_cast<cpu_set_t*>(words.data())) != 0) {
            if (errno == EINVAL) continue;  // the set is too small for the host's processors
            break;
        }
        std::vector<int> allowed;
        for (size_t i = 0; i < processors; ++i)
            if (words[i / bits] >> (i % bits) & 1) allowed.push_back(static_cast<int>(i));
        return allowed;
    }
    return {0};
}

int64_t usable_processors() {
    const auto allowed = static_cast<int64_t>(allowed_processors().size());
    const auto& quota = own_groups().processors();
    return quota ? std::clamp(static_cast<int64_t>(quota->amount), int64_t{1}, allowed) : allowed;
}

bool is_bound() {
    const auto field = [](const std::string& pid, const std::string& name) {
        std::ifstream status("/proc/" + pid + "/status");
        for (std::string line; std::getline(status, line);)
            if (line.starts_with(name)) return std::string(trim(line.substr(name.size())));
        return std::string();
    };
    // A job's cpuset narrows all its processes, and the engine's above them not: none of them is bound by it.
    if (own_groups().cpuset() > 0 && std::ssize(allowed_processors()) >= own_groups().cpuset()) return false;
    const std::string own = field("self", "Cpus_allowed:");
    for (std::string pid = field("self", "PPid:"); pid != "0"; pid = field(pid, "PPid:"))
        if (pid.empty() || field(pid, "Cpus_allowed:") != own) return true;
    return own.empty();
}

double processor_s() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

bool run_on(const std::vector<int>& processors) {
    std::vector<unsigned long> words;
    for (const int processor : processors) {
        const auto at = static_cast<size_t>(processor);
        words.resize(std::max(words.size(), at / bits + 1));
        words[at / bits] |= 1UL << (at % bits);
    }
    return ::sched_setaffinity(0, words.size() * sizeof words[0], reinterpret_cast<const cpu_set_t*>(words.data())) ==
           0;
}

int64_t most_measured_ranks() { return 64 * usable_processors(); }

std::vector<std::vector<int>> shares(const std::vector<int>& processors, int64_t ranks, int64_t threads) {
    const auto all = static_cast<int64_t>(processors.size());
    if (ranks < 1 || ranks * std::max<int64_t>(1, threads) > all) return {};
    std::vector<std::vector<int>> out;
    const int64_t each = all / ranks;
    for (int64_t rank = 0; rank < ranks; ++rank)
        out.emplace_back(processors.begin() + rank * each, processors.begin() + (rank + 1) * each);
    return out;
}

void in_parallel(size_t count, const std::function<void(size_t)>& each) {
    in_parallel(count, std::min(static_cast<size_t>(usable_processors()), most_threads),
                [&](size_t, size_t i) { each(i); });
}

void in_parallel(size_t count, size_t threads, const std::function<void(size_t, size_t)>& each) {
    std::vector<std::exception_ptr> errors(count);
    std::atomic<size_t> next{0};
    const auto work = [&](size_t thread) {
        for (size_t i = next++; i < count; i = next++) {
            try {
                each(thread, i);
            } catch (...) {
                errors[i] = std::current_exception();
            }
        }
    };
    {
        std::vector<std::jthread> others;
        for (size_t t = 1; t < std::min(count, threads); ++t) others.emplace_back(work, t);
        work(0);
    }
    for (const std::exception_ptr& error : errors)
        if (error) std::rethrow_exception(error);
}

}  // namespace orrery

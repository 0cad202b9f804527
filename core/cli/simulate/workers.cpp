#include "cli/simulate/workers.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/files/atomic_file.h"
#include "base/limits.h"
#include "base/process.h"
#include "orrery/error.h"

namespace orrery {
namespace {

struct Worker {
    pid_t process = -1;
    int output = -1;
    int64_t number = 0;
    std::string text;
};

/// In the child: writes the result of `work`, or an exception's text (exit code 1), to `output`. No destructor runs.
int be_worker(int output, int64_t number, const std::function<std::string(int64_t)>& work) {
    int code = 0;
    std::string text;
    try {
        text = work(number);
    } catch (const std::exception& error) {
        text = explain(error);
        code = 1;
    }
    return write_all(output, text) == 0 ? code : 1;
}

/// Runs `work` in this process; its exceptions are reported like those of a child.
std::string named(int64_t number, const std::function<std::string(int64_t)>& work,
                  const std::function<std::string(int64_t)>& name) {
    try {
        return work(number);
    } catch (const std::exception& error) {
        throw Error(fmt::format("{}: {}", name(number), explain(error)), Fault::failed);
    }
}

class Workers {
public:
    ~Workers() {
        for (Worker& worker : running_) {
            ::close(worker.output);
            ::kill(worker.process, SIGKILL);
            int status = 0;
            while (::waitpid(worker.process, &status, 0) < 0 && errno == EINTR) {
            }
        }
    }

    size_t running() const { return running_.size(); }

    void start(int64_t number, const std::function<std::string(int64_t)>& work) {
        Pipe pipe;
        const pid_t child = start_copy([&] { return be_worker(pipe.write, number, work); });
        if (child < 0)
            throw Error(
                fmt::format("cannot start a process: {}\n  use fewer processes: --jobs 1", std::strerror(errno)),
                Fault::failed);
        running_.push_back({child, std::exchange(pipe.read, -1), number, ""});
    }

    /// Returns a worker that has ended; nullopt if `stop` returns true before that.
    std::optional<Worker> next(const std::function<bool()>& stop) {
        for (;;) {
            if (stop && stop()) return std::nullopt;
            std::vector<pollfd> wait;
            for (const Worker& worker : running_) wait.push_back({worker.output, POLLIN, 0});
            if (::poll(wait.data(), wait.size(), stop ? 100 : -1) < 0) continue;  // a signal interrupted it
            for (size_t i = 0; i < wait.size(); ++i) {
                if (wait[i].revents == 0) continue;
                char bytes[4096];
                const ssize_t got = ::read(running_[i].output, bytes, sizeof bytes);
                if (got > 0) running_[i].text.append(bytes, static_cast<size_t>(got));
                if (got > 0 || (got < 0 && errno == EINTR)) continue;
                Worker ended = std::move(running_[i]);
                running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
                ::close(ended.output);
                return ended;
            }
        }
    }

private:
    std::vector<Worker> running_;
};

}  // namespace

void in_processes(int64_t count, int64_t processes, const std::function<std::string(int64_t)>& work,
                  const std::function<void(int64_t, std::string)>& done,
                  const std::function<std::string(int64_t)>& name, const std::function<bool()>& stop) {
    if (processes <= 1 && !stop) {
        for (int64_t number = 0; number < count; ++number) done(number, named(number, work, name));
        return;
    }
    Workers workers;
    for (int64_t begun = 0; begun < count || workers.running() > 0;) {
        if (begun < count && static_cast<int64_t>(workers.running()) < std::max<int64_t>(1, processes)) {
            workers.start(begun++, work);
            continue;
        }
        std::optional<Worker> next = workers.next(stop);
        if (!next) return;
        Worker& ended = *next;
        int status = 0;
        while (::waitpid(ended.process, &status, 0) < 0)
            if (errno != EINTR) throw Error(fmt::format("a process is lost: {}", std::strerror(errno)), Fault::failed);
        if (WIFSIGNALED(status))
            throw Error(fmt::format("the process that compiled {} was killed by signal {} ({})\n  if it was out of "
                                    "memory, use fewer processes: --jobs 1",
                                    name(ended.number), WTERMSIG(status), ::strsignal(WTERMSIG(status))),
                        Fault::failed);
        if (WEXITSTATUS(status) != 0) throw Error(fmt::format("{}: {}", name(ended.number), ended.text), Fault::failed);
        done(ended.number, std::move(ended.text));
    }
}

}  // namespace orrery

#include "cli/simulate/workers.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "orrery/error.h"

namespace orrery {
namespace {

struct Worker {
    pid_t process = -1;
    int output = -1;
    int64_t number = 0;
    std::string text;
};

bool write_all(int to, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(to, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        text.remove_prefix(static_cast<size_t>(written));
    }
    return true;
}

/// Runs in the child. An exception is sent as its text with exit code 1. Objects and streams of the parent are not
/// destroyed or flushed.
[[noreturn]] void be_worker(int output, pid_t parent, int64_t number, const std::function<std::string(int64_t)>& work) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    int code = 0;
    std::string text;
    try {
        text = work(number);
    } catch (const std::exception& error) {
        text = explain(error);
        code = 1;
    }
    if (!write_all(output, text)) code = 1;
    ::_exit(code);
}

/// Runs in this process; exceptions are reported as for a child.
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
        int ends[2];
        if (::pipe(ends) != 0) throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)), Fault::failed);
        const pid_t parent = ::getpid(), child = ::fork();
        if (child == 0) {
            ::close(ends[0]);
            be_worker(ends[1], parent, number, work);
        }
        const int problem = errno;
        ::close(ends[1]);
        if (child < 0) {
            ::close(ends[0]);
            throw Error(fmt::format("cannot start a process: {}\n  take fewer: --jobs 1", std::strerror(problem)),
                        Fault::failed);
        }
        running_.push_back({child, ends[0], number, ""});
    }

    /// Waits until a worker has ended, and removes it.
    Worker next() {
        for (;;) {
            std::vector<pollfd> wait;
            for (const Worker& worker : running_) wait.push_back({worker.output, POLLIN, 0});
            if (::poll(wait.data(), wait.size(), -1) < 0) continue;  // interrupted by a signal
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
                  const std::function<std::string(int64_t)>& name) {
    if (processes <= 1) {
        for (int64_t number = 0; number < count; ++number) done(number, named(number, work, name));
        return;
    }
    Workers workers;
    for (int64_t begun = 0; begun < count || workers.running() > 0;) {
        if (begun < count && static_cast<int64_t>(workers.running()) < processes) {
            workers.start(begun++, work);
            continue;
        }
        Worker ended = workers.next();
        int status = 0;
        while (::waitpid(ended.process, &status, 0) < 0)
            if (errno != EINTR) throw Error(fmt::format("a process is lost: {}", std::strerror(errno)), Fault::failed);
        if (WIFSIGNALED(status))
            throw Error(fmt::format("the process that looked at {} was killed by signal {} ({})\n  is there too little "
                                    "memory? take fewer at once: --jobs 1",
                                    name(ended.number), WTERMSIG(status), ::strsignal(WTERMSIG(status))),
                        Fault::failed);
        if (WEXITSTATUS(status) != 0) throw Error(fmt::format("{}: {}", name(ended.number), ended.text), Fault::failed);
        done(ended.number, std::move(ended.text));
    }
}

}  // namespace orrery

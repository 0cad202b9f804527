#pragma once
#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace orrery {

class HeldSignals;  // base/signals.h

/// A pipe whose ends a started program does not get. Throws Error, Fault::failed.
struct Pipe {
    Pipe();
    ~Pipe();
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    static void close(int& end);

    int read = -1, write = -1;
};

struct ProcessStart {
    std::string program;
    std::vector<std::string> arguments;       ///< with the program's name as the first
    std::vector<std::string> variables = {};  ///< NAME=VALUE, besides or in place of those of this process
    int lifeline = -1;                        ///< read end of a pipe: stays open, and ORRERY_LIFELINE names it
    int output = -1, errors = -1;             ///< become its streams, and its input is empty; -1: those of this process
    std::optional<sigset_t> blocked = {};     ///< signals; none: it blocks none
    bool bound = false;                       ///< is killed when the thread that starts it ends
};

/// Starts a program; it exits with 127 where it cannot be executed. -1 and errno: there is no further process.
pid_t start_process(const ProcessStart& start);
/// Calls `work` in a copy of this process that exits with what it returns, and is killed when this thread ends.
pid_t start_copy(const std::function<int()>& work);
/// The status of a child process; none: it still runs after `limit`.
std::optional<int> ends_within(pid_t process, std::chrono::milliseconds limit);

/// How a child process ended, and what it wrote.
struct ChildEnd {
    int code = 0;    ///< exit code
    int signal = 0;  ///< that ended it; 0: none
    bool late = false;
    int stopped = 0;           ///< the signal to this process on which it was ended; 0: none
    pid_t held = 0;            ///< the process, where it still was there 1 s after it was killed; 0: it is gone
    std::string problem = {};  ///< why it could not be started, or its end not be seen; "": neither
    std::string output = {}, errors = {};
    std::chrono::milliseconds limit{0};  ///< after which it was late

    /// "" when it ended with exit code 0; "was ended by signal 4 (Illegal instruction)", "did not end within 60 s" ...
    std::string why_not() const;
};

/// Runs a program to its end, with this process' environment and no input. One that takes longer than `limit` is
/// killed, and so is it when this process ends before it. Of each stream the first 64 KiB are kept. Blocks. A signal
/// that `stop` holds is passed on as SIGTERM; the program then has 10 s, until a second signal, to end by itself.
ChildEnd run_child(const std::vector<std::string>& arguments, std::chrono::milliseconds limit,
                   HeldSignals* stop = nullptr);

}  // namespace orrery

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

/// A pipe whose ends started programs do not inherit. Throws Error, Fault::failed.
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
    std::vector<std::string> arguments;       ///< including the program's name as the first
    std::vector<std::string> variables = {};  ///< NAME=VALUE, added to or replacing this process's
    int lifeline = -1;                        ///< read end of a pipe that the program inherits; ORRERY_LIFELINE has its
                                              ///< number
    int output = -1, errors = -1;             ///< the program's streams, with empty input; -1: those of this process
    std::optional<sigset_t> blocked = {};     ///< signals that it blocks; unset: none
    bool bound = false;                       ///< it is killed when the thread that started it ends
};

/// Starts a program; it exits with 127 if it cannot be executed. Returns -1 and sets errno if no process can be
/// created.
pid_t start_process(const ProcessStart& start);
/// Calls `work` in a forked copy of this process, which exits with its result and is killed when this thread ends.
pid_t start_copy(const std::function<int()>& work);
/// The status of a child process; none: it still runs after `limit`.
std::optional<int> ends_within(pid_t process, std::chrono::milliseconds limit);

/// How a child process ended, and its output.
struct ChildEnd {
    int code = 0;    ///< exit code
    int signal = 0;  ///< signal that ended it; 0: none
    bool late = false;
    int stopped = 0;           ///< the signal to this process that ended it; 0: none
    pid_t held = 0;            ///< its pid if it still existed 1 s after it was killed; 0: it is gone
    std::string problem = {};  ///< why it could not be started or waited for; "": neither
    std::string output = {}, errors = {};
    std::chrono::milliseconds limit{0};  ///< time limit, if it was exceeded

    /// "" if it exited with 0; "was ended by signal 4 (Illegal instruction)", "did not end within 60 s" ...
    std::string why_not() const;
};

/// Runs a program to its end, with this process's environment and no input. It is killed after `limit`, or if this
/// process ends first. The first 64 KiB of each stream are kept. Blocks. A signal that `stop` holds is forwarded as
/// SIGTERM; the program then has 10 s, or until a second signal, to end.
ChildEnd run_child(const std::vector<std::string>& arguments, std::chrono::milliseconds limit,
                   HeldSignals* stop = nullptr);

}  // namespace orrery

#pragma once
#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

class HeldSignals;  // declared in base/signals.h

/// A pipe whose ends started programs do not inherit. Throws Error, Fault::failed.
struct Pipe {
    Pipe();
    ~Pipe();
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    static void close(int& end);

    int read = -1, write = -1;
};

/// Returns the descriptor of a file in memory that holds `text`, as the input of a program, which the caller closes; -1
/// for an empty text. Throws Error, Fault::failed.
int input_of(std::string_view text);

struct ProcessStart {
    std::string program;
    std::vector<std::string> arguments;       ///< the program's name, then its arguments
    std::vector<std::string> variables = {};  ///< NAME=VALUE, added to this process's variables or replacing them
    int lifeline = -1;  ///< read end of a pipe that the program inherits, by its number in ORRERY_LIFELINE; -1: none
    int output = -1, errors = -1;          ///< descriptors of its output streams; -1: this process's streams
    int input = -1;                        ///< descriptor of its input, if `output` is set; -1: empty input
    std::optional<sigset_t> blocked = {};  ///< signals that the program blocks; unset: none
    bool own_input = false;  ///< with `output`: the program has this process's input, and may leave a core dump
    int passed = -1;         ///< a descriptor that the program inherits; -1: none
    bool bound = false;      ///< the program is killed when the thread that started it ends
};

/// Starts a program, which exits with 127 if it cannot be executed. Returns -1 and sets errno if fork fails.
pid_t start_process(const ProcessStart& start);
/// Calls `work` in a forked copy of this process. The copy exits with the result, and is killed when this thread ends.
pid_t start_copy(const std::function<int()>& work);
/// Returns the status of a child process; nullopt if the child still runs after `limit`.
std::optional<int> ends_within(pid_t process, std::chrono::milliseconds limit);

struct ChildEnd {
    int code = 0;
    int signal = 0;  ///< signal that ended the child; 0: none
    bool late = false;
    int stopped = 0;           ///< signal that this process received, and therefore ended the child; 0: none
    pid_t held = 0;            ///< pid of the child if it still existed 1 s after it was killed; 0: it has ended
    std::string problem = {};  ///< why the child could not be started or waited for; "": it could
    std::string output = {}, errors = {};
    std::chrono::milliseconds limit{0};  ///< the time limit, if the child was killed because of it

    /// Returns "" if the child exited with 0; otherwise "was ended by signal 4 (Illegal instruction)", "did not end
    /// within 60 s" ...
    std::string why_not() const;
};

/// Runs a program to its end, with this process's environment and the given input. Blocks. The program is killed after
/// `limit`, or if this process ends first. The first 64 KiB of each output stream are returned. A signal that `stop`
/// receives is forwarded as SIGTERM; the program then has 10 s to end, or until a second signal.
ChildEnd run_child(const std::vector<std::string>& arguments, std::chrono::milliseconds limit,
                   HeldSignals* stop = nullptr, std::string_view input = "");

}  // namespace orrery

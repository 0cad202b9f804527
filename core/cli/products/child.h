#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace orrery {

class HeldSignals;  // cli/signals.h

/// How a child process ended, and its output.
struct ChildEnd {
    int code = 0;    ///< exit code
    int signal = 0;  ///< signal that ended it; 0: none
    bool late = false;
    int stopped = 0;           ///< the signal to this process that ended it; 0: none
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

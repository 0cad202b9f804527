#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace orrery {

class HeldSignals;  // cli/signals.h

/// How a child process ended, and what it wrote.
struct ChildEnd {
    int code = 0;    ///< exit code
    int signal = 0;  ///< that ended it; 0: none
    bool late = false;
    int stopped = 0;           ///< the signal to this process on which it was ended; 0: none
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

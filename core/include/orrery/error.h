#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "orrery/api.h"

namespace orrery {

/// What asked for something: a line of a script or configuration, and a name, such as strategy "tensor" or "data".
struct Origin {
    std::string who;
    std::string file;
    int line = 0;
    int column = 0;

    /// "tensor, mlp.lua:9", "laptop.toml:4:13", or "" when the origin is not known.
    ORRERY_API std::string text() const;
    bool operator==(const Origin&) const = default;
};

/// The kind of an error, which decides the exit code of the command.
enum class Fault {
    usage,    ///< the user's script, config, data or command: exit 2, nothing was written
    failed,   ///< the work itself failed (disk full, kernel error): exit 1
    peer,     ///< another rank died, hangs or disagrees: exit 1
    requeue,  ///< stopped on request after a checkpoint: exit 75
};

/// Text for users: it can be joined, cut, sent and printed. It cannot be searched or compared, because programs decide
/// by fields of errors, not by their text.
class Message {
public:
    Message() = default;
    Message(std::string text) : text_(std::move(text)) {}
    Message(const char* text) : text_(text) {}

    Message& operator+=(const Message& more) {
        text_ += more.text_;
        return *this;
    }
    friend Message operator+(Message first, const Message& second) { return std::move(first += second); }
    Message cut(size_t bytes) const { return text_.substr(0, bytes); }
    Message first_line() const { return text_.substr(0, text_.find('\n')); }

    bool empty() const { return text_.empty(); }
    /// The text, to print, write or send. tests/policy refuses code that searches, compares or stores the string.
    const std::string& shown() const { return text_; }

private:
    std::string text_;
};

/// Why a process, a node or a generation of a job ended. Each cause has its own budget of restarts.
enum class Cause : uint8_t {
    done,       ///< every process exited with 0
    stopped,    ///< by a signal or a preemption notice: not a failure, whoever stopped the job starts it again
    mistake,    ///< an error in the script, configuration or command; it would happen again
    error,      ///< a rank gave up: a loss that is not finite, a file that cannot be written
    process,    ///< a process was killed, or its connection closed
    memory,     ///< the system killed a process because it ran out of memory
    early_end,  ///< a rank exited with 0 before the end of the job
    hang,       ///< a rank makes no progress or stopped sending heartbeats
    storage,    ///< a rank is blocked on a disk
    node,       ///< a node's launcher is gone or its network failed
};

/// How a rank, a node, a generation or a job ended. Processes of the job send each other this value, created where the
/// end is detected. A default Loss means that nothing has ended.
struct Loss {
    Cause cause = Cause::done;
    int64_t rank = -1, node = -1;  ///< the rank, or the node whose launcher ended; -1: neither
    int64_t pid = 0;               ///< process id; with `nonce` (JoinOptions) it identifies the process
    std::string nonce = {};
    int code = 1;           ///< exit code for the command
    int64_t step = 0;       ///< last training step finished before the end; 0: none, or not known
    std::string site = {};  ///< where it was noticed, a fixed word of a-z, 0-9 and -: "save", "silence"; "": not known
    bool hearsay = false;   ///< true: reported by another rank; direct observations take precedence
    Message text = {};      ///< "was killed by signal 9 (Killed)"

    explicit operator bool() const { return cause != Cause::done; }
};

/// The only exception besides std::bad_alloc that leaves a plugin or a core module. The text says where, what was
/// asked, what was found and what to do, in lower case and without a full stop.
class ORRERY_API Error : public std::runtime_error {
public:
    explicit Error(const std::string& text, Fault fault = Fault::usage);
    Error(const Origin& where, const std::string& text, Fault fault = Fault::usage);
    ~Error() override;

    Fault fault() const { return fault_; }

private:
    Fault fault_;
};

}  // namespace orrery

#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "orrery/api.h"

namespace orrery {

/// Where a thing was asked for: a line of a script or of a config, and on whose behalf ("tensor", "data", "").
struct Origin {
    std::string who;
    std::string file;
    int line = 0;
    int column = 0;

    /// "tensor, mlp.lua:9", "laptop.toml:4:13", or "" when nothing is known.
    ORRERY_API std::string text() const;
    bool operator==(const Origin&) const = default;
};

/// Whose fault it is; decides the exit code.
enum class Fault {
    usage,    ///< the user's script, config, data or command: exit 2, nothing was written
    failed,   ///< the work itself failed (disk full, kernel error): exit 1
    peer,     ///< another rank died, hangs or disagrees: exit 1
    requeue,  ///< stopped on request after a checkpoint: exit 75
};

/// A text for people: it is made, joined, cut, carried and printed. Programs decide by fields, so it has neither search
/// nor comparison.
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
    /// Its first `bytes`.
    Message cut(size_t bytes) const { return text_.substr(0, bytes); }
    Message first_line() const { return text_.substr(0, text_.find('\n')); }

    bool empty() const { return text_.empty(); }
    /// The text, to print, write or send it; tests/policy refuses code that searches, compares or names it.
    const std::string& shown() const { return text_; }

private:
    std::string text_;
};

/// Why a process, a node or a generation of a job ended. Restarts have a budget for each.
enum class Cause : uint8_t {
    done,       ///< all ended with 0
    stopped,    ///< by a signal or a notice: no failure, whoever stopped them starts the job again
    mistake,    ///< of the script, the configuration or the command: the same again, however often
    error,      ///< a rank gave up: a loss that is no number, a file that cannot be written
    process,    ///< a process was killed, or its connection ended
    memory,     ///< by the system, which had no more
    early_end,  ///< a rank ended with 0 before its end
    hang,       ///< a rank does nothing any more, or is silent
    storage,    ///< a rank waits for a disk
    node,       ///< a node's launcher is gone, or its network
};

/// The end of a rank, a node, a generation or a job, as the value that its processes send each other. It is made where
/// that is noticed. A default one says that nothing has ended.
struct Loss {
    Cause cause = Cause::done;
    int64_t rank = -1, node = -1;  ///< of whom: a rank, or the launcher of a node; -1: neither
    int64_t pid = 0;               ///< this and `nonce` (`JoinOptions`) say which process that is
    std::string nonce = {};
    int code = 1;           ///< what the command exits with
    int64_t step = 0;       ///< the last that was finished before it, 0: none, or not known
    std::string site = {};  ///< where it was noticed, a fixed word of a-z, 0-9 and -: "save", "silence"; "": not known
    bool hearsay = false;   ///< what a rank says of another one: what is seen of that comes before it
    Message text = {};      ///< "was killed by signal 9 (Killed)"

    explicit operator bool() const { return cause != Cause::done; }
};

/// The only exception besides std::bad_alloc that leaves a plugin or a core module.
/// The text says where, what was asked, what was found and what to do; lower case, no full stop.
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

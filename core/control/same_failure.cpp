#include <algorithm>
#include <cctype>
#include <string_view>

#include "control/supervisor.h"

namespace orrery {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Without "(pid 4242 on host n2)": the host may be another one next time, too.
void drop_processes(std::string& text) {
    for (size_t at = 0; (at = text.find("(pid ", at)) != std::string::npos;)
        text.erase(at, std::min(text.find(')', at), text.size() - 1) - at + 1);
}

/// Without each generation's own name of a folder that it writes: "step-00000080.g2.partial".
void drop_generations(std::string& text) {
    constexpr std::string_view begins = ".g", ends = ".partial";
    for (size_t at = 0; (at = text.find(begins, at)) != std::string::npos; at += begins.size()) {
        const size_t end = text.find_first_not_of("0123456789", at + begins.size());
        if (end != std::string::npos && std::string_view(text).substr(end).starts_with(ends)) text.erase(at, end - at);
    }
}

/// What is the same each time. Seconds have a point, ports are behind a colon and lines of a script shorter.
std::string lasting(std::string text) {
    drop_processes(text);
    drop_generations(text);
    std::string same;
    for (size_t at = 0; at < text.size();) {
        size_t end = at;
        while (end < text.size() && (is_digit(text[end]) || text[end] == '.')) ++end;
        const std::string_view number = std::string_view(text).substr(at, end - at);
        const bool measured = number.size() >= 3 && number.front() != '.' && number.find('.') < number.size() - 1;
        const bool port = number.size() >= 4 && at > 0 && text[at - 1] == ':';
        same += measured || port ? "N" : end > at ? number : std::string_view(text).substr(at, 1);
        at = std::max(end, at + 1);
    }
    return same;
}

}  // namespace

bool same_failure(const Ended& one, const Ended& other) {
    if (one.cause != other.cause || one.step != other.step) return false;
    return (one.who == other.who || one.cause == Cause::error) && lasting(one.how) == lasting(other.how);
}

}  // namespace orrery

#include "node_list.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace orrery::slurm {
namespace {

constexpr int64_t most_hosts = 1'000'000;  // beyond any cluster, and products of two still fit

/// Reads a number, which must begin with a digit, from the front of `text`. -1: there is none, or it is too large.
int64_t take_number(std::string_view& text) {
    if (text.empty() || !std::isdigit(static_cast<unsigned char>(text.front()))) return -1;
    int64_t number = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (fault != std::errc()) return -1;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return number;
}

class Reader {
public:
    explicit Reader(std::string_view text) : left_(text) {}

    NodeList read() {
        if (left_.empty()) fail("it is empty");
        while (list_.problem.empty()) {
            take_name();
            if (left_.empty() || !list_.problem.empty()) break;
            left_.remove_prefix(1);  // a comma
        }
        return list_.problem.empty() ? list_ : NodeList{"", 0, list_.problem};
    }

private:
    void fail(const char* why) {
        if (list_.problem.empty()) list_.problem = why;
    }

    /// Reads one name up to its comma.
    void take_name() {
        std::string first;
        int64_t hosts = 1;
        while (!left_.empty() && left_.front() != ',' && list_.problem.empty()) {
            const auto c = static_cast<unsigned char>(left_.front());
            left_.remove_prefix(1);
            if (c == '[')
                hosts *= take_bracket(first);
            else if (c == ']' || !std::isgraph(c))
                return fail(c == ']' ? "it has a ] without a [" : "it has a character that no host name has");
            else
                first += static_cast<char>(c);
            if (hosts > most_hosts) return fail("it has more than a million hosts");
        }
        if (first.empty()) return fail("a name is empty");
        if (list_.hosts == 0) list_.first = first;
        list_.hosts += hosts;
        if (list_.hosts > most_hosts) fail("it has more than a million hosts");
    }

    /// Reads "003-005,9]". Appends the first number to `first` and returns how many there are.
    int64_t take_bracket(std::string& first) {
        int64_t hosts = 0;
        for (bool begins = true;; begins = false) {
            const std::string_view digits = left_;
            const int64_t low = take_number(left_);
            if (begins && low >= 0) first += digits.substr(0, digits.size() - left_.size());
            int64_t high = low;
            if (left_.starts_with('-')) {
                left_.remove_prefix(1);
                high = take_number(left_);
            }
            if (low < 0 || high < low) return fail("a bracket holds something else than numbers and ranges"), 0;
            if (high - low >= most_hosts) return fail("it has more than a million hosts"), 0;
            hosts = std::min(hosts + (high - low) + 1, most_hosts + 1);
            const char next = left_.empty() ? '\0' : left_.front();
            if (next != ',' && next != ']') return fail("a [ is not closed"), 0;
            left_.remove_prefix(1);
            if (next == ']') return hosts;
        }
    }

    std::string_view left_;
    NodeList list_;
};

}  // namespace

NodeList node_list(std::string_view text) { return Reader(text).read(); }

int64_t tasks_on(std::string_view list, int64_t node) {
    while (!list.empty()) {
        std::string_view group = list.substr(0, list.find(','));
        list.remove_prefix(std::min(group.size() + 1, list.size()));
        const int64_t tasks = take_number(group);
        int64_t nodes = 1;
        if (group.starts_with("(x")) {
            group.remove_prefix(2);
            nodes = take_number(group);
            if (group != ")") return 0;
        } else if (!group.empty()) {
            return 0;
        }
        if (tasks < 0 || nodes < 1) return 0;
        if (node < nodes) return tasks;
        node -= nodes;
    }
    return 0;
}

}  // namespace orrery::slurm

#include "hostfile.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "orrery/error.h"

namespace orrery {
namespace {

constexpr size_t max_bytes = 1 << 20, max_host = 255;
constexpr int64_t max_slots = 1'000'000;
constexpr std::string_view blanks = " \t\r\v\f";

bool letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

bool made_of(std::string_view text, std::string_view more) {
    return !text.empty() && text.front() != '-' && std::all_of(text.begin(), text.end(), [&](char c) {
        return letter_or_digit(c) || more.find(c) != std::string_view::npos;
    });
}

/// An IPv6 address, perhaps with a zone: two colons or more, of hex digits up to the zone.
bool is_ipv6(std::string_view text) {
    const std::string_view address = text.substr(0, text.find('%'));
    const bool zoned = address.size() == text.size() || made_of(text.substr(address.size() + 1), "-_.");
    return zoned && std::count(address.begin(), address.end(), ':') >= 2 &&
           address.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos;
}

/// The part of a line up to the next blank, which is taken off the line.
std::string_view take_word(std::string_view& line) {
    line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
    const std::string_view word = line.substr(0, line.find_first_of(blanks));
    line.remove_prefix(word.size());
    return word;
}

class Reader {
public:
    explicit Reader(const std::string& file) : file_(file) {}

    std::vector<Host> read(std::string_view text) {
        if (text.size() > max_bytes)
            throw Error(file_ +
                        ": has more than 1 MiB, which is not a hostfile\n  name a file of lines `host slots=N`");
        while (!text.empty()) {
            const std::string_view line = text.substr(0, text.find('\n'));
            text.remove_prefix(std::min(line.size() + 1, text.size()));
            ++line_;
            take(line.substr(0, line.find('#')));
        }
        if (hosts_.empty()) throw Error(file_ + ": names no host\n  write a line `host slots=N` for each");
        return std::move(hosts_);
    }

private:
    [[noreturn]] void refuse(const std::string& what) const { throw Error(Origin{"", file_, line_}, what); }

    void take(std::string_view line) {
        const std::string_view word = take_word(line);
        if (word.empty()) return;
        const std::string host = host_of(word);
        const std::string_view count = take_word(line);
        const int64_t slots = count.empty() ? -1 : slots_of(host, count);
        if (const std::string_view more = take_word(line); !more.empty())
            refuse("\"" + std::string(more.substr(0, max_host)) + "\" follows the slots of " + host +
                   "\n  write one host a line: host slots=N");
        add(host, slots);
    }

    /// Returns the host as ssh takes it, without brackets around an address.
    std::string host_of(std::string_view word) const {
        const size_t at = word.find('@');
        const std::string_view user = at == std::string_view::npos ? "" : word.substr(0, at);
        std::string_view host = at == std::string_view::npos ? word : word.substr(at + 1);
        if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
            host = host.substr(1, host.size() - 2);
            if (!is_ipv6(host)) host = "";
        }
        const bool named = at == std::string_view::npos || made_of(user, "-_.");
        if (word.size() > max_host || !named || (!made_of(host, "-_.") && !is_ipv6(host)))
            refuse("\"" + std::string(word.substr(0, max_host)) + "\" is not a host\n  write a name or an address" +
                   (host.find(':') != std::string_view::npos
                        ? ", and the number of ranks as slots=N: n1 slots=4"
                        : ", perhaps with a user: n1, anna@n1, 10.0.0.1, fd00::1"));
        return (at == std::string_view::npos ? "" : std::string(user) + "@") + std::string(host);
    }

    int64_t slots_of(const std::string& host, std::string_view word) const {
        constexpr std::string_view key = "slots=";
        if (!word.starts_with(key))
            refuse("\"" + std::string(word.substr(0, max_host)) + "\" after " + host + ", expected slots=N\n  write " +
                   host + " slots=4, or the host alone");
        const std::string_view number = word.substr(key.size());
        int64_t slots = 0;
        const auto [end, fault] = std::from_chars(number.data(), number.data() + number.size(), slots);
        if (fault != std::errc() || end != number.data() + number.size() || slots < 1 || slots > max_slots)
            refuse("slots=" + std::string(number.substr(0, max_host)) + " of " + host +
                   ", expected a whole number from 1 to 1000000");
        return slots;
    }

    void add(const std::string& host, int64_t slots) {
        const std::string machine = host.substr(host.find('@') + 1);
        const auto [found, is_new] = places_.emplace(machine, hosts_.size());
        if (is_new) {
            hosts_.push_back({host, slots, line_});
            return;
        }
        Host& known = hosts_[found->second];
        if (known.name != host)
            refuse(host + " is the host " + known.name + " of line " + std::to_string(known.line) +
                   " with another user\n  name each host with one user");
        known.slots = std::min(max_slots, std::max<int64_t>(1, known.slots) + std::max<int64_t>(1, slots));
    }

    const std::string& file_;
    int line_ = 0;
    std::vector<Host> hosts_;
    std::map<std::string, size_t> places_;
};

}  // namespace

std::vector<Host> parse_hostfile(std::string_view text, const std::string& file) { return Reader(file).read(text); }

}  // namespace orrery

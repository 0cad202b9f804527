#include "member.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>

#include "orrery/error.h"

namespace tcp {

using orrery::Error;
using orrery::Fault;

namespace {

/// Limit of one try: the service closes unauthenticated connections after a second. A half-open connection must not use
/// up the whole timeout.
constexpr auto handshake = std::chrono::seconds(3);
constexpr auto settled = std::chrono::milliseconds(100);
constexpr auto last_words = std::chrono::seconds(1);
constexpr int slice_ms = 500;  // between two checks whether to give up
constexpr auto crossing = std::chrono::seconds(1);
constexpr size_t max_unsent = 4 << 20;  // a caller with more unsent bytes blocks

std::string seconds_text(std::chrono::milliseconds time) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", std::chrono::duration<double>(time).count());
    return text;
}

}  // namespace

Member::Member(const orrery::JoinOptions& options)
    : options_(options), bell_(make_bell()), link_(options, this_process()) {
    join(Clock::now() + options.timeout);
    if (options.rank >= 0) set("address/" + std::to_string(options.rank), local_address(socket_.get()));
    thread_ = std::thread([this] { run(); });
}

Member::~Member() {
    stop_ = true;
    ring(bell_);
    thread_.join();
    const auto until = Clock::now() + last_words;
    const std::lock_guard lock(mutex_);
    for (flush(); sent_ < out_.size() && !link_.over() && left_ms(until) > 0; flush()) {
        pollfd writable{socket_.get(), POLLOUT, 0};
        if (::poll(&writable, 1, left_ms(until)) <= 0) return;
    }
}

/// Each try resolves the host again: its name may stand for another address meanwhile, where nothing answers at the
/// first one.
void Member::join(Clock::time_point deadline) {
    std::string why = "no answer";
    for (Milliseconds pause(5);; pause = std::min(pause * 2, Milliseconds(200))) {
        const auto once = std::min(deadline, Clock::now() + Milliseconds(options_.give_up ? 1000 : 5000));
        socket_ = try_connect(options_.host, options_.port, once, options_.silence, why);
        const auto answered = std::min(deadline, Clock::now() + handshake);
        if (socket_ && shake_hands(answered)) return;
        if (socket_) why = Clock::now() < answered ? "it closes the connection" : "it does not answer";
        if (Clock::now() + pause >= deadline || (options_.give_up && options_.give_up())) break;
        std::this_thread::sleep_for(pause);
    }
    const bool launcher = options_.token.launchers || options_.rank < 0;
    const int64_t node = options_.rank < 0 ? -1 - options_.rank : options_.rank;
    throw Error((launcher ? "the launcher of node " : "rank ") + std::to_string(launcher ? node : options_.rank) +
                    " cannot reach the rendezvous at " + place_text(options_.host, options_.port) + " within " +
                    seconds_text(options_.timeout) + " s (run.join_timeout_s): " + why +
                    "; is rank 0 or the launcher running there, and the port open?",
                Fault::peer);
}

bool Member::shake_hands(Clock::time_point deadline) {
    out_.clear();
    sent_ = 0;
    link_.opened(link_time(Clock::now()));
    while (!link_.joined()) {
        pollfd p{socket_.get(), POLLIN, 0};
        while (::poll(&p, 1, std::min(left_ms(deadline), slice_ms)) <= 0)
            if (left_ms(deadline) == 0 || (options_.give_up && options_.give_up())) return false;
        char buffer[1 << 12];
        const int64_t n = receive_some(socket_.get(), buffer, sizeof buffer);
        if (n < 0) return false;
        if (n > 0) link_.received({buffer, static_cast<size_t>(n)}, link_time(Clock::now()));
        flush();  // a hello fits into an empty socket's buffer
    }
    noted();
    return true;
}

/// Needs the lock, or that no other thread exists yet.
void Member::flush() {
    out_ += link_.output();
    while (sent_ < out_.size()) {
        const int64_t n = send_some(socket_.get(), out_.data() + sent_, out_.size() - sent_);
        if (n == 0) return;
        if (n > 0) sent_ += static_cast<size_t>(n);
        if (n < 0) link_.closed();
        if (n < 0) sent_ = out_.size();
    }
    out_.clear();
    sent_ = 0;
}

void Member::noted() {
    if (link_.loss()) is_lost_ = true;
    changed_.notify_all();
}

uint64_t Member::request(std::unique_lock<std::mutex>& lock, std::string_view what, std::string_view key,
                         std::string_view value) {
    const auto room = [&] { return out_.size() - sent_ < max_unsent || link_.over(); };
    if (!room() && !changed_.wait_for(lock, options_.silence, room)) {
        link_.lose(link_.service() + " does not answer");
        noted();
    }
    const uint64_t number = link_.request(what, key, value);
    sent();
    return number;
}

/// Sends the link's output now, or wakes its thread to send the rest.
void Member::sent() {
    flush();
    if (!out_.empty()) ring(bell_);
}

void Member::tell(std::string_view what, std::string_view key, std::string_view value) {
    std::unique_lock lock(mutex_);
    request(lock, what, key, value);
}

/// Waits for an answer; nullopt on timeout. Throws Fault::peer when a rank is lost.
std::optional<std::string> Member::ask(std::string_view what, std::string_view key, std::string_view value,
                                       Milliseconds timeout) {
    std::unique_lock lock(mutex_);
    const uint64_t number = request(lock, what, key, value);
    std::optional<std::string> answer;
    const auto answered = [&] { return answer || (answer = link_.answer(number)); };
    changed_.wait_for(lock, timeout, [&] { return answered() || is_lost_ || link_.over(); });
    // When a rank fails after all have agreed, the others still get the texts that were set before.
    if (is_lost_ && !link_.over()) changed_.wait_for(lock, settled, [&] { return answered() || link_.over(); });
    if (answered()) return answer;
    if (is_lost_ || link_.over())
        throw Error((is_lost_ ? link_.loss().text.shown() : link_.service() + " closed the store") +
                        "\n  this rank waited for key '" + std::string(key) + "'",
                    Fault::peer);
    // a value that was set in time may be in flight: it arrives before the answer to a later request
    if (what == "get") {
        const uint64_t next = request(lock, "absent", {}, {});
        changed_.wait_for(lock, crossing, [&] { return link_.answer(next) || is_lost_ || link_.over(); });
        link_.cancel(next);
        if (answered()) return answer;
    }
    link_.cancel(number);
    flush();
    return std::nullopt;
}

/// Receives answers and sends heartbeats until the link ends.
void Member::run() {
    bool unsent = false, over = false;
    auto due = Clock::now();
    while (!stop_ && !over) {
        pollfd fds[2] = {{socket_.get(), static_cast<short>(unsent ? POLLIN | POLLOUT : POLLIN), 0},
                         {bell_.get(), POLLIN, 0}};
        ::poll(fds, 2, left_ms(due));
        if (fds[1].revents) silence(bell_);
        std::string position;
        if (Clock::now() >= due) {
            const std::lock_guard lock(position_mutex_);
            if (position_) position = position_();
        }
        const std::lock_guard lock(mutex_);
        if (fds[0].revents & (POLLIN | POLLHUP | POLLERR)) receive();
        const auto now = Clock::now();
        if (now >= due) link_.tick(link_time(now), position);
        flush();
        unsent = !out_.empty();
        over = link_.over();
        due = now + std::clamp(std::chrono::duration_cast<Milliseconds>(link_.due() - link_time(now)), Milliseconds(0),
                               Milliseconds(250));
        noted();
    }
}

void Member::receive() {
    char buffer[1 << 16];
    const int64_t n = receive_some(socket_.get(), buffer, sizeof buffer);
    if (n > 0) link_.received({buffer, static_cast<size_t>(n)}, link_time(Clock::now()));
    if (n < 0) link_.closed();
}

std::string Member::get(std::string_view key, Milliseconds timeout) {
    if (auto value = look(key, timeout)) return *std::move(value);
    throw Error(
        "no rank set key '" + std::string(key) + "' within " + std::to_string(timeout.count()) + " ms: " + absent(),
        Fault::peer);
}

std::optional<std::string> Member::look(std::string_view key, Milliseconds timeout) {
    return ask("get", key, {}, timeout);
}

int64_t Member::add(std::string_view key, int64_t amount) {
    const auto sum = ask("count", key, std::to_string(amount), Milliseconds(30'000));
    if (!sum) throw Error("adding to key '" + std::string(key) + "': no answer within 30 s", Fault::peer);
    return std::stoll(*sum);
}

std::string Member::absent() {
    const auto absent = ask("absent", {}, {}, Milliseconds(1000));
    if (absent) return absent->empty() ? "all ranks joined" : *absent;
    const std::lock_guard lock(mutex_);
    return link_.service() + " does not answer";
}

orrery::Message Member::lost() const {
    if (!is_lost_) return {};
    const std::lock_guard lock(mutex_);
    return link_.loss().text;
}

orrery::Loss Member::loss() const {
    const std::lock_guard lock(mutex_);
    return link_.loss();
}

std::string Member::run() const {
    const std::lock_guard lock(mutex_);
    return link_.run();
}

void Member::tell_position(std::function<std::string()> position) {
    const std::lock_guard lock(position_mutex_);
    position_ = std::move(position);
}

void Member::fail(const orrery::Loss& why) {
    const std::lock_guard lock(mutex_);
    link_.fail(why);
    sent();
}

void Member::gone(const orrery::Loss& how) {
    const std::lock_guard lock(mutex_);
    link_.gone(how);
    sent();
}

}  // namespace tcp

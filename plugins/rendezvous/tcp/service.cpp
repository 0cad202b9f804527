#include "service.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

namespace tcp {

namespace {

constexpr uint64_t of_bell = 0, of_listener = UINT64_MAX;
constexpr auto pause = std::chrono::milliseconds(100);
constexpr int most_accepted = 64;  // at a time, so that existing connections are served in between

void watch(const Fd& poll, int operation, int fd, uint64_t number, uint32_t events) {
    epoll_event event{events, {.u64 = number}};
    ::epoll_ctl(poll.get(), operation, fd, &event);
}

}  // namespace

Service::Service(const orrery::ServeOptions& options, const Ports& ports)
    : silence_(options.silence),
      listener_(listen_on(options.host, options.port, ports)),
      bell_(make_bell()),
      poll_(::epoll_create1(EPOLL_CLOEXEC)),
      port_(port_of(listener_.get())),
      membership_(options, this_process()) {
    watch(poll_, EPOLL_CTL_ADD, bell_.get(), of_bell, EPOLLIN);
    watch(poll_, EPOLL_CTL_ADD, listener_.get(), of_listener, 0);
    thread_ = std::thread([this] { run(); });
}

Service::~Service() {
    stop_ = true;
    ring(bell_);
    thread_.join();
}

void Service::fail(const orrery::Loss& why) {
    {
        const std::lock_guard lock(mutex_);
        membership_.fail(why);
    }
    ring(bell_);
}

bool Service::joined(int64_t rank) const {
    const std::lock_guard lock(mutex_);
    return membership_.joined(rank);
}

orrery::Loss Service::loss() const {
    const std::lock_guard lock(mutex_);
    return membership_.loss();
}

bool Service::gone(const orrery::Loss& how) {
    bool known = false;
    {
        const std::lock_guard lock(mutex_);
        known = membership_.gone(how);
    }
    ring(bell_);
    return known;
}

void Service::run() {
    bool ending = false;
    epoll_event events[256];
    for (int wait = 0;;) {
        const int count = ::epoll_wait(poll_.get(), events, 256, wait);
        const auto now = Clock::now();
        const std::lock_guard lock(mutex_);
        for (int i = 0; i < count; ++i) {
            const uint64_t number = events[i].data.u64;
            if (number == of_bell) silence(bell_);
            if (number == of_listener) accept_some(now);
            const auto found = connections_.find(number);
            if (found == connections_.end()) continue;
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(number, now);
        }
        if (stop_ && !ending) membership_.end(link_time(now));
        ending = stop_;
        membership_.tick(link_time(now));
        perform(now);
        if (membership_.over()) return;
        listen(membership_.accepts(link_time(now)) && now >= paused_);
        wait = wait_ms(now);
    }
}

int Service::wait_ms(Clock::time_point now) const {
    const auto due = std::chrono::ceil<std::chrono::milliseconds>(membership_.due() - link_time(now)).count();
    return static_cast<int>(std::clamp<int64_t>(due, 0, pause.count()));
}

void Service::listen(bool wanted) {
    if (wanted != listening_) watch(poll_, EPOLL_CTL_MOD, listener_.get(), of_listener, wanted ? uint32_t{EPOLLIN} : 0);
    listening_ = wanted;
}

void Service::accept_some(Clock::time_point now) {
    for (int i = 0; i < most_accepted && membership_.accepts(link_time(now)); ++i) {
        std::string from;
        Fd socket = accept_one(listener_.get(), from, silence_);
        if (!socket && (errno == EMFILE || errno == ENFILE)) paused_ = now + pause;
        if (!socket) return;
        const uint64_t number = numbers_++;
        watch(poll_, EPOLL_CTL_ADD, socket.get(), number, EPOLLIN);
        connections_.emplace(number, Connection{std::move(socket)});
        membership_.opened(number, from, link_time(now));
        perform(now);
    }
}

/// Reads one piece, so that a connection with much data does not block the others.
void Service::receive(uint64_t number, Clock::time_point now) {
    char buffer[1 << 16];
    const int64_t n = receive_some(connections_.at(number).socket.get(), buffer, sizeof buffer);
    if (n > 0) return membership_.received(number, {buffer, static_cast<size_t>(n)}, link_time(now));
    if (n == 0) return;
    membership_.closed(number, link_time(now));
    forget(number);
}

void Service::forget(uint64_t number) {
    blocked_.erase(number);
    connections_.erase(number);
}

/// Carries out the membership's actions. A connection that cannot be written is closed, which may cause more actions.
void Service::perform(Clock::time_point now) {
    std::set<uint64_t> touched = blocked_;
    for (;;) {
        for (orrery::LinkAction& action : membership_.actions()) {
            const auto found = connections_.find(action.connection);
            if (found == connections_.end()) continue;
            Connection& connection = found->second;
            touched.insert(action.connection);
            connection.out += action.bytes;
            connection.closing = connection.closing || action.close;
        }
        if (touched.empty()) return;
        for (const uint64_t number : touched) {
            const auto found = connections_.find(number);
            if (found == connections_.end()) continue;
            const bool good = flush(number, found->second);
            if (!good && !found->second.closing) membership_.closed(number, link_time(now));
            if (!good || found->second.closing) forget(number);
        }
        touched.clear();
    }
}

/// Sends what can be sent now; false when the connection has ended.
bool Service::flush(uint64_t number, Connection& connection) {
    while (connection.sent < connection.out.size()) {
        const int64_t n = send_some(connection.socket.get(), connection.out.data() + connection.sent,
                                    connection.out.size() - connection.sent);
        if (n < 0) return false;
        if (n == 0) break;
        connection.sent += static_cast<size_t>(n);
        membership_.sent(number, static_cast<size_t>(n));
    }
    const bool blocked = connection.sent < connection.out.size();
    if (!blocked) connection.out.clear();
    if (!blocked) connection.sent = 0;
    if (blocked ? blocked_.insert(number).second : blocked_.erase(number) > 0)
        watch(poll_, EPOLL_CTL_MOD, connection.socket.get(), number,
              blocked ? uint32_t{EPOLLIN | EPOLLOUT} : uint32_t{EPOLLIN});
    return true;
}

}  // namespace tcp

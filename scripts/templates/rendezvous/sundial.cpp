// The rendezvous sundial: ranks of one host meet at an abstract Unix socket. Replace the sockets by what carries bytes
// where you are: who belongs to the job, what is lost and every MAC are Membership's and MemberLink's business.
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "orrery/p2p.h"
#include "orrery/plugin.h"
#include "orrery/rendezvous.h"

namespace {

using orrery::Error;
using orrery::Fault;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

orrery::LinkTime now() { return Clock::now().time_since_epoch(); }

/// What the state machines ask of this process.
orrery::LinkHost here() {
    char name[256] = {};
    ::gethostname(name, sizeof name - 1);
    const auto random = [](size_t bytes) {
        std::string text(bytes, '\0');
        if (::getrandom(text.data(), bytes, 0) != static_cast<ssize_t>(bytes)) throw Error("sundial: no random bytes");
        return text;
    };
    return {name, ::getpid(), random, orrery::process_state};
}

/// A port is a number in the socket's name.
std::pair<sockaddr_un, socklen_t> address(int port) {
    sockaddr_un place{};
    place.sun_family = AF_UNIX;
    const std::string name = "orrery-sundial-" + std::to_string(port);
    name.copy(place.sun_path + 1, sizeof place.sun_path - 1);
    return {place, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

int new_socket() { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

/// What can be sent now; the rest stays. False when the connection is no more.
bool send_some(int fd, std::string& out, size_t& sent) {
    while (!out.empty()) {
        const ssize_t n = ::send(fd, out.data(), out.size(), MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
        if (n <= 0) return false;
        sent += static_cast<size_t>(n);
        out.erase(0, static_cast<size_t>(n));
    }
    return true;
}

class Service final : public orrery::RendezvousService {
public:
    explicit Service(const orrery::ServeOptions& options) : listener_(new_socket()), membership_(options, here()) {
        const int first = options.port ? options.port : 20000 + ::getpid() % 20000;
        const int last = options.port ? options.port : first + 1000;
        for (port_ = first; port_ <= last; ++port_) {
            const auto [place, size] = address(port_);
            if (::bind(listener_, reinterpret_cast<const sockaddr*>(&place), size) == 0) break;
        }
        if (port_ > last || ::listen(listener_, SOMAXCONN) != 0) {
            ::close(listener_);
            throw Error("rendezvous sundial: port " + std::to_string(first) + " is in use; choose another, or 0");
        }
        thread_ = std::thread([this] { run(); });
    }
    ~Service() override {
        stop_ = true;
        thread_.join();
        for (const auto& [number, connection] : connections_) ::close(connection.fd);
        ::close(listener_);
    }

    int port() const override { return port_; }
    void fail(const orrery::Loss& why) override {
        const std::lock_guard lock(mutex_);
        membership_.fail(why);
    }
    bool joined(int64_t rank) const override {
        const std::lock_guard lock(mutex_);
        return membership_.joined(rank);
    }
    bool gone(const orrery::Loss& how) override {
        const std::lock_guard lock(mutex_);
        return membership_.gone(how);
    }
    orrery::Loss loss() const override {
        const std::lock_guard lock(mutex_);
        return membership_.loss();
    }

private:
    struct Connection {
        int fd;
        std::string out;
    };

    void run() {
        for (bool accepts = true, ended = false, over = false; !over;) {
            std::vector<pollfd> fds{{accepts ? listener_ : -1, POLLIN, 0}};
            std::vector<uint64_t> numbers{0};
            for (const auto& [number, connection] : connections_) {
                fds.push_back(
                    {connection.fd, static_cast<short>(connection.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
                numbers.push_back(number);
            }
            ::poll(fds.data(), fds.size(), 5);
            const std::lock_guard lock(mutex_);
            for (size_t i = 1; i < fds.size(); ++i)
                if (fds[i].revents & (POLLIN | POLLHUP | POLLERR)) receive(numbers[i]);
            if (const int fd =
                    fds[0].revents ? ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
                fd >= 0) {
                connections_[++made_] = {fd, ""};
                membership_.opened(made_, "this host", now());
            }
            if (stop_ && !ended) {
                membership_.end(now());
                ended = true;
            }
            membership_.tick(now());
            perform();
            accepts = membership_.accepts(now());
            over = membership_.over();
        }
    }

    void receive(uint64_t number) {
        char buffer[1 << 16];
        const ssize_t n = ::recv(connections_.at(number).fd, buffer, sizeof buffer, 0);
        if (n > 0) return membership_.received(number, {buffer, static_cast<size_t>(n)}, now());
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        membership_.closed(number, now());
        drop(number);
    }

    void perform() {
        for (orrery::LinkAction& action : membership_.actions())
            if (const auto at = connections_.find(action.connection); at != connections_.end()) {
                at->second.out += action.bytes;
                if (action.close) drop(action.connection);
            }
        std::vector<uint64_t> broken;
        for (auto& [number, connection] : connections_) {
            size_t sent = 0;
            if (!send_some(connection.fd, connection.out, sent)) broken.push_back(number);
            membership_.sent(number, sent);
        }
        for (const uint64_t number : broken) {
            membership_.closed(number, now());
            drop(number);
        }
    }

    void drop(uint64_t number) {
        Connection& connection = connections_.at(number);
        size_t sent = 0;
        send_some(connection.fd, connection.out, sent);
        ::close(connection.fd);
        connections_.erase(number);
    }

    int listener_, port_ = 0;
    std::atomic<bool> stop_{false};
    mutable std::mutex mutex_;  // guards what follows
    orrery::Membership membership_;
    std::map<uint64_t, Connection> connections_;
    uint64_t made_ = 0;
    std::thread thread_;
};

class Sundial final : public orrery::Member {
public:
    explicit Sundial(const orrery::JoinOptions& options) : link_(options, here()) {
        const auto until = Clock::now() + options.timeout;
        while (!connect(options.port, until)) {
            if (Clock::now() > until || (options.give_up && options.give_up()))
                throw Error("rank " + std::to_string(options.rank) + " cannot reach the rendezvous sundial, port " +
                                std::to_string(options.port) + "; does its launcher run on this host?",
                            Fault::peer);
            std::this_thread::sleep_for(Milliseconds(20));
        }
        if (options.rank >= 0) set("address/" + std::to_string(options.rank), "127.0.0.1");
        thread_ = std::thread([this] { run(); });
    }
    ~Sundial() override {
        stop_ = true;
        thread_.join();
        ::close(fd_);
    }

    void set(std::string_view key, std::string_view value) override { tell("set", key, value); }
    void erase(std::string_view key) override { tell("erase", key, ""); }
    void leave() override { tell("leave", "", ""); }
    void fail(const orrery::Loss& why) override {
        const std::lock_guard lock(mutex_);
        link_.fail(why);
        flush();
    }
    void gone(const orrery::Loss& how) override {
        const std::lock_guard lock(mutex_);
        link_.gone(how);
        flush();
    }
    orrery::Loss loss() const override {
        const std::lock_guard lock(mutex_);
        return link_.loss();
    }
    std::string run() const override {
        const std::lock_guard lock(mutex_);
        return link_.run();
    }
    std::string get(std::string_view key, Milliseconds timeout) override {
        if (auto value = look(key, timeout)) return *std::move(value);
        throw Error("no rank set key '" + std::string(key) + "': " + absent(), Fault::peer);
    }
    std::optional<std::string> look(std::string_view key, Milliseconds timeout) override {
        return ask("get", key, "", timeout);
    }
    int64_t add(std::string_view key, int64_t amount) override {
        const auto sum = ask("count", key, std::to_string(amount), Milliseconds(30'000));
        if (!sum) throw Error("key '" + std::string(key) + "': no answer", Fault::peer);
        return std::stoll(*sum);
    }
    std::string absent() override {
        const auto absent = ask("absent", "", "", Milliseconds(1000));
        return !absent ? "the rendezvous does not answer" : absent->empty() ? "all ranks joined" : *absent;
    }
    orrery::Message lost() const override {
        if (!is_lost_) return {};
        const std::lock_guard lock(mutex_);
        return link_.loss().text;
    }
    void tell_position(std::function<std::string()> position) override {
        const std::lock_guard lock(position_mutex_);
        position_ = std::move(position);
    }

private:
    bool connect(int port, Clock::time_point until) {
        if (fd_ >= 0) ::close(fd_);
        fd_ = new_socket();
        const auto [place, size] = address(port);
        if (::connect(fd_, reinterpret_cast<const sockaddr*>(&place), size) != 0) return false;
        out_.clear();
        for (link_.opened(now()); !link_.joined();) {
            pollfd p{fd_, POLLIN, 0};
            if (::poll(&p, 1, 200) < 0 || Clock::now() > until || !receive()) return false;
            flush();
        }
        return true;
    }

    bool receive() {
        char buffer[1 << 16];
        const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
        if (n > 0) link_.received({buffer, static_cast<size_t>(n)}, now());
        return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
    }

    void flush() {
        size_t sent = 0;
        out_ += link_.output();
        if (!send_some(fd_, out_, sent)) link_.closed();
        if (!link_.loss().text.empty()) is_lost_ = true;
        changed_.notify_all();
    }

    void tell(std::string_view what, std::string_view key, std::string_view value) {
        const std::lock_guard lock(mutex_);
        link_.request(what, key, value);
        flush();
    }

    std::optional<std::string> ask(std::string_view what, std::string_view key, std::string_view value,
                                   Milliseconds timeout) {
        std::unique_lock lock(mutex_);
        const uint64_t number = link_.request(what, key, value);
        flush();
        std::optional<std::string> answer;
        const auto answered = [&] { return answer || (answer = link_.answer(number)); };
        changed_.wait_for(lock, timeout, [&] { return answered() || is_lost_ || link_.over(); });
        if (is_lost_ && !link_.over())  // what was there before the loss may still come
            changed_.wait_for(lock, Milliseconds(100), [&] { return answered() || link_.over(); });
        if (answered()) return answer;
        if (is_lost_ || link_.over())
            throw Error((is_lost_ ? link_.loss().text.shown() : link_.service() + " closed the store") +
                            "\n  this rank waited for key '" + std::string(key) + "'",
                        Fault::peer);
        link_.cancel(number);
        flush();
        return std::nullopt;
    }

    void run() {
        while (!stop_) {
            pollfd p{fd_, POLLIN, 0};
            ::poll(&p, 1, 10);
            std::string position;
            {
                const std::lock_guard lock(position_mutex_);
                if (position_) position = position_();
            }
            const std::lock_guard lock(mutex_);
            if (p.revents && !receive()) link_.closed();
            link_.tick(now(), position);
            flush();
            if (link_.over()) return;
        }
    }

    int fd_ = -1;
    std::atomic<bool> stop_{false}, is_lost_{false};
    std::mutex position_mutex_;
    std::function<std::string()> position_;
    mutable std::mutex mutex_;  // guards what follows
    std::condition_variable changed_;
    orrery::MemberLink link_;
    std::string out_;
    std::thread thread_;
};

class Backend final : public orrery::RendezvousBackend {
public:
    std::unique_ptr<orrery::RendezvousService> serve(const orrery::ServeOptions& options) override {
        return std::make_unique<Service>(options);
    }
    std::unique_ptr<orrery::Member> join(const orrery::JoinOptions& options) override {
        return std::make_unique<Sundial>(options);
    }
};

void add(orrery::Registry& registry) {
    // What a factory does not read of [rendezvous.sundial] is an error: config.text("key", "default") reads one.
    registry.add_rendezvous("sundial", [](orrery::Config&) { return std::make_unique<Backend>(); });
}

}  // namespace

ORRERY_PLUGIN("rendezvous.sundial", "0.1", add);

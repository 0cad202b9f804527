#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "run/control/address.h"
#include "run/control/rendezvous.h"
#include "run/control/rendezvous_wire.h"
#include "run/control/standing.h"

namespace orrery {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using wire::Frame;
using wire::Kind;

namespace {

constexpr auto beat_every = Milliseconds(250);
constexpr auto settled = Milliseconds(100);

int left_ms(Clock::time_point deadline) {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now()).count();
    return static_cast<int>(std::max<int64_t>(left, 0));
}

/// An open connection, or the reason why there is none.
wire::Fd try_connect(const std::string& host, int port, Clock::time_point deadline, std::string& why) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (const int rc = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found)) {
        why = gai_strerror(rc);
        return {};
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> keep(found, freeaddrinfo);
    for (const addrinfo* a = found; a; a = a->ai_next) {
        wire::Fd fd(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!fd) continue;
        if (::connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0) return fd;
        int error = errno;
        if (error == EINPROGRESS) {
            pollfd p{fd.get(), POLLOUT, 0};
            socklen_t size = sizeof error;
            if (::poll(&p, 1, left_ms(deadline)) == 1)
                getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
            else
                error = ETIMEDOUT;
            if (error == 0) return fd;
        }
        why = std::strerror(error);
    }
    return {};
}

/// Reads or writes exactly `bytes` before the deadline; false when the other end closes or time is up.
template <class Call>
bool transfer(int fd, short direction, size_t bytes, Clock::time_point deadline, Call call) {
    for (size_t at = 0; at < bytes;) {
        pollfd p{fd, direction, 0};
        if (::poll(&p, 1, left_ms(deadline)) <= 0) return false;
        const ssize_t n = call(at);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n <= 0) return false;
        at += static_cast<size_t>(n);
    }
    return true;
}

template <class T>
bool read_all(int fd, T& value, Clock::time_point deadline) {
    return transfer(fd, POLLIN, sizeof value, deadline,
                    [&](size_t at) { return ::recv(fd, reinterpret_cast<char*>(&value) + at, sizeof value - at, 0); });
}

bool write_all(int fd, std::string_view text, Clock::time_point deadline) {
    return transfer(fd, POLLOUT, text.size(), deadline,
                    [&](size_t at) { return ::send(fd, text.data() + at, text.size() - at, MSG_NOSIGNAL); });
}

std::string refusal(const wire::Welcome& welcome, const TcpRendezvous::Options& options) {
    switch (welcome.status) {
        case wire::Status::unknown_rank: return "the job has no such rank";
        case wire::Status::rank_taken: return "another process already is that rank";
        case wire::Status::old_generation:
            return fmt::format("generation {} of the job is over; this process comes from before a restart",
                               options.token.generation);
        case wire::Status::other_shape:
            return fmt::format("the job there has {}, this one {}\n  give every host the same --nodes and [mesh]",
                               wire::shape_text(welcome.world, welcome.per_host),
                               wire::shape_text(options.world, options.per_host));
        default: return "the job token does not match; is another job using that port?";
    }
}

}  // namespace

class TcpRendezvous::Link {
public:
    explicit Link(const Options& options)
        : options_(options),
          place_(place_text(options.host, options.port)),
          wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        join(Clock::now() + options.timeout);
        if (options.rank >= 0) send({Kind::set, 0, fmt::format("address/{}", options.rank), local_address()});
        thread_ = std::thread([this] { run(); });
    }

    ~Link() {
        stop_ = true;
        const uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
        thread_.join();
    }

    void send(const Frame& frame) {
        if (frame.key.size() > wire::max_key || frame.key.size() + frame.value.size() + 16 > wire::max_frame)
            throw Error(
                fmt::format("rendezvous: key '{:.40}' of {} bytes with a value of {} bytes is over the limit of "
                            "512 bytes and 1 MiB",
                            frame.key, frame.key.size(), frame.value.size()),
                Fault::failed);
        const std::lock_guard lock(write_mutex_);
        if (!write_all(socket_.get(), wire::encode(frame), Clock::now() + options_.silence))
            set_lost(fmt::format("{} does not answer", server()));
    }

    /// Sends a request and waits for its value; nullopt on timeout. Throws Fault::peer once a rank is lost.
    std::optional<std::string> ask(Kind kind, std::string_view key, std::string value, Milliseconds timeout) {
        const uint64_t id = next_id_++;
        {
            const std::lock_guard lock(mutex_);
            answers_[id];
        }
        send({kind, id, std::string(key), std::move(value)});
        std::unique_lock lock(mutex_);
        const auto over = [&] { return answers_[id].has_value() || is_lost_ || gone_; };
        changed_.wait_for(lock, timeout, over);
        // A rank that fails after all agreed to: the others still get the texts that were there before.
        if (is_lost_ && !dead_) changed_.wait_for(lock, settled, [&] { return answers_[id].has_value() || dead_; });
        std::optional<std::string> answer = std::move(answers_[id]);
        answers_.erase(id);
        if (answer) return answer;
        if (is_lost_ || gone_)
            throw Error(fmt::format("{}\n  this rank waited for key '{}'",
                                    is_lost_ ? lost_ : server() + " closed the store", key),
                        Fault::peer);
        lock.unlock();
        if (kind == Kind::get) send({Kind::cancel, id, {}, {}});
        return std::nullopt;
    }

    std::string lost() const {
        if (!is_lost_) return {};
        const std::lock_guard lock(mutex_);
        return lost_;
    }

    void tell_position(std::function<Position()> position) {
        const std::lock_guard lock(position_mutex_);
        position_ = std::move(position);
    }

    std::string server() const {
        return home_ < 0 ? fmt::format("the launcher, which holds the rendezvous at {},", place_)
                         : fmt::format("rank {}, which holds the rendezvous at {},", home_, place_);
    }

private:
    void join(Clock::time_point deadline) {
        std::string why = "no answer";
        for (Milliseconds pause(5);; pause = std::min(pause * 2, Milliseconds(200))) {
            const auto once = options_.give_up ? std::min(deadline, Clock::now() + Milliseconds(1000)) : deadline;
            socket_ = try_connect(options_.host, options_.port, once, why);
            if (socket_ && shake_hands(deadline)) return;
            if (socket_) why = "it closes the connection";
            if (Clock::now() + pause >= deadline || (options_.give_up && options_.give_up())) break;
            std::this_thread::sleep_for(pause);
        }
        throw Error(fmt::format("rank {} cannot reach the rendezvous at {} within {} s (run.join_timeout_s): {}; is "
                                "rank 0 or the launcher running there, and the port open?",
                                options_.rank, place_, std::chrono::duration<double>(options_.timeout).count(), why),
                    Fault::peer);
    }

    std::string local_address() const {
        sockaddr_storage address{};
        socklen_t size = sizeof address;
        char text[NI_MAXHOST] = {};
        ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size);
        ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
        return text;
    }

    bool shake_hands(Clock::time_point deadline) {
        wire::Challenge challenge;
        wire::Hello hello{};
        wire::Welcome welcome;
        if (!read_all(socket_.get(), challenge, deadline)) return false;
        if (std::memcmp(challenge.magic, wire::magic, 8) != 0)
            throw Error(fmt::format("what answers at {} is no Orrery rendezvous; check host and port", place_));
        wire::tune(socket_.get());
        std::memcpy(hello.magic, wire::magic, 8);
        hello.generation = options_.token.generation;
        hello.rank = options_.rank;
        hello.pid = ::getpid();
        hello.world = options_.world;
        hello.per_host = options_.per_host;
        const std::string host = host_name();
        host.copy(hello.host, sizeof hello.host - 1);
        wire::fill_random(hello.nonce);
        hello.proof = wire::prove(options_.token, hello, challenge.nonce);
        const std::string_view text(reinterpret_cast<const char*>(&hello), sizeof hello);
        if (!write_all(socket_.get(), text, deadline) || !read_all(socket_.get(), welcome, deadline)) return false;
        if (welcome.status != wire::Status::ok)
            throw Error(fmt::format("the rendezvous at {} refuses rank {} of job '{}': {}", place_, options_.rank,
                                    options_.token.job, refusal(welcome, options_)),
                        Fault::peer);
        if (!wire::same(welcome.proof, wire::prove(options_.token, welcome, hello.nonce)))
            throw Error(
                fmt::format("the rendezvous at {} does not know the token of job '{}'", place_, options_.token.job),
                Fault::peer);
        home_ = welcome.home;
        return true;
    }

    /// Reads answers and keeps beating until the link ends.
    void run() {
        auto heard = Clock::now(), beaten = heard;
        std::string in;
        char buffer[1 << 16];
        while (!stop_) {
            pollfd fds[2] = {{socket_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
            ::poll(fds, 2, static_cast<int>(beat_every.count()));
            if (fds[0].revents) {
                const ssize_t n = ::recv(socket_.get(), buffer, sizeof buffer, 0);
                if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return end(server() + " died");
                if (n > 0) heard = Clock::now();
                if (n > 0) in.append(buffer, static_cast<size_t>(n));
                try {
                    while (auto frame = wire::decode(in)) take(*frame);
                } catch (const Error& error) {
                    return end(fmt::format("protocol error of {}: {}", server(), error.what()));
                }
            }
            const auto now = Clock::now();
            if (now - heard > options_.silence) return end(server() + " is silent: stopped or unreachable");
            if (now - beaten < beat_every || gone_) continue;
            beaten = now;
            // Never blocks behind a big message: the beat can wait, that message is a sign of life too.
            const std::unique_lock lock(write_mutex_, std::try_to_lock);
            pollfd writable{socket_.get(), POLLOUT, 0};
            if (lock && ::poll(&writable, 1, 0) == 1)
                write_all(socket_.get(), wire::encode(heartbeat()), now + options_.silence);
        }
    }

    Frame heartbeat() {
        const std::lock_guard lock(position_mutex_);
        if (!position_) return {Kind::beat, 0, {}, {}};
        const Position here = position_();
        return {Kind::beat, 0, here.late() ? "late" : "", here.encode()};
    }

    void take(const Frame& frame) {
        if (frame.kind == Kind::lost) return set_lost(frame.value);
        const std::lock_guard lock(mutex_);
        if (frame.kind == Kind::leave) gone_ = true;
        if (frame.kind == Kind::value)
            if (const auto it = answers_.find(frame.id); it != answers_.end()) it->second = frame.value;
        changed_.notify_all();
    }

    void end(const std::string& why) {
        dead_ = true;
        if (!gone_) set_lost(why);
    }

    void set_lost(const std::string& text) {
        const std::lock_guard lock(mutex_);
        if (!is_lost_) lost_ = text;
        is_lost_ = true;
        changed_.notify_all();
    }

    const Options options_;
    const std::string place_;
    int64_t home_ = -1;
    wire::Fd socket_, wake_;
    std::atomic<bool> stop_{false}, is_lost_{false}, gone_{false}, dead_{false};
    std::atomic<uint64_t> next_id_{1};
    std::mutex write_mutex_;
    std::mutex position_mutex_;  // guards position_
    std::function<Position()> position_;
    mutable std::mutex mutex_;  // guards what follows
    std::condition_variable changed_;
    std::map<uint64_t, std::optional<std::string>> answers_;
    std::string lost_;
    std::thread thread_;
};

TcpRendezvous::TcpRendezvous(const Options& options) : link_(std::make_unique<Link>(options)) {}
TcpRendezvous::~TcpRendezvous() = default;

void TcpRendezvous::set(std::string_view key, std::string_view value) {
    link_->send({Kind::set, 0, std::string(key), std::string(value)});
}

std::string TcpRendezvous::get(std::string_view key, Milliseconds timeout) {
    if (auto value = look(key, timeout)) return *std::move(value);
    throw Error(fmt::format("nobody set key '{}' within {} ms: {}", key, timeout.count(), absent()), Fault::peer);
}

std::string TcpRendezvous::absent() {
    const auto absent = link_->ask(Kind::absent, {}, {}, Milliseconds(1000));
    if (!absent) return link_->server() + " does not answer";
    return absent->empty() ? "all ranks joined" : *absent;
}

std::optional<std::string> TcpRendezvous::look(std::string_view key, Milliseconds timeout) {
    return link_->ask(Kind::get, key, {}, timeout);
}

void TcpRendezvous::erase(std::string_view key) { link_->send({Kind::erase, 0, std::string(key), {}}); }

int64_t TcpRendezvous::add(std::string_view key, int64_t amount) {
    const auto sum = link_->ask(Kind::add, key, std::to_string(amount), Milliseconds(30'000));
    if (!sum) throw Error(fmt::format("adding to key '{}': {} does not answer", key, link_->server()), Fault::peer);
    return std::stoll(*sum);
}

std::string TcpRendezvous::lost() const { return link_->lost(); }
void TcpRendezvous::tell_position(std::function<Position()> position) { link_->tell_position(std::move(position)); }
void TcpRendezvous::leave() { link_->send({Kind::leave, 0, {}, {}}); }
void TcpRendezvous::fail(std::string_view why) { link_->send({Kind::fail, 0, {}, std::string(why.substr(0, 4096))}); }

void TcpRendezvous::gone(int64_t rank, std::string_view how) {
    link_->send({Kind::fail, 0, std::to_string(rank), std::string(how.substr(0, 4096))});
}

}  // namespace orrery

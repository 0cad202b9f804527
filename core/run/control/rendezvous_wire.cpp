#include "run/control/rendezvous_wire.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/env.h"
#include "base/hash.h"
#include "orrery/error.h"

namespace orrery {

std::string make_secret() {
    wire::Nonce bytes;
    wire::fill_random(bytes);
    constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (const char byte : bytes) {
        text += digits[static_cast<unsigned char>(byte) >> 4];
        text += digits[byte & 15];
    }
    return text;
}

RendezvousServer::Options options_of(const Job& job, int64_t per_host) {
    RendezvousServer::Options options;
    options.host = job.host;
    options.port = job.port;
    options.world = job.ranks;
    options.per_host = per_host;
    options.token = {job.token, job.id, job.generation};
    return options;
}

std::unique_ptr<RendezvousServer> serve(const Job& job) {
    RendezvousServer::Options options = options_of(job, per_host(job));
    options.home = job.rank;
    return std::make_unique<RendezvousServer>(options);
}

TcpRendezvous::Options place_of(const Job& job) {
    TcpRendezvous::Options options;
    options.host = job.host;
    options.port = job.port;
    options.rank = job.rank;
    options.token = {job.token, job.id, job.generation};
    return options;
}

namespace wire {
namespace {

Digest mac(const JobToken& token, std::string_view role, const Nonce& nonce, const void* data, size_t bytes) {
    std::string text(role);
    text += '\0';
    text += token.job;
    text += '\0';
    text.append(nonce.data(), nonce.size());
    text.append(static_cast<const char*>(data), bytes);
    const std::string raw = hmac_sha256(token.secret, text);
    Digest digest{};
    raw.copy(digest.data(), digest.size());
    return digest;
}

template <class T>
void put(std::string& to, T number) {
    to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

template <class T>
T take(std::string_view& from) {
    T number;
    if (from.size() < sizeof number) throw Error("rendezvous: short frame", Fault::peer);
    std::memcpy(&number, from.data(), sizeof number);
    from.remove_prefix(sizeof number);
    return number;
}

}  // namespace

void fill_random(Nonce& nonce) { system_env()->random_bytes(nonce.size()).copy(nonce.data(), nonce.size()); }

Digest prove(const JobToken& token, const Hello& hello, const Nonce& server) {
    return mac(token, "hello", server, &hello, offsetof(Hello, proof));
}

Digest prove(const JobToken& token, const Welcome& welcome, const Nonce& client) {
    return mac(token, "welcome", client, &welcome, offsetof(Welcome, proof));
}

std::string shape_text(int64_t world, int64_t per_host) {
    const std::string each = per_host > 0 ? fmt::format(", {} on each host", per_host) : "";
    return fmt::format("{} rank{}{}", world, world == 1 ? "" : "s", each);
}

bool same(const Digest& a, const Digest& b) { return same_secret({a.data(), a.size()}, {b.data(), b.size()}); }

std::string encode(const Frame& frame) {
    std::string text;
    const size_t body = 1 + 8 + 4 + frame.key.size() + frame.value.size();
    text.reserve(4 + body);
    put(text, static_cast<uint32_t>(body));
    put(text, static_cast<uint8_t>(frame.kind));
    put(text, frame.id);
    put(text, static_cast<uint32_t>(frame.key.size()));
    text += frame.key;
    text += frame.value;
    return text;
}

std::optional<Frame> decode(std::string& buffer) {
    if (buffer.size() < 4) return std::nullopt;
    uint32_t body;
    std::memcpy(&body, buffer.data(), 4);
    if (body < 13 || body > max_frame) throw Error("rendezvous: frame of a wrong size", Fault::peer);
    if (buffer.size() < 4 + size_t{body}) return std::nullopt;
    std::string_view rest(buffer.data() + 4, body);
    Frame frame;
    const auto kind = take<uint8_t>(rest);
    if (kind > static_cast<uint8_t>(Kind::lost)) throw Error("rendezvous: frame of an unknown kind", Fault::peer);
    frame.kind = static_cast<Kind>(kind);
    frame.id = take<uint64_t>(rest);
    const auto key = take<uint32_t>(rest);
    if (key > max_key || key > rest.size()) throw Error("rendezvous: key of a wrong size", Fault::peer);
    frame.key = rest.substr(0, key);
    frame.value = rest.substr(key);
    buffer.erase(0, 4 + size_t{body});
    return frame;
}

Fd& Fd::operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
}

Fd::~Fd() {
    if (fd_ >= 0) ::close(fd_);
}

int Fd::release() { return std::exchange(fd_, -1); }

void tune(int socket) {
    const int on = 1;
    const int unsent_ms = 10'000;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &unsent_ms, sizeof unsent_ms);
}

}  // namespace wire
}  // namespace orrery

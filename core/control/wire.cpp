#include "control/wire.h"

#include <fmt/format.h>

#include <cstring>

#include "control/loss.h"
#include "orrery/error.h"

namespace orrery::wire {
namespace {

template <class T>
std::string_view raw(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

Digest prove(const JobToken& token, std::string_view role, const Nonce& nonce, std::string_view data) {
    using namespace std::string_view_literals;
    return Hmac(token.secret).of({role, "\0"sv, token.job, "\0"sv, {nonce.data(), nonce.size()}, data});
}

/// Returns the key of one direction of a connection: a MAC of everything that identifies connection and direction.
std::string key_of(const JobToken& token, End from, const Nonce& service, const Nonce& member) {
    using namespace std::string_view_literals;
    const Digest key = Hmac(token.secret)
                           .of({from == End::service ? "frames of the service"sv : "frames of the member"sv, "\0"sv,
                                token.job, "\0"sv, raw(token.generation), raw(service), raw(member)});
    return {key.data(), key.size()};
}

template <class T>
void put(std::string& to, T number) {
    to.append(raw(number));
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

Nonce random_nonce(const LinkHost& here) {
    const std::string bytes = here.random(sizeof(Nonce));
    Nonce nonce{};
    if (bytes.size() != nonce.size())
        throw Error("rendezvous: the system returned too few random bytes", Fault::failed);
    std::memcpy(nonce.data(), bytes.data(), nonce.size());
    return nonce;
}

std::string draw_id(const LinkHost& here) {
    constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (const char byte : here.random(sizeof(Id) / 2)) {
        text += digits[static_cast<unsigned char>(byte) >> 4];
        text += digits[byte & 15];
    }
    return text;
}

Id id_of(std::string_view text) {
    Id id{};
    text.copy(id.data(), id.size());
    return id;
}

std::string text_of(const Id& id) { return {id.data(), ::strnlen(id.data(), id.size())}; }

Digest prove(const JobToken& token, const Hello& hello, const Nonce& service) {
    return prove(token, "hello", service, raw(hello).substr(0, offsetof(Hello, proof)));
}

Digest prove(const JobToken& token, const Welcome& welcome, const Nonce& member) {
    return prove(token, "welcome", member, raw(welcome).substr(0, offsetof(Welcome, proof)));
}

bool same(const Digest& a, const Digest& b) { return same_secret({a.data(), a.size()}, {b.data(), b.size()}); }

std::string host_of(const Hello& hello) { return {hello.host, ::strnlen(hello.host, sizeof hello.host)}; }

std::string name_of(const JobToken& token, int64_t rank) {
    if (!token.launchers && rank >= 0) return fmt::format("rank {}", rank);
    return fmt::format("the launcher of node {}", rank < 0 ? -1 - rank : rank);
}

std::string shape_text(int64_t world, int64_t per_host) {
    const std::string each = per_host > 0 ? fmt::format(", {} on each host", per_host) : "";
    return fmt::format("{} rank{}{}", world, world == 1 ? "" : "s", each);
}

Frame frame_of(Kind kind, const Loss& loss, std::string_view run) {
    return {kind, 0, std::string(run), orrery::encode(loss)};
}

Loss loss_of(const Frame& frame) {
    const Loss loss = decode_loss(frame.value);
    if (!loss) throw Error("rendezvous: a loss of nothing", Fault::peer);
    return loss;
}

std::string encode(const Frame& frame) {
    std::string body;
    body.reserve(13 + frame.key.size() + frame.value.size());
    put(body, static_cast<uint8_t>(frame.kind));
    put(body, frame.id);
    put(body, static_cast<uint32_t>(frame.key.size()));
    body += frame.key;
    body += frame.value;
    return body;
}

Frame parse(std::string_view body) {
    Frame frame;
    const auto kind = take<uint8_t>(body);
    if (kind > static_cast<uint8_t>(Kind::lost))
        throw Error("rendezvous: received a frame of an unknown kind", Fault::peer);
    frame.kind = static_cast<Kind>(kind);
    frame.id = take<uint64_t>(body);
    const auto key = take<uint32_t>(body);
    if (key > max_key || key > body.size()) throw Error("rendezvous: received a key of an invalid size", Fault::peer);
    frame.key = body.substr(0, key);
    frame.value = body.substr(key);
    return frame;
}

Seal::Seal(const JobToken& token, End from, const Nonce& service, const Nonce& member)
    : hmac_(key_of(token, from, service, member)) {}

Digest Seal::mac(std::string_view size, std::string_view body) { return hmac_.of({raw(number_), size, body}); }

std::string Seal::seal(const Frame& frame) {
    const std::string body = encode(frame);
    const auto size = static_cast<uint32_t>(body.size());
    const Digest proof = mac(raw(size), body);
    ++number_;
    std::string sealed;
    sealed.reserve(sizeof size + body.size() + mac_bytes);
    put(sealed, size);
    sealed += body;
    sealed.append(proof.data(), mac_bytes);
    return sealed;
}

std::optional<Frame> Seal::open(std::string_view received, size_t& at) {
    received.remove_prefix(at);
    uint32_t size = 0;
    if (received.size() < sizeof size) return std::nullopt;
    std::memcpy(&size, received.data(), sizeof size);
    if (size < 13 || size > max_frame) throw Error("rendezvous: received a frame of an invalid size", Fault::peer);
    const size_t whole = sizeof size + size + mac_bytes;
    if (received.size() < whole) return std::nullopt;
    const std::string_view body = received.substr(sizeof size, size);
    const Digest proof = mac(received.substr(0, sizeof size), body);
    if (!same_secret({proof.data(), mac_bytes}, received.substr(sizeof size + size, mac_bytes)))
        throw Error(fmt::format("MAC mismatch in frame {}: it was corrupted, lost or repeated in transit, or another "
                                "process writes into the connection",
                                number_),
                    Fault::peer);
    ++number_;
    at += whole;
    return parse(body);
}

Kind kind_of(std::string_view request) {
    constexpr std::pair<std::string_view, Kind> kinds[] = {{"set", Kind::set},     {"get", Kind::get},
                                                           {"count", Kind::add},   {"erase", Kind::erase},
                                                           {"leave", Kind::leave}, {"absent", Kind::absent}};
    for (const auto& [name, kind] : kinds)
        if (name == request) return kind;
    throw Error(fmt::format("rendezvous: no request '{}'", request), Fault::failed);
}

}  // namespace orrery::wire

#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "run/control/rendezvous.h"

/// What goes over the rendezvous' sockets. Handshake: challenge (server), hello (client), welcome (server), all of
/// fixed size; then frames both ways. Integers are little-endian.
namespace orrery::wire {

constexpr int64_t max_frame = 1 << 20;
constexpr size_t max_key = 512;

using Nonce = std::array<char, 32>;
using Digest = std::array<char, 32>;

struct Challenge {
    char magic[8];
    Nonce nonce;
};
struct Hello {
    char magic[8];
    int64_t generation;
    int64_t rank;
    int64_t pid;
    int64_t world, per_host;  ///< ranks of the job and of each of its hosts, as this one was told; 0: it was not
    char host[64];
    Nonce nonce;
    Digest proof;  ///< over the job's name, the server's nonce and everything above
};
enum class Status : int64_t { ok, unknown_rank, rank_taken, old_generation, wrong_token, other_shape };
struct Welcome {
    char magic[8];
    Status status;
    int64_t home;
    int64_t world, per_host;  ///< as the job has them; 0: only who has the token learns it
    Digest proof;             ///< over the job's name, the client's nonce and everything above
};

constexpr char magic[9] = "orrery1\n";
void fill_random(Nonce& nonce);
Digest prove(const JobToken& token, const Hello& hello, const Nonce& server);
Digest prove(const JobToken& token, const Welcome& welcome, const Nonce& client);
/// "4 ranks, 2 on each host".
std::string shape_text(int64_t world, int64_t per_host);
/// In constant time.
bool same(const Digest& a, const Digest& b);

enum class Kind : uint8_t { set, get, add, erase, cancel, absent, beat, leave, fail, value, lost };
struct Frame {
    Kind kind = Kind::beat;
    uint64_t id = 0;  ///< pairs a value with its get, add or absent
    std::string key;
    std::string value;
};
std::string encode(const Frame& frame);
/// Takes one frame from the front of `buffer`, nullopt when it is not complete. Throws Error on a malformed one.
std::optional<Frame> decode(std::string& buffer);

/// A file descriptor that closes itself.
class Fd {
public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(other.release()) {}
    Fd& operator=(Fd&& other) noexcept;
    ~Fd();
    int get() const { return fd_; }
    int release();
    explicit operator bool() const { return fd_ >= 0; }

private:
    int fd_ = -1;
};

/// No delay, keepalive, and an error rather than an endless resend when the other end is cut off.
void tune(int socket);

}  // namespace orrery::wire

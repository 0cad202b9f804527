#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "orrery/rendezvous.h"

/// What goes over a rendezvous' connections. Handshake: challenge (service), hello (member), welcome (service), all of
/// fixed size; then frames both ways, each with a MAC of the job's secret. Integers are little-endian.
namespace orrery::wire {

constexpr size_t max_frame = 1 << 20;  ///< of a frame's body
constexpr size_t max_key = 512;
constexpr size_t mac_bytes = 16;
constexpr char magic[9] = "orrery4\n";  ///< with the version of all that follows

using Nonce = std::array<char, 32>;
using Id = std::array<char, 32>;  ///< hex digits, zeros: none
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
    int64_t launchers;        ///< 1: it means a service of launchers
    char host[64];
    Id run, self;  ///< the start of the job that it belongs to, where it knows; its process
    Nonce nonce;
    Digest proof;  ///< over the job's name, the service's nonce and everything above
};
enum class Status : int64_t {
    ok,
    unknown_rank,
    rank_taken,
    old_generation,
    wrong_token,
    other_shape,
    other_run,
    other_members,
};
/// All but the status is zeros for who has no token.
struct Welcome {
    char magic[8];
    Status status;
    int64_t home;
    int64_t world, per_host;        ///< as the job has them
    int64_t pid, since_s, heard_s;  ///< of who has that rank; the seconds since it joined and since it was heard
    char host[64];
    Id run;
    Digest proof;  ///< over the job's name, the member's nonce and everything above
};

Nonce random_nonce(const LinkHost& here);
/// 32 hex digits, drawn.
std::string draw_id(const LinkHost& here);
Id id_of(std::string_view text);
std::string text_of(const Id& id);
Digest prove(const JobToken& token, const Hello& hello, const Nonce& service);
Digest prove(const JobToken& token, const Welcome& welcome, const Nonce& member);
/// In constant time.
bool same(const Digest& a, const Digest& b);
std::string host_of(const Hello& hello);
/// "rank 1", "the launcher of node 1", of a member of `token`'s job.
std::string name_of(const JobToken& token, int64_t rank);
/// "4 ranks, 2 on each host".
std::string shape_text(int64_t world, int64_t per_host);

enum class Kind : uint8_t { set, get, add, erase, cancel, absent, beat, leave, fail, value, lost };
struct Frame {
    Kind kind = Kind::beat;
    uint64_t id = 0;  ///< pairs a value with its get, add or absent
    std::string key;
    std::string value;
};
/// A frame of kind `fail` or `lost`: its value is the loss, its key the start of the job that it is about.
Frame frame_of(Kind kind, const Loss& loss, std::string_view run);
Loss loss_of(const Frame& frame);
/// A frame's body, and back. Throws Error on a malformed one.
std::string encode(const Frame& frame);
Frame parse(std::string_view body);

/// Of which end a frame comes: what one has sent is no frame of the other.
enum class End : uint8_t { service, member };

/// One direction of a connection: frames get the next number and a MAC, under a key of the secret, both nonces and the
/// direction. So a frame that is sent again, left out, put elsewhere or sent back has no good MAC. On the wire: bytes
/// of the body (uint32), body, MAC over number, bytes and body.
class Seal {
public:
    Seal(const JobToken& token, End from, const Nonce& service, const Nonce& member);
    /// The frame as it goes on the wire; the next one's number is one higher.
    std::string seal(const Frame& frame);
    /// Takes the frame at `at` from the front of what was received, and moves `at` behind it; nullopt when it is not
    /// complete. Nothing of its body is read before the MAC has proved right. Throws Error.
    std::optional<Frame> open(std::string_view received, size_t& at);

private:
    Digest mac(std::string_view size, std::string_view body);
    Hmac hmac_;
    uint64_t number_ = 0;
};

/// "set" as MemberLink's requests name it. Throws Error for another word.
Kind kind_of(std::string_view request);

}  // namespace orrery::wire

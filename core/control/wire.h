#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "orrery/rendezvous.h"

/// The protocol of a rendezvous' connections. The handshake is challenge (service), hello (member), welcome (service),
/// all of fixed size. Then frames follow in both directions, each with a MAC of the job's secret. Integers are
/// little-endian.
namespace orrery::wire {

constexpr size_t max_frame = 1 << 20;  ///< max bytes of a frame's body
constexpr size_t max_key = 512;
constexpr size_t mac_bytes = 16;
/// From this time between two ticks of a side on, its process did not run: the other side was not silent.
constexpr LinkTime paused_from = std::chrono::seconds(1);
constexpr char magic[9] = "orrery4\n";  ///< identifies the protocol and its version

using Nonce = std::array<char, 32>;
using Id = std::array<char, 32>;  ///< hex digits; zeros: none
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
    int64_t world, per_host;  ///< ranks of the job and of each host, as far as the member knows; 0: unknown
    int64_t launchers;        ///< 1: the member expects a rendezvous of launchers, not of ranks
    char host[64];
    Id run, self;  ///< `run`: id of the job's start, zeros if unknown; `self`: nonce of the process
    Nonce nonce;
    Digest proof;  ///< MAC over the job's name, the service's nonce and the preceding fields
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
/// The service's answer to a hello. Without a valid token, all fields except the status are zeros.
struct Welcome {
    char magic[8];
    Status status;
    int64_t home;
    int64_t world, per_host;
    /// about the process that has the rank: pid, seconds since it joined and since it was last heard
    int64_t pid, since_s, heard_s;
    char host[64];
    Id run;
    Digest proof;  ///< MAC over the job's name, the member's nonce and the preceding fields
};

Nonce random_nonce(const LinkHost& here);
/// Returns 32 random hex digits.
std::string draw_id(const LinkHost& here);
Id id_of(std::string_view text);
std::string text_of(const Id& id);
Digest prove(const JobToken& token, const Hello& hello, const Nonce& service);
Digest prove(const JobToken& token, const Welcome& welcome, const Nonce& member);
/// Compares two digests in constant time.
bool same(const Digest& a, const Digest& b);
std::string host_of(const Hello& hello);
/// Names a member of `token`'s job: "rank 1" or "the launcher of node 1".
std::string name_of(const JobToken& token, int64_t rank);
/// Describes a job's ranks: "4 ranks, 2 on each host".
std::string shape_text(int64_t world, int64_t per_host);

enum class Kind : uint8_t { set, get, add, erase, cancel, absent, beat, leave, fail, value, lost };
struct Frame {
    Kind kind = Kind::beat;
    uint64_t id = 0;  ///< request number; a value or absent has that of its get or add
    std::string key;
    std::string value;
};
/// Returns a frame of kind `fail` or `lost`, with the loss as value and the id of the run as key.
Frame frame_of(Kind kind, const Loss& loss, std::string_view run);
Loss loss_of(const Frame& frame);
/// encode() and parse() convert a frame's body. parse() throws Error for a malformed one.
std::string encode(const Frame& frame);
Frame parse(std::string_view body);

/// The end of a connection that sends a frame. A frame from one end is not valid as one from the other end.
enum class End : uint8_t { service, member };

/// Authenticates one direction of a connection. Each frame gets the next number and a MAC, with a key derived from the
/// secret, both nonces and the direction. A frame that is repeated, left out, reordered or reflected therefore has no
/// valid MAC. Wire format: size of the body (uint32), body, MAC over number, size and body.
class Seal {
public:
    Seal(const JobToken& token, End from, const Nonce& service, const Nonce& member);
    /// Returns a frame in wire format with its MAC, and increments the frame number.
    std::string seal(const Frame& frame);
    /// Takes the frame at `at` from the received bytes and moves `at` after it; nullopt when it is incomplete. The body
    /// is not parsed before its MAC is checked. Throws Error for a wrong MAC or a malformed frame.
    std::optional<Frame> open(std::string_view received, size_t& at);

private:
    Digest mac(std::string_view size, std::string_view body);
    Hmac hmac_;
    uint64_t number_ = 0;
};

/// Returns the frame kind of a request of MemberLink, such as "set". Throws Error for an unknown one.
Kind kind_of(std::string_view request);

}  // namespace orrery::wire

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "control/strangers.h"
#include "control/wire.h"
#include "orrery/error.h"
#include "orrery/rendezvous.h"

namespace orrery {

using wire::Frame;
using wire::Kind;

namespace {

constexpr size_t max_unsent = 64 << 20;
constexpr size_t max_waits = 4096;  // of one member at a time
constexpr LinkTime look_every = std::chrono::milliseconds(100);
constexpr LinkTime farewell = std::chrono::seconds(1);  // so long the last words may take to go out

struct Peer {
    wire::Seal from, to;
    LinkTime heard;
    int64_t rank = -1, pid = 0;
    std::string host;
    std::string in = {};
    size_t unsent = 0;
    bool left = false, closed = false;
    int frames = 0;                              ///< that have come, 2 at most
    std::string position = {};                   ///< as last told
    std::map<uint64_t, std::string> waits = {};  ///< keys, by the number of the request

    bool here() const { return !left && !closed; }
    /// Its first frame asks whether it is in, any other shows that it knows. Before that it may come again.
    bool joined() const { return frames > 1; }
};

std::string gone_text(int64_t rank, const std::string& how, bool joined) {
    return fmt::format("rank {} {}{}", rank, how, joined ? "" : " before it joined");
}

/// "rank 1 (pid 4242 on host n2)"; a launcher, which is no rank, is its node's.
std::string who(int64_t rank, int64_t pid, const std::string& host) {
    const std::string name =
        rank < 0 ? fmt::format("the launcher of node {}", -1 - rank) : fmt::format("rank {}", rank);
    return fmt::format("{} (pid {} on host {})", name, pid, host);
}

std::string host_of(const wire::Hello& hello) { return {hello.host, strnlen(hello.host, sizeof hello.host)}; }

/// An empty text counts as 0.
std::string sum_of(const std::string& had, const std::string& more) {
    int64_t sum = 0;
    if (__builtin_add_overflow(std::strtoll(had.c_str(), nullptr, 10), std::strtoll(more.c_str(), nullptr, 10), &sum))
        throw Error(fmt::format("a count of {} and {} more is beyond 64 bits", had, more), Fault::peer);
    return std::to_string(sum);
}

double seconds(LinkTime time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

class Membership::State {
public:
    State(const ServeOptions& options, const LinkHost& here) : options_(options), here_(here), lost_(options.lost) {}

    void opened(uint64_t connection, const std::string& from, LinkTime now) {
        wire::Challenge challenge{};
        std::memcpy(challenge.magic, wire::magic, 8);
        challenge.nonce = wire::random_nonce(here_);
        for (const uint64_t old : strangers_.add(connection, challenge.nonce, from, now)) act(old, {}, true);
        act(connection, {reinterpret_cast<const char*>(&challenge), sizeof challenge}, false);
    }

    void received(uint64_t connection, std::string_view bytes, LinkTime now) {
        if (strangers_.has(connection)) {
            auto candidate = strangers_.received(connection, bytes);
            if (!candidate) return;
            greet(connection, *candidate, now);
            if (!candidate->more.empty()) received(connection, candidate->more, now);
            return;
        }
        const auto found = peers_.find(connection);
        if (found == peers_.end() || found->second.closed) return;
        Peer& peer = found->second;
        peer.heard = now;
        peer.in += bytes;
        size_t at = 0;
        try {
            while (!peer.closed) {
                const auto frame = peer.from.open(peer.in, at);
                if (!frame) break;
                heard(peer);
                answer(connection, peer, *frame, now);
            }
        } catch (const Error& error) {
            drop(peer, fmt::format("made a protocol error ({})", error.what()));
        }
        peer.in.erase(0, at);
    }

    void sent(uint64_t connection, size_t bytes) {
        if (const auto found = peers_.find(connection); found != peers_.end())
            found->second.unsent -= std::min(bytes, found->second.unsent);
    }

    void closed(uint64_t connection) {
        strangers_.closed(connection);
        const auto found = peers_.find(connection);
        if (found == peers_.end()) return;
        if (found->second.joined()) return drop(found->second, "died", false);
        close(found->second);
    }

    void tick(LinkTime now) {
        for (const uint64_t late : strangers_.late(now)) act(late, {}, true);
        if (now >= next_look_) {
            for (auto& [connection, peer] : peers_)
                if (peer.here() && now - peer.heard > options_.silence)
                    peer.joined() ? drop(peer, silence_of(peer, now)) : close(peer);
            next_look_ = now + look_every;
        }
        if (ending_) say_farewell(now);
    }

    LinkTime due() const { return std::min(strangers_.due(), ending_ ? now_ending_ : next_look_); }
    bool accepts(LinkTime now) const { return !strangers_.full(now); }

    void end(LinkTime now) {
        ending_ = true;
        patience_ = now + options_.linger;
        say_farewell(now);
    }
    bool over() const { return over_; }

    bool gone(int64_t rank, const std::string& how) {
        const bool known = joined(rank);
        tell_all(gone_text(rank, how, known));
        return known;
    }
    bool joined(int64_t rank) const { return joined_.count(rank) > 0; }

    void tell_all(const std::string& why) {
        if (!lost_.empty()) return;
        lost_ = why;
        for (auto& [connection, peer] : peers_) push(connection, peer, {Kind::lost, 0, {}, why});
    }

    /// Who was dropped since the last call is no more.
    std::vector<LinkAction> actions() {
        if (std::exchange(dropped_, false))
            std::erase_if(peers_, [&](auto& entry) {
                auto& [connection, peer] = entry;
                if (!peer.closed) return false;
                for (const auto& [id, key] : peer.waits) forget(key, connection, id);
                act(connection, {}, true);
                return true;
            });
        return std::exchange(actions_, {});
    }

private:
    wire::Status judge(const Strangers::Candidate& candidate) const {
        const wire::Hello& hello = candidate.hello;
        const auto other = [](int64_t said, int64_t ours) { return said != 0 && ours != 0 && said != ours; };
        if (std::memcmp(hello.magic, wire::magic, 8) != 0 ||
            !wire::same(hello.proof, wire::prove(options_.token, hello, candidate.nonce)))
            return wire::Status::wrong_token;
        if (hello.generation != options_.token.generation) return wire::Status::old_generation;
        if (hello.rank < 0 || !lost_.empty()) return wire::Status::ok;  // to tell why all end, or to hear it
        if (other(hello.world, options_.world) || other(hello.per_host, options_.per_host))
            return wire::Status::other_shape;
        if (hello.rank >= options_.world) return wire::Status::unknown_rank;
        return taken_.count(hello.rank) > 0 && !comes_again(hello) ? wire::Status::rank_taken : wire::Status::ok;
    }

    /// The process of a connection that has not joined, which has given that up.
    bool comes_again(const wire::Hello& hello) const {
        const auto before = taken_.find(hello.rank);
        if (before == taken_.end()) return false;
        const auto found = peers_.find(before->second);
        return found != peers_.end() && !found->second.joined() && found->second.pid == hello.pid &&
               found->second.host == host_of(hello);
    }

    /// Who has no token is closed without a word more than the status.
    void greet(uint64_t connection, const Strangers::Candidate& candidate, LinkTime now) {
        const wire::Hello& hello = candidate.hello;
        wire::Welcome welcome{};
        std::memcpy(welcome.magic, wire::magic, 8);
        welcome.status = judge(candidate);
        welcome.home = options_.home;
        if (welcome.status != wire::Status::wrong_token) {
            welcome.world = options_.world;
            welcome.per_host = options_.per_host;
            welcome.proof = wire::prove(options_.token, welcome, hello.nonce);
        }
        const bool good = welcome.status == wire::Status::ok;
        act(connection, {reinterpret_cast<const char*>(&welcome), sizeof welcome}, !good);
        if (welcome.status == wire::Status::wrong_token) return refused_.count(candidate.from);
        const std::string host = host_of(hello);
        // It has the token, and its host would start others of its shape: the job cannot come together.
        if (welcome.status == wire::Status::other_shape && !complete())
            tell_all(
                fmt::format("{} is of a job of {}, this job has {}\n"
                            "  give every host the same --nodes and [mesh]",
                            who(hello.rank, hello.pid, host), wire::shape_text(hello.world, hello.per_host),
                            wire::shape_text(options_.world, options_.per_host)));
        if (!good) return;
        Peer peer{wire::Seal(options_.token, wire::End::member, candidate.nonce, hello.nonce),
                  wire::Seal(options_.token, wire::End::service, candidate.nonce, hello.nonce),
                  now,
                  hello.rank,
                  hello.pid,
                  host};
        if (lost_.empty() && comes_again(hello)) close(peers_.at(taken_.at(hello.rank)));
        if (hello.rank >= 0) taken_[hello.rank] = connection;
        Peer& joined = peers_.emplace(connection, std::move(peer)).first->second;
        joined.unsent += sizeof welcome;
        if (!lost_.empty()) push(connection, joined, {Kind::lost, 0, {}, lost_});
    }

    void heard(Peer& peer) {
        peer.frames = std::min(2, peer.frames + 1);
        if (peer.rank >= 0 && peer.joined()) joined_.insert(peer.rank);
    }

    void answer(uint64_t connection, Peer& peer, const Frame& frame, LinkTime now) {
        switch (frame.kind) {
            case Kind::set: store(frame.key, frame.value); break;
            case Kind::add: {
                const auto had = values_.find(frame.key);
                const std::string sum = sum_of(had == values_.end() ? "" : had->second, frame.value);
                push(connection, peer, {Kind::value, frame.id, {}, sum});
                store(frame.key, sum);
                break;
            }
            case Kind::get: get(connection, peer, frame); break;
            case Kind::erase: values_.erase(frame.key); break;
            case Kind::cancel:
                if (const auto wait = peer.waits.find(frame.id); wait != peer.waits.end()) {
                    forget(wait->second, connection, frame.id);
                    peer.waits.erase(wait);
                }
                break;
            case Kind::absent: push(connection, peer, {Kind::value, frame.id, {}, absent()}); break;
            case Kind::beat:
                push(connection, peer, {Kind::beat, 0, {}, {}});
                if (!frame.value.empty()) peer.position = frame.value;
                if (frame.key == "late") tell_all(explain(peer.rank, now));
                break;
            case Kind::leave:
                peer.left = true;
                free_rank(connection, peer);
                break;
            case Kind::fail: fail(peer, frame); break;
            default: throw Error("a frame that only the service sends", Fault::peer);
        }
    }

    void get(uint64_t connection, Peer& peer, const Frame& frame) {
        if (const auto it = values_.find(frame.key); it != values_.end())
            return push(connection, peer, {Kind::value, frame.id, {}, it->second});
        if (peer.waits.size() >= max_waits) throw Error("waits for too many keys at a time", Fault::peer);
        if (peer.waits.emplace(frame.id, frame.key).second) waiting_[frame.key].emplace(connection, frame.id);
    }

    void store(const std::string& key, const std::string& value) {
        values_[key] = value;
        const auto waiting = waiting_.find(key);
        if (waiting == waiting_.end()) return;
        const auto waits = std::move(waiting->second);
        waiting_.erase(waiting);
        for (const auto& [connection, id] : waits) {
            Peer& peer = peers_.at(connection);
            peer.waits.erase(id);
            push(connection, peer, {Kind::value, id, {}, value});
        }
    }

    void forget(const std::string& key, uint64_t connection, uint64_t id) {
        const auto waiting = waiting_.find(key);
        if (waiting == waiting_.end()) return;
        waiting->second.erase({connection, id});
        if (waiting->second.empty()) waiting_.erase(waiting);
    }

    bool complete() const { return static_cast<int64_t>(joined_.size()) >= options_.world; }

    /// "2 of 4 ranks have not joined: 1, 3", and who was refused meanwhile; or "" when all have.
    std::string absent() const {
        constexpr int64_t shown = 16;
        if (complete()) return "";
        const int64_t count = options_.world - static_cast<int64_t>(joined_.size());
        std::string list;
        int64_t named = 0;
        for (int64_t rank = 0; rank < options_.world && named < shown; ++rank)
            if (joined_.count(rank) == 0) list += fmt::format("{}{}", named++ ? ", " : "", rank);
        if (count > shown) list += ", ...";
        return fmt::format("{} of {} ranks have not joined: {}{}", count, options_.world, list, refused_.text());
    }

    /// A key is the rank of which a launcher tells.
    void fail(Peer& peer, const Frame& frame) {
        if (!frame.key.empty()) {
            const int64_t rank = std::strtoll(frame.key.c_str(), nullptr, 10);
            tell_all(gone_text(rank, fmt::format("on host {} {}", peer.host, frame.value), joined(rank)));
        }
        drop(peer, fmt::format("failed: {}", frame.value), false);
    }

    void act(uint64_t connection, std::string bytes, bool close) {
        actions_.push_back({connection, std::move(bytes), close});
    }

    void push(uint64_t connection, Peer& peer, const Frame& frame) {
        if (peer.closed) return;
        std::string bytes = peer.to.seal(frame);
        peer.unsent += bytes.size();
        act(connection, std::move(bytes), false);
        if (peer.unsent > max_unsent) drop(peer, "does not read its connection");
    }

    /// Ends a connection; unless its rank had left, all learn why, itself, too, where it `hears`. The first loss is the
    /// one that counts.
    void drop(Peer& peer, const std::string& how, bool hears = true) {
        if (peer.closed) return;
        if (!hears) close(peer);
        if (!peer.left) tell_all(who(peer.rank, peer.pid, peer.host) + " " + how);
        close(peer);
    }

    void close(Peer& peer) {
        if (peer.closed) return;
        peer.closed = dropped_ = true;
        if (!peer.left) taken_.erase(peer.rank);
    }

    void free_rank(uint64_t connection, const Peer& peer) {
        const auto mine = taken_.find(peer.rank);
        if (mine != taken_.end() && mine->second == connection) taken_.erase(mine);
    }

    /// What a silent member does, when it is of this host and tells.
    std::string state_of(const Peer& peer) const {
        return peer.host == here_.host ? "its process " + here_.process(peer.pid) : "stopped or unreachable";
    }

    std::string silence_of(const Peer& peer, LinkTime now) const {
        std::string text = fmt::format("is silent for {:.1f} s: {}", seconds(now - peer.heard), state_of(peer));
        const std::string last = options_.seen && !peer.position.empty() ? options_.seen(peer.position) : "";
        return last.empty() ? text : text + "; last seen in " + last;
    }

    std::string explain(int64_t late, LinkTime now) const {
        if (!options_.explain) return fmt::format("rank {} waits longer than its bound", late);
        std::vector<ServeOptions::Standing> all;
        for (const auto& [connection, peer] : peers_)
            if (peer.rank >= 0 && !peer.closed)
                all.push_back({peer.rank, peer.position, state_of(peer), seconds(now - peer.heard)});
        return options_.explain(late, all);
    }

    /// Who ends first must not fail the others: they are answered until they leave, unless the job is lost anyway. Then
    /// members that are still here learn that the service is gone, not that a rank died.
    void say_farewell(LinkTime now) {
        const auto any = [&](auto which) {
            return std::any_of(peers_.begin(), peers_.end(), [&](const auto& entry) { return which(entry.second); });
        };
        now_ending_ = now + look_every / 10;
        if (!said_) {
            if (now < patience_ && lost_.empty() && any([](const Peer& peer) { return peer.here(); })) return;
            for (auto& [connection, peer] : peers_) push(connection, peer, {Kind::leave, 0, {}, {}});
            said_ = true;
            until_ = now + farewell;
        }
        over_ = now >= until_ || !any([](const Peer& peer) { return !peer.closed && peer.unsent > 0; });
    }

    const ServeOptions options_;
    const LinkHost here_;
    Strangers strangers_;
    Refusals refused_;
    std::map<uint64_t, Peer> peers_;
    std::map<int64_t, uint64_t> taken_;  ///< the connection of each rank that is here
    std::set<int64_t> joined_;           ///< also of those that have left
    std::map<std::string, std::string> values_;
    std::map<std::string, std::set<std::pair<uint64_t, uint64_t>>> waiting_;  ///< connections and numbers, by key
    std::vector<LinkAction> actions_;
    std::string lost_;
    LinkTime next_look_{0}, patience_{0}, until_{0}, now_ending_{0};
    bool dropped_ = false, ending_ = false, said_ = false, over_ = false;
};

Membership::Membership(const ServeOptions& options, const LinkHost& here)
    : state_(std::make_unique<State>(options, here)) {}
Membership::~Membership() = default;
void Membership::opened(uint64_t connection, const std::string& from, LinkTime now) {
    state_->opened(connection, from, now);
}
void Membership::received(uint64_t connection, std::string_view bytes, LinkTime now) {
    state_->received(connection, bytes, now);
}
void Membership::sent(uint64_t connection, size_t bytes) { state_->sent(connection, bytes); }
void Membership::closed(uint64_t connection, LinkTime) { state_->closed(connection); }
void Membership::fail(const std::string& why) { state_->tell_all(why); }
bool Membership::gone(int64_t rank, const std::string& how) { return state_->gone(rank, how); }
bool Membership::joined(int64_t rank) const { return state_->joined(rank); }
void Membership::tick(LinkTime now) { state_->tick(now); }
LinkTime Membership::due() const { return state_->due(); }
bool Membership::accepts(LinkTime now) const { return state_->accepts(now); }
void Membership::end(LinkTime now) { state_->end(now); }
bool Membership::over() const { return state_->over(); }
std::vector<LinkAction> Membership::actions() { return state_->actions(); }

}  // namespace orrery

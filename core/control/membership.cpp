#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
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
constexpr size_t max_waits = 4096;  // max number of keys that one member may wait for
constexpr LinkTime look_every = std::chrono::milliseconds(100);
constexpr LinkTime farewell = std::chrono::seconds(1);  // time for the last frames to be sent

struct Peer {
    wire::Seal from, to;
    LinkTime heard, since;
    int64_t rank = -1, pid = 0;
    std::string host, self;
    std::string in = {};
    size_t unsent = 0;
    bool left = false, closed = false;
    int frames = 0;                              ///< number of frames received, up to 2; see joined()
    std::string position = {};                   ///< training position that the member reported last
    std::map<uint64_t, std::string> waits = {};  ///< keys that the member waits for, by request number

    bool here() const { return !left && !closed; }
    /// Whether the member has joined: its first frame asks for confirmation, and the second shows that the answer
    /// arrived. Before that, the member may reconnect.
    bool joined() const { return frames > 1; }
};

/// The process that has joined as a rank, or as the launcher of a node. No other process can join in its place.
struct Holder {
    int64_t pid = 0;
    std::string host, self;
    LinkTime since{0};

    bool is(const wire::Hello& hello) const {
        return pid == hello.pid && host == wire::host_of(hello) && self == wire::text_of(hello.self);
    }
};

/// Returns the sum of two counts as text; an empty text counts as 0.
std::string sum_of(const std::string& had, const std::string& more) {
    int64_t sum = 0;
    if (__builtin_add_overflow(std::strtoll(had.c_str(), nullptr, 10), std::strtoll(more.c_str(), nullptr, 10), &sum))
        throw Error(fmt::format("counter overflow: {} + {} exceeds 64 bits", had, more), Fault::peer);
    return std::to_string(sum);
}

double seconds(LinkTime time) { return std::chrono::duration<double>(time).count(); }
int64_t whole_seconds(LinkTime time) { return std::chrono::duration_cast<std::chrono::seconds>(time).count(); }

}  // namespace

class Membership::State {
public:
    State(const ServeOptions& options, const LinkHost& here)
        : options_(options),
          here_(here),
          run_(options.token.run.empty() ? wire::draw_id(here) : options.token.run),
          lost_(options.lost) {}

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
            drop(peer, {.cause = Cause::error,
                        .site = "protocol",
                        .text = fmt::format("made a protocol error ({})", error.what())});
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
        if (found->second.joined())
            return drop(found->second, {.cause = Cause::process, .site = "connection", .text = "died"}, false);
        close(found->second);
    }

    void tick(LinkTime now) {
        bear_pause(now);
        for (const uint64_t late : strangers_.late(now)) act(late, {}, true);
        if (now >= next_look_) {
            for (auto& [connection, peer] : peers_)
                if (peer.here() && now - peer.heard > options_.silence && !(peer.joined() && may_stop(peer)))
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

    /// Reports a rank's process as gone. Has no effect if the process never joined and another process has the rank.
    bool gone(const Loss& how, const std::string& on_host = "") {
        const auto holder = holders_.find(how.rank);
        const bool known = holder != holders_.end();
        if (known && (holder->second.pid != how.pid || holder->second.self != how.nonce)) return false;
        Loss loss = how;
        loss.text = fmt::format("rank {} {}", how.rank, on_host) + how.text + (known ? "" : " before it joined");
        tell_all(loss);
        return known;
    }
    bool joined(int64_t rank) const { return holders_.count(rank) > 0; }
    const Loss& loss() const { return lost_; }

    void tell_all(const Loss& why) {
        if (is_lost()) return;
        lost_ = why;
        if (!why) lost_.cause = Cause::error;  // a process that reports a failure means an error
        for (auto& [connection, peer] : peers_) push(connection, peer, wire::frame_of(Kind::lost, lost_, run_));
    }

    /// Returns the pending actions. Also removes members that were dropped since the last call.
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
    /// If this process itself did not run (SIGSTOP, a suspended job or machine), members were not silent meanwhile.
    void bear_pause(LinkTime now) {
        const LinkTime paused = now - next_look_;
        if (next_look_ == LinkTime(0) || paused < wire::paused_from) return;
        for (auto& [connection, peer] : peers_) peer.heard = std::min(now, peer.heard + paused);
    }

    wire::Status judge(const Strangers::Candidate& candidate) const {
        const wire::Hello& hello = candidate.hello;
        const auto other = [](int64_t said, int64_t ours) { return said != 0 && ours != 0 && said != ours; };
        if (std::memcmp(hello.magic, wire::magic, 8) != 0 ||
            !wire::same(hello.proof, wire::prove(options_.token, hello, candidate.nonce)))
            return wire::Status::wrong_token;
        if (hello.generation != options_.token.generation) return wire::Status::old_generation;
        if (is_lost()) return wire::Status::ok;  // accepted, to learn why the job ended
        if (const std::string run = wire::text_of(hello.run); !run.empty() && run != run_)
            return wire::Status::other_run;
        if (hello.launchers != int64_t{options_.token.launchers}) return wire::Status::other_members;
        if (other(hello.world, options_.world) || other(hello.per_host, options_.per_host))
            return wire::Status::other_shape;
        if (hello.rank >= options_.world || -1 - hello.rank >= nodes()) return wire::Status::unknown_rank;
        const auto holder = holders_.find(hello.rank);
        const bool another = holder != holders_.end() && !holder->second.is(hello);
        return another || (taken_.count(hello.rank) > 0 && !comes_again(hello)) ? wire::Status::rank_taken
                                                                                : wire::Status::ok;
    }

    /// Returns the number of nodes whose launchers may join; 0 when the members themselves are launchers.
    int64_t nodes() const {
        if (options_.token.launchers) return 0;
        return options_.per_host > 0 ? options_.world / options_.per_host : options_.world;
    }

    /// Whether the process has an earlier connection for the same rank that has not joined, which this one replaces.
    bool comes_again(const wire::Hello& hello) const {
        const auto before = taken_.find(hello.rank);
        if (before == taken_.end()) return false;
        const auto found = peers_.find(before->second);
        return found != peers_.end() && !found->second.joined() && holder_of(found->second).is(hello);
    }

    static Holder holder_of(const Peer& peer) { return {peer.pid, peer.host, peer.self, peer.since}; }

    /// For a refused process, describes in `welcome` the process that has the rank.
    void name_holder(wire::Welcome& welcome, int64_t rank, LinkTime now) const {
        const auto taken = taken_.find(rank);
        const auto found = taken == taken_.end() ? peers_.end() : peers_.find(taken->second);
        const auto held = holders_.find(rank);
        if (found == peers_.end() && held == holders_.end()) return;
        const Holder holder = found == peers_.end() ? held->second : holder_of(found->second);
        welcome.pid = holder.pid;
        welcome.since_s = whole_seconds(now - holder.since);
        welcome.heard_s = found == peers_.end() ? 0 : whole_seconds(now - found->second.heard);
        holder.host.copy(welcome.host, sizeof welcome.host - 1);
    }

    /// Answers a hello. A connection without a valid token gets only the status, and is closed.
    void greet(uint64_t connection, const Strangers::Candidate& candidate, LinkTime now) {
        const wire::Hello& hello = candidate.hello;
        wire::Welcome welcome{};
        std::memcpy(welcome.magic, wire::magic, 8);
        welcome.status = judge(candidate);
        welcome.home = options_.home;
        if (welcome.status != wire::Status::wrong_token) {
            welcome.world = options_.world;
            welcome.per_host = options_.per_host;
            welcome.run = wire::id_of(run_);
            if (welcome.status == wire::Status::rank_taken) name_holder(welcome, hello.rank, now);
            welcome.proof = wire::prove(options_.token, welcome, hello.nonce);
        }
        const bool good = welcome.status == wire::Status::ok;
        act(connection, {reinterpret_cast<const char*>(&welcome), sizeof welcome}, !good);
        if (welcome.status == wire::Status::wrong_token) return refused_.count(candidate.from);
        if (!good) return;
        Peer peer{wire::Seal(options_.token, wire::End::member, candidate.nonce, hello.nonce),
                  wire::Seal(options_.token, wire::End::service, candidate.nonce, hello.nonce),
                  now,
                  now,
                  hello.rank,
                  hello.pid,
                  wire::host_of(hello),
                  wire::text_of(hello.self)};
        if (!is_lost() && comes_again(hello)) close(peers_.at(taken_.at(hello.rank)));
        if (!is_lost()) taken_[hello.rank] = connection;
        Peer& joined = peers_.emplace(connection, std::move(peer)).first->second;
        joined.unsent += sizeof welcome;
        if (is_lost()) push(connection, joined, wire::frame_of(Kind::lost, lost_, run_));
    }

    void heard(Peer& peer) {
        if (peer.joined()) return;
        ++peer.frames;
        if (peer.joined()) holders_.emplace(peer.rank, holder_of(peer));
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
                if (options_.token.launchers) holders_.erase(peer.rank);  // lets a restarted launcher join again
                break;
            case Kind::fail: fail(peer, frame); break;
            default: throw Error("it sent a frame that only the rendezvous service may send", Fault::peer);
        }
    }

    void get(uint64_t connection, Peer& peer, const Frame& frame) {
        if (const auto it = values_.find(frame.key); it != values_.end())
            return push(connection, peer, {Kind::value, frame.id, {}, it->second});
        if (peer.waits.size() >= max_waits)
            throw Error("it waits for too many rendezvous keys at the same time", Fault::peer);
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

    /// Names the ranks that have not joined, "2 of 4 ranks have not joined: 1, 3", and the connections refused
    /// meanwhile; "" when all have joined.
    std::string absent() const {
        constexpr int64_t shown = 16;
        const int64_t count = options_.world - std::distance(holders_.lower_bound(0), holders_.end());
        if (count <= 0) return "";
        std::string list;
        int64_t named = 0;
        for (int64_t rank = 0; rank < options_.world && named < shown; ++rank)
            if (!joined(rank)) list += fmt::format("{}{}", named++ ? ", " : "", rank);
        if (count > shown) list += ", ...";
        return fmt::format("{} of {} ranks have not joined: {}{}", count, options_.world, list, refused_.text());
    }

    /// Handles a reported failure, if it is of this run, and from the failed process or from a launcher about a rank.
    void fail(Peer& peer, const Frame& frame) {
        Loss loss = wire::loss_of(frame);
        if (frame.key != run_) return;
        if (loss.rank == peer.rank && loss.pid == peer.pid && loss.nonce == peer.self) {
            loss.text = "failed: " + loss.text;
            return drop(peer, std::move(loss), false);
        }
        if (peer.rank < 0 && peer.here() && loss.rank >= 0) gone(loss, fmt::format("on host {} ", peer.host));
    }

    bool is_lost() const { return bool(lost_); }

    /// Whether a member's process may be suspended and not lost: a launcher's may, since its ranks send heartbeats.
    bool may_stop(const Peer& peer) const { return peer.rank < 0; }

    void act(uint64_t connection, std::string bytes, bool close) {
        actions_.push_back({connection, std::move(bytes), close});
    }

    void push(uint64_t connection, Peer& peer, const Frame& frame) {
        if (peer.closed) return;
        std::string bytes = peer.to.seal(frame);
        peer.unsent += bytes.size();
        act(connection, std::move(bytes), false);
        if (peer.unsent > max_unsent)
            drop(peer, {.cause = Cause::hang, .site = "unread", .text = "does not read its connection"});
    }

    /// Closes a member's connection. Unless its rank had left, all members learn of the loss; the member itself only if
    /// `hears`. Only the first loss counts.
    void drop(Peer& peer, Loss how, bool hears = true) {
        if (peer.closed) return;
        if (!hears) close(peer);
        const bool launcher = options_.token.launchers || peer.rank < 0;
        const int64_t node = peer.rank < 0 ? -1 - peer.rank : peer.rank;
        how.rank = launcher ? -1 : peer.rank;
        how.node = launcher ? node : -1;
        how.pid = peer.pid;
        how.nonce = peer.self;
        how.text =
            fmt::format("{} (pid {} on host {}) ", wire::name_of(options_.token, peer.rank), peer.pid, peer.host) +
            how.text;
        if (!peer.left) tell_all(how);
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

    std::string state_of(const Peer& peer) const {
        return peer.host == here_.host ? "its process " + here_.process(peer.pid) : "stopped or unreachable";
    }

    Loss silence_of(const Peer& peer, LinkTime now) const {
        std::string text = fmt::format("is silent for {:.1f} s: {}", seconds(now - peer.heard), state_of(peer));
        const std::string last = options_.seen && !peer.position.empty() ? options_.seen(peer.position) : "";
        return {.cause = Cause::hang, .site = "silence", .text = last.empty() ? text : text + "; last seen in " + last};
    }

    Loss explain(int64_t late, LinkTime now) const {
        if (!options_.explain)
            return {.cause = Cause::hang,
                    .site = "wait",
                    .text = fmt::format("rank {} waits longer than its timeout", late)};
        std::vector<ServeOptions::Standing> all;
        for (const auto& [connection, peer] : peers_)
            if (peer.rank >= 0 && !peer.closed)
                all.push_back({peer.rank, peer.position, state_of(peer), seconds(now - peer.heard)});
        return options_.explain(late, all);
    }

    /// The first member to end must not fail the others: the service answers them until they leave, unless the job is
    /// lost. Members that remain learn that the service has ended, not that a rank died.
    void say_farewell(LinkTime now) {
        const auto any = [&](auto which) {
            return std::any_of(peers_.begin(), peers_.end(), [&](const auto& entry) { return which(entry.second); });
        };
        now_ending_ = now + look_every / 10;
        if (!said_) {
            const auto stays = [&](const Peer& peer) { return peer.here() && !may_stop(peer); };
            if (now < patience_ && !is_lost() && any(stays)) return;
            for (auto& [connection, peer] : peers_) push(connection, peer, {Kind::leave, 0, {}, {}});
            said_ = true;
            until_ = now + farewell;
        }
        over_ = now >= until_ || !any([](const Peer& peer) { return !peer.closed && peer.unsent > 0; });
    }

    const ServeOptions options_;
    const LinkHost here_;
    const std::string run_;
    Strangers strangers_;
    Refusals refused_;
    std::map<uint64_t, Peer> peers_;
    std::map<int64_t, uint64_t> taken_;  ///< connection of each connected rank or launcher (-1 - node), by rank
    std::map<int64_t, Holder> holders_;  ///< process that joined as each rank or launcher, also if it has left, by rank
    std::map<std::string, std::string> values_;
    /// by key: connections and numbers of requests that wait for the key
    std::map<std::string, std::set<std::pair<uint64_t, uint64_t>>> waiting_;
    std::vector<LinkAction> actions_;
    Loss lost_;
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
void Membership::fail(const Loss& why) { state_->tell_all(why); }
bool Membership::gone(const Loss& how) { return state_->gone(how); }
bool Membership::joined(int64_t rank) const { return state_->joined(rank); }
Loss Membership::loss() const { return state_->loss(); }
void Membership::tick(LinkTime now) { state_->tick(now); }
LinkTime Membership::due() const { return state_->due(); }
bool Membership::accepts(LinkTime now) const { return state_->accepts(now); }
void Membership::end(LinkTime now) { state_->end(now); }
bool Membership::over() const { return state_->over(); }
std::vector<LinkAction> Membership::actions() { return state_->actions(); }

}  // namespace orrery

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <utility>

#include "control/wire.h"
#include "orrery/error.h"
#include "orrery/rendezvous.h"

namespace orrery {

using wire::Frame;
using wire::Kind;

namespace {

constexpr LinkTime beat_every = std::chrono::milliseconds(250);
constexpr size_t max_position = 64 << 10;
constexpr std::string_view late = "late ";
constexpr size_t most_told = 4096;  // max bytes of a failure's text that are sent
constexpr int64_t lives_s = 2;      // a member heard within this time is alive; it sends 4 heartbeats a second

std::string place_text(const std::string& host, int port) {
    return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

std::string taken_text(const wire::Welcome& welcome, const JoinOptions& options) {
    const std::string host(welcome.host, ::strnlen(welcome.host, sizeof welcome.host));
    return fmt::format(
        "another process already is {}: process {} on host {}, which joined {} s ago{}\n"
        "  is the job started twice? for a second job take another port",
        wire::name_of(options.token, options.rank), welcome.pid, host, welcome.since_s,
        welcome.heard_s < lives_s ? "" : fmt::format(" and was last heard {} s ago", welcome.heard_s));
}

std::string refusal(const wire::Welcome& welcome, const JoinOptions& options) {
    switch (welcome.status) {
        case wire::Status::unknown_rank: return "the job has no such rank or node";
        case wire::Status::rank_taken: return taken_text(welcome, options);
        case wire::Status::old_generation:
            return fmt::format("the job has restarted: this process is of generation {}, which has ended",
                               options.token.generation);
        case wire::Status::other_run: return "this process belongs to an earlier start of the job";
        case wire::Status::other_members:
            return fmt::format(
                "the running job was started {} --restarts, this process {}\n  start all nodes in the same way",
                options.token.launchers ? "without" : "with", options.token.launchers ? "with" : "without");
        case wire::Status::other_shape:
            if (options.token.launchers)
                return fmt::format(
                    "the running job has {} nodes including spares, this process expects {}\n"
                    "  give every host the same --nodes and --spares",
                    welcome.world, options.world);
            return fmt::format(
                "the running job has {}, this process expects {}\n  give every host the same --nodes and [mesh]",
                wire::shape_text(welcome.world, welcome.per_host), wire::shape_text(options.world, options.per_host));
        default:
            return "the job token does not match, or the script's name\n  set ORRERY_TOKEN, or the file of "
                   "ORRERY_TOKEN_FILE, to the same secret on all nodes; is another job using that port?";
    }
}

/// Returns Fault::peer if a refused member may succeed later: the other process is silent or of an earlier start.
Fault fault_of(const wire::Welcome& welcome) {
    const bool passes = welcome.status == wire::Status::old_generation || welcome.status == wire::Status::other_run ||
                        (welcome.status == wire::Status::rank_taken && welcome.heard_s >= lives_s);
    return passes ? Fault::peer : Fault::usage;
}

template <class T>
std::string bytes_of(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace

class MemberLink::State {
public:
    State(const JoinOptions& options, const LinkHost& here)
        : options_(options), here_(here), place_(place_text(options.host, options.port)) {}

    void opened(LinkTime now) {
        phase_ = Phase::challenge;
        heard_ = now;
        in_.clear();
        out_.clear();
    }

    void received(std::string_view bytes, LinkTime now) {
        heard_ = now;
        in_ += bytes;
        if (phase_ == Phase::challenge && in_.size() >= sizeof(wire::Challenge)) say_hello();
        if (phase_ == Phase::welcome && in_.size() >= sizeof(wire::Welcome)) take_welcome(now);
        if (phase_ < Phase::asks) return;
        size_t at = 0;
        try {
            while (auto frame = from_->open(in_, at)) take(*frame);
        } catch (const Error& error) {
            const std::string why = fmt::format("protocol error of {}: {}", service(), error.what());
            if (phase_ == Phase::asks) throw Error(why + as_seen(), Fault::peer);
            end(why);
        }
        in_.erase(0, at);
    }

    void closed() {
        if (phase_ == Phase::joined) end(service() + " died");
    }

    void tick(LinkTime now, const std::string& position) {
        if (phase_ != Phase::joined || dead_) return;
        // If this process itself did not run (SIGSTOP, a suspended job or machine), the service was not silent.
        if (const LinkTime paused = now - next_beat_; !left_ && paused >= wire::paused_from)
            heard_ = std::min(now, heard_ + paused);
        if (now - heard_ > options_.silence) return end(service() + " is silent: stopped or unreachable");
        if (now < next_beat_ || left_) return;
        next_beat_ = now + beat_every;
        const bool is_late = position.starts_with(late);
        const std::string_view text = std::string_view(position).substr(is_late ? late.size() : 0, max_position);
        send({Kind::beat, 0, is_late ? "late" : "", std::string(text)});
    }

    LinkTime due() const { return next_beat_; }
    std::string output() { return std::exchange(out_, {}); }
    bool joined() const { return phase_ == Phase::joined; }
    bool over() const { return left_ || dead_; }
    const Loss& loss() const { return lost_; }
    const std::string& run() const { return run_; }
    void lose(const Message& why) { lose(Loss{.cause = Cause::node, .site = "service", .text = why}); }

    /// Reports a failure of this process itself to the service.
    void fail(const Loss& why) {
        Loss own = why;
        own.rank = options_.rank;
        own.pid = here_.pid;
        own.nonce = options_.nonce;
        gone(own);
    }

    void gone(const Loss& how) {
        Loss told = how;
        told.text = told.text.cut(most_told);
        if (!how) told.cause = Cause::error;  // a failure reported without a cause is an error
        send(wire::frame_of(Kind::fail, told, run_));
    }

    std::string service() const {
        return home_ < 0 ? fmt::format("the launcher, which holds the rendezvous at {},", place_)
                         : fmt::format("rank {}, which holds the rendezvous at {},", home_, place_);
    }

    uint64_t request(std::string_view what, std::string_view key, std::string_view value) {
        if (key.size() > wire::max_key || key.size() + value.size() + 16 > wire::max_frame)
            throw Error(
                fmt::format("rendezvous: key '{:.40}' ({} bytes) or its value ({} bytes) is too large; the limits are "
                            "512 bytes for a key and 1 MiB for both",
                            key, key.size(), value.size()),
                Fault::failed);
        const Kind kind = wire::kind_of(what);
        const bool answered = kind == Kind::get || kind == Kind::add || kind == Kind::absent;
        const uint64_t number = answered ? ++numbers_ : 0;
        if (answered) answers_[number];
        send({kind, number, std::string(key), std::string(value)});
        return number;
    }

    std::optional<std::string> answer(uint64_t number) {
        const auto found = answers_.find(number);
        if (found == answers_.end() || !found->second) return std::nullopt;
        std::optional<std::string> value = std::move(found->second);
        answers_.erase(found);
        return value;
    }

    void cancel(uint64_t number) {
        if (answers_.erase(number) > 0) send({Kind::cancel, number, {}, {}});
    }

private:
    enum class Phase : uint8_t { none, challenge, welcome, asks, joined };

    void send(const Frame& frame) {
        if (phase_ >= Phase::asks && !dead_) out_ += to_->seal(frame);
    }

    void say_hello() {
        std::memcpy(&challenge_, in_.data(), sizeof challenge_);
        in_.erase(0, sizeof challenge_);
        constexpr size_t name = 6;  // "orrery", followed by the version
        if (std::memcmp(challenge_.magic, wire::magic, name) == 0 && std::memcmp(challenge_.magic, wire::magic, 8) != 0)
            throw Error(
                fmt::format("the rendezvous at {} speaks version {} of its protocol, this process version {}\n"
                            "  start every launcher and rank of a job from one build of orrery",
                            place_, challenge_.magic[name], wire::magic[name]));
        if (std::memcmp(challenge_.magic, wire::magic, 8) != 0)
            throw Error(fmt::format("the server at {} is not an Orrery rendezvous; check host and port", place_));
        hello_ = {};
        std::memcpy(hello_.magic, wire::magic, 8);
        hello_.generation = options_.token.generation;
        hello_.rank = options_.rank;
        hello_.pid = here_.pid;
        hello_.world = options_.world;
        hello_.per_host = options_.per_host;
        hello_.launchers = options_.token.launchers;
        hello_.run = wire::id_of(options_.token.run);
        hello_.self = wire::id_of(options_.nonce);
        here_.host.copy(hello_.host, sizeof hello_.host - 1);
        hello_.nonce = wire::random_nonce(here_);
        hello_.proof = wire::prove(options_.token, hello_, challenge_.nonce);
        out_ += bytes_of(hello_);
        phase_ = Phase::welcome;
    }

    void take_welcome(LinkTime now) {
        wire::Welcome welcome;
        std::memcpy(&welcome, in_.data(), sizeof welcome);
        in_.erase(0, sizeof welcome);
        const auto status = static_cast<int64_t>(welcome.status);
        if (std::memcmp(welcome.magic, wire::magic, 8) != 0 || status < 0 ||
            status > static_cast<int64_t>(wire::Status::other_members))
            throw Error(fmt::format("the server at {} sent an invalid handshake: its bytes were corrupted, lost or "
                                    "repeated in transit",
                                    place_),
                        Fault::peer);
        // A refusal is not authenticated, and a hello with a bit flipped in transit looks like one with another token.
        // So a refusal counts only when repeated: the service closes this connection, and the member tries again.
        if (welcome.status != wire::Status::ok && std::exchange(refused_, welcome.status) != welcome.status) {
            phase_ = Phase::none;
            return;
        }
        if (welcome.status != wire::Status::ok)
            throw Error(fmt::format("the rendezvous at {} refuses {} of job '{}': {}", place_,
                                    wire::name_of(options_.token, options_.rank), options_.token.job,
                                    refusal(welcome, options_)),
                        fault_of(welcome));
        if (!wire::same(welcome.proof, wire::prove(options_.token, welcome, hello_.nonce)))
            throw Error(fmt::format("authentication failed: the rendezvous at {} does not have the token of job '{}'",
                                    place_, options_.token.job),
                        Fault::peer);
        home_ = welcome.home;
        run_ = wire::text_of(welcome.run);
        from_.emplace(options_.token, wire::End::service, challenge_.nonce, hello_.nonce);
        to_.emplace(options_.token, wire::End::member, challenge_.nonce, hello_.nonce);
        phase_ = Phase::asks;
        send({Kind::beat, 0, {}, {}});  // the service's answer confirms that this member has joined
        next_beat_ = now + beat_every;
    }

    void take(const Frame& frame) {
        phase_ = Phase::joined;
        if (frame.kind == Kind::lost) lose(wire::loss_of(frame));
        if (frame.kind == Kind::leave) left_ = true;
        if (frame.kind == Kind::value)
            if (const auto it = answers_.find(frame.id); it != answers_.end()) it->second = frame.value;
    }

    void end(const std::string& why) {
        dead_ = true;
        if (!left_) lose(why + as_seen());
    }

    void lose(const Loss& why) {
        if (!lost_) lost_ = why;
    }

    /// Says which process observed a loss. Other processes may repeat the text, and a cut connection looks to each end
    /// as if the other had died.
    std::string as_seen() const { return fmt::format(", as {} sees it", wire::name_of(options_.token, options_.rank)); }

    const JoinOptions options_;
    const LinkHost here_;
    const std::string place_;
    Phase phase_ = Phase::none;
    wire::Status refused_ = wire::Status::ok;
    wire::Challenge challenge_{};
    wire::Hello hello_{};
    std::optional<wire::Seal> from_, to_;
    int64_t home_ = -1;
    LinkTime heard_{0}, next_beat_{0};
    std::string in_, out_, run_;
    Loss lost_;
    bool left_ = false, dead_ = false;  ///< left_: the service has announced its end; dead_: the connection has ended
    uint64_t numbers_ = 0;
    std::map<uint64_t, std::optional<std::string>> answers_;
};

MemberLink::MemberLink(const JoinOptions& options, const LinkHost& here)
    : state_(std::make_unique<State>(options, here)) {}
MemberLink::~MemberLink() = default;
void MemberLink::opened(LinkTime now) { state_->opened(now); }
void MemberLink::received(std::string_view bytes, LinkTime now) { state_->received(bytes, now); }
void MemberLink::closed() { state_->closed(); }
void MemberLink::tick(LinkTime now, const std::string& position) { state_->tick(now, position); }
LinkTime MemberLink::due() const { return state_->due(); }
std::string MemberLink::output() { return state_->output(); }
bool MemberLink::joined() const { return state_->joined(); }
bool MemberLink::over() const { return state_->over(); }
Loss MemberLink::loss() const { return state_->loss(); }
std::string MemberLink::run() const { return state_->run(); }
void MemberLink::fail(const Loss& why) { state_->fail(why); }
void MemberLink::gone(const Loss& how) { state_->gone(how); }
std::string MemberLink::service() const { return state_->service(); }
void MemberLink::lose(const Message& why) { state_->lose(why); }
uint64_t MemberLink::request(std::string_view what, std::string_view key, std::string_view value) {
    return state_->request(what, key, value);
}
std::optional<std::string> MemberLink::answer(uint64_t number) { return state_->answer(number); }
void MemberLink::cancel(uint64_t number) { state_->cancel(number); }

}  // namespace orrery

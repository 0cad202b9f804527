// Frames behind a good hello: control/wire, membership, and the link of a member. An input is a frame's body; and, a
// line each, what the members of a job and its service send, and what becomes of them (Job::act).
#include <algorithm>

#include "control/wire.h"
#include "member.h"
#include "orrery/error.h"
#include "target.h"

namespace orrery::fuzz {
namespace {

void parse(std::string_view body) {
    try {
        const wire::Frame frame = wire::parse(body);
        require(wire::encode(frame) == body, "a frame is written as it came");
        require(frame.key.size() <= wire::max_key, "a key is short");
    } catch (const Error&) {
    }
}

/// "key a value" -> a frame.
wire::Frame frame_of(char kind, std::string_view words, uint64_t id) {
    const size_t space = std::min(words.find(' '), words.size());
    return {static_cast<wire::Kind>(kind), id, std::string(words.substr(0, std::min(space, wire::max_key))),
            std::string(words.substr(std::min(space + 1, words.size())))};
}

/// A service, rank 1 with the program's own link, and others who seal their frames themselves.
class Job {
public:
    /// `requests`: so many for a key that never comes, at most.
    explicit Job(uint64_t requests = 40) : link_(joining(), host_called("n1", 'l')), most_many_(requests) {
        service_.open(1, "10.0.0.1");
        link_.opened(service_.now);
        pump();
        require(link_.joined(), "the program's own link joins");
        join(2);
    }

    /// A letter, and what belongs to it.
    void act(std::string_view line) {
        const char what = line[0];
        const std::string_view rest = line.substr(1);
        const int64_t number = number_in(rest);
        if (what == '8' || what == 'k')
            tell_loss(what == '8', rest, number);
        else if (what >= '0' && what <= '0' + static_cast<char>(wire::Kind::lost))
            tell(frame_of(static_cast<char>(what - '0'), rest, ++id_));
        else if (what >= 'a' && what <= 'a' + static_cast<char>(wire::Kind::lost))
            tell_link(frame_of(static_cast<char>(what - 'a'), rest, static_cast<uint64_t>(number)));
        else
            act(what, rest, number);
        pump();
    }

    /// The job is over within the patience of its service.
    void end() {
        service_.membership->end(service_.now);
        for (int i = 0; i < 20 && !service_.membership->over(); ++i) service_.pass(std::chrono::milliseconds(500));
        require(service_.membership->over(), "a service ends");
    }

    const std::string& lost() const { return lost_; }

private:
    static JoinOptions joining() {
        JoinOptions options;
        options.rank = 1;
        options.world = 4;
        options.per_host = 2;
        options.token = token();
        return options;
    }

    /// What one that is no link of ours knows of its connection.
    struct Sealer {
        int64_t rank;
        wire::Seal to, from;
        std::string in = {};
    };

    /// `world`: ranks of the job, as it was told; 0: as it is.
    void join(int64_t rank, int64_t world = 0) {
        if (sealers_.size() >= 8) return;
        now_ = 2 + sealers_.size();
        wire::Hello hello = good_hello();
        hello.rank = rank;
        if (world != 0) hello.world = world;
        service_.open(now_, "10.0.0." + std::to_string(now_));
        service_.take(now_);  // its challenge: nonces are all alike
        hello.proof = wire::prove(token(), hello, nonce_of('r'));
        sealers_.emplace(now_, Sealer{rank, wire::Seal(token(), wire::End::member, nonce_of('r'), hello.nonce),
                                      wire::Seal(token(), wire::End::service, nonce_of('r'), hello.nonce)});
        service_.send(now_, raw(hello));
        const std::string welcome = service_.take(now_);
        require(welcome.size() >= sizeof(wire::Welcome), "a whole hello is answered");
        sealers_.at(now_).in = welcome.substr(sizeof(wire::Welcome));
    }

    void tell(const wire::Frame& frame) { service_.send(now_, sealers_.at(now_).to.seal(frame)); }

    /// A failure, of the rank that `rest` begins with, or the sender's own; or a loss, of the other service.
    void tell_loss(bool failure, std::string_view rest, int64_t number) {
        const bool own = failure && rest.starts_with(' ');
        const Loss loss{.cause = Cause::process,
                        .rank = own ? sealers_.at(now_).rank : number,
                        .pid = 99,
                        .text = std::string(rest)};
        const std::string run = number == 9 ? "another" : wire::draw_id(host_called("n1", 'r'));
        failure ? tell(wire::frame_of(wire::Kind::fail, loss, run))
                : tell_link(wire::frame_of(wire::Kind::lost, loss, run));
    }

    /// Of a service that is not ours, but has the token.
    void tell_link(const wire::Frame& frame) {
        if (!other_) other_.emplace(token(), wire::End::service, nonce_of('r'), nonce_of('l'));
        hear_link(other_->seal(frame));
    }

    void hear_link(std::string_view bytes) {
        try {
            link_.received(bytes, service_.now);
        } catch (const Error&) {
            require(!link_.joined(), "who has joined ends a bad connection without an error");
        }
    }

    void request(std::string_view words) {
        const size_t space = std::min(words.find(' '), words.size());
        const wire::Frame frame = frame_of(0, words.substr(std::min(space + 1, words.size())), 0);
        const Loss loss{.cause = Cause::error, .rank = number_in(frame.key), .pid = 99, .text = frame.value};
        if (words.starts_with("fail")) return link_.fail(loss);
        if (words.starts_with("gone")) return link_.gone(loss);
        try {
            asked_.push_back(link_.request(words.substr(0, space), frame.key, frame.value));
        } catch (const Error&) {
        }
    }

    void act(char what, std::string_view rest, int64_t number) {
        Membership& membership = *service_.membership;
        const std::chrono::milliseconds time(std::clamp<int64_t>(number, 0, 20'000));
        switch (what) {
            case 'J': join(number, number_in(rest.substr(std::min(rest.find(' '), rest.size() - 1) + 1))); break;
            case 'W':
                now_ = sealers_.count(static_cast<uint64_t>(number)) ? static_cast<uint64_t>(number) : now_;
                break;
            case 'R': service_.send(now_, rest); break;
            case 'C': service_.close(now_); break;
            case 'S': membership.sent(now_, static_cast<size_t>(std::max<int64_t>(number, 0))); break;
            case 'T':
                service_.pass(time);
                if (link_.due() <= service_.now)
                    link_.tick(service_.now, std::string(rest.substr(std::min(rest.find(' '), rest.size() - 1) + 1)));
                break;
            case 'G':
                membership.gone({.cause = Cause::process, .rank = number, .pid = 99, .text = std::string(rest)});
                break;
            case 'F': membership.fail({.cause = Cause::error, .text = "it ends: " + std::string(rest)}); break;
            case 'E': membership.end(service_.now); break;
            case 'Q': request(rest); break;
            case 'X':
                if (!asked_.empty()) link_.cancel(asked_.back()), asked_.pop_back();
                break;
            case 'L': link_.lose(std::string(rest)); break;
            case 'D': link_.closed(); break;
            case 'H': hear_link(rest); break;
            case 'M':  // requests for a key that never comes
                for (int64_t i = 0; i < number && many_ < most_many_; ++i, ++many_)
                    tell({wire::Kind::get, 1'000 + many_, "never", ""});
                break;
            default: break;
        }
    }

    /// What each has to say to the other; and what is true of it.
    void pump() {
        for (int i = 0; i < 6; ++i) {  // a handshake takes five
            const std::string from = link_.output(), to = other_ ? "" : service_.take(1);
            if (from.empty() && to.empty()) break;
            if (!to.empty()) hear_link(to);
            if (!from.empty()) service_.send(1, from);
        }
        for (auto& [connection, sealer] : sealers_) {
            sealer.in += service_.take(connection);
            size_t at = 0;
            while (const auto frame = sealer.from.open(sealer.in, at))  // throws where the service's MAC is wrong
                if (frame->kind == wire::Kind::lost) hold(frame->value);
            sealer.in.erase(0, at);
        }
        for (auto number = asked_.begin(); number != asked_.end();)
            number = link_.answer(*number) ? asked_.erase(number) : number + 1;
        const std::string place = link_.service();
        require(link_.over() || !link_.loss() || !place.empty(), "a link names its service");
    }

    /// The first loss is the one that counts, for all.
    void hold(const std::string& lost) {
        if (lost_.empty()) lost_ = lost;
        require(lost == lost_, "everybody learns the same loss");
    }

    Service service_;
    MemberLink link_;
    std::map<uint64_t, Sealer> sealers_;  ///< by connection
    std::optional<wire::Seal> other_;
    std::vector<uint64_t> asked_;
    std::string lost_;
    const uint64_t most_many_;
    uint64_t now_ = 0, id_ = 0, many_ = 0;  ///< connection of the one who speaks; numbers of requests
};

void run(std::string_view input) {
    parse(input);
    try {
        Job job;
        int lines = 0;
        for (size_t at = 0; at < input.size() && lines < 100; ++lines) {
            const size_t end = std::min(input.find('\n', at), input.size());
            if (end > at) job.act(input.substr(at, end - at));
            at = end + 1;
        }
        job.end();
    } catch (const Error& problem) {
        throw Finding(std::string("an error of one who did nothing wrong: ") + problem.what());
    }
}

/// Who waits for more than 4,096 keys at a time is dropped.
void wait_for_many() {
    Job job(5000);
    job.act("M4096");
    require(job.lost().empty(), "4,096 waits are served");
    job.act("M1");
    job.act("J3");
    require(!job.lost().empty(), "one more is not");
}

std::vector<std::string> seeds() {
    using wire::Kind;
    wait_for_many();
    std::vector<std::string> all = {
        "",
        "0topic a value\n1topic\n2count 1\n2count 9223372036854775807\n2count 1\n1count\n",
        "3topic\n4topic\n5\n6late at step 3\n6 step 4\n7\n",
        "8 it is out of memory\n1never\n6\n9a b\n:\n",
        "83 was killed by signal 9\n",
        "J3\nW3\n1key\n1key\n4key\nW2\n0key value\nC\nT100\nJ2\n",
        "Qset key value\nQget key\nQcount sum 3\nQerase key\nQabsent\nQgone 3 (pid 9) was killed\nX\n",
        "Qget never\nX\nQfail why\nT300 late step 5\nT300 step 6\nQleave\nT1\nE\nT6000\n",
        "J-1\nG0 was killed\nF it ends\nJ3\nT11000\n",
        "J3 5\nJ3\n",
        "J2\nJ9\nJ-2\nW3\n83 (pid 7) exited\n",
        "j1 an answer\nh\nkit is lost\nT20000\n",
        "Qget key\nj1 an answer\nb\nHabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\nQget key\n",
        "R\1\nT5000\n",
        "R\x0d\1\1\1abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\n",
        "6 at step 5\nT10200\nT200\n",
        "D\nLit does not answer\n",
        "S100\n7\nE\nT100\nT100\nS10000\nT2000\n",
        "M40\nT100\n",
        "Qsets key value\nQset " + std::string(600, 'k') + " v\n",
        "7\nT20000\nJ2\nE\nS9999\n"};
    for (uint8_t kind = 0; kind <= static_cast<uint8_t>(Kind::lost); ++kind)
        all.push_back(wire::encode({static_cast<Kind>(kind), kind * 3u, "topic/1", "a value"}));
    all.push_back(wire::encode({Kind::set, ~0ull, std::string(wire::max_key, 'k'), std::string(300, 'v')}));
    return all;
}

std::vector<std::string> words() {
    return {"\nJ3",      "\nJ-1",     "\nW3",      "\nT10200", "\nT300 late ", "\nE",        "\nQset ",    "\nQget ",
            "\nQcount ", "\nX",       "\nQerase ", "\nQfail ", "\nQleave",     "\nQgone 3 ", "\nG0 ",      "\nF",
            "\nC",       "\nS100",    "\nD",       "\nL",      "\n0key ",      "\n1key",     "\n2sum 5",   "\n3key",
            "\n4",       "\n5",       "\n6late ",  "\n7",      "\n83 ended",   "\n8 ended",  "\nj1 value", "\nk",
            "\nH\x0d",   "\nQabsent", "\nR\x0d",   "never"};
}

}  // namespace

Target frames_target() { return {"frames", run, seeds, words}; }

}  // namespace orrery::fuzz

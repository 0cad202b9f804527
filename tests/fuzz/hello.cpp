// Hellos and welcomes: control/strangers, and a member's link before it is one. An input is a list of what strangers do
// to a service, and what a stranger in the place of the service does to a member: a byte each, and what belongs to it.
#include <algorithm>
#include <optional>

#include "control/strangers.h"
#include "member.h"
#include "orrery/error.h"

namespace orrery::fuzz {
namespace {

enum Act : uint8_t { come, say, greet, greet_raw, hang_up, wait, other, meet, challenge, welcome, tell, end, acts };

/// Takes an input from its front; zeros behind its end.
class Bytes {
public:
    explicit Bytes(std::string_view left) : left_(left) {}
    bool over() const { return left_.empty(); }
    uint8_t byte() { return static_cast<uint8_t>(some(1)[0]); }
    int64_t number() {
        const uint8_t byte = this->byte();
        return byte == 254 ? INT64_MAX : byte == 255 ? INT64_MIN : static_cast<int64_t>(byte) - 4;
    }
    std::string some(size_t count) {
        std::string bytes(left_.substr(0, count));
        left_.remove_prefix(bytes.size());
        bytes.resize(count);
        return bytes;
    }

private:
    std::string_view left_;
};

class World {
public:
    explicit World(std::string_view input) : in_(input) {}

    void act() {
        switch (in_.byte() % acts) {
            case come: connect(); break;
            case say: send(in_.some(in_.byte())); break;
            case greet: say_hello(fields(), in_.byte()); break;
            case greet_raw: {
                wire::Hello hello;
                const std::string bytes = in_.some(sizeof hello);
                std::memcpy(&hello, bytes.data(), sizeof hello);
                say_hello(hello, in_.byte());
                break;
            }
            case hang_up:
                if (now_ > 0) service_.close(now_);
                break;
            case wait: service_.pass(std::chrono::milliseconds(8 * in_.byte())); break;
            case other: now_ = std::min<uint64_t>(in_.byte(), last_); break;
            case meet: open_link(); break;
            case challenge: give_challenge(); break;
            case welcome: give_welcome(); break;
            case tell: tell_link(); break;
            default: end_service(in_.byte());
        }
        look();
    }
    bool over() const { return in_.over(); }

private:
    void connect() {
        if (!service_.membership->accepts(service_.now)) return;
        const int64_t from = in_.number();
        service_.open(now_ = ++last_, "10.0.0." + std::to_string(from));
    }

    void send(const std::string& bytes) {
        if (now_ == 0) return;
        const size_t first = bytes.size() / 2;  // in two parts, as a network may cut it
        service_.send(now_, std::string_view(bytes).substr(0, first));
        service_.send(now_, std::string_view(bytes).substr(first));
    }

    wire::Hello fields() {
        wire::Hello hello = good_hello();
        hello.rank = in_.number(), hello.generation = in_.number();
        hello.world = in_.number(), hello.per_host = in_.number();
        if (in_.byte() & 1) std::memset(hello.host, 'h', sizeof hello.host);  // without an end
        return hello;
    }

    /// `how`, bit by bit: it has the token; its magic is ours; more comes behind it.
    void say_hello(wire::Hello hello, uint8_t how) {
        if (how & 2) std::memcpy(hello.magic, wire::magic, 8);
        if (how & 1) hello.proof = wire::prove(token(), hello, nonce_of('r'));
        proven_ = proven_ || (how & 1);
        send(raw(hello) + (how & 4 ? "more" : ""));
    }

    void open_link() {
        JoinOptions options;
        options.rank = in_.number();
        options.world = 4;
        options.token = token();
        if (in_.byte() & 1) options.host = "fe80::1";
        link_.emplace(options, host_called("n2", 'l'));
        link_->opened(service_.now);
        honest_ = false;
    }

    /// Passes on what the link says meanwhile: nothing of it is read here.
    void hear(std::string_view bytes) {
        if (!link_) return;
        try {
            link_->received(bytes, service_.now);
        } catch (const Error&) {
            require(!link_->joined(), "who is refused has not joined");
            link_.reset();
            return;
        }
        require(link_->output().size() < 8192, "a link says little to a stranger");
    }

    void give_challenge() {
        const uint8_t how = in_.byte();
        wire::Challenge challenge;
        const std::string bytes = in_.some(sizeof challenge);
        std::memcpy(&challenge, bytes.data(), sizeof challenge);
        if (how & 1) std::memcpy(challenge.magic, wire::magic, how & 2 ? 6 : 8);  // of another version
        hear(raw(challenge));
    }

    void give_welcome() {
        wire::Welcome welcome{};
        const uint8_t how = in_.byte();
        std::memcpy(welcome.magic, wire::magic, 8);
        welcome.status = static_cast<wire::Status>(in_.byte());
        welcome.home = in_.number(), welcome.world = in_.number(), welcome.per_host = in_.number();
        if (how & 1) welcome.proof = wire::prove(token(), welcome, nonce_of('l')), honest_ = true;
        hear(raw(welcome));
    }

    void tell_link() {
        const uint8_t how = in_.byte();
        if (how & 1) hear(in_.some(how));
        if (!link_) return;
        if (how & 2) link_->closed();
        if (how & 4) service_.now += std::chrono::seconds(4);
        if ((how & 8) && link_->due() <= service_.now) link_->tick(service_.now, how & 16 ? "late step 3" : "step 3");
        if (how & 32) ask();
        if (how & 64) link_->lose("does not answer");
    }

    void ask() {
        constexpr const char* requests[] = {"set", "get", "count", "erase", "leave", "absent", "no"};
        try {
            const uint64_t number = link_->request(requests[in_.byte() % 7], "key", in_.some(in_.byte()));
            require(!link_->answer(number), "nobody has answered");
            link_->cancel(number);
        } catch (const Error&) {
        }
    }

    void end_service(uint8_t how) {
        if (how & 1)
            service_.membership->gone({.cause = Cause::process, .rank = how % 5, .pid = 99, .text = "ended"});
        if (how & 2) service_.membership->fail({.cause = Cause::error, .text = "it ends"});
        if (how & 4) service_.membership->end(service_.now);
        if (how & 8) count();
        service_.hear();
    }

    /// As the service counts whom it refuses.
    void count() {
        Refusals refusals;
        require(refusals.text().empty(), "nobody is refused yet");
        for (uint8_t all = in_.byte(); all > 0; --all) refusals.count("10.0.0." + std::to_string(all % (1 + all / 2)));
        require(refusals.text().size() < 400, "the text on the refused is short");
    }

    void look() {
        for (int64_t rank = 0; rank < service_.options.world; ++rank)
            require(proven_ || !service_.membership->joined(rank), "nobody joins without the token");
        require(honest_ || !link_ || !link_->joined(), "no service without the token is joined");
        if (link_) require(!link_->service().empty(), "a link names its service");
    }

    Bytes in_;
    Service service_;
    std::optional<MemberLink> link_;
    uint64_t now_ = 0, last_ = 0;  ///< connections: the one who acts, the newest
    bool proven_ = false, honest_ = false;
};

void run(std::string_view input) {
    World world(input);
    for (int i = 0; i < 150 && !world.over(); ++i) world.act();
}

std::string text(std::initializer_list<int> bytes) {
    std::string text;
    for (const int byte : bytes) text += static_cast<char>(byte);
    return text;
}

std::vector<std::string> seeds() {
    std::vector<std::string> all = {"", text({come, 5, say, 29}) + "GET / HTTP/1.1\r\nHost: n1\r\n\r\n"};
    std::string many, slow;
    for (int i = 0; i < 66; ++i) many += text({come, i, wait, 1});
    for (int i = 0; i < 9; ++i) slow += text({come, i, greet, 5, 5, 8, 4, 0, 2, wait, 1});
    all.push_back(many + text({wait, 255, other, 66, say, 3}) + "abc");
    all.push_back(slow + text({end, 8, 20, end, 8, 3, end, 8, 1, end, 8, 255}));
    for (const int how : {0, 3, 7})
        for (const int number : {3, 4, 6, 8, 254, 255}) {
            all.push_back(text({come, 5, greet, number, 5, 8, 4, 0, how, wait, 130, hang_up}));
            all.push_back(text({come, 5, greet, 6, number, 8, 4, 1, how, end, 5}));
            all.push_back(text({come, 5, greet, 6, 5, number, number, 0, how, wait, 250, end, 2}));
        }
    all.push_back(text({come, 5, greet, 6, 5, 8, 4, 0, 3, come, 6, greet, 6, 5, 8, 4, 0, 3, end, 4, wait, 250}));
    all.push_back(text({come, 5, greet_raw}) + raw(good_hello()) + text({3}));
    const std::string joined = text({meet, 6, 0, challenge, 1}) + std::string(40, 'r') + text({welcome, 1, 0, 3, 4, 4});
    all.push_back(joined + text({tell, 40, 1, 3}) + "abc" + text({tell, 24, tell, 8, tell, 64, tell, 2}));
    all.push_back(joined + text({tell, 12, tell, 12, tell, 12, tell, 12, tell, 32, 4, 0, tell, 32, 8, 0}));
    all.push_back(joined + text({tell, 61}) + std::string(61, '\1') + text({0, 2, 'a', 'b'}));
    for (int status = 0; status < 9; ++status)
        all.push_back(text({meet, 6, 1, challenge, 1}) + std::string(40, 'r') + text({welcome, 0, status, 3, 4, 4}));
    for (const int how : {0, 1, 3}) all.push_back(text({meet, 6, 0, challenge, how}) + std::string(40, 'r'));
    return all;
}

}  // namespace

Target hello_target() { return {"hello", run, seeds}; }

}  // namespace orrery::fuzz

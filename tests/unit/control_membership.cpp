#include <catch2/catch.hpp>
#include <cstring>

#include "control/strangers.h"
#include "control/wire.h"
#include "control_world.h"
#include "orrery/error.h"

using namespace orrery;
using Catch::Matchers::Contains;
using std::chrono::milliseconds;
using test::Ending;
using test::Trouble;
using test::World;

namespace {

/// What all are told of this trouble; the first such loss is the one that counts.
const char* words_of(Trouble trouble) {
    switch (trouble) {
        case Trouble::silent:
        case Trouble::mute: return "is silent for";
        case Trouble::fails: return "failed: no space left on the disk";
        case Trouble::told_gone: return "was killed by signal 9";
        case Trouble::forged: return "made a protocol error";
        case Trouble::repeated: return "made a protocol error (MAC mismatch in frame";
        default: return "died";
    }
}

/// "" when all is as it must be.
std::string problem_of(const World& world, Trouble trouble) {
    std::string told;
    for (size_t rank = 0; rank < world.endings.size(); ++rank) {
        const Ending& end = world.endings[rank];
        const std::string who = "rank " + std::to_string(rank) + ": ";
        if (!end.wrong.empty()) return who + "wrong: " + end.wrong;
        if (trouble == Trouble::none && !end.done) return who + "is not done: " + end.lost + end.absent;
        if (static_cast<int64_t>(rank) == world.victim && trouble != Trouble::none) continue;
        if (!end.done && end.lost.empty() && end.absent.empty()) return who + "waits for ever";
        if (!end.absent.empty() && world.victim_was_in) return who + "was not told: " + end.absent;
        if (!end.absent.empty() && end.absent.find(std::to_string(world.victim)) == std::string::npos)
            return who + "was told that others are absent: " + end.absent;
        if (end.lost.empty()) continue;
        if (told.empty()) told = end.lost;
        if (end.lost != told) return who + "was told '" + end.lost + "', another one '" + told + "'";
        // Who is deaf before it has learnt that it is in is silent; later it gives up itself.
        const bool deaf = trouble == Trouble::deaf && told.find("is silent for") != std::string::npos;
        if (!deaf && told.find(words_of(trouble)) == std::string::npos) return who + "was told " + told;
        if (told.find("rank " + std::to_string(world.victim)) != 0) return who + "another rank is blamed: " + told;
        const LinkTime bound = trouble == Trouble::deaf ? 2 * World::silence : World::silence;
        if (end.lost_at > world.trouble_at + bound + milliseconds(1000)) return who + "was told late";
    }
    if (world.most_strangers > Strangers::most) return "strangers: " + std::to_string(world.most_strangers);
    return world.over ? "" : "the service does not end";
}

/// What a launcher tells of rank 0, of no process.
Loss lost(const std::string& how) { return {.cause = Cause::process, .rank = 0, .text = how}; }

/// A service with one member that has joined, and what goes between them by hand.
struct Pair {
    explicit Pair(const std::string& secret = "secret") {
        const auto random = [this](size_t bytes) { return std::string(bytes, static_cast<char>('a' + drawn++)); };
        ServeOptions serving;
        serving.world = 2;
        serving.token = {secret, "job", 0};
        service.emplace(serving, LinkHost{"n1", 1, random, [](int64_t) { return std::string("is running"); }});
        JoinOptions joining;
        joining.rank = 1;
        joining.token = serving.token;
        member.emplace(joining, LinkHost{"n2", 7, random, {}});
        service->opened(1, "10.0.0.2", now);
        member->opened(now);
        for (int i = 0; i < 3; ++i) {  // hello, the question whether it is in, nothing more
            pass();
            service->received(1, member->output(), now);
        }
    }
    void pass() {
        for (const LinkAction& action : service->actions()) {
            if (action.connection == 1 && !action.bytes.empty()) member->received(action.bytes, now);
            if (action.connection == 1 && action.close) closed = true;
        }
    }

    int drawn = 0;
    LinkTime now{0};
    bool closed = false;
    std::optional<Membership> service;
    std::optional<MemberLink> member;
};

}  // namespace

TEST_CASE("a rendezvous in virtual time: delay, cuts, silence, forgery and strangers, by seed", "[control][slow]") {
    constexpr uint64_t seeds = 3000;
    constexpr Trouble troubles[] = {Trouble::none,      Trouble::killed, Trouble::silent,
                                    Trouble::deaf,      Trouble::mute,   Trouble::fails,
                                    Trouble::told_gone, Trouble::forged, Trouble::repeated};
    int64_t lost = 0, absent = 0, done = 0;
    for (uint64_t seed = 0; seed < seeds; ++seed) {
        const Trouble trouble = troubles[seed % std::size(troubles)];
        World world(seed, 2 + static_cast<int64_t>(seed % 7), trouble,
                    seed % 5 == 0 ? 120 : static_cast<int>(seed % 4));
        world.run();
        if (const std::string problem = problem_of(world, trouble); !problem.empty())
            FAIL_CHECK("seed " << seed << " (" << words_of(trouble) << "): " << problem);
        for (const Ending& end : world.endings) {
            lost += !end.lost.empty();
            absent += !end.absent.empty();
            done += end.done;
        }
    }
    // The seeds reach what they are there for.
    CHECK(lost > 1000);
    CHECK(absent > 100);
    CHECK(done > 3000);
}

TEST_CASE("a world of one seed is the same again", "[control]") {
    World first(77, 5, Trouble::killed, 20), second(77, 5, Trouble::killed, 20);
    first.run();
    second.run();
    CHECK(first.frames > 0);
    CHECK(first.frames == second.frames);
    for (size_t rank = 0; rank < 5; ++rank) {
        CHECK(first.endings[rank].lost == second.endings[rank].lost);
        CHECK(first.endings[rank].lost_at == second.endings[rank].lost_at);
    }
}

TEST_CASE("a job that was suspended as a whole resumes; a member that is silent is lost", "[control]") {
    Pair pair;
    const auto tick = [&] {
        pair.service->tick(pair.now);
        pair.member->tick(pair.now, "");
        pair.service->received(1, pair.member->output(), pair.now);
        pair.pass();
    };
    tick();
    pair.now += std::chrono::minutes(1);  // longer than the silence of 10 s
    tick();
    CHECK_FALSE(pair.closed);
    CHECK_FALSE(static_cast<bool>(pair.member->loss()));
    for (int i = 0; i < 90; ++i, pair.now += milliseconds(100)) pair.service->tick(pair.now);
    CHECK_FALSE(static_cast<bool>(pair.service->loss()));
    for (int i = 0; i < 20; ++i, pair.now += milliseconds(100)) pair.service->tick(pair.now);
    CHECK_THAT(pair.service->loss().text.shown(), Contains("is silent for"));
}

TEST_CASE("frames carry a MAC of the job's secret, both nonces, direction and number", "[control]") {
    const JobToken token{"secret", "job", 1};
    wire::Nonce a{}, b{};
    b[0] = 1;
    using wire::End;
    using wire::Frame;
    using wire::Kind;
    wire::Seal sends(token, End::member, a, b);
    const std::string first = sends.seal({Kind::set, 7, "key", "value"}),
                      second = sends.seal({Kind::get, 8, "key", ""});
    const auto opens = [&](const std::string& bytes, End from, const JobToken& by, const wire::Nonce& service) {
        wire::Seal seal(by, from, service, b);
        size_t at = 0;
        return seal.open(bytes, at).has_value();
    };
    CHECK(opens(first, End::member, token, a));
    CHECK_THROWS_WITH(opens(first, End::service, token, a), Contains("MAC"));                      // sent back
    CHECK_THROWS_WITH(opens(first, End::member, {"other", "job", 1}, a), Contains("MAC"));         // another secret
    CHECK_THROWS_WITH(opens(first, End::member, {"secret", "job", 2}, a), Contains("MAC"));        // another generation
    CHECK_THROWS_WITH(opens(first, End::member, {"secret", "another", 1}, a), Contains("MAC"));    // another job
    CHECK_THROWS_WITH(opens(first, End::member, token, b), Contains("MAC"));                       // another connection
    CHECK_THROWS_WITH(opens(second, End::member, token, a), Contains("MAC mismatch in frame 0"));  // one is left out
    wire::Seal takes(token, End::member, a, b);
    size_t at = 0;
    const std::string twice = first + first;
    const auto frame = takes.open(twice, at);
    REQUIRE(frame);
    CHECK((frame->kind == Kind::set && frame->id == 7 && frame->key == "key" && frame->value == "value"));
    CHECK_THROWS_WITH(takes.open(twice, at), Contains("MAC mismatch in frame 1"));  // sent again
    for (size_t bit = 0; bit < first.size() * 8; ++bit) {                           // every bit counts
        std::string changed = first;
        changed[bit / 8] ^= static_cast<char>(1 << bit % 8);
        bool taken = false;
        try {
            taken = opens(changed, End::member, token, a);  // of a larger size it is not complete
        } catch (const Error&) {
        }
        if (taken) FAIL_CHECK("bit " << bit);
    }
}

TEST_CASE("frames are bounded and checked", "[control]") {
    const JobToken token{"secret", "job", 1};
    wire::Seal seal(token, wire::End::member, {}, {}), same(token, wire::End::member, {}, {});
    const std::string good = seal.seal({wire::Kind::set, 7, "key", "value"});
    size_t at = 0;
    CHECK(!same.open(good.substr(0, good.size() - 1), at));
    CHECK(at == 0);
    CHECK_THROWS_WITH(same.open("\xff\xff\xff\x7fx", at), Contains("invalid size"));  // before it is complete
    std::string body = wire::encode({wire::Kind::set, 0, "key", ""});
    CHECK(wire::parse(body).key == "key");
    body[9] = 100;  // a key longer than the frame
    CHECK_THROWS_WITH(wire::parse(body), Contains("key of an invalid size"));
    CHECK_THROWS_WITH(wire::parse(wire::encode({static_cast<wire::Kind>(99), 0, "", ""})), Contains("unknown kind"));
    CHECK_THROWS_AS(wire::parse("short"), Error);
}

TEST_CASE("a frame that is not the member's ends its connection and is named, a stranger's ends nothing", "[control]") {
    Pair pair;
    REQUIRE(pair.member->joined());
    pair.member->request("set", "key", "value");
    std::string bytes = pair.member->output();
    SECTION("a changed byte on the way") {
        bytes[20] ^= 1;
        pair.service->received(1, bytes, pair.now);
        pair.pass();
        CHECK(pair.closed);
        pair.service->opened(2, "10.0.0.3", pair.now);
        CHECK_FALSE(pair.service->gone(lost("never mind")));  // the first loss is the one that counts
        World next(5, 2, Trouble::none, 0);
        next.run();
        CHECK(next.endings[0].done);
    }
    SECTION("a stranger who sends the member's own bytes") {
        pair.service->opened(2, "10.0.0.3", pair.now);
        pair.service->received(2, std::string(400, 'x') + bytes, pair.now);
        pair.pass();
        CHECK_FALSE(pair.closed);
        pair.service->received(1, bytes, pair.now);
        const uint64_t number = pair.member->request("get", "key", "");
        pair.service->received(1, pair.member->output(), pair.now);
        pair.pass();
        CHECK(pair.member->answer(number) == std::optional<std::string>("value"));
        CHECK(pair.member->loss().text.empty());
    }
    SECTION("the service's frame, changed") {
        pair.member->request("get", "key", "");
        pair.service->received(1, bytes + pair.member->output(), pair.now);
        for (const LinkAction& action : pair.service->actions()) {
            std::string changed = action.bytes;
            changed.back() ^= 1;
            pair.member->received(changed, pair.now);
        }
        CHECK(pair.member->over());
        CHECK_THAT(pair.member->loss().text.shown(),
                   Contains("protocol error of the launcher") && Contains("MAC mismatch in frame 1"));
    }
}

namespace {

std::string always_r(size_t bytes) { return std::string(bytes, 'r'); }

/// The bytes that the service sends next over that connection.
std::string sent_over(Membership& service, uint64_t connection) {
    std::string bytes;
    for (const LinkAction& action : service.actions())
        if (action.connection == connection) bytes += action.bytes;
    return bytes;
}

}  // namespace

TEST_CASE("a bit of a hello or a challenge that was flipped on the way refuses nobody for good", "[control]") {
    const LinkTime now{0};
    ServeOptions serving;
    serving.world = 2;
    JoinOptions joining;
    joining.rank = 1;
    const bool of_challenge = GENERATE(false, true);
    Membership service(serving, LinkHost{"n1", 1, always_r, {}});
    MemberLink member(joining, LinkHost{"n2", 7, always_r, {}});
    const auto said = [&](uint64_t connection) { return sent_over(service, connection); };
    const auto flipped = [](std::string bytes, bool flips) {
        if (flips) bytes[bytes.size() / 2] ^= 4;
        return bytes;
    };
    for (const uint64_t connection : {1, 2}) {
        CHECK_FALSE(member.joined());
        service.opened(connection, "10.0.0.2", now);
        member.opened(now);
        member.received(flipped(said(connection), connection == 1 && of_challenge), now);
        service.received(connection, flipped(member.output(), connection == 1 && !of_challenge), now);
        member.received(said(connection), now);
        service.received(connection, member.output(), now);
        member.received(said(connection), now);
    }
    CHECK(member.joined());
}

TEST_CASE("who does not know yet that it has joined comes again", "[control]") {
    const LinkTime now{0};
    ServeOptions serving;
    serving.world = 2;
    JoinOptions joining;
    joining.rank = 1;
    Membership service(serving, LinkHost{"n1", 1, always_r, [](int64_t) { return std::string("is running"); }});
    MemberLink member(joining, LinkHost{"n2", 7, always_r, {}});
    const auto said = [&](uint64_t connection) { return sent_over(service, connection); };
    // Up to `answers` of the service reach the member on that connection: challenge, welcome, and that it is in.
    const auto meet = [&](uint64_t connection, int answers) {
        service.opened(connection, "10.0.0.2", now);
        member.opened(now);
        for (int i = 0; i < answers; ++i) {
            member.received(said(connection), now);
            service.received(connection, member.output(), now);
        }
    };
    const int lost_behind = GENERATE(1, 2);  // the welcome, the answer to its first frame
    meet(1, lost_behind);
    CHECK_FALSE(member.joined());
    CHECK_FALSE(service.joined(1));
    const bool seen = GENERATE(false, true);  // a connection that is half open is not seen to end
    if (seen) service.closed(1, now);
    if (!seen) {  // another process is no reason to give the place away
        MemberLink other(joining, LinkHost{"n2", 8, always_r, {}});
        const auto refused_on = [&](uint64_t connection) {
            service.opened(connection, "10.0.0.2", now);
            other.opened(now);
            other.received(said(connection), now);
            service.received(connection, other.output(), now);
            other.received(said(connection), now);
        };
        refused_on(3);
        CHECK_FALSE(other.joined());  // a refusal is believed when it is said twice
        CHECK_THROWS_WITH(refused_on(4), Contains("another process already is rank 1: process 7 on host n2"));
    }
    meet(2, 3);
    CHECK(member.joined());
    const uint64_t absent = member.request("absent", "", "");
    service.received(2, member.output(), now);
    CHECK(service.joined(1));
    member.received(said(2), now);
    CHECK(member.answer(absent) == std::optional<std::string>("1 of 2 ranks have not joined: 0"));
    CHECK(member.loss().text.empty());
    service.closed(2, now);  // now it is a loss
    CHECK_FALSE(service.gone(lost("never mind")));
    meet(4, 3);
    CHECK_THAT(member.loss().text.shown(), Contains("rank 1 (pid 7 on host n2) died"));
}

TEST_CASE("what is no welcome is refused, and a member that is dropped learns why", "[control]") {
    Pair pair;
    pair.member->request("set", "key", "value");
    std::string bytes = pair.member->output();
    bytes[20] ^= 1;
    pair.service->received(1, bytes, pair.now);
    pair.pass();
    CHECK_THAT(pair.member->loss().text.shown(),
               Contains("rank 1 (pid 7 on host n2) made a protocol error (MAC mismatch in frame 1"));

    MemberLink member(JoinOptions{}, LinkHost{"n2", 7, [](size_t bytes) { return std::string(bytes, 'r'); }, {}});
    member.opened(LinkTime(0));
    wire::Challenge challenge{};
    std::memcpy(challenge.magic, wire::magic, 8);
    challenge.nonce.fill('n');
    const std::string once(reinterpret_cast<const char*>(&challenge), sizeof challenge);
    CHECK_THROWS_WITH(member.received(once + once + once + once + once + once, LinkTime(0)),
                      Contains("sent an invalid handshake"));
}

TEST_CASE("a sum of counts beyond 64 bits ends the connection of who asks for it", "[control]") {
    Pair pair;
    const auto count = [&](const char* more) {
        const uint64_t asked = pair.member->request("count", "sum", more);
        pair.service->received(1, pair.member->output(), pair.now);
        pair.pass();
        return pair.member->answer(asked);
    };
    CHECK(count("9223372036854775806") == "9223372036854775806");
    CHECK(count("1") == "9223372036854775807");
    CHECK(!count("1"));
    CHECK(pair.closed);
}

TEST_CASE("a service of another version is refused by name", "[control]") {
    JoinOptions joining;
    MemberLink member(joining, LinkHost{"n2", 7, [](size_t bytes) { return std::string(bytes, 'r'); }, {}});
    wire::Challenge challenge{};
    member.opened(LinkTime(0));
    std::memcpy(challenge.magic, "orrery2\n", 8);
    const std::string_view bytes(reinterpret_cast<const char*>(&challenge), sizeof challenge);
    CHECK_THROWS_WITH(member.received(bytes, LinkTime(0)),
                      Contains("speaks version 2 of its protocol, this process version 4") && Contains("one build"));
    member.opened(LinkTime(0));
    CHECK_THROWS_WITH(member.received(std::string(sizeof challenge, 'H'), LinkTime(0)),
                      Contains("not an Orrery rendezvous"));
}

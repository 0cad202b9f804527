// What members send each other before anything else: a connection that carries small messages alone is told from one
// that carries none.
#include <catch2/catch.hpp>
#include <map>

#include "orrery/p2p.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

/// Passes messages of up to so many bytes to each member.
class Narrow : public P2pCommunicator {
public:
    explicit Narrow(std::vector<int64_t> widest)
        : P2pCommunicator(group(widest), 64 << 10), widest_(std::move(widest)) {}
    bool done(uint64_t) override { return true; }
    void abort(std::string_view) override {}

    int64_t started = 0;

protected:
    uint64_t start_send(int peer, const void*, int64_t bytes, uint64_t) override { return start(peer, bytes); }
    uint64_t start_receive(int peer, void*, int64_t bytes, uint64_t) override { return start(peer, bytes); }
    void finish(uint64_t ticket) override {
        const auto [peer, bytes] = under_way_.at(ticket);
        if (bytes > widest_[static_cast<size_t>(peer)])
            throw Error(what() + ": " + rank_text(peer) + " is late", Fault::peer);
    }

private:
    static Group group(const std::vector<int64_t>& widest) {
        Group all{"dp/0", "dp", {}, 0};
        for (size_t i = 0; i < widest.size(); ++i) all.ranks.push_back(static_cast<int64_t>(10 + i));
        return all;
    }
    uint64_t start(int peer, int64_t bytes) {
        under_way_[static_cast<uint64_t>(++started)] = {peer, bytes};
        return static_cast<uint64_t>(started);
    }

    const std::vector<int64_t> widest_;
    std::map<uint64_t, std::pair<int, int64_t>> under_way_;
};

}  // namespace

TEST_CASE("a greeting names the pair, and the size that does not pass") {
    constexpr int64_t wide = 1 << 20;
    Narrow good({0, wide, wide});
    good.greet("some");
    CHECK(good.started == 2 * 2 * 7);
    CHECK(good.traffic().messages == 0);
    Narrow none({0, wide, 0, wide});
    CHECK_THROWS_WITH(
        none.greet("some"),
        Contains("transport some: the connection check") && Contains("rank 12 is late") &&
            Contains("between rank 10 and rank 12, 0 of 97344 test bytes arrived: the connection carries no"));
    CHECK(none.started == 2 * 3 * 7);  // the others were greeted, too
    Narrow small({0, wide, 1400});
    CHECK_THROWS_WITH(small.greet("some"),
                      Contains("1088 of 97344 test bytes arrived: messages of 1024 bytes arrive, one "
                               "of 2048 bytes does not") &&
                          Contains("MTU"));
    Narrow jumbo({0, 9000});
    CHECK_THROWS_WITH(jumbo.greet("some"), Contains("messages of 8192 bytes arrive, one of 16384 bytes does not"));
}

// The text of a failure decides nothing: jobs that fail in the same way, in other words, end the same.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <concepts>
#include <functional>
#include <random>
#include <string>

#include "cli/supervise/agents.h"
#include "cli/supervise/verdict.h"
#include "control/loss.h"
#include "control/supervisor.h"
#include "control/wire.h"

using namespace orrery;

namespace {

static_assert(!std::equality_comparable<Message> && !std::totally_ordered<Message>);
static_assert(!std::convertible_to<Message, std::string> && !std::convertible_to<Message, std::string_view>);

using Text = std::function<std::string()>;

/// A text of words that once were read: names of ranks, ports, generations, causes, other languages.
std::string made_up(std::mt19937& random) {
    static const char* const words[] = {"rank 3",
                                        "[rank 7] ",
                                        "failed: ",
                                        "the launcher of node 0 (pid 7 on host n0) failed: ",
                                        "node 1 ",
                                        "(pid 4242 on host n2)",
                                        ":34265",
                                        "is silent for 10.2 s",
                                        ".g2.partial",
                                        "stopped by a signal with nothing to save",
                                        "was killed by signal 9 (Killed)",
                                        "kein Platz auf dem Gerät",
                                        "空きがありません",
                                        "место закончилось",
                                        "\xff\xfe",
                                        "\n",
                                        " ",
                                        "dp:S(0)",
                                        "where the time went",
                                        "exit code 75",
                                        "mistake",
                                        "done"};
    std::string text;
    for (uint32_t length = random() % 12; length > 0; --length)
        text += random() % 3 == 0 ? std::to_string(random()) : words[random() % std::size(words)];
    return text;
}

/// All of it but its text.
std::string fields_of(Loss loss) {
    loss.text = {};
    return encode(loss);
}

/// One job, drawn from a seed: what was decided of it, without what was said.
class Story {
public:
    Story(uint32_t seed, const Text& text) : random_(seed), text_(text) {}

    std::string play() {
        const Supervisor::Options options{.restarts = pick(0, 3), .nodes = pick(1, 2), .spares = pick(0, 1)};
        Supervisor job(options, 0);
        double now = 0;
        const auto meet = [&] {
            for (int64_t node = 0; node < options.nodes + options.spares; ++node) {
                if (chance(6)) take(job.failed_start(node, carried(told()), now));
                take(job.came(node, now));
                for (int check = 0; check < 2; ++check)
                    take(job.checked(node, chance(5) ? Fitness::wrong : Fitness::fit, text_(), now));
            }
        };
        for (int round = 0; round < 4 && !job.over(); ++round, now += 60) {
            meet();
            take(job.tick(now + 40));
            if (chance(8)) take(job.stop(75, text_(), now));
            if (options.nodes > 1 && chance(4)) take(job.lost(1, text_(), now));
            for (int64_t node = 0; node < options.nodes; ++node) end(job, node, now + 50);
            if (chance(3)) take(job.step_done(job.best_step() + 1));
        }
        return record_;
    }

private:
    int64_t pick(int64_t least, int64_t most) {
        return least + static_cast<int64_t>(random_() % static_cast<uint32_t>(most - least + 1));
    }
    bool chance(uint32_t one_in) { return random_() % one_in == 0; }

    Loss told() {
        static const char* const sites[] = {"", "save", "loss", "step"};
        Loss loss{.cause = static_cast<Cause>(pick(1, static_cast<int64_t>(Cause::node))),
                  .rank = pick(-1, 2),
                  .node = pick(-1, 1),
                  .code = static_cast<int>(pick(1, 3)),
                  .site = sites[pick(0, 3)],
                  .hearsay = chance(2)};
        loss.text = text_();
        return loss;
    }

    /// Over the wire, between launchers and on a board.
    static Loss carried(const Loss& loss) {
        return decode_loss(encode(loss_of(to_json(wire::loss_of(wire::frame_of(wire::Kind::fail, loss, "run"))))));
    }

    void end(Supervisor& job, int64_t node, double now) {
        static const int codes[] = {0, 1, 1, 1, 2, 75, 130};
        std::vector<RankEnd> ends;
        for (int64_t rank = 0; rank < 2; ++rank) {
            RankEnd end{rank, 100};
            end.code = codes[pick(0, 6)];
            end.signal = chance(8) ? 9 : 0;
            end.late = chance(8);
            end.state = chance(2) ? 'T' : 'D';
            end.done = end.code == 0 && !chance(4);
            if (!chance(3)) end.told = carried(told());
            ends.push_back(end);
        }
        const Loss how = verdict(ends, pick(0, 2), static_cast<int>(pick(1, 2)), chance(4));
        record_ += fmt::format("{} {} {}\n", fields_of(how), subject_of(how), same_failure(last_, how));
        last_ = how;
        record_ += fmt::format("{}\n", ended_by_node_0(how));
        take(job.ended(node, how ? carried(how) : how, now));
    }

    void take(const Supervisor::Orders& orders) {
        for (const Order& order : orders)
            record_ += fmt::format("{} {} {} {} {}\n", static_cast<int>(order.kind), order.node, order.generation,
                                   order.nodes.size(), order.code);
    }

    std::mt19937 random_;
    const Text& text_;
    Loss last_;
    std::string record_;
};

}  // namespace

TEST_CASE("20,000 made-up failure texts change no verdict", "[control][supervise]") {
    std::mt19937 random(1);
    int64_t texts = 0;
    const Text plain = [] { return std::string("it failed"); };
    const Text any = [&] {
        ++texts;
        return made_up(random);
    };
    std::set<std::string> stories;
    for (uint32_t seed = 0; seed < 4000; ++seed) {
        const std::string expected = Story(seed, plain).play();
        stories.insert(expected);
        if (Story(seed, any).play() != expected) FAIL("seed " << seed << ":\n" << expected);
    }
    CHECK(texts > 20'000);
    CHECK(stories.size() > 1000);
}

#include "run/preflight/pair_checks.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/seconds.h"
#include "orrery/error.h"
#include "run/preflight/outliers.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t least_bytes = 64 << 10;
constexpr size_t numbers = 6;  ///< number of figures that the lower rank of a pair measures

/// Requests that the lower rank of a pair sends to the other.
enum class Ask : int64_t { ping, there, back, both, look, end };

/// Measures one rank's side of a pair. The lower rank sends requests, the other serves them.
class PairCheck {
public:
    PairCheck(TrialLine& line, int peer, const PairCheckOptions& options)
        : line_(line), peer_(peer), options_(options) {}

    PairFigures lead() {
        PairFigures pair;
        pair.latency_s = pings();
        const int64_t bytes = pair.message_bytes = grown(pair.latency_s);
        const auto rate = [&](Ask ask, double times) {
            std::vector<double> rates;
            for (int i = 0; i < options_.repeats; ++i)
                rates.push_back(times * static_cast<double>(bytes) / message(ask, bytes, pair.latency_s));
            return median(std::move(rates));
        };
        pair.there_bytes = rate(Ask::there, 1);
        pair.back_bytes = rate(Ask::back, 1);
        pair.both_bytes = rate(Ask::both, 2);
        pair.wrong_bytes = look(bytes);
        ask(Ask::end, 0);
        return pair;
    }

    void follow() {
        for (;;) {
            const std::vector<int64_t> asked = line_.hear(peer_, 2);
            const int64_t amount = asked[1];
            switch (static_cast<Ask>(asked[0])) {
                case Ask::end: return;
                case Ask::ping:
                    for (int64_t i = 0; i < amount; ++i) {
                        receive(8);
                        send(8).wait();
                    }
                    break;
                case Ask::there:
                    ready();
                    receive(amount);
                    ready();
                    break;
                case Ask::back: send(amount).wait(); break;
                case Ask::both:
                    ready();
                    exchange(amount);
                    ready();
                    break;
                case Ask::look:
                    line_.forget_received(amount);
                    ready();
                    exchange(amount);
                    line_.tell(peer_, std::vector<int64_t>{line_.wrong_bytes(amount, peer_)});
                    break;
                default: throw Error("preflight: protocol error: unknown request of another rank", Fault::peer);
            }
        }
    }

private:
    void ask(Ask what, int64_t amount) { line_.tell(peer_, std::vector<int64_t>{static_cast<int64_t>(what), amount}); }
    void ready() { line_.tell(peer_, std::vector<int64_t>{1}); }
    void hear_ready() { line_.hear(peer_, 1); }

    Event send(int64_t bytes) {
        return line_.communicator().send({line_.out(), DType::u8, {bytes}}, peer_, TrialLine::tag);
    }
    void receive(int64_t bytes) {
        line_.communicator().receive({line_.in(), DType::u8, {bytes}}, peer_, TrialLine::tag).wait();
    }
    void exchange(int64_t bytes) {
        line_.communicator().begin_group();
        const Event sent = send(bytes);
        const Event got = line_.communicator().receive({line_.in(), DType::u8, {bytes}}, peer_, TrialLine::tag);
        line_.communicator().end_group();
        got.wait();
        sent.wait();
    }

    /// Half of a round trip, in seconds. Takes the first quartile of all pings but the first one, since the median
    /// could include waits in which a rank sleeps.
    double pings() {
        ask(Ask::ping, options_.pings + 1);
        std::vector<double> seconds;
        for (int i = 0; i <= options_.pings; ++i) {
            const auto begin = Clock::now();
            send(8).wait();
            receive(8);
            if (i > 0) seconds.push_back(seconds_since(begin) / 2);
        }
        const auto quarter = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 4);
        std::nth_element(seconds.begin(), quarter, seconds.end());
        return *quarter;
    }

    /// Seconds of one message, or of two in opposite directions at once, without the time of the acknowledgement.
    double message(Ask what, int64_t bytes, double latency) {
        ask(what, bytes);
        if (what != Ask::back) hear_ready();
        const auto begin = Clock::now();
        if (what == Ask::there) send(bytes).wait();
        if (what == Ask::back) receive(bytes);
        if (what == Ask::both) exchange(bytes);
        if (what != Ask::back) hear_ready();
        const double seconds = seconds_since(begin);
        return std::max(seconds - latency, seconds / 2);  // the acknowledgement may have been faster than `latency`
    }

    /// Returns a message size, doubled until a message takes about as long as requested.
    int64_t grown(double latency) {
        for (int64_t bytes = std::min(least_bytes, line_.most_bytes());;) {
            const double seconds = message(Ask::there, bytes, latency);
            if (seconds >= options_.message_s / 2 || bytes >= line_.most_bytes()) return bytes;
            const double times = std::clamp(options_.message_s / seconds, 2.0, 8.0);
            bytes = std::min(line_.most_bytes(), static_cast<int64_t>(static_cast<double>(bytes) * times) / 256 * 256);
        }
    }

    int64_t look(int64_t bytes) {
        ask(Ask::look, bytes);
        line_.forget_received(bytes);
        hear_ready();
        exchange(bytes);
        const int64_t here = line_.wrong_bytes(bytes, peer_);
        return here + line_.hear(peer_, 1)[0];
    }

    TrialLine& line_;
    const int peer_;
    const PairCheckOptions& options_;
};

PairFigures read_pair(const double* from, int64_t a, int64_t b, bool one_node) {
    return {a,
            b,
            one_node,
            from[0],
            from[1],
            from[2],
            from[3],
            static_cast<int64_t>(from[4]),
            static_cast<int64_t>(from[5])};
}

}  // namespace

std::vector<PairFigures> check_pairs(TrialLine& line, Exchange& ranks, const std::vector<int64_t>& node_of,
                                     const std::vector<PairRound>& rounds, const PairCheckOptions& options) {
    line.fill_pattern();
    const auto begin = Clock::now();
    std::vector<double> mine;
    size_t done = 0;
    double last_s = 0;
    for (; done < rounds.size(); ++done) {
        // Rank 0's clock decides for all if a round begins. A rank that arrives here has finished the last round.
        if (line.greatest(line.me() == 0 && seconds_since(begin) > options.limit_s ? 1 : 0) > 0) break;
        const auto round_begin = Clock::now();
        PairFigures pair;
        bool takes_part = false;
        for (const auto& [a, b] : rounds[done].pairs) {
            if (a == line.me()) pair = PairCheck(line, static_cast<int>(b), options).lead();
            if (b == line.me()) PairCheck(line, static_cast<int>(a), options).follow();
            takes_part = takes_part || a == line.me() || b == line.me();
        }
        for (const double number : {pair.latency_s, pair.there_bytes, pair.back_bytes, pair.both_bytes,
                                    static_cast<double>(pair.message_bytes), static_cast<double>(pair.wrong_bytes)})
            mine.push_back(number);
        // A rank without a pair sleeps, since a spinning wait would take a processor from the ranks that measure.
        if (!takes_part) std::this_thread::sleep_for(std::chrono::duration<double>(std::min(last_s / 2, 0.2)));
        line.meet();
        last_s = seconds_since(round_begin);
    }
    const std::vector<double> all = numbers_of_all(ranks, mine);
    std::vector<PairFigures> pairs;
    for (size_t round = 0; round < done; ++round)
        for (const auto& [a, b] : rounds[round].pairs) {
            const double* from = all.data() + (static_cast<size_t>(a) * done + round) * numbers;
            pairs.push_back(read_pair(from, a, b, node_of[static_cast<size_t>(a)] == node_of[static_cast<size_t>(b)]));
        }
    return pairs;
}

}  // namespace orrery

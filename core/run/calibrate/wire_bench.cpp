#include "run/calibrate/wire_bench.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>

#include "base/seconds.h"
#include "base/text.h"
#include "orrery/p2p.h"
#include "run/calibrate/kernel_bench.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int blocks = 7;
constexpr int64_t most_calls = 2000;  // max calls of a collective in one timed block
constexpr const char* operations[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "message"};

/// Processor seconds of this member: of its process with all threads, since a transport may have threads, or of its
/// thread.
double processor_seconds(bool threads) {
    rusage usage{};
    getrusage(threads ? RUSAGE_THREAD : RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Returns the number of f32 elements in `bytes` bytes, rounded down to a multiple of the number of members.
int64_t counted(int64_t bytes, int64_t ranks) {
    return std::max<int64_t>(ranks, bytes / size_of(DType::f32) / ranks * ranks);
}

class Rows {
public:
    Rows(Communicator& communicator, Rendezvous& rendezvous, const Memory& arena, const WireBench& how)
        : comm_(communicator),
          rendezvous_(rendezvous),
          how_(how),
          ranks_(communicator.group().size()),
          me_(communicator.group().me),
          first_(static_cast<char*>(arena.data)),
          second_(first_ + wire_bytes(how, communicator.group().size()) / 2) {}

    WireCost row(const std::string& op, int64_t bytes, double seconds) {
        const int64_t count = counted(bytes, ranks_);
        const Timed once = timed(op, count, 1);
        const double call = std::max(agreed(once.seconds), 1e-7);
        const auto calls = std::clamp<int64_t>(static_cast<int64_t>(seconds / blocks / call), 1, most_calls);
        Timed all;
        std::vector<double> mine;
        for (int block = 0; block < blocks; ++block) {
            const Timed now = timed(op, count, calls);
            mine.push_back(now.seconds);
            all.processor_s += now.processor_s;
        }
        return gathered(op, count, calls, mine, all.processor_s / blocks);
    }

private:
    struct Timed {
        double seconds = 0, processor_s = 0;
    };

    /// Times consecutive calls after one that synchronizes the members. Ranks that take no part in a message sleep at
    /// the rendezvous.
    Timed timed(const std::string& op, int64_t count, int64_t calls) {
        if (op == "message" && me_ > 1) return {};
        call(op == "message" ? op : "all_reduce", ranks_);
        const double processor = processor_seconds(how_.threads);
        const auto begin = Clock::now();
        for (int64_t i = 0; i < calls; ++i) call(op, count);
        const double all = seconds_since(begin), n = static_cast<double>(calls);
        Timed now{all / n, (processor_seconds(how_.threads) - processor) / n};
        if (op == "message") now = {now.seconds / 2, now.processor_s / 2};
        return now;
    }

    void call(const std::string& op, int64_t count) {
        const Tensor whole{first_, DType::f32, {count}}, other{second_, DType::f32, {count}};
        const Tensor share{second_, DType::f32, {count / ranks_}};
        if (op == "all_reduce") return comm_.all_reduce(whole, other, ReduceOp::max).wait();
        if (op == "all_gather") return comm_.all_gather(share, whole).wait();
        if (op == "reduce_scatter") return comm_.reduce_scatter(whole, share, ReduceOp::max).wait();
        if (op == "all_to_all") return comm_.all_to_all(whole, other).wait();
        const auto send = [&] { return comm_.send(whole, 1 - me_, 0); };
        const auto receive = [&] { comm_.receive(other, 1 - me_, 0).wait(); };
        if (me_ == 1) receive();
        const Event sent = send();
        if (me_ == 0) receive();
        sent.wait();
    }

    double agreed(double mine) {
        double most = 0;
        for (const std::string& text : exchange(fmt::format("{}", mine))) most = std::max(most, std::stod(text));
        return most;
    }

    std::vector<std::string> exchange(const std::string& mine) {
        return orrery::exchange(comm_.group(), rendezvous_, fmt::format("wires/{}", ++rounds_), mine, how_.limit);
    }

    WireCost gathered(const std::string& op, int64_t count, int64_t calls, const std::vector<double>& mine,
                      double processor_s) {
        std::string text = fmt::format("{}", processor_s);
        for (const double seconds : mine) text += fmt::format(" {}", seconds);
        const std::vector<std::string> all = exchange(text);
        const auto taking_part = static_cast<size_t>(op == "message" ? std::min<int64_t>(2, ranks_) : ranks_);
        std::vector<double> seconds(blocks, 0);
        double processors = 0;
        for (size_t member = 0; member < taking_part; ++member) {
            const std::vector<std::string> parts = split(all[member], ' ');
            const double share = 1 / static_cast<double>(taking_part);
            processors += std::stod(parts.at(0)) * share;
            for (size_t block = 0; block < seconds.size(); ++block)
                seconds[block] += std::stod(parts.at(block + 1)) * share;
        }
        WireCost row{how_.transport, op, op == "message" ? 2 : ranks_, count * size_of(DType::f32),
                     measured_of(std::move(seconds))};
        row.time.samples = blocks * calls;
        row.processor_s = processors;
        return row;
    }

    Communicator& comm_;
    Rendezvous& rendezvous_;
    const WireBench& how_;
    const int64_t ranks_;
    const int me_;
    char* const first_;
    char* const second_;
    int64_t rounds_ = 0;
};

}  // namespace

std::vector<int64_t> usual_wire_bytes() {
    std::vector<int64_t> bytes;
    for (int64_t size = int64_t{1} << 10; size <= int64_t{64} << 20; size *= 4) bytes.push_back(size);
    return bytes;
}

int64_t wire_bytes(const WireBench& bench, int64_t ranks) {
    int64_t most = 0;
    for (const int64_t bytes : bench.bytes) most = std::max(most, counted(bytes, ranks) * size_of(DType::f32));
    return 2 * ((most + 4095) / 4096 * 4096);
}

std::vector<WireCost> measure_wires(Communicator& communicator, Rendezvous& rendezvous, const Memory& arena,
                                    const WireBench& bench) {
    Rows rows(communicator, rendezvous, arena, bench);
    std::vector<WireCost> costs;
    const double each = bench.budget_s / static_cast<double>(std::size(operations) * bench.bytes.size()) / 2;
    for (const char* op : operations)
        for (const int64_t bytes : bench.bytes) costs.push_back(rows.row(op, bytes, each));
    if (communicator.group().me != 0) costs.clear();
    return costs;
}

}  // namespace orrery

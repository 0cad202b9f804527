#include "run/preflight/collective_checks.h"

#include <algorithm>
#include <chrono>

#include "base/seconds.h"
#include "run/preflight/outliers.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;

enum class Call : uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast };

/// A collective to measure. `bus`: factor from algorithm bandwidth to bus bandwidth, as in nccl-tests.
struct Form {
    Call call;
    const char* name;
    bool input_is_block, output_is_block;
    double (*bus)(double ranks);
};
constexpr Form forms[] = {
    {Call::all_reduce, "all_reduce", false, false, [](double p) { return 2 * (p - 1) / p; }},
    {Call::all_gather, "all_gather", true, false, [](double p) { return (p - 1) / p; }},
    {Call::reduce_scatter, "reduce_scatter", false, true, [](double p) { return (p - 1) / p; }},
    {Call::all_to_all, "all_to_all", false, false, [](double p) { return (p - 1) / p; }},
    {Call::broadcast, "broadcast", false, false, [](double) { return 1.0; }},
};

/// Element `i` of a rank's input: a small integer, so that sums over ranks are exact in f32.
int64_t value(int64_t rank, int64_t i) { return (i * 3 + rank * 5) % 8; }

class CollectiveCheck {
public:
    /// `block`: number of elements in one rank's block; the larger tensor has block * P elements on P ranks.
    CollectiveCheck(TrialLine& line, const Form& form, int64_t block) : line_(line), form_(form), block_(block) {
        const int64_t whole = block * line.ranks();
        in_ = {line.out(), DType::f32, {form.input_is_block ? block : whole}};
        out_ = {line.in(), DType::f32, {form.output_is_block ? block : whole}};
        if (form.call == Call::broadcast) out_ = in_;
        fill();
    }

    double timed() {
        const auto begin = Clock::now();
        call();
        return seconds_since(begin);
    }

    /// Runs one call and returns how many of up to 4,096 elements of its result are wrong.
    int64_t wrong() {
        fill();
        call();
        std::vector<float> found(static_cast<size_t>(out_.count()));
        line_.copy(found.data(), out_.data, out_.bytes());
        int64_t wrong = 0;
        const int64_t step = std::max<int64_t>(1, out_.count() / 4096);
        for (int64_t i = 0; i < out_.count(); i += step)
            wrong += found[static_cast<size_t>(i)] != static_cast<float>(expected(i));
        return wrong;
    }

private:
    void fill() {
        std::vector<float> data(static_cast<size_t>(in_.count()));
        for (int64_t i = 0; i < in_.count(); ++i)
            data[static_cast<size_t>(i)] = static_cast<float>(value(line_.me(), i));
        line_.copy(in_.data, data.data(), in_.bytes());
        if (form_.call == Call::broadcast) return;
        const std::vector<float> none(static_cast<size_t>(out_.count()), -1.0f);  // clears results of earlier calls
        line_.copy(out_.data, none.data(), out_.bytes());
    }

    void call() {
        Communicator& communicator = line_.communicator();
        switch (form_.call) {
            case Call::all_reduce: return communicator.all_reduce(in_, out_, ReduceOp::sum).wait();
            case Call::all_gather: return communicator.all_gather(in_, out_).wait();
            case Call::reduce_scatter: return communicator.reduce_scatter(in_, out_, ReduceOp::sum).wait();
            case Call::all_to_all: return communicator.all_to_all(in_, out_).wait();
            case Call::broadcast: return communicator.broadcast(in_, 0).wait();
        }
    }

    int64_t expected(int64_t i) const {
        if (form_.call == Call::all_gather) return value(i / block_, i % block_);
        if (form_.call == Call::all_to_all) return value(i / block_, line_.me() * block_ + i % block_);
        if (form_.call == Call::broadcast) return value(0, i);
        const int64_t at = form_.output_is_block ? line_.me() * block_ + i : i;
        int64_t sum = 0;
        for (int64_t rank = 0; rank < line_.ranks(); ++rank) sum += value(rank, at);
        return sum;
    }

    TrialLine& line_;
    const Form& form_;
    const int64_t block_;
    Tensor in_, out_;
};

/// Median, over repeated calls, of the slowest rank's seconds.
double seconds_of(TrialLine& line, CollectiveCheck& check, int repeats) {
    check.timed();
    std::vector<double> slowest;
    for (int i = 0; i < repeats; ++i) slowest.push_back(check.timed());
    for (double& seconds : slowest) seconds = line.greatest(seconds);
    return median(std::move(slowest));
}

CollectiveFigures check_one(TrialLine& line, const Form& form, const CollectiveCheckOptions& options) {
    CollectiveFigures figures;
    figures.name = form.name;
    const int64_t ranks = line.ranks(), most = std::max<int64_t>(1, line.most_bytes() / 4 / ranks);
    {
        CollectiveCheck least(line, form, 1);
        figures.latency_s = seconds_of(line, least, 4 * options.repeats);
    }
    int64_t block = std::min(most, std::max<int64_t>(1, (64 << 10) / 4 / ranks));
    for (;;) {
        CollectiveCheck check(line, form, block);
        check.timed();
        if (line.greatest(check.timed()) >= options.call_s / 2 || block >= most) break;
        block = std::min(most, 4 * block);
    }
    CollectiveCheck large(line, form, block);
    figures.bytes = 4 * block * ranks;
    figures.seconds = seconds_of(line, large, options.repeats);
    figures.bus_bytes = static_cast<double>(figures.bytes) / figures.seconds * form.bus(static_cast<double>(ranks));
    figures.wrong = static_cast<int64_t>(line.sum(static_cast<double>(large.wrong())));
    return figures;
}

}  // namespace

std::vector<CollectiveFigures> check_collectives(TrialLine& line, const CollectiveCheckOptions& options) {
    std::vector<CollectiveFigures> all;
    for (const Form& form : forms) all.push_back(check_one(line, form, options));
    return all;
}

}  // namespace orrery

#include "cli/bench/bench_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "orrery/p2p.h"

namespace orrery {

namespace {

using BenchClock = std::chrono::steady_clock;

constexpr BenchForm bench_forms[] = {
    {"all_reduce", false, false, false, true, [](double p) { return 2 * (p - 1) / p; }},
    {"all_gather", true, false, true, false, [](double p) { return (p - 1) / p; }},
    {"reduce_scatter", false, true, true, true, [](double p) { return (p - 1) / p; }},
    {"all_to_all", false, false, true, false, [](double p) { return (p - 1) / p; }},
    {"broadcast", false, false, false, false, [](double) { return 1.0; }},
    {"send_receive", false, false, false, false, [](double) { return 1.0; }},
};

/// Returns the bits of the integer `v` as a number of `dtype`, which represents it exactly.
uint64_t bench_bits(DType dtype, int64_t v) {
    const auto f = static_cast<float>(v);
    switch (dtype) {
        case DType::f32: return std::bit_cast<uint32_t>(f);
        case DType::f64: return std::bit_cast<uint64_t>(static_cast<double>(v));
        case DType::bf16: return std::bit_cast<uint32_t>(f) >> 16;
        case DType::f16: {
            if (v == 0) return 0;
            const auto b = std::bit_cast<uint32_t>(f);
            return ((b >> 23) - 112) << 10 | ((b >> 13) & 1023);
        }
        default: return static_cast<uint64_t>(v);
    }
}

void put(const Tensor& t, int64_t i, int64_t v) {
    const uint64_t b = bench_bits(t.dtype, v);
    std::memcpy(static_cast<char*>(t.data) + i * size_of(t.dtype), &b, static_cast<size_t>(size_of(t.dtype)));
}

}  // namespace

const std::vector<std::string>& bench_collective_names() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> all;
        for (const BenchForm& form : bench_forms) all.emplace_back(form.name);
        return all;
    }();
    return names;
}

const BenchForm& bench_form(const std::string& name) {
    for (const BenchForm& form : bench_forms)
        if (name == form.name) return form;
    throw Error(fmt::format("bench: unknown collective '{}'; expected one of {}", name,
                            fmt::join(bench_collective_names(), ", ")));
}

std::vector<int64_t> bench_sizes(const CollectiveBench& bench, const BenchForm& form, int64_t ranks) {
    const int64_t least = size_of(bench.dtype) * (form.blocks ? ranks : 1);
    std::vector<int64_t> sizes;
    if (bench.begin == 0) sizes.push_back(0);
    for (int64_t bytes = std::max(bench.begin, least); bytes <= bench.end; bytes *= bench.factor)
        sizes.push_back(bytes);
    if (sizes.empty())
        throw Error(fmt::format("bench: -e {} (maximum size) is less than {} bytes, the smallest {} of {} on {} ranks",
                                bench.end, least, bench.collective, name_of(bench.dtype), ranks));
    return sizes;
}

double bench_time(CollectiveBench::Average average, const std::vector<double>& us) {
    switch (average) {
        case CollectiveBench::Average::first: return us.front();
        case CollectiveBench::Average::least: return *std::min_element(us.begin(), us.end());
        case CollectiveBench::Average::most: return *std::max_element(us.begin(), us.end());
        case CollectiveBench::Average::mean: break;
    }
    return std::accumulate(us.begin(), us.end(), 0.0) / static_cast<double>(us.size());
}

BenchRows::BenchRows(const CollectiveBench& bench, Communicator& communicator, Rendezvous& rendezvous,
                     const Memory& arena, std::chrono::milliseconds limit)
    : bench_(bench),
      form_(bench_form(bench.collective)),
      comm_(communicator),
      rendezvous_(rendezvous),
      arena_(arena),
      limit_(limit),
      ranks_(communicator.group().size()),
      me_(communicator.group().me) {}

void BenchRows::row(int64_t bytes) {
    int64_t count = bytes / size_of(bench_.dtype);
    if (form_.blocks) count = count / ranks_ * ranks_;
    const Timed out = time(count, false), in = time(count, true);
    wrong_ += out.wrong + in.wrong;
    const std::string left = columns(count, out), right = columns(count, in);
    if (me_ != 0) return;
    fmt::print("{:12} {:13} {:>9} {:>7} {:>7} {}  {}\n", count * size_of(bench_.dtype), count, bench_.type_name(),
               form_.reduces ? name_of(bench_.op) : "none", bench_.collective == "broadcast" ? "0" : "-1", left, right);
    std::fflush(stdout);
}

std::string BenchRows::columns(int64_t count, const Timed& timed) {
    const double algorithm = static_cast<double>(count * size_of(bench_.dtype)) / timed.us / 1e3;
    const double bus = algorithm * form_.bus(static_cast<double>(ranks_));
    bus_ += bus;
    ++times_;
    const std::string wrong = bench_.check ? std::to_string(timed.wrong) : "N/A";
    return fmt::format("{:8.2f} {:7.2f} {:7.2f} {:>6}", timed.us, algorithm, bus, wrong);
}

void BenchRows::call(const Tensor& in, const Tensor& out) {
    const std::string& name = bench_.collective;
    if (name == "all_reduce") return comm_.all_reduce(in, out, bench_.op).wait();
    if (name == "all_gather") return comm_.all_gather(in, out).wait();
    if (name == "reduce_scatter") return comm_.reduce_scatter(in, out, bench_.op).wait();
    if (name == "all_to_all") return comm_.all_to_all(in, out).wait();
    if (name == "broadcast") return comm_.broadcast(out, 0).wait();
    const Event sent = comm_.send(in, (me_ + 1) % ranks_, 0);
    comm_.receive(out, (me_ + ranks_ - 1) % ranks_, 0).wait();
    sent.wait();
}

int64_t BenchRows::iterations(int64_t bytes) const {
    if (bench_.iterations > 0) return bench_.iterations;
    return std::clamp<int64_t>((int64_t{1} << 30) / std::max<int64_t>(bytes, 1), 20, 10'000);
}

BenchRows::Timed BenchRows::time(int64_t count, bool in_place) {
    const int64_t block = count / ranks_, size = size_of(bench_.dtype);
    char* const first = static_cast<char*>(arena_.data);
    // send_receive in place would overwrite what it sends, so it uses two tensors.
    in_place = in_place && bench_.collective != "send_receive";
    char* const second = in_place || bench_.collective == "broadcast" ? first : first + (count * size + 63) / 64 * 64;
    Tensor in{first, bench_.dtype, {form_.input_is_block ? block : count}};
    Tensor out{second, bench_.dtype, {form_.output_is_block ? block : count}};
    if (in_place && form_.input_is_block) in.data = second + me_ * block * size;
    if (in_place && form_.output_is_block) out.data = first + me_ * block * size;
    Timed timed;
    fill(in);
    call(in, out);
    if (bench_.check) timed.wrong = wrong_in(out, block);
    fill(in);
    for (int64_t i = 0; i < bench_.warmup; ++i) call(in, out);
    const int64_t n = iterations(count * size);
    const auto start = BenchClock::now();
    for (int64_t i = 0; i < n; ++i) call(in, out);
    timed.us = std::chrono::duration<double, std::micro>(BenchClock::now() - start).count() / static_cast<double>(n);
    return gather(timed);
}

/// Input element `i` of a rank, below 8. In reductions, ranks from 32 on have zeros: all dtypes hold the sums exactly.
int64_t BenchRows::value(int64_t rank, int64_t i) const {
    return form_.reduces && rank >= 32 ? 0 : (i * 3 + rank * 5) % 8;
}

void BenchRows::fill(const Tensor& in) const {
    for (int64_t i = 0; i < in.count(); ++i) put(in, i, value(me_, i));
}

int64_t BenchRows::expected(int64_t i, int64_t block) const {
    const std::string& name = bench_.collective;
    if (name == "all_gather") return value(i / block, i % block);
    if (name == "all_to_all") return value(i / block, me_ * block + i % block);
    if (name == "broadcast") return value(0, i);
    if (name == "send_receive") return value((me_ + ranks_ - 1) % ranks_, i);
    const int64_t at = form_.output_is_block ? me_ * block + i : i;
    int64_t r = value(0, at);
    for (int rank = 1; rank < ranks_; ++rank) {
        const int64_t v = value(rank, at);
        r = bench_.op == ReduceOp::sum ? r + v : bench_.op == ReduceOp::max ? std::max(r, v) : std::min(r, v);
    }
    return r;
}

int64_t BenchRows::wrong_in(const Tensor& out, int64_t block) const {
    int64_t count = 0;
    const int64_t size = size_of(out.dtype);
    for (int64_t i = 0; i < out.count(); ++i) {
        const uint64_t want = bench_bits(out.dtype, expected(i, block));
        count += std::memcmp(static_cast<char*>(out.data) + i * size, &want, static_cast<size_t>(size)) != 0;
    }
    return count;
}

BenchRows::Timed BenchRows::gather(const Timed& mine) {
    const auto all = exchange(comm_.group(), rendezvous_, fmt::format("bench/{}", ++gathered_),
                              fmt::format("{} {}", mine.us, mine.wrong), limit_);
    std::vector<double> us;
    Timed total;
    for (const std::string& text : all) {
        us.push_back(std::stod(text));
        total.wrong += std::stoll(text.substr(text.find(' ') + 1));
    }
    total.us = bench_time(bench_.average, us);
    return total;
}

}  // namespace orrery

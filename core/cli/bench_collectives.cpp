#include "cli/bench_collectives.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "base/processors.h"
#include "cli/launch.h"
#include "config/load.h"
#include "orrery/p2p.h"
#include "plugin/loader.h"
#include "run/job.h"
#include "run/rendezvous.h"

namespace orrery {

using Clock = std::chrono::steady_clock;

namespace {

constexpr auto limit = std::chrono::seconds(60);

/// Shapes of one collective for S bytes of the larger tensor, and what nccl-tests calls its bus bandwidth.
struct Form {
    const char* name;
    bool input_is_block;   ///< input has n/P elements: all_gather
    bool output_is_block;  ///< output has n/P elements: reduce_scatter
    bool reduces;
    double (*bus)(double ranks);  ///< busbw / algbw
};
constexpr Form forms[] = {
    {"all_reduce", false, false, true, [](double p) { return 2 * (p - 1) / p; }},
    {"all_gather", true, false, false, [](double p) { return (p - 1) / p; }},
    {"reduce_scatter", false, true, true, [](double p) { return (p - 1) / p; }},
    {"all_to_all", false, false, false, [](double p) { return (p - 1) / p; }},
    {"broadcast", false, false, false, [](double) { return 1.0; }},
    {"send_receive", false, false, false, [](double) { return 1.0; }},
};

const Form& form_of(const std::string& name) {
    for (const Form& form : forms)
        if (name == form.name) return form;
    throw Error(
        fmt::format("bench: no collective '{}'; there are {}", name, fmt::join(bench_collective_names(), ", ")));
}

/// Whole numbers below 8 that every dtype holds exactly, also summed over 16 ranks.
int64_t value(int64_t rank, int64_t i) { return (i * 3 + rank * 5) % 8; }

/// The bits of a small whole number.
uint64_t bits(DType dtype, int64_t v) {
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
    const uint64_t b = bits(t.dtype, v);
    std::memcpy(static_cast<char*>(t.data) + i * size_of(t.dtype), &b, static_cast<size_t>(size_of(t.dtype)));
}

class Runner {
public:
    Runner(const CollectiveBench& bench, const Form& form, Communicator& communicator, Rendezvous& rendezvous,
           const Memory& arena)
        : bench_(bench),
          form_(form),
          comm_(communicator),
          rendezvous_(rendezvous),
          arena_(arena),
          ranks_(communicator.group().size()),
          me_(communicator.group().me) {}

    /// One line of the table. Returns the number of wrong elements over all ranks.
    int64_t row(int64_t bytes) {
        const int64_t count = bytes / size_of(bench_.dtype) / ranks_ * ranks_;
        const Timed out = time(count, false), in = time(count, true);
        const bool rooted = bench_.collective == "broadcast";
        if (me_ == 0) {
            fmt::print("{:12} {:13} {:>9} {:>7} {:>7} {}  {}\n", count * size_of(bench_.dtype), count,
                       name_of(bench_.dtype), form_.reduces ? name_of(bench_.op) : "none", rooted ? "0" : "-1",
                       columns(count, out), columns(count, in));
            std::fflush(stdout);
        }
        return out.wrong + in.wrong;
    }

private:
    struct Timed {
        double us = 0;
        int64_t wrong = 0;
    };

    std::string columns(int64_t count, const Timed& timed) const {
        const double algorithm = static_cast<double>(count * size_of(bench_.dtype)) / timed.us / 1e3;
        const double bus = algorithm * form_.bus(static_cast<double>(ranks_));
        const std::string wrong = bench_.check ? std::to_string(timed.wrong) : "N/A";
        return fmt::format("{:8.2f} {:7.2f} {:7.2f} {:>6}", timed.us, algorithm, bus, wrong);
    }

    void call(const Tensor& in, const Tensor& out) {
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

    int64_t iterations(int64_t bytes) const {
        if (bench_.iterations > 0) return bench_.iterations;
        return std::clamp<int64_t>((int64_t{1} << 30) / std::max<int64_t>(bytes, 1), 20, 10'000);
    }

    Timed time(int64_t count, bool in_place) {
        const int64_t block = count / ranks_, size = size_of(bench_.dtype);
        char* const first = static_cast<char*>(arena_.data);
        // A send in place would overwrite what it sends: send_receive keeps two tensors.
        in_place = in_place && bench_.collective != "send_receive";
        char* const second =
            in_place || bench_.collective == "broadcast" ? first : first + (count * size + 63) / 64 * 64;
        Tensor in{first, bench_.dtype, {form_.input_is_block ? block : count}};
        Tensor out{second, bench_.dtype, {form_.output_is_block ? block : count}};
        if (in_place && form_.input_is_block) in.data = second + me_ * block * size;
        if (in_place && form_.output_is_block) out.data = first + me_ * block * size;
        Timed timed;
        fill(in);
        call(in, out);
        if (bench_.check) timed.wrong = wrong(out, block);
        fill(in);
        for (int64_t i = 0; i < bench_.warmup; ++i) call(in, out);
        const int64_t n = iterations(count * size);
        const auto start = Clock::now();
        for (int64_t i = 0; i < n; ++i) call(in, out);
        timed.us = std::chrono::duration<double, std::micro>(Clock::now() - start).count() / static_cast<double>(n);
        return gather(timed);
    }

    void fill(const Tensor& in) const {
        for (int64_t i = 0; i < in.count(); ++i) put(in, i, value(me_, i));
    }

    int64_t expected(int64_t i, int64_t block) const {
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

    int64_t wrong(const Tensor& out, int64_t block) const {
        int64_t count = 0;
        const int64_t size = size_of(out.dtype);
        for (int64_t i = 0; i < out.count(); ++i) {
            const uint64_t want = bits(out.dtype, expected(i, block));
            count += std::memcmp(static_cast<char*>(out.data) + i * size, &want, static_cast<size_t>(size)) != 0;
        }
        return count;
    }

    /// Mean time and total of wrong elements over the ranks.
    Timed gather(const Timed& mine) {
        const auto all = exchange(comm_.group(), rendezvous_, fmt::format("bench/{}", ++gathered_),
                                  fmt::format("{} {}", mine.us, mine.wrong), limit);
        Timed total;
        for (const std::string& text : all) {
            total.us += std::stod(text) / static_cast<double>(all.size());
            total.wrong += std::stoll(text.substr(text.find(' ') + 1));
        }
        return total;
    }

    const CollectiveBench& bench_;
    const Form& form_;
    Communicator& comm_;
    Rendezvous& rendezvous_;
    const Memory arena_;
    const int ranks_, me_;
    int64_t gathered_ = 0;
};

/// A core for each rank where there are enough, as mpirun does: two ranks on one core would time the scheduler.
void pin(const Job& job) {
    const std::vector<int> allowed = allowed_processors();
    if (job.local_ranks > static_cast<int64_t>(allowed.size())) return;
    run_on({allowed[static_cast<size_t>(job.local_rank)]});  // refused in some containers, which only costs precision
}

/// What carries the bench. The plugins stay loaded.
struct Backends {
    std::unique_ptr<Device> device;
    std::unique_ptr<Transport> transport;
};

/// Throws for a key of [device.cpu] or of any table [transport.NAME] that nothing reads.
Backends open_backends(const CollectiveBench& bench, Config& config) {
    const Loader loader(and_plugin_folders(config.table("plugins").texts("path")));
    check_backends(config, loader.names());
    Registry registry;
    loader.load("device", "cpu", registry, {});
    loader.load("transport", bench.transport, registry, {});
    Config& processor = config.table("device").table("cpu");
    Config& transports = config.table("transport");
    Config& mine = transports.table(bench.transport);
    Backends backends{registry.device("cpu", {})(processor), registry.transport(bench.transport, {})(mine)};
    processor.reject_unused();
    mine.reject_unused();
    // Those of other transports would be ignored, typos and all.
    for (const std::string& name : transports.keys()) {
        const bool is_table = std::holds_alternative<std::shared_ptr<Config>>(transports.find(name)->data);
        if (!is_table || name == "axis" || name == bench.transport) continue;
        Config& options = transports.table(name);
        try {
            loader.load("transport", name, registry, options.origin());
        } catch (const Error&) {
            continue;  // a table for another machine's transport
        }
        if (!loader.cannot_run("transport", name).empty()) continue;
        registry.transport(name, options.origin())(options);
        options.reject_unused();
    }
    return backends;
}

/// The table, in one rank's process.
int run_rank(const CollectiveBench& bench, const Form& form, Config& config, const Job& job) {
    TcpRendezvous::Options options;
    options.host = job.host;
    options.port = job.port;
    options.rank = job.rank;
    options.token = {job.token, job.id, job.generation};
    TcpRendezvous rendezvous(options);
    // Not for a transport that works with threads of its own: they would share the rank's core.
    if (bench.transport == "shm") pin(job);
    try {
        const auto [device, transport] = open_backends(bench, config);
        Memory arena = device->allocate(2 * bench.end + 4096, transport->contract().memory.front());
        Group group{"bench", "bench", {}, static_cast<int>(job.rank)};
        for (int64_t rank = 0; rank < job.ranks; ++rank) group.ranks.push_back(rank);
        int64_t wrong = 0;
        {
            const auto communicator = transport->make(group, rendezvous, std::span(&arena, 1), limit);
            Runner runner(bench, form, *communicator, rendezvous, arena);
            const int64_t least = bench.ranks * size_of(bench.dtype);
            for (int64_t bytes = std::max(bench.begin, least); bytes <= bench.end; bytes *= bench.factor)
                wrong += runner.row(bytes);
        }
        device->release(arena);
        if (job.rank == 0) fmt::print("# Out of bounds values : {} {}\n", wrong, wrong ? "FAILED" : "OK");
        rendezvous.leave();
        return wrong ? 1 : 0;
    } catch (const std::exception& error) {
        rendezvous.fail(error.what());
        throw;
    }
}

void print_head(const CollectiveBench& bench) {
    fmt::print("# {} over {}, {} ranks, {} warm-up iterations\n#\n", bench.collective, bench.transport, bench.ranks,
               bench.warmup);
    fmt::print("#{:>59} {:>31}\n", "out-of-place", "in-place");
    fmt::print("#{:>11} {:>13} {:>9} {:>7} {:>7} {:>8} {:>7} {:>7} {:>6}  {:>8} {:>7} {:>7} {:>6}\n", "size", "count",
               "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
    fmt::print("#{:>11} {:>13} {:>9} {:>7} {:>7} {:>8} {:>7} {:>7} {:>6}  {:>8} {:>7} {:>7} {:>6}\n", "(B)",
               "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
    std::fflush(stdout);
}

}  // namespace

const std::vector<std::string>& bench_collective_names() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> all;
        for (const Form& form : forms) all.emplace_back(form.name);
        return all;
    }();
    return names;
}

int64_t parse_size(std::string_view text) {
    int64_t size = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), size);
    const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
    int shift = -1;
    if (unit.empty()) shift = 0;
    if (unit == "K" || unit == "k") shift = 10;
    if (unit == "M" || unit == "m") shift = 20;
    if (unit == "G" || unit == "g") shift = 30;
    if (fault != std::errc() || shift < 0 || size <= 0 || size > (int64_t{1} << 50) >> shift)
        throw Error(fmt::format("'{}' is no size; expected bytes, or a number with K, M or G", text));
    return size << shift;
}

int bench_collectives(const CollectiveBench& bench, Config& config, const std::vector<std::string>& arguments) {
    const Form& form = form_of(bench.collective);
    if (bench.ranks < 1 || bench.ranks > 1024)
        throw Error(fmt::format("bench: {} ranks; expected 1 to 1024", bench.ranks));
    if (bench.factor < 2) throw Error(fmt::format("bench: -f {} does not grow; expected 2 or more", bench.factor));
    if (bench.begin > bench.end) throw Error("bench: -b is greater than -e");
    if (bench.transport == "threads")
        throw Error("bench: transport threads has no rank processes; choose shm, gloo or another");
    if (const Job job = job_from_environment(); job.assigned) {
        if (job.launcher == "orrery") watch_lifeline();
        return run_rank(bench, form, config, job);
    }
    open_backends(bench, config);  // mistakes show before a rank starts
    Job job;
    job.id = "bench";
    job.token = make_secret();
    job.ranks = bench.ranks;
    std::unique_ptr<RendezvousServer> server;
    const auto before = [&](Job& shared) {
        RendezvousServer::Options options;
        options.world = bench.ranks;
        options.token = {shared.token, shared.id, shared.generation};
        server = std::make_unique<RendezvousServer>(options);
        shared.port = server->port();
    };
    print_head(bench);
    return launch({arguments, job, 0, bench.ranks, before});
}

}  // namespace orrery

#include "harness.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>

#include "run/control/rendezvous.h"
#include "suites/chosen.h"

namespace orrery::conformance {
namespace {

constexpr int64_t arena_bytes = 256 << 20;
constexpr int64_t most_ranks = 4;

/// The GPU of a rank that is a thread here. Throws Error where there is none.
std::unique_ptr<Device> gpu_of(int64_t rank) {
    Registry registry;
    Loader(suites::folders()).load("device", "cuda", registry, {});
    Config config("device.cuda");
    config.set("local_rank", {rank});
    return registry.device("cuda", {})(config);
}

/// How ranks that are processes meet.
std::unique_ptr<RendezvousBackend> meeting() {
    Registry registry;
    Loader(suites::folders()).load("rendezvous", "tcp", registry, {});
    Config none;
    return registry.rendezvous("tcp", {})(none);
}

/// The body of one rank: everything it makes is gone when this returns.
Participant run_member(const Backend& backend, int64_t rank, int64_t size, Rendezvous& rendezvous,
                       const std::function<void(Participant&)>& body, std::chrono::milliseconds timeout) {
    const auto transport = load_transport(backend);
    TestArena arena(arena_bytes + rank * (3 << 20), serves_host(backend) ? nullptr : gpu_of(rank));
    Participant member{rank, size, rendezvous, *transport, arena, timeout, {}, {}};
    try {
        body(member);
    } catch (const std::exception& error) {
        member.failures.push_back(error.what());
    }
    return member;
}

void put(std::string& text, const std::vector<std::string>& lines) {
    text += std::to_string(lines.size()) + "\n";
    for (const std::string& line : lines) text += std::to_string(line.size()) + "\n" + line;
}

std::vector<std::string> take(std::string& text) {
    const auto number = [&] {
        const size_t end = text.find('\n');
        if (end == std::string::npos) return size_t{0};
        const size_t n = std::stoul(text.substr(0, end));
        text.erase(0, end + 1);
        return n;
    };
    std::vector<std::string> lines(number());
    for (std::string& line : lines) {
        const size_t n = number();
        line = text.substr(0, n);
        text.erase(0, n);
    }
    return lines;
}

void collect(Outcome& outcome, int64_t rank, std::vector<std::string> failures, std::vector<std::string> notes) {
    for (const std::string& text : failures) outcome.failures.push_back(fmt::format("rank {}: {}", rank, text));
    outcome.notes[static_cast<size_t>(rank)] = std::move(notes);
}

Outcome run_threads(const Backend& backend, int64_t ranks, const std::function<void(Participant&)>& body,
                    std::chrono::milliseconds timeout) {
    Outcome outcome;
    outcome.notes.resize(static_cast<size_t>(ranks));
    LocalRendezvous rendezvous;
    std::mutex mutex;
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            Participant member = run_member(backend, rank, ranks, rendezvous, body, timeout);
            const std::lock_guard lock(mutex);
            collect(outcome, rank, std::move(member.failures), std::move(member.notes));
        });
    }
    for (std::thread& thread : threads) thread.join();
    return outcome;
}

/// In the child: waits for the port, joins the job, runs the body, writes what came of it to the pipe.
[[noreturn]] void run_child(const Backend& backend, int64_t rank, int64_t ranks, int start, int pipe,
                            const std::function<void(Participant&)>& body, std::chrono::milliseconds timeout) {
    std::string text;
    try {
        JoinOptions options;
        if (::read(start, &options.port, sizeof options.port) != sizeof options.port) throw Error("the parent is gone");
        options.rank = rank;
        options.token.secret = "conformance";
        const auto backend_of_job = meeting();
        const auto rendezvous = backend_of_job->join(options);
        const Participant member = run_member(backend, rank, ranks, *rendezvous, body, timeout);
        put(text, member.failures);
        put(text, member.notes);
        rendezvous->leave();
    } catch (const std::exception& error) {
        text.clear();
        put(text, {error.what()});
        put(text, {});
    }
    for (size_t at = 0; at < text.size();) {
        const ssize_t n = ::write(pipe, text.data() + at, text.size() - at);
        if (n <= 0) break;
        at += static_cast<size_t>(n);
    }
    ::_exit(0);
}

Outcome run_processes(const Backend& backend, int64_t ranks, const std::function<void(Participant&)>& body,
                      std::chrono::milliseconds timeout) {
    Outcome outcome;
    outcome.notes.resize(static_cast<size_t>(ranks));
    std::vector<std::pair<pid_t, int>> children;
    std::vector<int> starts;
    for (int64_t rank = 0; rank < ranks; ++rank) {
        int pipes[2], start[2];
        if (::pipe(pipes) != 0 || ::pipe(start) != 0) throw Error("pipe failed", Fault::failed);
        const pid_t pid = ::fork();
        if (pid == 0) {
            for (const auto& [other, fd] : children) ::close(fd);
            for (int fd : starts) ::close(fd);
            ::close(pipes[0]);
            ::close(start[1]);
            run_child(backend, rank, ranks, start[0], pipes[1], body, timeout);
        }
        ::close(pipes[1]);
        ::close(start[0]);
        children.emplace_back(pid, pipes[0]);
        starts.push_back(start[1]);
    }
    // Only now: a fork beside the server's thread could copy an allocator that the thread had locked.
    ServeOptions options;
    options.world = ranks;
    options.token.secret = "conformance";
    const auto backend_of_job = meeting();
    const auto server = serve(*backend_of_job, options);
    const int port = server->port();
    for (int fd : starts) {
        if (::write(fd, &port, sizeof port) != sizeof port) outcome.failures.push_back("a rank ended before it began");
        ::close(fd);
    }
    for (int64_t rank = 0; rank < ranks; ++rank) {
        const auto [pid, fd] = children[static_cast<size_t>(rank)];
        std::string text;
        char buffer[4096];
        for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
        ::close(fd);
        int status = 0;
        ::waitpid(pid, &status, 0);
        if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
            outcome.failures.push_back(fmt::format("rank {} died of signal {}", rank, WTERMSIG(status)));
        if (WIFEXITED(status) && WEXITSTATUS(status) != 0)  // as sanitizers end a process
            outcome.failures.push_back(fmt::format("rank {} ended with code {}", rank, WEXITSTATUS(status)));
        auto failures = take(text);
        collect(outcome, rank, std::move(failures), take(text));
    }
    return outcome;
}

float half_to_float(uint16_t x) {
    const int exponent = (x >> 10) & 31, mantissa = x & 1023;
    const float value = exponent ? std::ldexp(1024.f + static_cast<float>(mantissa), exponent - 25)
                                 : std::ldexp(static_cast<float>(mantissa), -24);
    return x & 0x8000 ? -value : value;
}

/// Exact for whole numbers up to 2048.
uint16_t float_to_half(float x) {
    if (x == 0) return 0;
    int exponent;
    const float mantissa = std::frexp(std::fabs(x), &exponent);
    const auto bits = static_cast<uint16_t>((exponent + 14) << 10 | (static_cast<int>(mantissa * 2048) & 1023));
    return static_cast<uint16_t>(bits | (x < 0 ? 0x8000 : 0));
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Backend& backend) {
    out << backend.transport << (backend.processes ? " between processes" : " between threads");
    for (const auto& [key, value] : backend.options) {
        out << ", " << key << " = ";
        if (const auto* text = std::get_if<std::string>(&value.data)) out << *text;
        if (const auto* number = std::get_if<int64_t>(&value.data)) out << *number;
    }
    return out;
}

namespace {

/// A transport that serves GPUs alone: "" when the suite's ranks, four at most, find one each.
std::string why_skipped(const PluginReport& plugin) {
    if (!plugin.cannot_run.empty()) return plugin.cannot_run;
    try {
        gpu_of(most_ranks - 1);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

/// Ranks as threads agree inside these libraries by atomics of code that ThreadSanitizer has not compiled.
bool unseen(const std::string& transport) { return thread_sanitizer && (transport == "gloo" || transport == "ucx"); }

}  // namespace

std::vector<Backend> backends() {
    std::vector<Backend> all;
    for (const PluginReport& plugin : suites::plugins("transport")) {
        if (!plugin.reason.empty()) continue;
        const Backend threads{plugin.name.substr(plugin.name.find('/') + 1), false, {}};
        if (unseen(threads.transport)) continue;
        const bool host = serves_host(threads);
        if (host || why_skipped(plugin).empty()) all.push_back(threads);
        // CUDA does not survive the fork that makes a process of a rank.
        if (!thread_sanitizer && host && !contract_of(threads).same_process)
            all.push_back({threads.transport, true, {}});
    }
    return all;
}

std::vector<std::string> skipped() {
    std::vector<std::string> all;
    for (const PluginReport& plugin : suites::plugins("transport")) {
        std::string why = plugin.reason;
        const std::string name = plugin.name.substr(plugin.name.find('/') + 1);
        if (why.empty() && !serves_host({name, false, {}})) why = why_skipped(plugin);
        if (why.empty() && unseen(name)) why = "its library was not built with ThreadSanitizer";
        if (!why.empty()) all.push_back(plugin.name + ": " + why);
    }
    return all;
}

std::unique_ptr<Transport> load_transport(const Backend& backend) {
    const Loader loader(suites::folders());
    Registry registry;
    loader.load("transport", backend.transport, registry, {});
    Config config("transport." + backend.transport);
    for (const auto& [key, value] : backend.options) config.set(key, value);
    auto transport = registry.transport(backend.transport, {})(config);
    config.reject_unused();
    return transport;
}

TransportContract contract_of(const Backend& backend) { return load_transport(backend)->contract(); }

bool serves_host(const Backend& backend) {
    const auto devices = contract_of(backend).devices;
    return std::find(devices.begin(), devices.end(), "cpu") != devices.end();
}

std::vector<Backend> with_option(const std::string& key, const ConfigValue& value) {
    std::vector<Backend> all;
    for (Backend backend : backends()) {
        backend.options = {{key, value}};
        try {
            load_transport(backend);
        } catch (const Error&) {
            continue;  // has no such key
        }
        all.push_back(backend);
    }
    return all;
}

TestArena::TestArena(int64_t bytes, std::unique_ptr<Device> device) : device_(std::move(device)) {
    if (device_) {
        memory = device_->allocate(bytes, MemoryKind::pinned);
        return;
    }
    fd_ = ::memfd_create("test-arena", MFD_CLOEXEC);
    void* data = MAP_FAILED;
    if (::ftruncate(fd_, bytes) == 0)
        data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (data == MAP_FAILED) throw Error("no memory for a test arena", Fault::failed);
    memory = {data, bytes, MemoryKind::shared, fmt::format("/proc/{}/fd/{}", ::getpid(), fd_)};
}

TestArena::~TestArena() {
    if (device_) {
        device_->release(memory);
        return;
    }
    ::munmap(memory.data, static_cast<size_t>(memory.bytes));
    ::close(fd_);
}

Tensor TestArena::tensor(DType dtype, int64_t count) {
    Tensor tensor{static_cast<char*>(memory.data) + used_, dtype, {count}};
    used_ += (tensor.bytes() + 63) / 64 * 64;
    if (used_ > memory.bytes) throw Error("test arena is full", Fault::failed);
    return tensor;
}

std::unique_ptr<Communicator> Participant::make(const std::string& name, std::vector<int64_t> ranks) {
    Group group{name, "axis", std::move(ranks), 0};
    if (group.ranks.empty())
        for (int64_t r = 0; r < size; ++r) group.ranks.push_back(r);
    group.me = static_cast<int>(std::find(group.ranks.begin(), group.ranks.end(), rank) - group.ranks.begin());
    return transport.make(group, rendezvous, std::span(&arena.memory, 1), timeout);
}

void Participant::expect(bool ok, const std::string& text) {
    if (!ok && failures.size() < 20) failures.push_back(text);
}

void exchange(Communicator& c, bool grouped, const Tensor& out, int to, const Tensor& in, int from, int64_t tag) {
    if (grouped) c.begin_group();
    const Event sent = c.send(out, to, tag), received = c.receive(in, from, tag);
    if (grouped) c.end_group();
    received.wait();
    sent.wait();
}

void connect(Participant& m, Communicator& c, int peer) {
    if (!m.transport.contract().groups_messages()) return;
    const Tensor out = m.arena.tensor(DType::f32, 1), in = m.arena.tensor(DType::f32, 1);
    exchange(c, true, out, peer, in, peer, 0);
}

void stop(Participant& m) {
    m.rendezvous.set("pid", std::to_string(::getpid()));
    ::raise(SIGSTOP);
}

Stopped::Stopped(Participant& m) : process_(std::stoi(m.rendezvous.get("pid", std::chrono::seconds(10)))) {
    for (int i = 0; process_state(process_).find("stopped") == std::string::npos; ++i) {
        if (i == 10'000) throw Error("rank 1 did not stop, it " + process_state(process_));
        ::usleep(1000);
    }
}

Stopped::~Stopped() { ::kill(process_, SIGKILL); }

void expect_fault(Participant& m, std::chrono::milliseconds limit, const std::vector<std::string>& parts,
                  const std::function<void()>& call) {
    const auto start = std::chrono::steady_clock::now();
    try {
        call();
        m.expect(false, "nothing was thrown");
    } catch (const Error& error) {
        const auto took = std::chrono::steady_clock::now() - start;
        const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(took);
        m.expect(error.fault() == Fault::peer, fmt::format("wrong fault: {}", error.what()));
        m.expect(ms < limit, fmt::format("took {} ms, at most {} allowed", ms.count(), limit.count()));
        for (const std::string& part : parts)
            m.expect(std::string_view(error.what()).find(part) != std::string_view::npos,
                     fmt::format("'{}' does not mention '{}'", error.what(), part));
    }
}

Outcome run(const Backend& backend, int64_t ranks, const std::function<void(Participant&)>& body,
            std::chrono::milliseconds timeout) {
    return backend.processes ? run_processes(backend, ranks, body, timeout)
                             : run_threads(backend, ranks, body, timeout);
}

void store(const Tensor& t, int64_t i, double value) {
    switch (t.dtype) {
        case DType::f32: static_cast<float*>(t.data)[i] = static_cast<float>(value); break;
        case DType::f64: static_cast<double*>(t.data)[i] = value; break;
        case DType::bf16:
            static_cast<uint16_t*>(t.data)[i] =
                static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16);
            break;
        case DType::f16: static_cast<uint16_t*>(t.data)[i] = float_to_half(static_cast<float>(value)); break;
        case DType::i32: static_cast<int32_t*>(t.data)[i] = static_cast<int32_t>(value); break;
        case DType::i64: static_cast<int64_t*>(t.data)[i] = static_cast<int64_t>(value); break;
        case DType::u32: static_cast<uint32_t*>(t.data)[i] = static_cast<uint32_t>(value); break;
        case DType::u16: static_cast<uint16_t*>(t.data)[i] = static_cast<uint16_t>(value); break;
        case DType::u8: static_cast<uint8_t*>(t.data)[i] = static_cast<uint8_t>(value); break;
        case DType::i8:
        case DType::f8e4m3:
        case DType::f8e5m2: throw std::logic_error("no transport adds codes");
    }
}

double load(const Tensor& t, int64_t i) {
    switch (t.dtype) {
        case DType::f32: return static_cast<float*>(t.data)[i];
        case DType::f64: return static_cast<double*>(t.data)[i];
        case DType::bf16: return std::bit_cast<float>(uint32_t{static_cast<uint16_t*>(t.data)[i]} << 16);
        case DType::f16: return half_to_float(static_cast<uint16_t*>(t.data)[i]);
        case DType::i32: return static_cast<int32_t*>(t.data)[i];
        case DType::i64: return static_cast<double>(static_cast<int64_t*>(t.data)[i]);
        case DType::u32: return static_cast<uint32_t*>(t.data)[i];
        case DType::u16: return static_cast<uint16_t*>(t.data)[i];
        case DType::u8: return static_cast<uint8_t*>(t.data)[i];
        case DType::i8:
        case DType::f8e4m3:
        case DType::f8e5m2: break;
    }
    throw std::logic_error("no transport adds codes");
}

}  // namespace orrery::conformance

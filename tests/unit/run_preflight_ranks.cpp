// Preflight among ranks that are threads, with planted faults: nothing here depends on how fast the machine is.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "base/json.h"
#include "cli/preflight/preflight.h"
#include "collective/forwarding_communicator.h"
#include "plan_ranks.h"
#include "run/preflight/preflight.h"

using namespace orrery;
using namespace orrery::test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

/// What is wrong on purpose.
struct Faults {
    int64_t slow_rank = -1;            ///< its products take 200 times as long
    int64_t slow_a = -1, slow_b = -1;  ///< a message between the two takes 600 ms, and between others 20 ms
    int64_t corrupting = -1;           ///< receives one byte in 60,000 otherwise than it was sent
    bool wrong_sums = false;           ///< all_reduce gives too much
};

/// The CPU, which launches everything so many times.
class RepeatingDevice : public Device {
public:
    explicit RepeatingDevice(int times) : inner_(cpu_device(false)), times_(times) {}
    DeviceLimits limits() override { return inner_->limits(); }
    Memory allocate(int64_t bytes, MemoryKind kind) override { return inner_->allocate(bytes, kind); }
    void release(Memory& memory) override { inner_->release(memory); }
    std::string why_not(const KernelSpec& spec) override { return inner_->why_not(spec); }
    std::unique_ptr<Kernel> prepare(const KernelSpec& spec) override { return inner_->prepare(spec); }
    void launch(int queue, Kernel& kernel, std::span<const Tensor> operands, void* scratch) override {
        for (int i = 0; i < times_; ++i) inner_->launch(queue, kernel, operands, scratch);
    }
    void copy(int queue, void* to, const void* from, int64_t bytes) override { inner_->copy(queue, to, from, bytes); }
    Event record(int queue) override { return inner_->record(queue); }
    void wait(int queue, const Event& event) override { inner_->wait(queue, event); }
    void synchronize(int queue) override { inner_->synchronize(queue); }
    void* native(int queue) override { return inner_->native(queue); }

private:
    std::unique_ptr<Device> inner_;
    const int times_;
};

class FaultyCommunicator : public ForwardingCommunicator {
public:
    FaultyCommunicator(std::unique_ptr<Communicator> inner, const Faults& faults)
        : ForwardingCommunicator(std::move(inner)), faults_(faults) {}

    Event receive(const Tensor& tensor, int peer, int64_t tag, const Event& after) override {
        const int64_t mine = group().ranks[static_cast<size_t>(group().me)],
                      theirs = group().ranks[static_cast<size_t>(peer)];
        const Event event = ForwardingCommunicator::receive(tensor, peer, tag, after);
        if (tensor.bytes() < 60'000) return event;
        event.wait();
        if (faults_.slow_a >= 0) {  // all links are slow, so that a busy host makes none of them slow beside the others
            const bool slow = std::minmax(mine, theirs) == std::minmax(faults_.slow_a, faults_.slow_b);
            std::this_thread::sleep_for(std::chrono::milliseconds(slow ? 600 : 20));
        }
        if (mine == faults_.corrupting) static_cast<char*>(tensor.data)[59'999] ^= 1;
        return event;
    }
    Event all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override {
        ForwardingCommunicator::all_reduce(in, out, op, after).wait();
        if (faults_.wrong_sums && out.dtype == DType::f32) static_cast<float*>(out.data)[0] += 1;
        return {};
    }

private:
    const Faults& faults_;
};

class FaultyTransport : public Transport {
public:
    explicit FaultyTransport(const Faults& faults) : inner_(threads_transport()), faults_(faults) {}
    TransportContract contract() const override { return inner_->contract(); }
    std::unique_ptr<Communicator> make(const Group& group, Rendezvous& rendezvous, std::span<const Memory> arenas,
                                       std::chrono::milliseconds timeout) override {
        return std::make_unique<FaultyCommunicator>(inner_->make(group, rendezvous, arenas, timeout), faults_);
    }

private:
    std::unique_ptr<Transport> inner_;
    const Faults& faults_;
};

/// As short as can be: what is planted is far from all noise.
PreflightOptions short_options() {
    PreflightOptions options = quick_preflight();
    options.rank.matrix_s = options.rank.copy_s = 0.01;
    options.rank.copy_bytes = 1 << 20;
    options.rank.storage_bytes = 1 << 20;
    options.rank.folder = in_build("preflight_unit");
    options.pair.repeats = 3;
    options.pair.pings = 5;
    options.pair.message_s = 0.001;
    options.collective.call_s = 0.001;
    options.message_bytes = 1 << 20;
    options.again = 0;
    return options;
}

/// The reports of all ranks, `per_node` of which share a host; only what is below a tenth of the others is named.
std::vector<PreflightReport> reports(int64_t ranks, int64_t per_node, const Faults& faults,
                                     const PreflightOptions& options = short_options()) {
    std::vector<PreflightReport> all(static_cast<size_t>(ranks));
    std::mutex order;
    run_ranks(ranks, [&](int64_t rank, Rendezvous& rendezvous) {
        RepeatingDevice device(rank == faults.slow_rank ? 200 : 1);
        FaultyTransport transport(faults);
        PreflightRank one{device, "cpu", &transport, &rendezvous, rank, ranks, rank % per_node};
        PreflightBars bars = usual_bars(true);
        bars.share = bars.storage_share = bars.latency_share = 0.1;
        PreflightReport report = preflight(one, options, {}, bars);
        const std::lock_guard lock(order);
        all[static_cast<size_t>(rank)] = std::move(report);
    });
    return all;
}

std::string text_of(const std::vector<PreflightFinding>& findings) {
    std::string text;
    for (const PreflightFinding& finding : findings) text += finding.text() + "\n";
    return text;
}

}  // namespace

TEST_CASE("preflight measures ranks, links and collectives alike on all ranks", "[preflight][slow]") {
    const std::vector<PreflightReport> all = reports(4, 2, {});
    const PreflightFigures& figures = all[0].figures;
    CHECK(figures.nodes == 2);
    REQUIRE(figures.ranks.size() == 4);
    for (const RankFigures& one : figures.ranks) {
        CHECK(one.matrix_f32 > 0);
        CHECK(one.copy_bytes > 0);
        CHECK(one.write_bytes > 0);
        CHECK(one.read_bytes > 0);
        CHECK(one.sync_s > 0);
        CHECK(one.storage_problem == "");
    }
    REQUIRE(figures.pairs.size() == 6);
    for (const PairFigures& pair : figures.pairs) {
        CHECK(pair.one_node == (pair.a / 2 == pair.b / 2));
        CHECK(std::min({pair.there_bytes, pair.back_bytes, pair.both_bytes, pair.latency_s}) > 0);
        CHECK(pair.wrong_bytes == 0);
    }
    REQUIRE(figures.collectives.size() == 5 * (2 + 2 + 1));
    for (const CollectiveFigures& one : figures.collectives) {
        CHECK(one.wrong == 0);
        CHECK(one.bus_bytes > 0);
        CHECK(one.ranks.size() == (one.reach == Reach::all ? 4u : 2u));
    }
    CHECK(figures.pairs_left_out == 0);
    for (const PreflightReport& report : all) {
        CHECK(report.figures.pairs.back().there_bytes == figures.pairs.back().there_bytes);
        CHECK(text_of(report.findings) == text_of(all[0].findings));
    }
    CHECK_FALSE(fs::exists(in_build("preflight_unit")));  // it was made here, and is gone again
    const Json json = parse_json(preflight_json(all[0]), {});
    CHECK(json["pairs"].size() == 6);
    CHECK(json["ranks"][3]["node"] == 1);
    CHECK(json["fit"] == all[0].fit());
    CHECK_THAT(preflight_text(all[0]),
               Contains("4 ranks on 2 nodes") && Contains("links between nodes") && Contains("2 of a rail"));
}

TEST_CASE("a rank that computes slowly is named", "[preflight][slow]") {
    const auto all = reports(3, 3, {.slow_rank = 1});
    CHECK_THAT(text_of(all[2].findings), Contains("rank 1 (host ") && Contains("matrix rate of "));
    CHECK_FALSE(all[2].fit());
}

TEST_CASE("a link that is slow is named with both ends, and one that corrupts", "[preflight][slow]") {
    CHECK_THAT(text_of(reports(4, 1, {.slow_a = 3, .slow_b = 1})[0].findings),
               Contains("link rank 1 (host ") && Contains("rank 3 (host ") && Contains("bandwidth between nodes"));
    const auto all = reports(3, 3, {.corrupting = 2});
    CHECK_THAT(text_of(all[0].findings), Contains("data: 1 bytes were corrupted in transit"));
    for (const PreflightFinding& finding : all[0].findings)
        if (finding.checked == Checked::data) CHECK(finding.ranks.back() == 2);
}

TEST_CASE("wrong sums are named", "[preflight][slow]") {
    CHECK_THAT(text_of(reports(3, 1, {.wrong_sums = true})[1].findings),
               Contains("all ranks, ranks 0, 1, 2: all_reduce: 3 wrong elements"));
}

TEST_CASE("rounds that there is no time for are left out on all ranks alike", "[preflight][slow]") {
    PreflightOptions options = short_options();
    options.pair.limit_s = -1;
    const auto all = reports(3, 1, {}, options);
    for (const PreflightReport& report : all) {
        CHECK(report.figures.pairs.empty());
        CHECK(report.figures.pairs_left_out == 3);
    }
    CHECK_THAT(preflight_text(all[0]), Contains("3 of 3 links were not measured"));
}

TEST_CASE("a folder that cannot be used is a finding, not an error", "[preflight]") {
    const std::string folder = in_build("preflight_storage");
    fs::create_directories(folder);
    RankCheckOptions options;
    options.storage_bytes = 1 << 20;
    options.folder = folder;
    RankFigures figures;
    check_storage(options, figures);
    CHECK(figures.storage_problem == "");
    CHECK(figures.write_bytes > 0);
    CHECK(fs::is_empty(folder));  // and it is left as it was
    std::ofstream(folder + "/file") << "no folder";
    options.folder = folder + "/file";
    figures = {};
    check_storage(options, figures);
    CHECK_THAT(figures.storage_problem, Contains("file") && Contains("Not a directory"));
    CHECK(figures.write_bytes == 0);
    options.folder = folder + "/file/below";
    check_storage(options, figures);
    CHECK_THAT(figures.storage_problem, Contains("cannot make"));
    CHECK(fs::file_size(folder + "/file") == 9);
    fs::remove_all(folder);
}

namespace {

/// A process of the number 1, as containers have them; -1: the system makes none here.
pid_t in_container(const std::function<int()>& work) {
    const pid_t outer = ::fork();
    if (outer != 0) return outer;
    if (::unshare(CLONE_NEWPID) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) ::_exit(77);
    const pid_t inner = ::fork();
    if (inner == 0) ::_exit(::getpid() == 1 ? work() : 77);
    int status = 0;
    ::_exit(::waitpid(inner, &status, 0) == inner && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

}  // namespace

TEST_CASE("checks of containers in one folder, some cut off, neither meet nor leave a file", "[preflight]") {
    const std::string folder = in_build("preflight_containers");
    fs::remove_all(folder);
    fs::create_directories(folder);
    std::ofstream(folder + "/.preflight-0.77") << "of a check that was cut off";
    std::ofstream(folder + "/.preflight-0.78") << "of another one, which may be alive";
    fs::last_write_time(folder + "/.preflight-0.77", fs::file_time_type::clock::now() - std::chrono::hours(2));
    const auto check = [&](int number) {
        RankCheckOptions options;
        options.folder = folder;
        options.storage_bytes = 1 << 20;
        if (number % 3 == 0)  // cut off: no destructor runs
            std::thread([] {
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
                ::_exit(0);
            }).detach();
        RankFigures figures;
        check_storage(options, figures);
        if (number % 3 == 0) ::_exit(0);
        return figures.storage_problem.empty() ? 0 : 1;
    };
    std::vector<pid_t> all;
    for (int number = 0; number < 30; ++number) all.push_back(in_container([&] { return check(number); }));
    int unfit = 0;
    bool none = false;
    for (const pid_t pid : all) {
        int status = 0;
        REQUIRE(::waitpid(pid, &status, 0) == pid);
        none = none || (WIFEXITED(status) && WEXITSTATUS(status) == 77);
        unfit += !WIFEXITED(status) || WEXITSTATUS(status) == 1;
    }
    if (none) WARN("no pid namespaces here: the processes have different numbers");
    CHECK(unfit == 0);
    std::vector<std::string> left;
    for (const auto& file : fs::directory_iterator(folder)) left.push_back(file.path().filename());
    CHECK(left == std::vector<std::string>{".preflight-0.78"});
    fs::remove_all(folder);
}

TEST_CASE("what is expected is read with its unit, or refused", "[preflight]") {
    const ExpectedFigures figures = read_expected({"fabric_gb_s=50", "matrix_bf16_tflops=989.5", "fabric_gb_s=25"});
    CHECK(figures.fabric_bytes == 25e9);
    CHECK(figures.matrix_bf16 == Approx(989.5e12));
    CHECK(figures.memory_bytes == 0);
    CHECK_THROWS_WITH(read_expected({"fabric=50"}), Contains("--expect fabric=50") && Contains("fabric_gb_s"));
    for (const char* bad : {"fabric_gb_s", "fabric_gb_s=", "fabric_gb_s=x", "fabric_gb_s=1x", "fabric_gb_s=0",
                            "fabric_gb_s=-1", "fabric_gb_s=inf", "fabric_gb_s=nan"})
        CHECK_THROWS_WITH(read_expected({bad}), Contains("expected fabric_gb_s=NUMBER"));
}

// A rank's context: plans that come later, within the arenas that it has, and what is left when it is gone.
#include "run/rank_context.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "collective/communication_thread.h"
#include "ir/build.h"
#include "ir/sent.h"
#include "layout_models.h"
#include "plan/opening.h"
#include "plan_ranks.h"
#include "schedules.h"

using namespace orrery;
using namespace orrery::test;

namespace {

Model perceptron(int64_t batch) {
    Model m = mlp(batch, 4, 12, true, true);
    m.split_names({{"batch", "dp"}});
    return m;
}

const Mesh two({{"dp", 2}});

Plan lower_into(Persistent& persistent, const Program& program) {
    return plan_of(distribute(program, two), two, persistent);
}

/// Of two stages, the first with most params.
Lowered uneven(int64_t batch, const Mesh& mesh) {
    Model m = network({0, 0, 0, 1}, false, DType::f32, batch);
    m.program.pipeline({"pp", "1f1b", 1, {}});
    const Schedule schedule = hand_1f1b(2, 2);
    CompileOptions options;
    options.schedule = &schedule;
    options.contracts["pp"].lanes = TransportContract::Lanes::peer_and_direction;
    return compile(m.program, mesh, options);
}

std::set<std::string> names_in(const char* folder) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
    return names;
}

/// Numbers of what a process can leave behind: threads, descriptors, mappings of shared memory.
std::array<int64_t, 3> held() {
    std::ifstream maps("/proc/self/maps");
    int64_t shared = 0;
    for (std::string line; std::getline(maps, line);) shared += line.find(" rw-s") != std::string::npos;
    return {std::ssize(names_in("/proc/self/task")), std::ssize(names_in("/proc/self/fd")), shared};
}

}  // namespace

TEST_CASE("a plan that comes later runs in the arenas that are there, or is refused with its bytes") {
    Lowered lowered;
    lowered.plan = lower_into(lowered.persistent, perceptron(16).program);
    const int64_t places = lowered.persistent.bytes();
    std::mutex mutex;
    std::vector<std::string> refused;
    run_ranks(2, [&](int64_t rank, Rendezvous& rendezvous) {
        const auto device = cpu_device();
        RankContext context(setting_of(lowered, rank, *device, &rendezvous));
        Persistent persistent = lowered.persistent;
        const Plan smaller = lower_into(persistent, perceptron(8).program);
        if (persistent.bytes() != places) throw std::runtime_error("the smaller batch has places of its own");
        context.executor(lowered.plan)->run();
        context.executor(smaller)->run();
        context.executor(lowered.plan)->run();
        const Plan larger = lower_into(persistent, perceptron(32).program);
        try {
            context.executor(larger);
        } catch (const Error& error) {
            const std::lock_guard lock(mutex);
            refused.push_back(error.what());
        }
    });
    REQUIRE(refused.size() == 2);
    CHECK(refused[0] == refused[1]);
    CHECK_THAT(refused[0], Catch::Matchers::Contains("of the persistent arena, which has ") &&
                               Catch::Matchers::Contains(" too much\n"));
}

namespace {

/// Threads, but that a rank's communicator over several axes cannot be made.
struct Half final : Transport {
    explicit Half(bool fails) : fails(fails) {}
    TransportContract contract() const override { return threads->contract(); }
    std::unique_ptr<Communicator> make(const Group& group, Rendezvous& rendezvous, std::span<const Memory> arenas,
                                       std::chrono::milliseconds timeout) override {
        if (fails && group.axis.find('+') != std::string::npos) throw Error("no room for " + group.name, Fault::failed);
        return threads->make(group, rendezvous, arenas, timeout);
    }
    const bool fails;
    const std::unique_ptr<Transport> threads = threads_transport();
};

}  // namespace

TEST_CASE("a later plan brings messages over several axes: connected then, or each rank told why not", "[slow]") {
    Model m = mlp(16, 4, 12, true, true);
    m.split_names({{"batch", "rep"}, {"batch", "dp"}});
    const Mesh four({{"rep", 2}, {"dp", 2}});
    CompileOptions joining;
    joining.transports = one_transport(four);
    const Lowered apart = compile(m.program, four), joined = compile(m.program, four, joining);
    const AxisId both = four.over("rep+dp").value();
    for (const bool fails : {false, true}) {
        std::mutex mutex;
        std::vector<std::string> told, thrown;
        int connected = 0, background = 0;
        run_ranks(4, [&](int64_t rank, Rendezvous& rendezvous) {
            const auto device = cpu_device();
            RankSetting setting = setting_of(apart, rank, *device, &rendezvous);
            setting.timeout = std::chrono::milliseconds(fails ? 3000 : 20'000);
            const auto transport = std::make_shared<Half>(fails && rank == 1);
            setting.transport = [&](const Axis&) { return transport; };
            setting.failed = [&](const std::string& why) {
                const std::lock_guard lock(mutex);
                told.push_back(why);
            };
            RankContext context(setting);
            if (!fails) context.executor(apart.plan)->run();  // who gives up would do so in the middle of another's
            if (context.along(both)) throw std::runtime_error("made before a plan uses it");
            try {
                const auto executor = context.executor(joined.plan, {"rep+dp"});
                executor->run();
                context.executor(apart.plan)->run();
                const std::lock_guard lock(mutex);
                ++connected;
                background += dynamic_cast<BackgroundCommunicator*>(context.along(both)) != nullptr;
            } catch (const Error& error) {
                const std::lock_guard lock(mutex);
                thrown.push_back(error.what());
            }
        });
        CHECK(connected == (fails ? 0 : 4));
        CHECK(background == connected);
        CHECK(thrown.size() == (fails ? 4 : 0));
        std::sort(told.begin(), told.end());
        std::sort(thrown.begin(), thrown.end());
        CHECK(told == thrown);
        CHECK(std::count(told.begin(), told.end(), "no room for rep+dp/0") == (fails ? 1 : 0));
    }
}

TEST_CASE("a rank allocates what its own class needs, and later plans are judged by class") {
    const Mesh mesh = Mesh({{"pp", 2}}).with_microbatches(2);
    const Lowered lowered = uneven(8, mesh), larger = uneven(64, mesh);
    const std::vector<RankClass>& classes = lowered.plan.classes;
    REQUIRE(classes[0].persistent_bytes > classes[1].persistent_bytes);
    REQUIRE(classes[0].scratch_bytes != classes[1].scratch_bytes);
    Registry plugins;
    for (const char* name : {"threads", "shm"}) {
        Loader({in_build("plugins")}).load("transport", name, plugins, {});
        std::vector<std::string> refused(2);
        std::vector<std::pair<int64_t, int64_t>> bytes(2);
        run_ranks(2, [&](int64_t rank, Rendezvous& rendezvous) {
            const auto device = cpu_device();
            RankSetting setting = setting_of(lowered, rank, *device, &rendezvous);
            Config config;
            setting.transport = [&](const Axis&) { return plugins.transport(name, {})(config); };
            RankContext context(setting);
            context.executor(lowered.plan)->run();
            const auto at = static_cast<size_t>(rank);
            bytes[at] = {context.arenas()[0].bytes, context.arenas()[1].bytes};
            try {
                context.executor(larger.plan);
            } catch (const Error& error) {
                refused[at] = error.what();
            }
        });
        INFO(name);
        for (size_t k : {size_t{0}, size_t{1}}) {
            CHECK(bytes[k].first == classes[k].persistent_bytes);
            CHECK(bytes[k].second == classes[k].scratch_bytes);
        }
        CHECK(refused[0] == refused[1]);
        CHECK_THAT(refused[0],
                   Catch::Matchers::Contains(" of pipeline rank ") && Catch::Matchers::Contains(" too much"));
    }
}

TEST_CASE("contexts come and go in one process and leave nothing behind") {
    const Lowered lowered = compile(perceptron(16).program, two);
    Registry plugins;
    for (const char* name : {"threads", "shm"}) {
        Loader({in_build("plugins")}).load("transport", name, plugins, {});
        const auto come_and_go = [&] {
            run_ranks(2, [&](int64_t rank, Rendezvous& rendezvous) {
                const auto device = cpu_device();
                RankSetting setting = setting_of(lowered, rank, *device, &rendezvous);
                Config config;
                setting.transport = [&](const Axis&) { return plugins.transport(name, {})(config); };
                setting.background = {"dp"};
                RankContext context(setting);
                context.executor(lowered.plan)->run();
            });
        };
        come_and_go();  // libraries may keep something once
        // A thread that has been joined may still be listed for a moment, also in the first reading.
        const std::array before = held();
        const auto no_more = [&] {
            const std::array now = held();
            return now[0] <= before[0] && now[1] <= before[1] && now[2] <= before[2];
        };
        for (int times = 0; times < 8; ++times) come_and_go();
        INFO(name << ": threads, descriptors, mappings: " << Catch::rangeToString(before) << ", then "
                  << Catch::rangeToString(held()));
        for (int times = 0; times < 100 && !no_more(); ++times)
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        CHECK(no_more());
    }
}

TEST_CASE("messages of an opening are on their way while another plan runs") {
    const Mesh mesh({{"site", 2}});
    const auto adds_up = [](const std::string& from, const std::string& to, bool sent) {
        Program program;
        program.name = to;
        Builder builder(program);
        builder.set_phase(Phase::update);
        const TensorType type{DType::f32, {2, 4}};
        const ValueId x = builder.state(none, from, type, {{"kind", std::string("zeros")}, {sent_mark.data(), sent}});
        const ValueId y = builder.state(none, to, type, {{"kind", std::string("zeros")}});
        const ValueId sum = builder.one("sum", {x}, {{"dims", Shape{0}}}, {});
        builder.update(y, builder.one("add", {y, sum}, {}, {}), {});
        for (const ValueId id : {x, y}) program.store(id, "site", Placement::split(0), {});
        program.store(sum, "site", Placement::replicated(), {});
        return program;
    };
    Lowered lowered = compile(adds_up("a", "b", true), mesh);
    const Plan other = plan_of(distribute(adds_up("c", "d", false), mesh), mesh, lowered.persistent);
    CHECK(opening(lowered.plan.program, lowered.plan.classes[0]) == 2);
    CHECK(opening(other.program, other.classes[0]) == 0);
    std::mutex mutex;
    std::vector<float> found;
    run_ranks(2, [&](int64_t rank, Rendezvous& rendezvous) {
        const auto device = cpu_device();
        RankSetting setting = setting_of(lowered, rank, *device, &rendezvous);
        setting.plans.push_back(&other);
        RankContext context(setting);
        const auto waits = context.executor(lowered.plan), between = context.executor(other);
        const auto fill = [&](const Executor& of, const char* name, float x) {
            const std::vector<float> all(4, x);
            device->copy(0, of.tensor(*of.plan().program.find(name)).data, all.data(), 16);
            device->synchronize(0);
        };
        fill(*waits, "a", rank == 0 ? 1 : 2);
        fill(*waits, "b", 0);
        fill(*between, "c", rank == 0 ? 10 : 20);
        fill(*between, "d", 0);
        for (int round = 0; round < 2; ++round) {
            if (rank == 0) waits->start();  // rank 1 does so only once both have run the other plan
            between->run();
            if (rank == 1) waits->start();
            waits->run();
        }
        waits->run();  // not started before
        std::vector<float> all(4);
        const std::lock_guard lock(mutex);
        for (const auto& [of, name] : {std::pair(waits.get(), "b"), std::pair(between.get(), "d")}) {
            device->copy(0, all.data(), of->tensor(*of->plan().program.find(name)).data, 16);
            device->synchronize(0);
            found.insert(found.end(), {all.front(), all.back()});
        }
    });
    CHECK(found == std::vector<float>{9, 9, 60, 60, 9, 9, 60, 60});
}

// What a step costs beside its kernels and messages: allocations, by module, bytes that stay in use, copies between
// host and device, and traffic beside the plan's. Ranks are threads of this program, each with its own device.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <barrier>
#include <cstdlib>
#include <fstream>

#include "allocations.h"
#include "counting.h"
#include "orrery/p2p.h"
#include "plan/access.h"
#include "plan/summary.h"
#include "plan_ranks.h"
#include "run/host_side.h"
#include "schedules.h"
#include "unit/layout_models.h"

using namespace orrery;
using namespace orrery::steps;
using namespace orrery::test;

namespace {

/// Libraries that carry messages or compute products: what they allocate is theirs.
bool is_vendors(const std::string& module) {
    for (const char* name : {"libgloo", "libucp", "libucs", "libuct", "libucm", "libdnnl"})
        if (module.rfind(name, 0) == 0) return true;
    return false;
}

struct Parallel {
    std::string name;
    Program program;
    Mesh mesh;
    Schedule schedule = {};   ///< empty: no pipeline
    bool background = false;  ///< collectives on a thread of their own
};

/// Params rest in pieces on `axis` where one of their dims allows it, and are gathered for their readers.
void rest_in_pieces(Model& m, const Mesh& mesh, const std::string& axis) {
    for (const ValueId param : m.program.params())
        if (const auto dim = m.program.first_dim_divisible_by(param, mesh.size(*mesh.find(axis)), mesh)) {
            m.program.store(param, axis, Placement::split(*dim), {"zero", "strategy.lua", 1, 0});
            m.program.use(param, axis, Placement::replicated(), {"zero", "strategy.lua", 1, 0});
        }
}

std::vector<Parallel> parallels() {
    std::vector<Parallel> all;
    const auto data = [&](int64_t dp, int64_t micro, bool zero, bool background) {
        const Mesh mesh = Mesh({{"dp", dp}}).with_microbatches(micro);
        Model m = block(8, 8, 2, 16, 32, true, true);
        m.split_names({{"batch", "dp"}});
        if (zero) rest_in_pieces(m, mesh, "dp");
        m.program.bucket("dp", 16 << 10, {});
        if (micro > 1) m.program.microbatches(micro, {});
        all.push_back({fmt::format("dp={}{}{}{}", dp, micro > 1 ? " two micro-batches" : "", zero ? " zero 3" : "",
                                   background ? " in the background" : ""),
                       m.program,
                       mesh,
                       {},
                       background});
    };
    data(2, 1, false, false);
    data(2, 2, true, false);
    data(2, 1, false, true);
    data(4, 1, true, false);
    {
        Model m = block(8, 8, 2, 16, 32, true, true);
        m.split_names({{"batch", "dp"}, {"heads", "tp"}, {"mlp", "tp"}});
        m.program.bucket("dp", 16 << 10, {});
        all.push_back({"dp=2 tp=2", m.program, Mesh({{"dp", 2}, {"tp", 2}})});
    }
    {
        Model m = block(8, 8, 2, 16, 32, true, true);
        m.split_names({{"batch", "rep"}, {"batch", "dp"}});
        m.program.bucket("rep", 16 << 10, {});
        m.program.bucket("dp", 16 << 10, {});
        all.push_back({"rep=2 dp=2", m.program, Mesh({{"rep", 2}, {"dp", 2}})});
    }
    for (const int64_t dp : {1, 2}) {
        Model m = network({0, 0, 1, 1}, false, DType::f32, 16);
        if (dp > 1) m.split_names({{"batch", "dp"}});
        m.program.pipeline({"pp", "1f1b", 1, {}});
        m.program.microbatches(4, {});
        const Mesh mesh = dp > 1 ? Mesh({{"pp", 2}, {"dp", dp}}) : Mesh({{"pp", 2}});
        all.push_back({dp > 1 ? "pp=2 dp=2" : "pp=2", m.program, mesh.with_microbatches(4), hand_1f1b(2, 4)});
    }
    return all;
}

/// What one rank saw.
struct Counted {
    int64_t uploads = 0, downloads = 0, synchronizes = 0, asked = 0;
    std::vector<Traffic> before, after;  ///< by axis
};

struct Measured {
    std::map<std::string, Noted> noted;
    int64_t early = 0, late = 0;        ///< bytes in use
    int64_t least_growth = INT64_MAX;  ///< in a quarter of the steps between
    std::vector<Counted> ranks;
    Network contracts;
    Lowered lowered;
};

/// `steps` steps that are looked at, behind `warm` that are not; bytes are counted in the middle of them, too.
Measured measure(const Parallel& job, const std::string& transport, Registry& plugins, int64_t warm, int64_t early,
                 int64_t steps) {
    const auto make = [&] {
        Config none;
        return plugins.transport(transport, {})(none);
    };
    Measured m;
    CompileOptions options;
    options.status_word = true;
    options.transports = one_transport(job.mesh);
    for (const Axis& axis : job.mesh.axes())
        if (!axis.sequential && axis.size > 1)
            m.contracts[axis.name] = options.contracts[axis.name] = make()->contract();
    const auto asked = cpu_device(false);
    options.workspace = [&](const KernelSpec& spec) { return asked->prepare(spec)->scratch_bytes(); };
    if (!job.schedule.ranks.empty()) options.schedule = &job.schedule;
    m.lowered = compile(job.program, job.mesh, options);
    const int64_t ranks = job.mesh.ranks();
    m.ranks.resize(static_cast<size_t>(ranks));
    std::barrier together(ranks);
    run_ranks(ranks, [&](int64_t rank, Rendezvous& rendezvous) {
        struct Leave {  // who fails keeps nobody waiting
            std::barrier<>& together;
            ~Leave() { together.arrive_and_drop(); }
        } const leave{together};
        CountingDevice device(cpu_device(false));
        CountingRendezvous store(rendezvous);
        RankSetting setting = setting_of(m.lowered, rank, device, &store);
        const std::shared_ptr<Transport> mine = make();
        setting.transport = [&](const Axis&) { return mine; };
        if (job.background) setting.background = {"dp"};
        setting.timeout = std::chrono::minutes(2);  // ranks are many threads on whatever cores are left
        RankContext context(setting);
        const auto executor = context.executor(m.lowered.plan);
        const HostMemory inputs(device, executor->inputs().bytes);
        const HostResults results(device, *executor);
        for (const Operand& place : m.lowered.plan.class_of(rank).places) {
            const Value& v = m.lowered.plan.program.value(place.value);
            if (v.role == Role::temporary) continue;
            const Tensor local = executor->tensor(place.value);
            const auto offset = executor->inputs().offset(place.value);
            slice(contents(v, 1).data(), v.type.shape, block_of(at_rest(v, job.mesh), v.type.shape, job.mesh, rank),
                  size_of(v.type.dtype), offset ? static_cast<void*>(inputs.data() + *offset) : local.data);
        }
        Counted& counted = m.ranks[static_cast<size_t>(rank)];
        const auto traffic = [&](std::vector<Traffic>& to) {
            for (AxisId axis = 0; axis < job.mesh.ids(); ++axis)
                if (const Communicator* c = context.along(axis))
                    to.push_back(c->traffic());
                else
                    to.emplace_back();
        };
        double loss = 0;
        const auto run = [&](int64_t count) {
            for (int64_t step = 0; step < count; ++step) {
                executor->run(inputs.data(), results.data());
                loss += results.scalar("loss_sum");
            }
        };
        const auto all_at_rest = [&](auto then) {  // threads of libraries have put away what a step left them
            together.arrive_and_wait();
            if (rank == 0) {
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                then();
            }
            together.arrive_and_wait();
        };
        run(warm);
        traffic(counted.before);
        device.uploads = device.downloads = device.synchronizes = store.calls = 0;
        all_at_rest([] { begin_noting(); });
        run(early);
        all_at_rest([&] { m.early = bytes_in_use(); });
        m.late = m.early;
        constexpr int64_t parts = 4;
        for (int64_t part = 0; part < parts; ++part) {
            run((steps - early) * (part + 1) / parts - (steps - early) * part / parts);
            all_at_rest([&] {
                const int64_t now = bytes_in_use();
                m.least_growth = std::min(m.least_growth, now - m.late);
                m.late = now;
            });
        }
        all_at_rest([] { end_noting(); });
        counted.uploads = device.uploads;
        counted.downloads = device.downloads;
        counted.synchronizes = device.synchronizes;
        counted.asked = store.calls;
        traffic(counted.after);
        if (!std::isfinite(loss)) throw std::runtime_error("the loss is not finite");
    });
    m.noted = noted();
    return m;
}

/// What the plan says that a rank sends over an axis, per step. The plan's bytes of an all_reduce are the mean over its
/// members; where each adds up its own part of the elements, one with a longer part sends more.
Traffic planned(const Measured& m, int64_t rank, AxisId axis) {
    const Plan& plan = m.lowered.plan;
    const WireBytes wires(m.contracts, {});
    const TransportContract& contract = m.contracts.of(plan.mesh.axis(axis).name);
    const auto members = static_cast<int>(plan.mesh.size(axis));
    const auto me = static_cast<int>(plan.mesh.member(rank, axis));
    Traffic all;
    for (const Instruction& i : plan.class_of(rank).stream) {
        if (i.opcode == Opcode::kernel || i.opcode == Opcode::copy || i.axis != axis) continue;
        all.collectives += is_collective(i.opcode);
        const TensorType& type = i.operands[0].type;
        const int64_t mine = size_of(type.dtype) * part_of(type.count(), members, me).count;
        const bool parts = i.opcode == Opcode::all_reduce && type.bytes() > contract.small_bytes;
        all.bytes_sent += parts ? type.bytes() + (members - 2) * mine : wires.bytes_sent(i, plan.mesh);
    }
    return all;
}

const char* long_table() { return std::getenv("ORRERY_LONG"); }

}  // namespace

TEST_CASE("a step allocates nothing, copies in and out once and sends what the plan says") {
    const int64_t steps = long_table() ? 1000 : 60, early = long_table() ? 100 : 20;
    Registry plugins;
    const Loader loader({in_build("plugins")});
    registry();
    std::string table =
        fmt::format("{} steps: allocations of this project; of others; bytes in use, early and at the end\n", steps);
    for (const char* transport : {"threads", "shm", "gloo", "ucx"}) {
        if (!std::filesystem::exists(in_build("plugins") + "/liborrery_transport_" + transport + ".so")) {
            WARN("transport " << transport << " is not built");
            continue;
        }
        loader.load("transport", transport, plugins, {});
        for (const Parallel& job : parallels()) {
            INFO(transport << " " << job.name);
            const Measured m = measure(job, transport, plugins, 10, early, steps);
            int64_t own = 0;
            std::string others;
            for (const auto& [module, by] : m.noted) {
                if (is_vendors(module)) {
                    others += fmt::format(" {} {:.1f} a step", module,
                                          static_cast<double>(by.times) / static_cast<double>(steps));
                    continue;
                }
                own += by.times;
                UNSCOPED_INFO(module << ": " << by.times << " allocations, " << by.bytes << " bytes" << by.first);
            }
            CHECK(own == 0);
            // With nothing allocated here, what comes to be in use is a library's. Pools grow by pieces, now and then;
            // what is lost with each step is lost in each quarter of them.
            const bool pools = std::string_view(transport) == "gloo" || std::string_view(transport) == "ucx";
            CHECK((pools ? m.least_growth : m.late - m.early) <= 0);
            table += fmt::format("  {:<8} {:<28} {:>4};{}; {} {}\n", transport, job.name, own,
                                 others.empty() ? " none" : others, m.early, m.late);
            for (int64_t rank = 0; rank < job.mesh.ranks(); ++rank) {
                INFO("rank " << rank);
                const Counted& c = m.ranks[static_cast<size_t>(rank)];
                const RankClass& ranks = m.lowered.plan.class_of(rank);
                const bool has_inputs = host_inputs(m.lowered.plan.program, ranks).bytes > 0;
                CHECK(c.uploads == (has_inputs ? steps : 0));
                CHECK(c.downloads == steps);
                CHECK(c.synchronizes == steps);
                CHECK(c.asked == 0);  // of the store
                for (size_t axis = 0; axis < c.after.size(); ++axis) {
                    const Traffic plan = planned(m, rank, static_cast<AxisId>(axis));
                    CHECK(c.after[axis].collectives - c.before[axis].collectives == steps * plan.collectives);
                    CHECK(c.after[axis].bytes_sent - c.before[axis].bytes_sent == steps * plan.bytes_sent);
                }
            }
        }
    }
    fmt::print("{}", table);
    if (long_table()) std::ofstream(long_table()) << table;
}

TEST_CASE("an allocation is noted with the module that asked for it") {
    begin_noting();
    std::vector<int> some(1000);
    std::thread([] { std::string(100, 'x').append(1000, 'y'); }).join();
    end_noting();
    const auto all = noted();
    REQUIRE(all.count("core"));
    CHECK(all.at("core").times >= 3);
    const int64_t before = bytes_in_use();
    some.resize(2'000'000);
    CHECK(bytes_in_use() - before >= 7'990'000);
}

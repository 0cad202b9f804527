#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#include "base/processors.h"
#include "cli/launchers.h"
#include "cli/role.h"
#include "config/load.h"
#include "folders.h"
#include "run/control/address.h"
#include "run/control/folder_meeting.h"
#include "run/control/job.h"
#include "run/control/own_name.h"
#include "run/settings.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

/// Sets variables for one scope.
class Variables {
public:
    explicit Variables(const std::map<std::string, std::string>& values) {
        for (const auto& [name, value] : values) {
            const char* old = std::getenv(name.c_str());
            before_.emplace_back(name, old ? old : "");
            ::setenv(name.c_str(), value.c_str(), 1);
        }
    }
    ~Variables() {
        for (const auto& [name, value] : before_)
            value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
    }
    Variables(const Variables&) = delete;

private:
    std::vector<std::pair<std::string, std::string>> before_;
};

using Map = std::map<std::string, std::string>;

Map torchrun(const Map& more) {
    Map all = {{"RANK", "0"},        {"WORLD_SIZE", "4"},  {"LOCAL_RANK", "0"},           {"LOCAL_WORLD_SIZE", "2"},
               {"MASTER_PORT", "0"}, {"MASTER_ADDR", "x"}, {"TORCHELASTIC_RUN_ID", "r1"}, {"ORRERY_TOKEN", ""}};
    for (const auto& [name, value] : more) all[name] = value;
    return all;
}

Map slurm(const Map& more) {
    Map all = {{"SLURM_JOB_ID", "7"},
               {"SLURM_STEP_ID", "0"},
               {"SLURM_PROCID", "3"},
               {"SLURM_STEP_NUM_TASKS", "7"},
               {"SLURM_LOCALID", "0"},
               {"SLURM_NODEID", "1"},
               {"SLURM_STEP_TASKS_PER_NODE", "3,2(x2)"},
               {"SLURM_STEP_NODELIST", "n[011-013]"},
               {"SLURM_SRUN_COMM_HOST", "127.0.0.1"},
               {"ORRERY_TOKEN", "0123456789abcdef"}};
    for (const auto& [name, value] : more) all[name] = value;
    return all;
}

Map openmpi(const Map& more) {
    Map all = {{"PMIX_NAMESPACE", "prterun-7"},
               {"OMPI_COMM_WORLD_RANK", "5"},
               {"OMPI_COMM_WORLD_SIZE", "8"},
               {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
               {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
               {"MASTER_ADDR", "192.0.2.7"},
               {"MASTER_PORT", "29500"},
               {"ORRERY_TOKEN", "0123456789abcdef"}};
    for (const auto& [name, value] : more) all[name] = value;
    return all;
}

Map hydra(const Map& more) {
    Map all = {{"PMI_RANK", "5"},
               {"PMI_SIZE", "8"},
               {"MPI_LOCALRANKID", "1"},
               {"MPI_LOCALNRANKS", "4"},
               {"MASTER_ADDR", "192.0.2.7"},
               {"ORRERY_TOKEN", "0123456789abcdef"}};
    for (const auto& [name, value] : more) all[name] = value;
    return all;
}

const std::string secret = "sixteen letters!";

Launchers launchers() {
    return launchers_of([] { return load_config(""); });
}
Job job_from_environment() { return orrery::job_from_environment(launchers); }
std::string nodes_left_out() { return orrery::nodes_left_out(launchers()); }

}  // namespace

TEST_CASE("ranks that meet where anybody can come need a secret") {
    {
        const Variables open(torchrun({{"MASTER_ADDR", "192.0.2.7"}}));
        CHECK_THROWS_WITH(job_from_environment(), Contains("192.0.2.7") && Contains("set ORRERY_TOKEN"));
    }
    {
        const Variables weak(torchrun({{"MASTER_ADDR", "192.0.2.7"}, {"ORRERY_TOKEN", "x"}}));
        CHECK_THROWS_WITH(job_from_environment(), Contains("ORRERY_TOKEN has 1 character, expected 16 or more"));
    }
    {
        const Variables good(torchrun({{"MASTER_ADDR", "192.0.2.7"}, {"ORRERY_TOKEN", secret}}));
        CHECK(job_from_environment().token == secret);
    }
    const Variables here(torchrun({{"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "192.0.2.7"}}));
    const Job job = job_from_environment();
    CHECK(job.host == "127.0.0.1");  // one host: nobody else can come
    CHECK(job.token == "torchrun:r1");
}

TEST_CASE("ranks of several hosts cannot meet at a loopback address") {
    CHECK(loopback_of("127.0.1.1") == "127.0.1.1");
    CHECK(loopback_of("::1") == "::1");
    CHECK(loopback_of("localhost") != "");
    CHECK(loopback_of("192.0.2.7") == "");
    CHECK_THROWS_WITH(refuse_loopback("127.0.1.1", "--rendezvous 127.0.1.1:1"),
                      Contains("--rendezvous 127.0.1.1:1") && Contains("no other host reaches"));
    const Variables named(torchrun({{"MASTER_ADDR", "localhost"}, {"ORRERY_TOKEN", secret}}));
    CHECK_THROWS_WITH(job_from_environment(), Contains("MASTER_ADDR=localhost") && Contains("127.0.1.1"));
}

TEST_CASE("mpirun and torchrun over several hosts ask for MASTER_ADDR, in one voice of each host") {
    {
        const Variables first(openmpi({{"MASTER_ADDR", ""}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}));
        CHECK_THROWS_WITH(job_from_environment(), Contains("openmpi started 8 ranks, 4 of them on this host") &&
                                                      Contains("MASTER_ADDR is not set") && Contains("mpirun -x"));
    }
    {
        const Variables other(openmpi({{"MASTER_ADDR", ""}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}}));
        CHECK_THROWS_AS(job_from_environment(), SaidElsewhere);
    }
    const Variables unnamed(torchrun({{"MASTER_ADDR", ""}, {"ORRERY_TOKEN", secret}}));
    CHECK_THROWS_WITH(job_from_environment(), Contains("MASTER_ADDR is not set"));
}

TEST_CASE("a batch script of several nodes is told that others stay idle") {
    const Variables batch(Map{{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "2"}});
    CHECK_THAT(nodes_left_out(), Contains("Slurm job 7 has 2 nodes") && Contains("srun orrery run"));
    const Variables one(Map{{"SLURM_JOB_NUM_NODES", "1"}});
    CHECK(nodes_left_out().empty());
}

TEST_CASE("the place of a rendezvous is a host and a port, IPv6 in brackets") {
    const auto is = [](const char* text, const char* host, int port) {
        const auto place = parse_place(text);
        return place && place->host == host && place->port == port;
    };
    CHECK(is("n1:29500", "n1", 29500));
    CHECK(is("[::1]:29500", "::1", 29500));
    CHECK(is("127.0.0.1:0", "127.0.0.1", 0));
    for (const char* wrong : {"n1", "n1:", ":1", "::1:29500", "[]:1", "n1:-1", "n1:65536", "n1:29500x", "[::1]"})
        CHECK_FALSE(parse_place(wrong));
    CHECK(place_text("::1", 29500) == "[::1]:29500");
    CHECK(place_text("n1", 29500) == "n1:29500");
}

TEST_CASE("the name of a rendezvous is waited for only while it may become this host's") {
    using namespace std::chrono_literals;
    int waits = 0;
    const auto own = [&](const char* host, bool moves, std::chrono::milliseconds limit) {
        waits = 0;
        return await_own_name(host, moves, limit, [&] { ++waits; });
    };
    CHECK(own("localhost", false, 1h));
    CHECK(own("127.0.0.1", true, 1h));
    CHECK_FALSE(own("192.0.2.7", true, 1h));  // an address stays what it is
    CHECK(waits == 0);
    CHECK_FALSE(own("no-such-host.invalid", false, 300ms));
    CHECK(waits == 1);
}

TEST_CASE("torchrun's agent keeps its port") {
    const Variables agent(torchrun({{"MASTER_ADDR", "192.0.2.7"}, {"ORRERY_TOKEN", secret}, {"MASTER_PORT", "29500"}}));
    CHECK(job_from_environment().port == 29501);
    const Variables last(Map{{"MASTER_PORT", "65535"}});
    CHECK(job_from_environment().port == 65534);
}

TEST_CASE("ranks meet at a port of run.ports, unless MASTER_PORT names one") {
    const auto port = [](const std::string& ports) {
        return orrery::job_from_environment([&] {
                   Config config = parse_config("[run]\nports = \"" + ports + "\"\n", "a.toml", {});
                   return launchers_by(config);
               })
            .port;
    };
    {
        const Variables derived(openmpi({{"MASTER_PORT", ""}}));
        CHECK(port("41007-41007") == 41007);
        for (const char* job : {"a", "b", "c", "d", "e"}) {
            const Variables other(Map{{"PMIX_NAMESPACE", job}});
            CHECK((port("41000-41001") == 41000 || port("41000-41001") == 41001));
        }
        CHECK_THROWS_WITH(port("41001-41000"), Contains("a.toml:2") && Contains("FIRST-LAST"));
        const Variables named(Map{{"MASTER_PORT", "29500"}});
        CHECK(port("41007-41007") == 29500);
    }
    const Variables agent(torchrun({{"MASTER_ADDR", "192.0.2.7"}, {"ORRERY_TOKEN", secret}, {"MASTER_PORT", "41000"}}));
    CHECK(port("41000-41001") == 41001);  // the agent has the other one
}

TEST_CASE("variables of torchrun that cannot be are refused by name") {
    const auto refused = [](const Map& more, const std::string& why) {
        const Variables set(torchrun(more));
        CHECK_THROWS_WITH(job_from_environment(), Contains(why));
    };
    refused({{"MASTER_PORT", "65536"}}, "MASTER_PORT=65536 is not a port");
    refused({{"LOCAL_RANK", "5"}}, "LOCAL_RANK=5 of LOCAL_WORLD_SIZE=2");
    refused({{"LOCAL_WORLD_SIZE", "5"}}, "LOCAL_WORLD_SIZE=5, and WORLD_SIZE=4");
    refused({{"LOCAL_RANK", ""}, {"LOCAL_WORLD_SIZE", ""}, {"RANK", "3"}},
            "the local rank of rank 3 (its GPU) is unknown: LOCAL_RANK and LOCAL_WORLD_SIZE are not set");
    refused({{"LOCAL_RANK", ""}, {"LOCAL_WORLD_SIZE", "3"}}, "LOCAL_RANK and LOCAL_WORLD_SIZE are not set");
}

TEST_CASE("without LOCAL_RANK a rank's number never becomes its GPU's") {
    const Variables third(torchrun({{"RANK", "3"}, {"LOCAL_RANK", ""}, {"ORRERY_TOKEN", secret}}));
    const Variables host(Map{{"MASTER_ADDR", "192.0.2.7"}});
    CHECK(job_from_environment().local_rank == 1);  // of two a host
    const Variables alone(Map{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_WORLD_SIZE", ""}});
    CHECK(job_from_environment().local_rank == 0);
}

TEST_CASE("srun's ranks meet on the step's first host and know how many share theirs") {
    const Variables step(slurm({}));
    const Job job = job_from_environment();
    CHECK(job.host == "n011");
    CHECK(job.local_ranks == 2);
    CHECK(job.threads == 0);
    const Variables more(Map{{"SLURM_NODEID", "0"}, {"SLURM_CPUS_PER_TASK", "5"}});
    CHECK(job_from_environment().local_ranks == 3);
    CHECK(job_from_environment().threads == 5);
    const auto first_host = [](const std::string& list) {
        const Variables set(Map{{"SLURM_STEP_NODELIST", list}});
        return job_from_environment().host;
    };
    CHECK(first_host("n[003-005,9],login") == "n003");
    CHECK(first_host("gpu-a,gpu-b") == "gpu-a");
    CHECK(first_host("r[1-2]n[7,9]x") == "r1n7x");
    const auto tasks_on = [](const std::string& list, const std::string& node) {
        const Variables set(Map{{"SLURM_STEP_TASKS_PER_NODE", list}, {"SLURM_NODEID", node}});
        return job_from_environment().local_ranks;
    };
    CHECK(tasks_on("4(x2),3", "1") == 4);
    CHECK(tasks_on("4(x2),3", "2") == 3);
    CHECK(tasks_on("4(x2),3", "3") == 1);  // a guess
    CHECK(tasks_on("", "0") == 1);
    const Variables bad(Map{{"SLURM_STEP_NODELIST", "n[3-"}});
    CHECK_THROWS_WITH(job_from_environment(), Contains("SLURM_STEP_NODELIST=n[3- is not a list of hosts"));
    const Variables several(Map{{"SLURM_HET_SIZE", "2"}});
    CHECK_THROWS_WITH(job_from_environment(), Contains("SLURM_HET_SIZE=2") && Contains("one component"));
}

TEST_CASE("mpirun's ranks take their places from Open MPI's variables") {
    {
        const Variables two_hosts(openmpi({}));
        const Job job = job_from_environment();
        CHECK(job.launcher == "openmpi");
        CHECK(job.assigned);
        CHECK(job.id == "prterun-7");
        CHECK(job.rank == 5);
        CHECK(job.ranks == 8);
        CHECK(job.local_rank == 1);
        CHECK(job.local_ranks == 4);
        CHECK(job.host == "192.0.2.7");
        CHECK(job.port == 29500);
        CHECK_FALSE(job.serves);
        const Variables first(Map{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
        CHECK(job_from_environment().serves);
    }
    // On one host they meet there, at a port that the job's id gives.
    const Variables here(openmpi({{"OMPI_COMM_WORLD_LOCAL_SIZE", "8"}, {"MASTER_PORT", ""}, {"ORRERY_TOKEN", ""}}));
    const Job job = job_from_environment();
    CHECK(job.host == "127.0.0.1");
    CHECK(job.token == "openmpi:prterun-7");
    CHECK(job.port >= 29500);
    CHECK(job_from_environment().port == job.port);
    const Variables other(Map{{"PMIX_NAMESPACE", "prterun-8"}});
    CHECK(job_from_environment().port != job.port);
}

TEST_CASE("ranks of MPICH's and Intel's mpirun take their places from hydra's variables") {
    const Variables rank(hydra({}));
    const Job job = job_from_environment();
    CHECK(job.launcher == "hydra");
    CHECK(job.rank == 5);
    CHECK(job.ranks == 8);
    CHECK(job.local_rank == 1);
    CHECK(job.local_ranks == 4);
    CHECK(job.host == "192.0.2.7");
    const Variables unnamed(Map{{"MASTER_ADDR", ""}, {"MPI_LOCALRANKID", "0"}});
    CHECK_THROWS_WITH(job_from_environment(), Contains("MASTER_ADDR is not set") && Contains("mpirun -genv"));
    const Variables wrong(Map{{"MPI_LOCALNRANKS", "9"}});
    CHECK_THROWS_WITH(job_from_environment(), Contains("MPI_LOCALNRANKS=9, and PMI_SIZE=8"));
}

namespace {

LaunchedTask task(int64_t tasks, int64_t on_host, int64_t rank = 0) {
    LaunchedTask one{"slurm", true, true, {}};
    one.place.rank = rank;
    one.place.ranks = tasks;
    one.place.local_ranks = on_host;
    return one;
}

ScriptCommand flags(int64_t restarts, int64_t nodes = 1, int64_t spares = 0) {
    ScriptCommand command;
    command.restarts = restarts;
    command.nodes = nodes;
    command.spares = spares;
    return command;
}

}  // namespace

TEST_CASE("a task is a rank, its node's agent, or starts all ranks, by the numbers of tasks and ranks") {
    const auto role = [](const LaunchedTask& task, int64_t ranks, const ScriptCommand& command) {
        const TaskRole role = role_of(task, ranks, "dp=" + std::to_string(ranks), command);
        const char* const names[] = {"rank", "agent", "alone"};
        std::string text = names[role.kind];
        if (role.kind == TaskRole::agent) text += " of " + std::to_string(role.nodes);
        return role.spares > 0 ? text + " and " + std::to_string(role.spares) : text;
    };
    CHECK(role(task(4, 2), 4, flags(0)) == "rank");
    CHECK(role(task(4, 1), 4, flags(0)) == "rank");
    CHECK(role(task(1, 1), 1, flags(0)) == "rank");
    CHECK(role(task(4, 1), 4, flags(3)) == "agent of 4");
    CHECK(role(task(1, 1), 1, flags(3)) == "agent of 1");
    CHECK(role(task(1, 1), 4, flags(3)) == "agent of 1");
    CHECK(role(task(1, 1), 4, flags(0)) == "alone");
    CHECK(role(task(2, 1), 4, flags(0)) == "agent of 2");
    CHECK(role(task(2, 1), 4, flags(0, 2)) == "agent of 2");
    CHECK(role(task(3, 1), 4, flags(3, 2)) == "agent of 2 and 1");
    CHECK(role(task(3, 1), 4, flags(3, 1, 1)) == "agent of 2 and 1");
    CHECK(role(task(3, 1), 4, flags(3, 2, 1)) == "agent of 2 and 1");
    CHECK(role(task(4, 2), 8, flags(0)) == "rank");  // which a rank refuses
    CHECK(role(task(3, 1), 2, flags(0)) == "rank");
    LaunchedTask pod = task(2, 2);  // a pod with RANK and WORLD_SIZE alone
    pod.place.counted = false;
    CHECK(role(pod, 2, flags(0)) == "rank");
    pod.place.local_rank = -1;
    CHECK(role(pod, 4, flags(0)) == "agent of 2");
    LaunchedTask counted = task(2, 2);  // by the number of nodes, whatever the tasks of this one
    counted.place.nodes = 2;
    CHECK(role(counted, 4, flags(0)) == "agent of 2");

    CHECK_THROWS_WITH(role(task(4, 2), 4, flags(3)), Contains("--restarts 3: slurm started 4 tasks, 2 of them on this "
                                                              "host") &&
                                                         Contains("leave --restarts out"));
    CHECK_THROWS_WITH(role(task(2, 1), 4, flags(3, 3)), Contains("slurm started 2 tasks") && Contains("--nodes 3"));
    CHECK_THROWS_WITH(role(task(2, 1), 4, flags(3, 1, 2)), Contains("slurm started 2 tasks") && Contains("--spares 2"));
    CHECK_THROWS_WITH(role(task(3, 1), 4, flags(3)), Contains("mesh dp=4 has 4 ranks") && Contains("3 nodes"));
    ScriptCommand placed = flags(3);
    placed.rendezvous = "n1:29500";
    CHECK_THROWS_WITH(role(task(2, 1), 4, placed), Contains("--rendezvous: slurm started 2 tasks"));
}

TEST_CASE("a configuration that cannot be read is what a task reports, not the flags or variables of ranks") {
    const TaskSettings unread{std::nullopt, Error("a.toml:2: unknown key"), ""};
    Job job;
    job.launcher = "openmpi";
    job.ranks = 8;
    job.local_ranks = 4;
    job.local_rank = 0;
    CHECK_THROWS_WITH(checked_role(flags(3), job, task(8, 4), unread), "a.toml:2: unknown key");
    CHECK(checked_role(flags(0), job, task(8, 4), unread).kind == TaskRole::rank);  // which reports it
    const Variables unnamed(openmpi({{"MASTER_ADDR", ""}}));
    CHECK_THROWS_WITH(settle_task(job, task(8, 4), unread), "a.toml:2: unknown key");
    job.local_rank = 1;
    CHECK_THROWS_AS(checked_role(flags(3), job, task(8, 4), unread), SaidElsewhere);
    CHECK_THROWS_AS(settle_task(job, task(8, 4), unread), SaidElsewhere);
}

TEST_CASE("an agent takes node, place and secret from its task") {
    Job job;
    job.id = "7.0";
    job.token = secret;
    job.rank = 2;
    job.ranks = 3;
    job.host = "fd00::1";
    job.port = 29500;
    const ScriptCommand agent = agent_of(flags(3), {TaskRole::agent, 2, 1}, job);
    CHECK(agent.nodes == 2);
    CHECK(agent.spares == 1);
    CHECK(agent.node_rank == 2);
    CHECK(agent.rendezvous == "[fd00::1]:29500");
    CHECK(agent.job == "7.0");
    CHECK(agent.token == secret);
}

TEST_CASE("jobs without an id of their launcher meet apart in one folder") {
    const std::string folder = in_build("tests/folder_meeting_of_two");
    std::filesystem::remove_all(folder);
    const Variables unnamed(hydra({{"MASTER_ADDR", ""}}));
    const auto job = [&](int64_t rank, const std::string& command) {
        LaunchedTask one = task(2, 2, rank);
        one.launcher = one.place.job = "hydra";
        one.place.meets_in_folder = true;
        Job made = job_of(one);
        settle_meeting(made, one, MeetingFolder{folder, std::chrono::milliseconds(20'000), command});
        return made.id;
    };
    std::string ids[4];
    std::vector<std::thread> tasks;
    for (int i = 0; i < 4; ++i)
        tasks.emplace_back([&, i] {
            try {
                ids[i] = job(i % 2, i < 2 ? "a.lua" : "b.lua");
            } catch (const Error& error) {
                ids[i] = std::to_string(i) + error.what();
            }
        });
    for (std::thread& one : tasks) one.join();
    CHECK(ids[0] == ids[1]);
    CHECK(ids[2] == ids[3]);
    CHECK(ids[0] != ids[2]);
}

TEST_CASE("two launchers that each say they have started a rank are refused, but for one that runs inside the other") {
    const Variables step(slurm({})), rank(openmpi({}));
    CHECK(job_from_environment().launcher == "openmpi");  // mpirun in a Slurm job
    {
        const Variables other(hydra({}));
        CHECK_THROWS_WITH(job_from_environment(),
                          Contains("several launchers: hydra and openmpi") && Contains("[run] launcher = \"hydra\""));
    }
    const auto named = [](const std::string& name) {
        return orrery::job_from_environment([&] {
            Config config = parse_config("[run]\nlauncher = \"" + name + "\"\n", "a.toml", {});
            return launchers_by(config);
        });
    };
    CHECK(named("slurm").launcher == "slurm");
    CHECK_FALSE(named("slurm").counted);
    CHECK(named("openmpi").launcher == "openmpi");
    CHECK_FALSE(named("orrery").assigned);
    CHECK_THROWS_WITH(named("torchrun"), Contains("a.toml:2") && Contains("torchrun has not started this process"));
    CHECK_THROWS_WITH(named("slurn"), Contains("a.toml:2") && Contains("did you mean \"slurm\""));
    const Variables agents(torchrun({{"LOCAL_WORLD_SIZE", "4"}}));
    CHECK(job_from_environment().launcher == "torchrun");
}

TEST_CASE("a launcher is opened only where one of its variables is set") {
    int opened = 0;
    const auto find = [&] {
        KnownLauncher one{"dawn", {"DAWN_RANK"}, {}, false, false, {}};
        one.open = [&]() -> std::unique_ptr<Launcher> {
            ++opened;
            throw Error("opened");
        };
        return Launchers{{one}, false, {}};
    };
    CHECK_FALSE(orrery::job_from_environment(find).assigned);
    CHECK(orrery::nodes_left_out(find()).empty());
    CHECK(opened == 0);
    const Variables set(Map{{"DAWN_RANK", "0"}});
    CHECK_THROWS_WITH(orrery::job_from_environment(find), "opened");
    CHECK(opened == 1);
}

TEST_CASE("variables of mpirun that cannot be are refused by name") {
    const auto refusal = [](const Map& more) -> std::string {
        const Variables set(openmpi(more));
        try {
            job_from_environment();
        } catch (const Error& problem) {
            return problem.what();
        }
        return "taken";
    };
    CHECK(refusal({}) == "taken");
    CHECK_THAT(refusal({{"MASTER_ADDR", ""}}),
               Contains("openmpi started 8 ranks, 4 of them on this host") && Contains("MASTER_ADDR is not set"));
    CHECK_THAT(refusal({{"OMPI_COMM_WORLD_SIZE", ""}}), Contains("OMPI_COMM_WORLD_SIZE is not set"));
    CHECK_THAT(refusal({{"OMPI_COMM_WORLD_LOCAL_SIZE", "four"}}),
               Contains("OMPI_COMM_WORLD_LOCAL_SIZE=four: expected an integer"));
    CHECK_THAT(refusal({{"OMPI_COMM_WORLD_RANK", "-1"}}), Contains("OMPI_COMM_WORLD_RANK=-1: expected an integer"));
    CHECK_THAT(refusal({{"OMPI_COMM_WORLD_RANK", "8"}}), Contains("invalid variables of openmpi: rank 8 of 8"));
    CHECK_THAT(refusal({{"OMPI_COMM_WORLD_LOCAL_RANK", "4"}}),
               Contains("OMPI_COMM_WORLD_LOCAL_RANK=4 of OMPI_COMM_WORLD_LOCAL_SIZE=4"));
    CHECK_THAT(refusal({{"OMPI_COMM_WORLD_LOCAL_SIZE", "9"}}),
               Contains("OMPI_COMM_WORLD_LOCAL_SIZE=9, and OMPI_COMM_WORLD_SIZE=8"));
    CHECK_THAT(refusal({{"ORRERY_TOKEN", ""}}), Contains("openmpi started 8 ranks") && Contains("set ORRERY_TOKEN"));
}

TEST_CASE("threads of a rank are shared out of the processors that are allowed") {
    const std::vector<int> allowed = allowed_processors();
    REQUIRE_FALSE(allowed.empty());
    REQUIRE(run_on({allowed.back()}));
    CHECK(allowed_processors() == std::vector<int>{allowed.back()});
    CHECK(threads_of({}, {}) == 1);
    REQUIRE(run_on(allowed));
    CHECK(threads_of({}, {}) == usable_processors());
    Job job;
    job.local_ranks = static_cast<int64_t>(allowed.size());
    CHECK(threads_of({}, job) == 1);
    job.threads = 1000;  // a launcher cannot give what is not allowed
    CHECK(threads_of({}, job) == usable_processors());
    Settings asked;
    asked.threads_per_rank = 3;
    CHECK(threads_of(asked, job) == 3);
}

TEST_CASE("each rank gets processors of its own, or none does") {
    const std::vector<int> eight = {0, 1, 2, 3, 8, 9, 10, 11};
    CHECK(shares(eight, 2, 3) == std::vector<std::vector<int>>{{0, 1, 2, 3}, {8, 9, 10, 11}});
    CHECK(shares(eight, 3, 2) == std::vector<std::vector<int>>{{0, 1}, {2, 3}, {8, 9}});
    CHECK(shares(eight, 8, 1).size() == 8);
    CHECK(shares(eight, 3, 3).empty());
    CHECK(shares(eight, 9, 1).empty());
}

TEST_CASE("the threads of a rank have one knob") {
    Config config = parse_config("[device.cpu]\nthreads = 2\n", "a.toml", {});
    CHECK_THROWS_WITH(read_settings(config), Contains("a.toml:2") && Contains("set run.threads_per_rank"));
}

TEST_CASE("the job's secret from a file that nobody else may read", "[job]") {
    const std::string path = in_build("tests/secret_of_a_job");
    const auto written = [&](const std::string& text, mode_t mode) {
        std::ofstream(path, std::ios::trunc) << text;
        ::chmod(path.c_str(), mode);
    };
    const Variables file({{"ORRERY_TOKEN", ""}, {"ORRERY_TOKEN_FILE", path}});
    written(secret + "\n", 0600);
    CHECK(user_token() == secret);
    written(secret, 0400);
    CHECK(user_token() == secret);
    {
        const Variables both({{"ORRERY_TOKEN", secret}});
        CHECK_THROWS_WITH(user_token(), Contains("both set") && Contains("unset one"));
    }
    ::chmod(path.c_str(), 0600);
    for (const mode_t mode : {0640, 0604, 0620}) {
        ::chmod(path.c_str(), mode);
        CHECK_THROWS_WITH(user_token(), Contains(path + " has mode 06") && Contains("chmod 600 " + path));
    }
    ::chmod(path.c_str(), 0600);
    written("too short\n", 0600);
    CHECK_THROWS_WITH(user_token(), Contains("has 9 characters, expected 16 or more"));
    written(secret + "\n" + secret, 0600);
    CHECK_THROWS_WITH(user_token(), Contains("more than one line"));
    written(std::string(5000, 's'), 0600);
    CHECK_THROWS_WITH(user_token(), Contains("more than 4096 bytes"));
    const Variables folder({{"ORRERY_TOKEN_FILE", in_build("tests")}});
    CHECK_THROWS_WITH(user_token(), Contains("is a folder, expected a file"));
}

#include "run/control/job.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "base/processors.h"
#include "base/regular_file.h"
#include "base/text.h"
#include "orrery/error.h"
#include "run/control/address.h"
#include "run/control/rendezvous.h"

namespace orrery {
namespace {

std::optional<std::string> variable(const char* name) {
    const char* text = std::getenv(name);
    return text && *text ? std::optional<std::string>(text) : std::nullopt;
}

int64_t number_of(const char* name) {
    const auto text = variable(name);
    int64_t value = 0;
    if (!text) throw Error(fmt::format("environment: {} is not set, though other variables of its launcher are", name));
    const auto [end, fault] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (fault != std::errc() || end != text->data() + text->size() || value < 0)
        throw Error(fmt::format("environment: {}={} is not a count", name, *text));
    return value;
}

int64_t number_or(const char* name, int64_t fallback) { return variable(name) ? number_of(name) : fallback; }

constexpr size_t least_token = 16, most_token = 4096;

void require_long(const std::string& token, const std::string& where) {
    if (token.size() < least_token)
        throw Error(
            fmt::format("{} has {} character{}, expected {} or more: it is the secret that keeps others out of "
                        "the job",
                        where, token.size(), token.size() == 1 ? "" : "s", least_token));
}

/// What stands in a file that nobody else may read, without the end of its line.
std::string token_of_file(const std::string& path) {
    const std::string where = "ORRERY_TOKEN_FILE: " + path;
    const RegularFile file(path);
    if (!file.problem().empty())
        throw Error(
            fmt::format("{} {}\n  name a file that holds the job's secret, and nothing else", where, file.problem()));
    if (file.info().st_uid != ::geteuid())
        throw Error(
            fmt::format("{} belongs to user {}, expected {}, who runs this\n  use a copy of your own: "
                        "install -m 600 {} MINE",
                        where, file.info().st_uid, ::geteuid(), path));
    if ((file.info().st_mode & 077) != 0)
        throw Error(fmt::format("{} has mode {:04o}: others may read or write it, expected 0600\n  chmod 600 {}", where,
                                file.info().st_mode & 07777, path));
    std::string token = file.text(most_token + 1);
    if (token.size() > most_token)
        throw Error(fmt::format("{} has more than {} bytes: it is no secret's file", where, most_token));
    while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
    const auto control = [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; };
    if (std::any_of(token.begin(), token.end(), control))
        throw Error(
            fmt::format("{} has more than one line, or characters that are no text\n  write the secret alone: "
                        "(umask 077; openssl rand -hex 32 > {})",
                        where, path));
    require_long(token, where);
    return token;
}

/// Ranks of one job agree on a port without talking: some port of the dynamic range, from the job's id.
int port_from(const std::string& id) { return 29500 + static_cast<int>(std::hash<std::string>{}(id) % 8000); }

/// Whether all ranks are on this host; not known where the launcher does not count a host's ranks.
enum class Hosts : uint8_t { one, several, unknown };

Hosts hosts_of(const Job& job, bool counted) {
    if (!counted) return Hosts::unknown;
    return job.local_ranks == job.ranks ? Hosts::one : Hosts::several;
}

void refuse_unnamed(const Job& job, const std::string& fallback_host) {
    if (variable("MASTER_ADDR") || loopback_of(fallback_host).empty()) return;
    throw Error(
        fmt::format("{} started {} ranks, {} of them on this host, and MASTER_ADDR is not set\n"
                    "  set it for all of them to an address of rank 0's host that every host reaches{}",
                    job.launcher, job.ranks, job.local_ranks,
                    job.launcher == "openmpi" ? ", as mpirun -x MASTER_ADDR=10.0.0.1 -x ORRERY_TOKEN" : ""));
}

void settle_meeting(Job& job, const std::string& fallback_host, int port, Hosts hosts) {
    // Ranks of one host meet on its loopback interface, whatever address its name has.
    job.host = hosts == Hosts::one ? "127.0.0.1" : variable("MASTER_ADDR").value_or(fallback_host);
    job.port = port;
    job.serves = job.rank == 0;
    job.assigned = true;
    const std::string meeting = variable("MASTER_ADDR") ? "MASTER_ADDR=" + job.host : "MASTER_ADDR is not set";
    if (hosts == Hosts::several) refuse_unnamed(job, fallback_host);
    if (hosts == Hosts::several)
        refuse_loopback(job.host, fmt::format("{} started {} ranks, {} of them on this host; {}", job.launcher,
                                              job.ranks, job.local_ranks, meeting));
    const auto secret = user_token();
    if (!secret && job.ranks > 1 && loopback_of(job.host).empty())
        throw Error(
            fmt::format("{} started {} ranks that meet at {}:{}, where anybody could join them\n"
                        "  set ORRERY_TOKEN to one secret of 16 or more characters for all of them, or "
                        "ORRERY_TOKEN_FILE to a file of mode 0600 that holds it",
                        job.launcher, job.ranks, job.host, job.port));
    // On a loopback interface without a secret of the user's, the job's id keeps two jobs apart.
    job.token = secret.value_or(job.launcher + ":" + job.id);
}

void meet_at_master(Job& job, const std::string& fallback_host, int port, Hosts hosts) {
    try {
        settle_meeting(job, fallback_host, port, hosts);
    } catch (const Error& error) {
        if (job.local_rank > 0) throw SaidElsewhere(error.what(), error.fault());
        throw;
    }
}

int master_port(const Job& job) {
    const int64_t port = number_or("MASTER_PORT", port_from(job.id));
    if (port > 65535) throw Error(fmt::format("environment: MASTER_PORT={} is no port\n  set one up to 65535", port));
    return static_cast<int>(port);
}

Job from_torchrun() {
    Job job;
    job.launcher = "torchrun";
    job.id = variable("TORCHELASTIC_RUN_ID").value_or("torchrun");
    job.rank = number_of("RANK");
    job.ranks = number_of("WORLD_SIZE");
    job.local_rank = number_or("LOCAL_RANK", job.rank);
    job.local_ranks = number_or("LOCAL_WORLD_SIZE", job.ranks);
    job.generation = number_or("TORCHELASTIC_RESTART_COUNT", 0);
    if (job.local_rank >= job.local_ranks || job.local_ranks > job.ranks)
        throw Error(fmt::format("environment: LOCAL_RANK={} of LOCAL_WORLD_SIZE={}, and WORLD_SIZE={}", job.local_rank,
                                job.local_ranks, job.ranks));
    // torchrun's agent keeps a store of its own at MASTER_PORT.
    const int port = master_port(job), next = port < 65535 ? port + 1 : port - 1;
    const Hosts hosts = hosts_of(job, variable("LOCAL_WORLD_SIZE").has_value());
    meet_at_master(job, "127.0.0.1", variable("TORCHELASTIC_RUN_ID") ? next : port, hosts);
    return job;
}

Job from_slurm() {
    Job job;
    job.launcher = "slurm";
    job.id = variable("SLURM_JOB_ID").value_or("0") + "." + variable("SLURM_STEP_ID").value_or("0");
    job.rank = number_of("SLURM_PROCID");
    job.ranks = number_of("SLURM_STEP_NUM_TASKS");
    job.local_rank = number_of("SLURM_LOCALID");
    job.local_ranks = tasks_on(variable("SLURM_STEP_TASKS_PER_NODE").value_or(""), number_or("SLURM_NODEID", 0));
    const bool counted = job.local_ranks > 0;
    if (!counted) job.local_ranks = number_or("SLURM_NTASKS_PER_NODE", 1);
    job.threads = number_or("SLURM_CPUS_PER_TASK", 0);
    job.generation = number_or("SLURM_RESTART_COUNT", 0);
    // Rank 0 runs on the step's first host, which need not be the one where srun was called.
    meet_at_master(job, first_host(variable("SLURM_STEP_NODELIST").value_or("127.0.0.1")), master_port(job),
                   hosts_of(job, counted));
    return job;
}

Job from_openmpi() {
    Job job;
    job.launcher = "openmpi";
    job.id = variable("PMIX_NAMESPACE").value_or("openmpi");
    job.rank = number_of("OMPI_COMM_WORLD_RANK");
    job.ranks = number_of("OMPI_COMM_WORLD_SIZE");
    job.local_rank = number_of("OMPI_COMM_WORLD_LOCAL_RANK");
    job.local_ranks = number_of("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (job.local_rank >= job.local_ranks || job.local_ranks > job.ranks)
        throw Error(fmt::format("environment: openmpi says rank {} of {} on this host, and {} ranks in all",
                                job.local_rank, job.local_ranks, job.ranks));
    meet_at_master(job, "127.0.0.1", master_port(job), hosts_of(job, true));
    return job;
}

Job from_orrery() {
    Job job;
    job.launcher = "orrery";
    job.assigned = true;
    job.id = variable("ORRERY_JOB").value_or("local");
    job.token = variable("ORRERY_TOKEN").value_or("");
    job.generation = number_or("ORRERY_GENERATION", 0);
    job.run = variable("ORRERY_RUN").value_or("");
    job.nonce = variable("ORRERY_NONCE").value_or("");
    job.rank = number_of("ORRERY_RANK");
    job.ranks = number_of("ORRERY_RANKS");
    job.local_rank = number_of("ORRERY_LOCAL_RANK");
    job.local_ranks = number_of("ORRERY_LOCAL_RANKS");
    job.threads = number_or("ORRERY_THREADS", 0);
    job.processors = number_or("ORRERY_PROCESSORS", 0);
    job.host = variable("ORRERY_HOST").value_or("127.0.0.1");
    job.port = static_cast<int>(number_of("ORRERY_PORT"));
    return job;
}

}  // namespace

std::optional<std::string> user_token() {
    const auto token = variable("ORRERY_TOKEN"), file = variable("ORRERY_TOKEN_FILE");
    if (token && file)
        throw Error(
            "environment: ORRERY_TOKEN and ORRERY_TOKEN_FILE are both set, and one secret is wanted\n"
            "  unset one of them");
    if (file) return token_of_file(*file);
    if (token) require_long(*token, "environment: ORRERY_TOKEN");
    return token;
}

std::string nodes_left_out() {
    const int64_t nodes = number_or("SLURM_JOB_NUM_NODES", number_or("SLURM_NNODES", 1));
    if (nodes <= 1) return "";
    return fmt::format(
        "the Slurm job {} has {} nodes, but the ranks start on this one alone\n"
        "  for all of them: srun orrery run ..., with one task a rank",
        variable("SLURM_JOB_ID").value_or(""), nodes);
}

std::string first_host(std::string_view list) {
    std::string host;
    bool inside = false, chosen = false;  // in brackets; the first number in them is taken
    for (const char c : list) {
        if (c == '[') {
            inside = true;
            chosen = false;
        } else if (c == ']') {
            inside = false;
        } else if (!inside && c == ',') {
            break;
        } else if (inside && (c == ',' || c == '-')) {
            chosen = true;
        } else if (!chosen || !inside) {
            host += c;
        }
    }
    return host;
}

int64_t tasks_on(std::string_view list, int64_t node) {
    for (const std::string& group : split(list, ',')) {
        int64_t tasks = 0, nodes = 1;
        const char* end = group.data() + group.size();
        auto [at, fault] = std::from_chars(group.data(), end, tasks);
        if (fault != std::errc()) return 0;
        if (at != end && std::string_view(at, static_cast<size_t>(end - at)).starts_with("(x"))
            std::from_chars(at + 2, end, nodes);
        if (node < nodes) return tasks;
        node -= nodes;
    }
    return 0;
}

Job job_from_environment() {
    if (variable("ORRERY_RANK")) return from_orrery();
    Job job;
    if (variable("RANK") && variable("WORLD_SIZE"))
        job = from_torchrun();
    else if (variable("SLURM_STEP_NUM_TASKS") && variable("SLURM_PROCID"))
        job = from_slurm();
    else if (variable("OMPI_COMM_WORLD_RANK"))
        job = from_openmpi();
    if (job.rank >= job.ranks)
        throw Error(fmt::format("environment: {} says rank {} of {}", job.launcher, job.rank, job.ranks));
    job.nonce = make_nonce();  // the same in all its sessions
    return job;
}

int64_t processors_of_host(const Job& job) {
    if (job.processors > 0) return job.processors * job.local_ranks;
    return static_cast<int64_t>(allowed_processors().size());
}

std::vector<std::string> environment_of(const Job& job) {
    return {"ORRERY_JOB=" + job.id,
            "ORRERY_TOKEN=" + job.token,
            fmt::format("ORRERY_GENERATION={}", job.generation),
            "ORRERY_RUN=" + job.run,
            "ORRERY_NONCE=" + job.nonce,
            fmt::format("ORRERY_RANK={}", job.rank),
            fmt::format("ORRERY_RANKS={}", job.ranks),
            fmt::format("ORRERY_LOCAL_RANK={}", job.local_rank),
            fmt::format("ORRERY_LOCAL_RANKS={}", job.local_ranks),
            fmt::format("ORRERY_THREADS={}", job.threads),
            fmt::format("ORRERY_PROCESSORS={}", job.processors),
            "ORRERY_HOST=" + job.host,
            fmt::format("ORRERY_PORT={}", job.port)};
}

}  // namespace orrery

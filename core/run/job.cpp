#include "run/job.h"

#include <fmt/format.h>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>

#include "orrery/error.h"

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

/// Ranks of one job agree on a port without talking: some port of the dynamic range, from the job's id.
int port_from(const std::string& id) { return 29500 + static_cast<int>(std::hash<std::string>{}(id) % 8000); }

void meet_at_master(Job& job, const std::string& fallback_host) {
    job.host = variable("MASTER_ADDR").value_or(fallback_host);
    job.port = static_cast<int>(number_or("MASTER_PORT", port_from(job.id)));
    job.serves = job.rank == 0;
    job.assigned = true;
    // Without a secret of the user's, the job's id at least keeps two jobs apart.
    job.token = variable("ORRERY_TOKEN").value_or(job.launcher + ":" + job.id);
}

Job from_orrery() {
    Job job;
    job.launcher = "orrery";
    job.assigned = true;
    job.id = variable("ORRERY_JOB").value_or("local");
    job.token = variable("ORRERY_TOKEN").value_or("");
    job.generation = number_or("ORRERY_GENERATION", 0);
    job.rank = number_of("ORRERY_RANK");
    job.ranks = number_of("ORRERY_RANKS");
    job.local_rank = number_of("ORRERY_LOCAL_RANK");
    job.local_ranks = number_of("ORRERY_LOCAL_RANKS");
    job.host = variable("ORRERY_HOST").value_or("127.0.0.1");
    job.port = static_cast<int>(number_of("ORRERY_PORT"));
    return job;
}

}  // namespace

Job job_from_environment() {
    if (variable("ORRERY_RANK")) return from_orrery();
    Job job;
    if (variable("RANK") && variable("WORLD_SIZE")) {
        job.launcher = "torchrun";
        job.id = variable("TORCHELASTIC_RUN_ID").value_or("torchrun");
        job.rank = number_of("RANK");
        job.ranks = number_of("WORLD_SIZE");
        job.local_rank = number_or("LOCAL_RANK", job.rank);
        job.local_ranks = number_or("LOCAL_WORLD_SIZE", job.ranks);
        job.generation = number_or("TORCHELASTIC_RESTART_COUNT", 0);
        meet_at_master(job, "127.0.0.1");
    } else if (variable("SLURM_STEP_NUM_TASKS") && variable("SLURM_PROCID")) {
        job.launcher = "slurm";
        job.id = variable("SLURM_JOB_ID").value_or("0") + "." + variable("SLURM_STEP_ID").value_or("0");
        job.rank = number_of("SLURM_PROCID");
        job.ranks = number_of("SLURM_STEP_NUM_TASKS");
        job.local_rank = number_of("SLURM_LOCALID");
        job.local_ranks = number_or("SLURM_NTASKS_PER_NODE", 1);
        job.generation = number_or("SLURM_RESTART_COUNT", 0);
        meet_at_master(job, variable("SLURM_SRUN_COMM_HOST").value_or("127.0.0.1"));
    } else if (variable("OMPI_COMM_WORLD_RANK")) {
        job.launcher = "openmpi";
        job.id = variable("PMIX_NAMESPACE").value_or("openmpi");
        job.rank = number_of("OMPI_COMM_WORLD_RANK");
        job.ranks = number_of("OMPI_COMM_WORLD_SIZE");
        job.local_rank = number_of("OMPI_COMM_WORLD_LOCAL_RANK");
        job.local_ranks = number_of("OMPI_COMM_WORLD_LOCAL_SIZE");
        meet_at_master(job, "127.0.0.1");
    }
    if (job.rank >= job.ranks)
        throw Error(fmt::format("environment: {} says rank {} of {}", job.launcher, job.rank, job.ranks));
    return job;
}

std::vector<std::string> environment_of(const Job& job) {
    return {"ORRERY_JOB=" + job.id,
            "ORRERY_TOKEN=" + job.token,
            fmt::format("ORRERY_GENERATION={}", job.generation),
            fmt::format("ORRERY_RANK={}", job.rank),
            fmt::format("ORRERY_RANKS={}", job.ranks),
            fmt::format("ORRERY_LOCAL_RANK={}", job.local_rank),
            fmt::format("ORRERY_LOCAL_RANKS={}", job.local_ranks),
            "ORRERY_HOST=" + job.host,
            fmt::format("ORRERY_PORT={}", job.port)};
}

}  // namespace orrery

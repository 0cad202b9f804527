#include "run/control/job.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "base/hash.h"
#include "base/processors.h"
#include "base/regular_file.h"
#include "base/text.h"
#include "orrery/error.h"
#include "run/control/address.h"
#include "run/control/folder_meeting.h"
#include "run/control/rendezvous.h"
#include "run/control/secret_volume.h"

namespace orrery {
namespace {

const Environment& of_process() {
    static const Environment all([](const char* name) -> const char* { return std::getenv(name); });
    return all;
}

std::optional<std::string> variable(const char* name) { return of_process().text(name); }
int64_t number_of(const char* name) { return of_process().count(name); }
int64_t number_or(const char* name, int64_t fallback) { return of_process().count_or(name, fallback); }

constexpr size_t least_token = 16, most_token = 4096;

void require_long(const std::string& token, const std::string& where) {
    if (token.size() < least_token)
        throw Error(
            fmt::format("{} has {} character{}, expected {} or more: it is the secret that keeps others out of "
                        "the job",
                        where, token.size(), token.size() == 1 ? "" : "s", least_token));
}

std::string token_of_file(const std::string& path) {
    const std::string where = "ORRERY_TOKEN_FILE: " + path;
    const RegularFile file(path);
    if (!file.problem().empty())
        throw Error(
            fmt::format("{} {}\n  name a file that holds the job's secret, and nothing else", where, file.problem()));
    const mode_t mode = file.info().st_mode;
    if (file.info().st_uid != ::geteuid() && file.info().st_uid != 0)
        throw Error(
            fmt::format("{} belongs to user {}, expected the current user {} or root\n  use a copy of your "
                        "own: install -m 600 {} MINE",
                        where, file.info().st_uid, ::geteuid(), path));
    if ((mode & 022) != 0 || ((mode & 055) != 0 && !is_in_secret_volume(path, file.info())))
        throw Error(fmt::format(
            "{} has mode {:04o}: others may {} it, expected 0600\n  chmod 600 {}{}", where, mode & 07777,
            (mode & 022) != 0 ? "read or write" : "read", path,
            (mode & 022) == 0 ? "; in a pod, mount the Secret as a whole volume (no subPath), read-only" : ""));
    std::string token = file.text(most_token + 1);
    if (token.size() > most_token)
        throw Error(fmt::format("{} has more than {} bytes, too many for a secret\n  name the file of the job's secret",
                                where, most_token));
    while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
    const auto control = [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; };
    if (std::any_of(token.begin(), token.end(), control))
        throw Error(
            fmt::format("{} has more than one line, or control characters\n  write only the secret: "
                        "(umask 077; openssl rand -hex 32 > {})",
                        where, path));
    require_long(token, where);
    return token;
}

/// Whether all ranks of the job are on this host; unknown if the launcher does not count ranks per host.
enum class Hosts : uint8_t { one, several, unknown };

Hosts hosts_of(const LaunchedRank& rank) {
    if (!rank.counted) return Hosts::unknown;
    return rank.local_ranks == rank.ranks ? Hosts::one : Hosts::several;
}

void refuse_unnamed(const Job& job, const LaunchedRank& rank) {
    if (variable("MASTER_ADDR") || loopback_of(rank.first_host).empty()) return;
    throw Error(
        fmt::format("{} started {} ranks, {} of them on this host, and MASTER_ADDR is not set\n"
                    "  set it for all of them to an address of rank 0's host that every host reaches{}",
                    job.launcher, job.ranks, job.local_ranks, rank.hint.empty() ? "" : ", as " + rank.hint));
}

/// The port of a job's rendezvous. Ranks derive it from the job's id, without communicating.
int master_port(const std::string& id, const LaunchedTask& task) {
    const int64_t port = number_or("MASTER_PORT", task.ports.value_or(any_ports).of(id));
    if (port > 65535)
        throw Error(fmt::format("environment: MASTER_PORT={} is not a port\n  set a port up to 65535", port));
    if (!task.place.keeps_port) return static_cast<int>(port);
    if (task.ports) {
        const int other = task.ports->of(fmt::format("{} {}", id, port));
        return other != port ? other : other < task.ports->last ? other + 1 : task.ports->first;
    }
    return static_cast<int>(port < 65535 ? port + 1 : port - 1);
}

/// Task 0 chooses address, port and secret, and tells the others.
void meet_in_folder(Job& job, const LaunchedTask& task, const MeetingFolder& folder) {
    const LaunchedRank& rank = task.place;
    const bool has_id = rank.job != job.launcher;
    const std::string id = has_id ? rank.job : rank.job + "-" + sha256(folder.command).substr(0, 16);
    const FolderMeeting meeting{folder.path, id, job.rank, job.ranks, folder.limit};
    MeetingPlace place;
    try {
        if (job.rank == 0) {
            place.id = rank.job + "." + make_nonce().substr(0, 8);
            place.host = hosts_of(rank) == Hosts::one ? "127.0.0.1" : own_address();
            place.port = master_port(place.id, task);
            place.secret = make_secret();
            tell_place(meeting, place);
        } else {
            place = ask_place(meeting);
        }
    } catch (const Error& error) {
        throw Error(fmt::format("{} started {} ranks, {} of them on this host: {}\n"
                                "  or set MASTER_ADDR and ORRERY_TOKEN for all of them, as {}",
                                job.launcher, job.ranks, job.local_ranks, error.what(), rank.hint),
                    error.fault());
    }
    job.id = place.id;
    job.host = place.host;
    job.port = place.port;
    job.token = user_token().value_or(place.secret);
}

void settle(Job& job, const LaunchedTask& task, const std::optional<MeetingFolder>& folder) {
    const LaunchedRank& rank = task.place;
    if (folder && rank.meets_in_folder && job.ranks > 1 && !variable("MASTER_ADDR"))
        return meet_in_folder(job, task, *folder);
    const Hosts hosts = hosts_of(rank);
    // If all ranks are on one host, they meet on its loopback interface, whatever the host's name resolves to.
    job.host = hosts == Hosts::one ? "127.0.0.1" : variable("MASTER_ADDR").value_or(rank.first_host);
    job.port = master_port(job.id, task);
    const std::string meeting = variable("MASTER_ADDR") ? "MASTER_ADDR=" + job.host : "MASTER_ADDR is not set";
    if (hosts == Hosts::several) refuse_unnamed(job, rank);
    if (hosts == Hosts::several)
        refuse_loopback(job.host, fmt::format("{} started {} ranks, {} of them on this host; {}", job.launcher,
                                              job.ranks, job.local_ranks, meeting));
    const auto secret = user_token();
    if (!secret && job.ranks > 1 && loopback_of(job.host).empty())
        throw Error(
            fmt::format("{} started {} ranks with an unauthenticated rendezvous at {}:{}, which anybody could join\n"
                        "  set ORRERY_TOKEN to one secret of 16 or more characters for all of them, or "
                        "ORRERY_TOKEN_FILE to a file of mode 0600 that holds it",
                        job.launcher, job.ranks, job.host, job.port));
    // Without a user's secret, ranks meet on the loopback interface, where the job's id keeps jobs apart.
    job.token = secret.value_or(job.launcher + ":" + job.id);
}

struct Asked {
    const KnownLauncher* known;
    std::unique_ptr<Launcher> launcher;
};

std::vector<Asked> opened(const Launchers& launchers) {
    std::vector<Asked> all;
    for (const KnownLauncher& one : launchers.known) {
        const bool here = one.variables.empty() || std::ranges::any_of(one.variables, [](const std::string& name) {
                              return variable(name.c_str()).has_value();
                          });
        if (here) all.push_back({&one, one.open()});
    }
    return all;
}

/// Returns the launchers that started this process, except those that only started another launcher.
std::vector<Asked> detected(const Launchers& launchers) {
    std::vector<Asked> all = opened(launchers);
    std::erase_if(all, [](const Asked& one) { return !one.launcher->detect(of_process()); });
    const auto is_outer = [&](const KnownLauncher* outer) {
        return std::ranges::any_of(
            all, [&](const Asked& one) { return std::ranges::count(one.known->inside, outer->name) > 0; });
    };
    std::vector<const KnownLauncher*> outer;
    for (const Asked& one : all)
        if (is_outer(one.known)) outer.push_back(one.known);
    std::erase_if(all, [&](const Asked& one) { return std::ranges::count(outer, one.known) > 0; });
    return all;
}

void refuse_several(const std::vector<Asked>& found) {
    if (found.size() < 2) return;
    std::vector<std::string> names;
    for (const Asked& one : found) names.push_back(one.known->name);
    throw Error(
        fmt::format("the environment has variables of several launchers: {}\n  choose the one that started the "
                    "ranks: [run] launcher = \"{}\"",
                    join(names, " and "), names.front()));
}

}  // namespace

std::optional<std::string> user_token() {
    const auto token = variable("ORRERY_TOKEN"), file = variable("ORRERY_TOKEN_FILE");
    if (token && file)
        throw Error(
            "environment: ORRERY_TOKEN and ORRERY_TOKEN_FILE are both set, but only one secret is allowed\n"
            "  unset one of them");
    if (file) return token_of_file(*file);
    if (token) require_long(*token, "environment: ORRERY_TOKEN");
    return token;
}

std::string nodes_left_out(const Launchers& launchers) {
    for (const Asked& one : opened(launchers))
        if (std::string text = one.launcher->left_out(of_process()); !text.empty()) return text;
    return "";
}

std::optional<LaunchedTask> launched_task(const std::function<Launchers()>& find) {
    if (variable("ORRERY_RANK")) return std::nullopt;
    const Launchers launchers = find();
    const std::vector<Asked> found = detected(launchers);
    refuse_several(found);
    if (found.empty() && launchers.required)
        throw Error(launchers.asked,
                    fmt::format("run.launcher = \"{0}\", but {0} has not started this process\n  start it with {0}, or "
                                "leave run.launcher out",
                                launchers.known.front().name));
    if (found.empty()) return std::nullopt;
    const KnownLauncher& by = *found.front().known;
    LaunchedTask task{by.name,         !by.uncounted, by.restarts, found.front().launcher->read(of_process()),
                      launchers.ports, by.late_name};
    const LaunchedRank& rank = task.place;
    const bool placed = !rank.counted || (rank.local_rank < rank.local_ranks && rank.local_ranks <= rank.ranks);
    if (std::min({rank.rank, rank.generation, rank.threads}) < 0 || rank.local_rank < -1 || rank.local_ranks < 1 ||
        !placed)
        throw Error(fmt::format("environment: invalid variables of {}: rank {} of {}, local rank {} of {}", by.name,
                                rank.rank, rank.ranks, rank.local_rank, rank.local_ranks));
    if (rank.rank >= rank.ranks)
        throw Error(
            fmt::format("environment: invalid variables of {}: rank {} of {} ranks", by.name, rank.rank, rank.ranks));
    return task;
}

Job job_of(const LaunchedTask& task) {
    const LaunchedRank& rank = task.place;
    Job job;
    job.launcher = task.launcher;
    job.counted = task.counted;
    job.restarts = task.restarts;
    job.id = rank.job;
    job.generation = rank.generation;
    job.rank = rank.rank;
    job.ranks = rank.ranks;
    job.local_rank = rank.local_rank;
    job.local_ranks = rank.local_ranks;
    job.threads = rank.threads;
    job.serves = job.rank == 0;
    job.assigned = true;
    job.nonce = make_nonce();  // the same in all sessions of this process
    return job;
}

void settle_meeting(Job& job, const LaunchedTask& task, const std::optional<MeetingFolder>& folder) {
    try {
        settle(job, task, folder);
    } catch (const Error& error) {
        if (job.local_rank > 0) throw SaidElsewhere(error.what(), error.fault());
        throw;
    }
}

void require_local_rank(const Job& job) {
    if (job.local_rank < 0)
        throw Error(
            fmt::format("{} started {} ranks, but the local rank of rank {} (its GPU) is unknown: LOCAL_RANK and "
                        "LOCAL_WORLD_SIZE are not set\n  set both for each rank: its place among the ranks "
                        "of its host, which is the number of its GPU, and how many these are",
                        job.launcher, job.ranks, job.rank));
}

std::optional<Job> job_from_orrery() {
    if (!variable("ORRERY_RANK")) return std::nullopt;
    Job job;
    job.launcher = "orrery";
    job.ours = true;
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

Job job_from_environment(const std::function<Launchers()>& find) {
    if (const auto ours = job_from_orrery()) return *ours;
    Job job;
    if (const auto task = launched_task(find)) {
        job = job_of(*task);
        require_local_rank(job);
        settle_meeting(job, *task, std::nullopt);
    }
    if (job.nonce.empty()) job.nonce = make_nonce();
    return job;
}

int64_t processors_of_host(const Job& job) {
    if (job.processors > 0) return job.processors * job.local_ranks;
    return usable_processors();
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

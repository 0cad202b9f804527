#include "cli/tell.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <thread>

#include "orrery/error.h"
#include "run/control/address.h"
#include "run/control/rendezvous.h"
#include "run/control/stop_request.h"

namespace orrery {
namespace {

using namespace std::chrono_literals;
using Milliseconds = std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr auto stays = 2s;
constexpr size_t most_told = 4000;  // less than a frame of fail() keeps

/// A signal ends the last words, not the failure that they are about.
bool hurried() { return stop_signal() != 0; }

void stay(Milliseconds limit, const std::function<bool()>& done) {
    const auto until = Clock::now() + limit;
    while (!done() && !hurried() && Clock::now() < until) std::this_thread::sleep_for(5ms);
}

void print(const std::string& what) { std::fprintf(stderr, "orrery: %s\n", what.c_str()); }

std::string failed(const std::string& who, const std::string& what) {
    return fmt::format("{} (pid {} on host {}) failed: {}", who, ::getpid(), host_name(), what.substr(0, most_told));
}

/// Serves a job that is over, for those who come to join it.
void serve_end(RendezvousServer::Options options, const std::string& why) {
    options.lost = why;
    options.linger = 0ms;
    try {
        const RendezvousServer server(options);
        stay(stays, [] { return false; });
    } catch (const Error&) {  // its place is taken: nobody of this job will come
    }
}

std::string wait_lost(const TcpRendezvous& rendezvous, Milliseconds limit) {
    stay(limit, [&] { return !rendezvous.lost().empty(); });
    return rendezvous.lost();
}

enum class Told : uint8_t { now, before, not_at_all };

/// `before`: another one has failed of the same.
Told tell(TcpRendezvous::Options options, const std::string& what, Milliseconds limit) {
    options.timeout = limit;
    options.give_up = hurried;
    try {
        TcpRendezvous rendezvous(options);
        if (const std::string lost = wait_lost(rendezvous, 100ms); !lost.empty())
            return lost.ends_with(" failed: " + what.substr(0, most_told)) ? Told::before : Told::now;
        rendezvous.fail(what.substr(0, most_told));
        wait_lost(rendezvous, 1000ms);  // it has arrived
        return Told::now;
    } catch (const Error&) {
        return Told::not_at_all;
    }
}

}  // namespace

int end_rank(const Job& job, const std::string& what, int code, RendezvousServer* server) {
    ends_by_itself();
    const std::string said = job.ranks > 1 ? fmt::format("[rank {}] {}", job.rank, what) : what;
    if (job.ranks == 1 || job.serves) print(said);
    if (job.ranks == 1) return code;
    if (job.serves && server) {
        server->fail(failed("rank 0", what));
        stay(stays, [] { return false; });
        return code;
    }
    if (job.serves) {
        RendezvousServer::Options options = options_of(job, 0);
        options.home = job.rank;
        serve_end(options, failed("rank 0", what));
        return code;
    }
    const Told told = tell(place_of(job), what, 2s);
    if (told != Told::before) print(said);
    // After a session of theirs the others may have ended, with the place where they met.
    if (told == Told::not_at_all && job.session == 0) tell(place_of(job), what, 28s);
    return code;
}

int end_launcher(const ScriptCommand& command, const std::string& what, int code) {
    ends_by_itself();
    print(what);
    const auto place = parse_place(command.rendezvous);
    const auto token = user_token();
    if (!place || !token || command.node_rank < 0) return code;
    if (command.node_rank == 0) {
        RendezvousServer::Options options;
        options.host = place->host;
        options.port = place->port;
        options.token = {*token, job_name(command), 0};
        serve_end(options, failed("the launcher of node 0", what));
        return code;
    }
    TcpRendezvous::Options options;
    options.host = place->host;
    options.port = place->port;
    options.rank = -1 - command.node_rank;
    options.token = {*token, job_name(command), 0};
    tell(options, what, 30s);
    return code;
}

void tell_end(RendezvousServer& server, const std::string& what) {
    server.fail(failed("the launcher of node 0", what));
}

void tell_gone(const Job& shared, int64_t node, int64_t rank, const std::string& how) {
    TcpRendezvous::Options options = place_of(shared);
    options.rank = -1 - node;
    options.timeout = 1s;
    try {
        TcpRendezvous rendezvous(options);
        rendezvous.gone(rank, how);
        wait_lost(rendezvous, 500ms);
    } catch (const Error&) {  // node 0 has ended: its ranks know why
    }
}

std::string job_name(const ScriptCommand& command) { return std::filesystem::path(command.script).stem().string(); }

}  // namespace orrery

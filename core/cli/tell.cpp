#include "cli/tell.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <thread>

#include "config/load.h"
#include "orrery/error.h"
#include "plugin/loader.h"
#include "run/control/address.h"
#include "run/control/rendezvous.h"
#include "run/control/stop_request.h"
#include "run/settings.h"

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
void serve_end(RendezvousBackend& backend, ServeOptions options, const std::string& why) {
    options.lost = why;
    options.linger = 0ms;
    try {
        const auto server = serve(backend, options);
        stay(stays, [] { return false; });
    } catch (const Error&) {  // its place is taken: nobody of this job will come
    }
}

std::string wait_lost(const Rendezvous& rendezvous, Milliseconds limit) {
    stay(limit, [&] { return !rendezvous.lost().empty(); });
    return rendezvous.lost();
}

enum class Told : uint8_t { now, before, not_at_all };

/// `before`: another one has failed of the same.
Told tell(RendezvousBackend& backend, JoinOptions options, const std::string& what, Milliseconds limit) {
    options.timeout = limit;
    options.give_up = hurried;
    try {
        const auto rendezvous = backend.join(options);
        if (const std::string lost = wait_lost(*rendezvous, 100ms); !lost.empty())
            return lost.ends_with(" failed: " + what.substr(0, most_told)) ? Told::before : Told::now;
        rendezvous->fail(what.substr(0, most_told));
        wait_lost(*rendezvous, 1000ms);  // it has arrived
        return Told::now;
    } catch (const Error&) {
        return Told::not_at_all;
    }
}

/// nullptr: there is none, and nobody can be told.
std::shared_ptr<RendezvousBackend> any_meeting(const std::function<Config()>& read) {
    try {
        return meeting_of(read);
    } catch (const Error&) {
        return nullptr;
    }
}

/// Without it nobody can be told either; what is wrong with it is said already.
std::optional<std::string> any_token() {
    try {
        return user_token();
    } catch (const Error&) {
        return std::nullopt;
    }
}

}  // namespace

std::shared_ptr<RendezvousBackend> meeting_by(Config& config) {
    const std::string name = config.table("run").text("rendezvous", Settings().rendezvous);
    const Loader loader(and_plugin_folders(config.table("plugins").texts("path")));
    Registry registry;
    loader.load("rendezvous", name, registry, config.table("run").where("rendezvous"));
    return make_rendezvous(name, config, registry);
}

std::shared_ptr<RendezvousBackend> meeting_of(const std::function<Config()>& read) {
    Config config;
    try {
        config = read();
        return meeting_by(config);
    } catch (const Error&) {
        Config none;
        return meeting_by(none);
    }
}

int end_rank(const Job& job, const std::string& what, int code, const std::shared_ptr<RendezvousBackend>& known,
             RendezvousService* server) {
    ends_by_itself();
    const std::string said = job.ranks > 1 ? fmt::format("[rank {}] {}", job.rank, what) : what;
    if (job.ranks == 1 || job.serves) print(said);
    if (job.ranks == 1) return code;
    if (job.serves && server) {
        server->fail(failed("rank 0", what));
        stay(stays, [] { return false; });
        return code;
    }
    const auto backend = known ? known : any_meeting([] { return Config(); });
    if (job.serves) {
        ServeOptions options = options_of(job, 0);
        options.home = job.rank;
        if (backend) serve_end(*backend, options, failed("rank 0", what));
        return code;
    }
    const Told told = backend ? tell(*backend, place_of(job), what, 2s) : Told::not_at_all;
    if (told != Told::before) print(said);
    // After a session of theirs the others may have ended, with the place where they met.
    if (backend && told == Told::not_at_all && job.session == 0) tell(*backend, place_of(job), what, 28s);
    return code;
}

int end_launcher(const ScriptCommand& command, const std::string& what, int code) {
    ends_by_itself();
    print(what);
    const auto place = parse_place(command.rendezvous);
    const auto token = any_token();
    const auto backend = any_meeting([&] { return load_config(command.config, command.sets); });
    if (!place || !token || command.node_rank < 0 || !backend) return code;
    if (command.node_rank == 0) {
        ServeOptions options;
        options.host = place->host;
        options.port = place->port;
        options.token = {*token, job_name(command), 0};
        serve_end(*backend, options, failed("the launcher of node 0", what));
        return code;
    }
    JoinOptions options;
    options.host = place->host;
    options.port = place->port;
    options.rank = -1 - command.node_rank;
    options.token = {*token, job_name(command), 0};
    tell(*backend, options, what, 30s);
    return code;
}

void tell_end(RendezvousService& server, const std::string& what) {
    server.fail(failed("the launcher of node 0", what));
}

void tell_gone(RendezvousBackend& backend, const Job& shared, int64_t node, int64_t rank, const std::string& how) {
    JoinOptions options = place_of(shared);
    options.rank = -1 - node;
    options.timeout = 1s;
    try {
        const auto rendezvous = backend.join(options);
        rendezvous->gone(rank, how);
        wait_lost(*rendezvous, 500ms);
    } catch (const Error&) {  // node 0 has ended: its ranks know why
    }
}

std::string job_name(const ScriptCommand& command) { return std::filesystem::path(command.script).stem().string(); }

}  // namespace orrery

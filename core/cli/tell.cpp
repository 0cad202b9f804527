#include "cli/tell.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/hash.h"
#include "cli/command_line.h"
#include "cli/supervise/agents.h"
#include "config/load.h"
#include "control/loss.h"
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
constexpr size_t most_told = 4000;  // max bytes of a reported text: less than the largest frame for fail() can hold

/// Whether a signal ends the wait; it does not change the reported failure.
bool hurried() { return stop_signal() != 0; }

void stay(Milliseconds limit, const std::function<bool()>& done) {
    const auto until = Clock::now() + limit;
    while (!done() && !hurried() && Clock::now() < until) std::this_thread::sleep_for(5ms);
}

void print(const Message& what) { std::fprintf(stderr, "orrery: %s\n", what.shown().c_str()); }

/// The loss of a process that fails before it joins the rendezvous. Restarts compare losses by `site`. Usage errors are
/// never restarted: their site has a digest of the text, so that different ones are all printed.
Loss started_badly(const Message& what, Fault fault) {
    const std::string digest =
        fault == Fault::usage ? fmt::format("-{:08x}", crc32c(bytes_of(what.shown()))) : std::string();
    return loss_of(fault, what.cut(most_told), "start" + digest);
}

Loss failed(const std::string& who, const Message& what, Fault fault) {
    Loss loss = started_badly(what, fault);
    loss.text = fmt::format("{} (pid {} on host {}) failed: ", who, ::getpid(), host_name()) + loss.text;
    return loss;
}

Loss rank_0_failed(const Message& what, Fault fault) {
    Loss loss = failed("rank 0", what, fault);
    loss.rank = 0;
    return loss;
}

Loss node_0_failed(const Message& what, Fault fault) {
    Loss loss = failed("the launcher of node 0", what, fault);
    loss.node = 0;
    return loss;
}

/// Serves the rendezvous of a job that is over, so that processes that still join learn why.
void serve_end(RendezvousBackend& backend, ServeOptions options, const Loss& why) {
    options.lost = why;
    options.linger = 0ms;
    try {
        const auto server = serve(backend, options);
        stay(stays, [] { return false; });
    } catch (const Error&) {  // another program uses the address, so no process of this job can come
    }
}

Loss wait_lost(const Member& rendezvous, Milliseconds limit) {
    stay(limit, [&] { return !rendezvous.lost().empty(); });
    return rendezvous.loss();
}

enum class Told : uint8_t { now, before, not_at_all };

/// Reports `how` to the rendezvous. Returns `before` if another rank has failed in the same way.
Told tell(RendezvousBackend& backend, JoinOptions options, const Loss& how, Milliseconds limit) {
    options.timeout = limit;
    options.give_up = hurried;
    try {
        const auto rendezvous = backend.join(options);
        if (const Loss lost = wait_lost(*rendezvous, 100ms)) return same_failure(lost, how) ? Told::before : Told::now;
        rendezvous->fail(how);
        wait_lost(*rendezvous, 1000ms);  // waits for the acknowledgement
        return Told::now;
    } catch (const Error&) {
        return Told::not_at_all;
    }
}

std::shared_ptr<RendezvousBackend> any_meeting(const std::function<Config()>& read) {
    try {
        return meeting_of(read);
    } catch (const Error&) {
        return nullptr;
    }
}

/// Returns the user's token; none if it is invalid, which has been reported already.
std::optional<std::string> any_token() {
    try {
        return user_token();
    } catch (const Error&) {
        return std::nullopt;
    }
}

}  // namespace

std::shared_ptr<RendezvousBackend> meeting_by(Config& config) {
    const std::string name = config.table("run").require_text("rendezvous");
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
        Config none = load_config("");
        return meeting_by(none);
    }
}

int end_rank(const Job& job, const std::string& what, Fault fault, const std::shared_ptr<RendezvousBackend>& known,
             RendezvousService* server) {
    const int code = exit_code(fault);
    ends_by_itself();
    const std::string said = job.ranks > 1 ? fmt::format("[rank {}] {}", job.rank, what) : what;
    if (job.ranks == 1 || job.serves) print(said);
    if (job.ranks == 1) return code;
    if (job.serves && server) {
        server->fail(rank_0_failed(what, fault));
        stay(stays, [] { return false; });
        return code;
    }
    const auto backend = known ? known : any_meeting([] { return load_config(""); });
    if (job.serves) {
        ServeOptions options = options_of(job, 0);
        options.home = job.rank;
        if (backend) serve_end(*backend, options, rank_0_failed(what, fault));
        return code;
    }
    const Loss how = started_badly(what, fault);
    const Told told = backend ? tell(*backend, place_of(job), how, 2s) : Told::not_at_all;
    if (told != Told::before) print(said);
    // Before the first session, the rendezvous may still be starting; after a session, it may be over.
    if (backend && told == Told::not_at_all && job.session == 0) tell(*backend, place_of(job), how, 28s);
    return code;
}

int end_launcher(const ScriptCommand& command, const std::string& what, Fault fault) {
    ends_by_itself();
    print(what);
    const int code = exit_code(fault);
    const auto place = parse_place(command.rendezvous);
    const auto token = command.token.empty() ? any_token() : command.token;
    const auto backend = any_meeting([&] { return load_config(command.config, command.sets); });
    if (!place || !token || command.node_rank < 0 || !backend || fault == Fault::peer) return code;
    Job job;
    job.host = place->host;
    job.port = place->port;
    job.token = *token;
    job.id = job_name(command);
    if (command.node_rank == 0) {
        serve_end(*backend, options_of(job, 0), node_0_failed(what, fault));
        return code;
    }
    JoinOptions options = place_of(job);
    options.rank = -1 - command.node_rank;
    const Loss how = started_badly(what, fault);
    const auto to_launchers = [&](Milliseconds limit) {
        return report_failure(*backend, job, command.node_rank, how, limit, hurried);
    };
    const auto to_ranks = [&](Milliseconds limit) { return tell(*backend, options, how, limit) != Told::not_at_all; };
    // Whether other nodes use --restarts is not known here, so both kinds of rendezvous are tried.
    if (command.restarts > 0)
        to_launchers(30s) || to_ranks(1s);
    else
        to_ranks(30s) || to_launchers(1s);
    return code;
}

void tell_end(RendezvousService& server, const std::string& what, Fault fault) {
    server.fail(node_0_failed(what, fault));
}

void tell_gone(RendezvousBackend& backend, const Job& shared, int64_t slot, const Loss& how) {
    JoinOptions options = place_of(shared);
    options.rank = -1 - slot;
    options.timeout = 1s;
    try {
        const auto rendezvous = backend.join(options);
        rendezvous->gone(how);
        wait_lost(*rendezvous, 500ms);
        rendezvous->leave();
    } catch (const Error&) {  // node 0 has ended: its ranks know the reason
    }
}

int end_by(const Loss& loss) {
    print("the job ends: " + loss.text);
    return loss.code;
}

std::string job_name(const ScriptCommand& command) {
    return command.job.empty() ? std::filesystem::path(command.script).stem().string() : command.job;
}

}  // namespace orrery

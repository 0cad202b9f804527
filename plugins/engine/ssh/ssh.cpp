#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "../shell.h"
#include "all_hosts.h"
#include "hostfile.h"
#include "node.h"
#include "orrery/config.h"
#include "orrery/engine.h"
#include "orrery/plugin.h"

namespace orrery {
namespace {

/// A port for the rendezvous of a job, of run.ports if set, the same for the same folder.
int64_t port_of(const std::string& folder, const std::string& ports) {
    int first = 29500, last = 37499;
    std::sscanf(ports.c_str(), "%d-%d", &first, &last);  // core has checked them
    uint64_t hash = 14695981039346656037ULL;             // FNV-1a
    for (const char c : folder) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    return first + static_cast<int64_t>(hash % static_cast<uint64_t>(last - first + 1));
}

/// Shell: `text`, whole lines, to a command's input; its end mark is a line that the text does not have.
std::string document(const std::string& command, const std::string& text) {
    std::string mark = "END";
    while (("\n" + text).find("\n" + mark + "\n") != std::string::npos) mark += "_";
    return command + " << '" + mark + "'\n" + text + mark + "\n";
}

/// Shell: a function that prints `text`.
std::string printer(const std::string& name, const std::string& text) {
    return name + "() {\n" + document("cat", text) + "}\n";
}

std::string assigned(const std::string& name, const std::string& value) { return name + "=" + quoted(value) + "\n"; }

/// The part of `orrery run SCRIPT FLAGS` that `orrery check` takes: script, configuration, settings.
std::vector<std::string> checked(const EngineJob& job) {
    std::vector<std::string> words = {"check"};
    const auto& command = job.command;
    if (command.size() > 2) words.push_back(command[2]);
    for (size_t i = 3; i < command.size(); ++i) {
        const std::string& word = command[i];
        if ((word == "-c" || word == "--config" || word == "-s" || word == "--set") && i + 1 < command.size()) {
            words.push_back(word);
            words.push_back(command[++i]);
        } else if (word.starts_with("--config=") || word.starts_with("--set=")) {
            words.push_back(word);
        }
    }
    return words;
}

/// A job's name is HOST:FOLDER, of its first host and its run's folder.
struct Name {
    std::string host, folder;
    bool valid = false;
};

Name parse_name(const std::string& name) {
    const size_t at = name.find(":/");
    if (at == std::string::npos || at == 0 || name.front() == '-') return {};
    return {name.substr(0, at), name.substr(at + 1), true};
}

/// A call that refuses a name.
EngineCall not_a_job(const std::string& name) {
    return {{"sh"},
            "echo " +
                quoted("\"" + name + "\" is not a job of the engine ssh\n  name its first host and its run's " +
                       "folder, as n1:/shared/runs/gpt") +
                " >&2\nexit 2\n"};
}

class Ssh : public Engine {
public:
    explicit Ssh(Config& config)
        : hostfile_(config.text("hostfile", "")),
          program_(config.text("program", "ssh")),
          address_(config.text("address", "")),
          port_(config.integer("port", 0)),
          ports_(config.text("ports", "")),
          extra_(config.texts("extra")),
          asked_(config.origin()) {
        if (port_ < 0 || port_ > 65535)
            throw Error(config.where("port"), "submit.ssh.port = " + std::to_string(port_) + ", expected 1 to 65535");
        if (address_.find_first_of("' \t\n\\") != std::string::npos)
            throw Error(config.where("address"), "submit.ssh.address is not a host: " + address_);
    }

    std::string text(const EngineJob& job) const override {
        if (job.time_s > 0)
            throw Error(asked_, "submit.time: ssh starts processes and does not limit their time\n  leave it out");
        if (job.token_file.empty())
            throw Error(asked_, "engine ssh: the run's folder is not visible here\n  submit where it is shared");
        const std::vector<Host> hosts = hosts_of(job);
        std::string table, nodes = std::to_string(job.nodes) + (job.nodes == 1 ? " node" : " nodes");
        if (job.spares > 0) nodes += " and " + std::to_string(job.spares) + " to spare";
        for (size_t i = 0; i < hosts.size(); ++i)
            table += std::to_string(i) + " " + hosts[i].name + " " + std::to_string(hosts[i].line) + "\n";
        const std::string node = node_script(job, hosts[0].name, hosts.size());
        return "#!/bin/sh\n# The job " + job.name + " on " + nodes + " with " + std::to_string(job.ranks_per_node) +
               (job.ranks_per_node == 1 ? " rank" : " ranks") +
               " each: checks every host, then starts an agent on each.\n" + assigned("first", hosts[0].name) +
               assigned("run", job.folder) + assigned("file", hostfile_) + assigned("address", address_) +
               "nodes=" + std::to_string(hosts.size()) + "\n" + printer("hosts", table) + on() +
               printer("node_script", node) +
               printer("ender", assigned("run", job.folder) + "signal=KILL\n" + on_host::functions + on_host::stop) +
               on_all_hosts::submit;
    }

    /// The shell outlives this process: a job is started whole, or not at all.
    EngineCall submit(const EngineJob&, const std::string& text) const override {
        return {{"setpriv", "--pdeathsig", "clear", "sh"}, text};
    }

    std::string name_in(const EngineJob& job, const std::string& output) const override {
        const std::string before = "started ", after = ":" + job.folder + "\n";
        const size_t begin = output.rfind("\n" + before), end = output.size() - std::min(after.size(), output.size());
        if (begin == std::string::npos || output.substr(end) != after || begin + before.size() >= end)
            throw Error("ssh did not start the job: " + output, Fault::failed);
        return output.substr(begin + 1 + before.size(), output.size() - begin - 2 - before.size());
    }

    std::string own_name(const Environment& environment) const override {
        return environment.text("ORRERY_SSH_JOB").value_or("");
    }

    EngineCall status(const std::string& name) const override { return every_host(name, "", on_host::state); }

    /// Node 0 ends the others; where it does not run, or `now`, each is ended.
    std::vector<EngineCall> stop(const std::string& name, bool now) const override {
        return {every_host(name, now ? "KILL" : "INT", on_host::stop)};
    }

    std::optional<EngineCall> logs(const std::string& name, std::optional<int64_t> rank, bool follow) const override {
        const Name job = parse_name(name);
        if (!job.valid) return not_a_job(name);
        const std::string files = rank ? "g*-rank" + std::to_string(*rank) + ".txt" : "node0.txt";
        const std::string there = "cd " + quoted(job.folder + "/logs") + " || exit\nfile=$(ls -t " + files +
                                  " | head -n 1)\n[ -n \"$file\" ] && exec tail -n +1 " + (follow ? "-f " : "") +
                                  "\"$file\"\n";
        return EngineCall{{"sh"}, on() + printer("there", there) + "there | on " + quoted(job.host) + " sh\n"};
    }

private:
    /// Shell: `on HOST COMMAND...` runs a command there, with this one's input; `dialled HOST` prints the name or
    /// address that ssh connects to.
    std::string on() const {
        const std::string extra = extra_.empty() ? "" : quoted(extra_) + " ";
        return assigned("ssh", program_) + "on() {\n    to=$1\n    shift\n    \"$ssh\" -T -o BatchMode=yes " + extra +
               "-o ConnectTimeout=15 -o ServerAliveInterval=5 -o ClearAllForwardings=yes -- \"$to\" \"$@\"\n}\n" +
               "dialled() { \"$ssh\" -G -T " + extra + "-- \"$1\" | sed -n 's/^hostname //p'; }\n";
    }

    std::vector<Host> hosts_of(const EngineJob& job) const {
        if (hostfile_.empty())
            throw Error(asked_,
                        "submit.ssh.hostfile is missing\n  name a file with a line for each host, `host slots=N`, or "
                        "that of PBS: --set submit.ssh.hostfile=$PBS_NODEFILE");
        std::ifstream file(hostfile_, std::ios::binary);
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        if (!file)
            throw Error(asked_, "submit.ssh.hostfile " + hostfile_ +
                                    ": cannot be read\n  name a file with a line for each host: host slots=N");
        std::vector<Host> hosts = parse_hostfile(text, hostfile_);
        const auto needed = static_cast<size_t>(job.nodes + job.spares);
        if (hosts.size() < needed)
            throw Error(hostfile_ + ": names " + std::to_string(hosts.size()) +
                        (hosts.size() == 1 ? " host" : " hosts") + ", but the job needs " + std::to_string(needed) +
                        " (submit.nodes and --spares)\n  add hosts, or change submit.nodes");
        hosts.resize(needed);
        for (const Host& host : hosts)
            if (host.slots >= 0 && host.slots < job.ranks_per_node)
                throw Error(Origin{"", hostfile_, host.line},
                            host.name + " has " + std::to_string(host.slots) + " slots, but each node has " +
                                std::to_string(job.ranks_per_node) + " ranks\n  change slots=N, or submit.nodes");
        return hosts;
    }

    /// What runs on each host: $1 its node, $2 what to do.
    std::string node_script(const EngineJob& job, const std::string& first, size_t nodes) const {
        std::vector<std::string> rest(job.command.begin() + 1, job.command.end());
        if (!has_flag(job, "--restarts")) rest.insert(rest.end(), {"--restarts", "3"});
        if (job.spares > 0 && !has_flag(job, "--spares"))
            rest.insert(rest.end(), {"--spares", std::to_string(job.spares)});
        std::string place;
        if (nodes > 1)
            place = " --nodes " + std::to_string(job.nodes) + " --node-rank \"$node\" --rendezvous \"$address:" +
                    std::to_string(port_ > 0 ? port_ : port_of(job.folder, ports_)) + "\"";
        std::string environment = exported("ORRERY_SSH_JOB", first + ":" + job.folder) + "unset ORRERY_TOKEN\n" +
                                  exported("ORRERY_TOKEN_FILE", job.token_file);
        for (const auto& [name, value] : job.environment) environment += exported(name, value);
        return assigned("run", job.folder) + assigned("orrery", job.command[0]) +
               "gpus=" + std::to_string(job.gpus_per_node) + "\n" + on_host::functions + on_host::check +
               on_host::start + "check_script() { \"$orrery\" " + quoted(checked(job)) + "; }\n" +
               "become_agent() { exec \"$orrery\" " + quoted(rest) + place + "; }\nmain() {\n    node=$1\n    cd " +
               quoted(job.work) + " 2> /dev/null ||\n        refuse " + quoted("there is no folder " + job.work) +
               " \"the job starts there: share it or copy it to the same path\"\n" + environment +
               lines_of(job.before) +
               "    [ -x \"$orrery\" ] || orrery=$(command -v orrery) ||\n        refuse \"there is no $orrery, and no "
               "orrery in PATH\" \"install it, or set PATH in submit.before\"\n" +
               "    case ${2:-start} in\n    check) check ;;\n    start) start ;;\n" +
               "    agent) run_agent ;;\n    esac\n}\nmain \"$@\" < /dev/null\n";
    }

    /// A call that runs a text on every host of the job and prints what it prints.
    EngineCall every_host(const std::string& name, const std::string& signal, const std::string& there) const {
        const Name job = parse_name(name);
        if (!job.valid) return not_a_job(name);
        const std::string known = assigned("run", job.folder) + assigned("signal", signal);
        return {{"sh"},
                assigned("first", job.host) + known + on() + printer("there", known + on_host::functions + there) +
                    printer("list", "cat " + quoted(job.folder + "/ssh/hosts") + "\n") + on_all_hosts::ask};
    }

    const std::string hostfile_, program_, address_;
    const int64_t port_;
    const std::string ports_;
    const std::vector<std::string> extra_;
    const Origin asked_;
};

void add(Registry& registry) {
    registry.add_engine("ssh", [](Config& config) { return std::make_unique<Ssh>(config); });
}

}  // namespace
}  // namespace orrery

ORRERY_FACTS("variables=ORRERY_SSH_JOB programs=ssh");
ORRERY_PLUGIN("engine.ssh", "0.1", orrery::add);

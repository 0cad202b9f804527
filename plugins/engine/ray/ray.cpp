#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "../shell.h"
#include "orrery/config.h"
#include "orrery/engine.h"
#include "orrery/plugin.h"

namespace orrery {
namespace {

/// A JSON string, also as YAML reads it. Ray replaces $NAME in variables, so "$" is written as an escape.
std::string json(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        if (c == '$' || c == 127 || static_cast<unsigned char>(c) < 32) {
            constexpr char digits[] = "0123456789abcdef";
            out += std::string("\\u00") + digits[static_cast<unsigned char>(c) / 16] +
                   digits[static_cast<unsigned char>(c) % 16];
        } else {
            out += c;
        }
    }
    return out + "\"";
}

std::string json(const std::vector<std::string>& texts) {
    std::string out = "[";
    for (const std::string& text : texts) out += (out.size() > 1 ? ", " : "") + json(text);
    return out + "]";
}

/// The first port of run.ports, which core has checked.
int64_t first_of(const std::string& ports) {
    int first = 29500;
    std::sscanf(ports.c_str(), "%d-", &first);
    return first;
}

class Ray : public Engine {
public:
    explicit Ray(Config& config)
        : address_(config.text("address", "")),
          script_(config.text("script", "")),
          work_(config.text("work", "")),
          port_(config.integer("port", first_of(config.text("ports", "")))),
          cpus_(config.integer("cpus_per_node", 0)),
          extra_(config.texts("extra")),
          asked_(config.origin()) {
        if (port_ < 1 || port_ > 65535)
            throw Error(config.where("port"), "submit.ray.port = " + std::to_string(port_) + ", expected 1 to 65535");
        if (!script_.empty() && orrery::quoted(script_) != script_)
            throw Error(config.where("script"),
                        "submit.ray.script = \"" + script_ + "\": Ray passes only plain characters on, without blanks");
    }

    std::string text(const EngineJob& job) const override {
        if (job.time_s > 0) throw Error(asked_, "submit.time: Ray does not limit the time of a job\n  leave it out");
        return orrery::quoted(arguments(job)) + " << 'END'\n" + described(job) + "END\n";
    }

    EngineCall submit(const EngineJob& job, const std::string&) const override {
        return {arguments(job), described(job)};
    }

    std::string name_in(const EngineJob&, const std::string& output) const override {
        const size_t begin = output.find("raysubmit_");
        if (begin == std::string::npos) throw Error("ray job submit printed no job: " + output, Fault::failed);
        return output.substr(begin, output.find_first_of(" '\"\n\r\t.,:", begin) - begin);
    }

    std::string own_name(const Environment& environment) const override {
        return environment.text("ORRERY_RAY_JOB").value_or("");
    }

    EngineCall status(const std::string& name) const override { return {ray("status", {name}), ""}; }

    std::vector<EngineCall> stop(const std::string& name, bool now) const override {
        if (now) return {{ray("stop", {name}), ""}};
        return {{ray("submit", {"--runtime-env-json", environment("{\"name\": " + json(name) + "}"), "--", "python3",
                                entrypoint(own_program()), "stop"}),
                 ""}};
    }

    /// Ray has the output of the whole job.
    std::optional<EngineCall> logs(const std::string& name, std::optional<int64_t> rank, bool follow) const override {
        if (rank) return std::nullopt;
        return EngineCall{ray("logs", follow ? std::vector<std::string>{"--follow", name} : std::vector{name}), ""};
    }

private:
    std::vector<std::string> ray(const std::string& what, const std::vector<std::string>& more) const {
        std::vector<std::string> words = {"ray", "job", what};
        if (!address_.empty()) words.insert(words.end(), {"--address", address_});
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }

    static std::string own_program() {
        char path[4096];
        const ssize_t bytes = ::readlink("/proc/self/exe", path, sizeof path);
        return {path, bytes > 0 ? static_cast<size_t>(bytes) : 0};
    }

    static std::string environment(const std::string& job) {
        return "{\"env_vars\": {\"ORRERY_RAY\": " + json(job) + "}}";
    }

    /// Where a package has the entrypoint, next to the program.
    std::string entrypoint(const std::string& program) const {
        if (!script_.empty()) return script_;
        const size_t folder = program.rfind('/', program.rfind('/') - 1);
        const std::string script = program.substr(0, folder) + "/share/orrery/scripts/ray/orrery_ray.py";
        if (orrery::quoted(script) != script)
            throw Error(asked_, script + ": Ray passes only plain characters on\n  set submit.ray.script");
        return script;
    }

    /// Not among the arguments, as others may read those: variables of the job may be secret.
    std::vector<std::string> arguments(const EngineJob& job) const {
        std::vector<std::string> words = {"--no-wait", "--runtime-env", "/dev/stdin"};
        words.insert(words.end(), extra_.begin(), extra_.end());
        words.insert(words.end(), {"--", "python3", entrypoint(job.command[0])});
        return ray("submit", words);
    }

    std::string described(const EngineJob& job) const {
        const int64_t cpus = cpus_ > 0 ? cpus_ : job.ranks_per_node * std::max<int64_t>(1, job.threads);
        std::vector<std::string> command = job.command;
        if (!has_flag(job, "--restarts")) command.insert(command.end(), {"--restarts", "3"});
        if (job.spares > 0 && !has_flag(job, "--spares"))
            command.insert(command.end(), {"--spares", std::to_string(job.spares)});
        const std::string shell = "cd " + orrery::quoted(work_.empty() ? job.work : work_) + " || exit 2\n" +
                                  lines_of(job.before) + "program=$1\nshift\n[ -x \"$program\" ] || program=orrery\n" +
                                  "exec \"$program\" \"$@\"\n";
        std::string variables;
        for (const auto& [name, value] : job.environment)
            variables += (variables.empty() ? "" : ", ") + json(name) + ": " + json(value);
        const auto number = [](const char* key, int64_t value) {
            return std::string("\"") + key + "\": " + std::to_string(value) + ", ";
        };
        return environment("{\"folder\": " + json(job.folder) + ", " + number("nodes", job.nodes) +
                           number("spares", job.spares) + number("cpus", cpus) + number("gpus", job.gpus_per_node) +
                           number("port", port_) + "\"environment\": {" + variables + "}, \"shell\": " + json(shell) +
                           ", \"command\": " + json(command) + "}") +
               "\n";
    }

    const std::string address_, script_, work_;
    const int64_t port_, cpus_;
    const std::vector<std::string> extra_;
    const Origin asked_;
};

void add(Registry& registry) {
    registry.add_engine("ray", [](Config& config) { return std::make_unique<Ray>(config); });
}

}  // namespace
}  // namespace orrery

ORRERY_FACTS("variables=ORRERY_RAY_JOB programs=ray remote");
ORRERY_PLUGIN("engine.ray", "0.1", orrery::add);

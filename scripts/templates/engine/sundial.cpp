// An engine that starts jobs of one node in the background of this host: a job's name is its process.
#include <string>
#include <vector>

#include "orrery/config.h"
#include "orrery/engine.h"
#include "orrery/plugin.h"

namespace {

using namespace orrery;

std::string quoted(const std::string& word) {
    std::string text = "'";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}

class Sundial : public Engine {
public:
    explicit Sundial(Config& options) : nice_(options.integer("nice", 0)) {}

    std::string text(const EngineJob& job) const override {
        if (job.nodes + job.spares > 1)
            throw Error("engine sundial has one node, and the job needs " + std::to_string(job.nodes + job.spares) +
                        "\n  set submit.nodes = 1");
        std::string lines = "#!/bin/sh\ncd " + quoted(job.work) + " || exit\n";
        for (const auto& [name, value] : job.environment) lines += "export " + name + "=" + quoted(value) + "\n";
        for (const std::string& line : job.before) lines += line + "\n";
        lines += "export MY_JOB=$$\nexec nice -n " + std::to_string(nice_);
        for (const std::string& word : job.command) lines.append(" ").append(quoted(word));
        return lines + " > " + quoted(job.folder + "/sundial.txt") + " 2>&1\n";
    }

    EngineCall submit(const EngineJob&, const std::string& text) const override {
        return {{"sh", "-c", "script=$(cat); setsid sh -c \"$script\" > /dev/null 2>&1 < /dev/null & echo $!"}, text};
    }

    std::string name_in(const EngineJob&, const std::string& output) const override {
        const std::string process = output.substr(0, output.find('\n'));
        if (process.empty() || process.find_first_not_of("0123456789") != std::string::npos)
            throw Error("no process was started: " + output, Fault::failed);
        return process;
    }

    std::string own_name(const Environment& environment) const override {
        return environment.text("MY_JOB").value_or("");
    }

    EngineCall status(const std::string& name) const override {
        return {{"ps", "-o", "pid,etime,args", "-p", name}, ""};
    }

    std::vector<EngineCall> stop(const std::string& name, bool now) const override {
        return {{{"sh", "-c", "kill -s \"$0\" \"$1\"", now ? "KILL" : "USR1", name}, ""}};
    }

private:
    const int64_t nice_;
};

void add(Registry& registry) {
    registry.add_engine("sundial", [](Config& options) { return std::make_unique<Sundial>(options); });
}

}  // namespace

// Variables of its jobs, and the programs that it needs.
ORRERY_FACTS("variables=MY_JOB programs=setsid,ps");
ORRERY_PLUGIN("engine.sundial", "0.1", add);

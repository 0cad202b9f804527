#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "../shell.h"
#include "orrery/config.h"
#include "orrery/engine.h"
#include "orrery/plugin.h"

namespace orrery {
namespace {

/// Shell: the start time of a process; "" if there is none of this number.
constexpr const char* started = "started() { sed 's/.*) //' \"/proc/$1/stat\" 2> /dev/null | cut -d ' ' -f 20; }\n";

/// Shell: exits, with $over if mpirun has ended, unless it runs on this host. A job's name is HOST:PID:START, of its
/// process.
constexpr const char* on_host = R"sh(
start=${name##*:} rest=${name%:*}
pid=${rest##*:} host=${rest%:*}
[ "$host:$pid:$start" = "$name" ] || {
    printf '"%s" is not a job of the engine mpi\n  name host, process and its start, as n1:4711:90210\n' "$name" >&2
    exit 2
}
[ "$(hostname)" = "$host" ] || { echo "mpirun of this job was started on $host: ask there" >&2; exit 2; }
[ -n "$start" ] && [ "$(started "$pid")" = "$start" ] || { echo "mpirun of this job has ended"; exit "$over"; }
)sh";

class Mpi : public Engine {
public:
    explicit Mpi(Config& config)
        : family_(config.text("family", "openmpi")),
          program_(config.text("program", "mpirun")),
          hostfile_(config.text("hostfile", "")),
          extra_(config.texts("extra")),
          asked_(config.origin()),
          hostfile_asked_(config.where("hostfile")) {
        if (family_ != "openmpi" && family_ != "hydra")
            throw Error(config.where("family"), "submit.mpi.family = \"" + family_ +
                                                    "\", expected \"openmpi\", or \"hydra\" for MPICH and Intel MPI");
    }

    std::string text(const EngineJob& job) const override {
        if (job.time_s > 0)
            throw Error(asked_,
                        "submit.time: mpirun would end the ranks at its limit before they save\n  leave it out");
        // Not before, since other commands, and the job on its hosts, also make the engine, where the file may not be.
        if (!hostfile_.empty() && !std::ifstream(hostfile_))
            throw Error(hostfile_asked_, "submit.mpi.hostfile " + hostfile_ + ": cannot be read");
        if (job.spares > 0)
            throw Error(asked_,
                        "--spares: mpirun ends all tasks when one of them is lost, so that no spare could replace it\n"
                        "  leave --spares out, or use another engine");
        std::string environment = "export ORRERY_MPI_JOB=\"$(hostname):$$:$(started $$)\"\n";
        for (const auto& [name, value] : job.environment) environment += exported(name, value);
        return "#!/bin/sh\n# The job " + job.name + ": " + std::to_string(tasks(job)) +
               (job.agents ? " agents, one on each of " : " ranks on ") + std::to_string(job.nodes) +
               (job.nodes == 1 ? " host.\n" : " hosts.\n") + "cd " + quoted(job.work) + " && mkdir -p " +
               quoted(job.folder) + " || exit 2\n" + lines_of(job.before) + started + environment + checked() +
               "exec " + quoted(program_) + " " + quoted(flags(job)) + (extra_.empty() ? "" : " " + quoted(extra_)) +
               " " + quoted(job.command) + " < /dev/null\n";
    }

    EngineCall submit(const EngineJob&, const std::string& text) const override { return {{"sh"}, text}; }

    /// Not known before the job runs: its first start writes its name.
    std::string name_in(const EngineJob&, const std::string&) const override { return ""; }

    std::string own_name(const Environment& environment) const override {
        return environment.text("ORRERY_MPI_JOB").value_or("");
    }

    EngineCall status(const std::string& name) const override {
        return on_its_host(name, 0, "echo " + quoted("job " + name + ": mpirun runs") + "\n");
    }

    /// mpirun passes SIGUSR1 on to the ranks. It kills them soon after SIGTERM.
    std::vector<EngineCall> stop(const std::string& name, bool now) const override {
        return {on_its_host(name, 1, std::string("kill -s ") + (now ? "TERM" : "USR1") + " \"$pid\"\n")};
    }

private:
    static int64_t tasks(const EngineJob& job) { return job.agents ? job.nodes : job.ranks; }

    std::vector<std::string> flags(const EngineJob& job) const {
        const std::string each = std::to_string(job.agents ? 1 : job.ranks_per_node);
        std::vector<std::string> words = {"-n", std::to_string(tasks(job))};
        if (family_ == "hydra") {
            words.insert(words.end(), {"-ppn", each, "-genvall"});
            if (!hostfile_.empty()) words.insert(words.end(), {"-f", hostfile_});
            return words;
        }
        // Orrery places ranks itself.
        words.insert(words.end(), {"--map-by", "ppr:" + each + ":node", "--bind-to", "none"});
        if (!hostfile_.empty()) words.insert(words.end(), {"--hostfile", hostfile_});
        words.insert(words.end(), {"-x", "ORRERY_MPI_JOB"});
        for (const auto& [name, value] : job.environment) words.insert(words.end(), {"-x", name});
        return words;
    }

    /// Shell: refuses a program that is missing or of the other family.
    std::string checked() const {
        const std::string program = quoted(program_), other = family_ == "hydra" ? "openmpi" : "hydra";
        const std::string known = family_ == "hydra" ? "*HYDRA* | *Intel*MPI*" : "*\"Open MPI\"* | *OpenRTE* | *PRRTE*";
        return "command -v " + program + " > /dev/null || { echo " +
               quoted("there is no program " + program_ +
                      "\n  install it, load its module in submit.before, or set "
                      "submit.mpi.program") +
               " >&2; exit 2; }\ncase $(" + program + " --version 2>&1) in\n" + known + ") ;;\n*) echo " +
               quoted(program_ + " is not of the family " + family_ + "\n  set submit.mpi.family = \"" + other +
                      "\", or submit.mpi.program") +
               " >&2; exit 2 ;;\nesac\n";
    }

    /// A call that runs a text on the host of the job's mpirun, while that runs as process $pid; `over`: its exit code
    /// when mpirun has ended.
    static EngineCall on_its_host(const std::string& name, int over, const std::string& text) {
        return {{"sh"}, started + ("over=" + std::to_string(over) + " name=" + quoted(name)) + on_host + text};
    }

    const std::string family_, program_, hostfile_;
    const std::vector<std::string> extra_;
    const Origin asked_, hostfile_asked_;
};

void add(Registry& registry) {
    registry.add_engine("mpi", [](Config& config) { return std::make_unique<Mpi>(config); });
}

}  // namespace
}  // namespace orrery

ORRERY_FACTS("variables=ORRERY_MPI_JOB foreground");
ORRERY_PLUGIN("engine.mpi", "0.1", orrery::add);

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "../shell.h"
#include "orrery/config.h"
#include "orrery/engine.h"
#include "orrery/plugin.h"

namespace orrery {
namespace {

/// Seconds before the limit at which ranks are asked to save, where neither run.grace_s nor a run says how many.
constexpr int64_t usual_signal_s = 300;

/// Compares partition and limit with `sinfo`, if that is there, since sbatch also takes a job that its partition would
/// never start. $1: partition, or several: A,B; $2: its place in the configuration; $3: limit in s, 0 for none.
constexpr const char* hand_over = R"sh(
list=$(sinfo --all --noheader --format='%R|%P|%l' 2> /dev/null) && {
    printf '%s\n' "$list" | awk -F'|' -v asked="$1" -v at="$2" -v limit="$3" '
        function seconds(text,  days, part, n, i, all) {
            if (text !~ /^[0-9:-]+$/) return 0
            if (split(text, part, "-") == 2) { days = part[1]; text = part[2] }
            n = split(text, part, ":")
            for (i = 1; i <= n; ++i) all = all * 60 + part[i]
            return days * 86400 + all
        }
        function asks(name,  one, i) {
            for (i = split(asked, one, ","); i > 0; --i) if (one[i] == name) return 1
        }
        asks($1) || (asked == "" && $2 ~ /\*$/) {
            all = seconds($3)
            if (found == "" || (top > 0 && (all == 0 || all > top))) { found = $1; most = $3; top = all }
        }
        !($1 in known) { known[$1]; names = names (names == "" ? "" : ", ") $1 }
        END {
            if (names == "") exit 0
            if (found == "" && asked == "")
                print at "no partition is set, and Slurm has no default one\n" \
                    "  set submit.slurm.partition to one of: " names
            else if (found == "")
                print at "Slurm has no partition \"" asked "\"\n  set submit.slurm.partition to one of: " names
            else if (limit > 0 && seconds(most) > 0 && limit > seconds(most))
                print "submit.time is " limit " s, but partition " found " ends jobs after " most ", " \
                    seconds(most) " s\n  lower submit.time, after which the job resumes by itself, or set another " \
                    "submit.slurm.partition"
            else
                exit 0
            exit 2
        }' >&2 || exit 2
}
exec sbatch --parsable
)sh";

/// Ends a job after a save: it is not queued again, ends if it has not started, else its steps get SIGUSR1. In a batch
/// script without srun, only processes of orrery get it, since it would end the script. $1: job.
constexpr const char* save_and_end = R"sh(
scontrol update JobId="$1" Requeue=0 || exit
scancel --state=PENDING "$1"
number=$(squeue --noheader --states=RUNNING,SIGNALING --format=%A --jobs="$1")
[ -n "$number" ] || exit 0
! squeue --noheader --steps --format=%i --jobs="$1" | grep -q '\.[0-9]' || exec scancel --signal=USR1 "$1"
printed=$(srun --jobid="$number" --overlap --nodes=1 --ntasks=1 sh -c '
    found=
    for process in /proc/[0-9]*; do
        [ "$(basename "$(readlink "$process/exe")")" = orrery ] &&
            tr "\0" "\n" < "$process/environ" 2> /dev/null | grep -qx "SLURM_JOB_ID=$SLURM_JOB_ID" &&
            kill -s USR1 "${process#/proc/}" && found=yes
    done
    [ -n "$found" ] || { echo "no orrery runs on the first node of the job"; exit 1; }' 2>&1) ||
    [ -z "$(squeue --noheader --states=RUNNING,SIGNALING --jobs="$1")" ] || { printf '%s\n' "$printed" >&2; exit 1; }
)sh";

std::string time_text(int64_t seconds) {
    const auto two = [](int64_t n) { return (n < 10 ? "0" : "") + std::to_string(n); };
    const int64_t days = seconds / 86400;
    return (days > 0 ? std::to_string(days) + "-" : "") + two(seconds / 3600 % 24) + ":" + two(seconds / 60 % 60) +
           ":" + two(seconds % 60);
}

class Slurm final : public Engine {
public:
    explicit Slurm(Config& options)
        : partition_(options.text("partition", "")),
          account_(options.text("account", "")),
          qos_(options.text("qos", "")),
          array_(options.text("array", "")),
          extra_(options.texts("extra")),
          partition_at_(place_of(options, "partition")),
          extra_at_(options.where("extra")) {}

    std::string text(const EngineJob& job) const override {
        for (const std::string& line : extra_)
            if (line.find("hetjob") != std::string::npos)
                throw Error(
                    extra_at_,
                    "submit.slurm.extra: " + line +
                        ": a heterogeneous job has a step for each component, and ranks of several steps do not "
                        "find each other\n  leave it out: ask for nodes of one kind");
        return header(job) + body(job);
    }

    EngineCall submit(const EngineJob& job, const std::string& text) const override {
        return {{"sh", "-c", hand_over, "sh", partition_, partition_at_, std::to_string(job.time_s)}, text};
    }

    std::string name_in(const EngineJob&, const std::string& output) const override {
        const std::string number = output.substr(0, output.find_first_not_of("0123456789"));
        if (number.empty()) throw Error("sbatch printed no number of a job: " + output, Fault::failed);
        return number;
    }

    std::string own_name(const Environment& environment) const override {
        const auto job = environment.text("SLURM_JOB_ID");
        const auto array = environment.text("SLURM_ARRAY_JOB_ID"), task = environment.text("SLURM_ARRAY_TASK_ID");
        return job && array && task ? *array + "_" + *task : job.value_or("");
    }

    EngineCall status(const std::string& name) const override {
        return {{"squeue", "--jobs=" + name, "--format=%.12i %.12P %.9T %.11M %.11l %.6D %R"}, ""};
    }

    std::vector<EngineCall> stop(const std::string& name, bool now) const override {
        if (now) return {{{"scancel", name}, ""}};
        return {{{"sh", "-c", save_and_end, "sh", name}, ""}};
    }

private:
    static std::string place_of(Config& options, const char* key) {
        const std::string place = options.has(key) ? options.where(key).text() : "";
        return place.empty() ? "" : place + ": ";
    }

    static int64_t grace_s(const EngineJob& job) { return static_cast<int64_t>(std::ceil(job.grace_s)); }

    static int64_t signal_s(const EngineJob& job) {
        const int64_t asked = job.grace_s > 0 ? grace_s(job) : usual_signal_s;
        return job.time_s > 0 ? std::min(asked, job.time_s / 2) : asked;
    }

    std::string header(const EngineJob& job) const {
        std::string lines = "#!/bin/bash\n";
        const auto add = [&](const std::string& option) { lines += "#SBATCH --" + option + "\n"; };
        const auto set = [&](const char* option, const std::string& value) {
            if (!value.empty()) add(std::string(option) + "=" + quoted(value));
        };
        std::string output = job.folder + "/slurm-" + (array_.empty() ? "%j" : "%A_%a") + ".txt";
        set("job-name", job.name);
        set("partition", partition_);
        set("account", account_);
        set("qos", qos_);
        set("array", array_);
        set("nodes", std::to_string(job.nodes + job.spares));
        set("ntasks-per-node", std::to_string(job.agents ? 1 : job.ranks_per_node));
        if (cpus(job) > 0) set("cpus-per-task", std::to_string(cpus(job)));
        if (job.gpus_per_node > 0) set("gpus-per-node", std::to_string(job.gpus_per_node));
        if (job.time_s > 0) set("time", time_text(job.time_s));
        set("signal", "USR1@" + std::to_string(signal_s(job)));
        add("requeue");
        if (job.spares > 0) add("no-kill");
        set("chdir", job.work);
        set("output", output);
        add("open-mode=append");
        return lines + lines_of(extra_);
    }

    /// CPUs of a task; 0: not set.
    static int64_t cpus(const EngineJob& job) {
        return job.agents ? job.ranks_per_node * std::max<int64_t>(1, job.threads) : job.threads;
    }

    std::string body(const EngineJob& job) const {
        std::string lines =
            "\n# Slurm sends signals to the ranks, too: this shell only waits for them.\ntrap : TERM USR1\n";
        if (!job.token_file.empty())
            lines += "unset ORRERY_TOKEN  # of the submitting shell\n" + exported("ORRERY_TOKEN_FILE", job.token_file) +
                     "[ -e \"$ORRERY_TOKEN_FILE\" ] ||\n    (umask 077; od -An -N32 -tx1 /dev/urandom | tr -d ' \\n' > "
                     "\"$ORRERY_TOKEN_FILE\")\n";
        for (const auto& [name, value] : job.environment) lines += exported(name, value);
        lines += lines_of(job.before);
        lines += "\nset -- " + quoted(job.command) + "\n";
        if (!array_.empty())
            lines += "set -- \"$@\" --set run.folder=" + quoted(job.folder) + "-\"$SLURM_ARRAY_TASK_ID\"\n";
        lines +=
            "# A preempted job has the partition's GraceTime to save.\n"
            "grace=$(scontrol show partition \"$SLURM_JOB_PARTITION\" | sed -n 's/.*GraceTime=\\([0-9]*\\).*/\\1/p')\n"
            "[ \"${grace:-0}\" -eq 0 ] || ";
        if (job.grace_s > 0) lines += "[ \"$grace\" -ge " + std::to_string(grace_s(job)) + " ] || ";
        lines += "set -- \"$@\" --set run.grace_s=\"$grace\"\n\n";
        const int64_t nodes = job.nodes + job.spares, tasks = job.agents ? 1 : job.ranks_per_node;
        if (job.agents)
            lines += "export ORRERY_EXIT_FILE=" + quoted(job.folder) +
                     "/.exit-\"$SLURM_JOB_ID\"\nrm -f \"$ORRERY_EXIT_FILE\"\n";
        lines += "srun --nodes=" + std::to_string(nodes) + " --ntasks=" + std::to_string(nodes * tasks) +
                 " --ntasks-per-node=" + std::to_string(tasks);
        if (cpus(job) > 0) lines += " --cpus-per-task=" + std::to_string(cpus(job));
        if (job.spares > 0) lines += " --no-kill";
        lines += " --kill-on-bad-exit=0 --wait=0 \"$@\"\ncode=$?\n";
        if (job.agents)
            lines +=
                "# The largest code of any agent, also of one that was drained or lost: that of node 0 counts.\n"
                "! [ -s \"$ORRERY_EXIT_FILE\" ] || read -r code < \"$ORRERY_EXIT_FILE\"\n"
                "rm -f \"$ORRERY_EXIT_FILE\"\n";
        lines +=
            "# 75: the ranks have saved and left; 138: the signal came before they were ready for it. Unless it was\n"
            "# cancelled, the job waits for its next turn to resume. SIGNALING: the signal is still being sent.\n"
            "job=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}\n"
            "state() { squeue --noheader --format=%T --jobs=\"$job\"; }\n"
            "if [ $code -eq 75 ] || [ $code -eq 138 ]; then\n"
            "    while [ \"$(state)\" = SIGNALING ]; do sleep 1; done\n"
            "    [ \"$(state)\" != RUNNING ] || scontrol requeue \"$job\"\n"
            "fi\nexit $code\n";
        return lines;
    }

    const std::string partition_, account_, qos_, array_;
    const std::vector<std::string> extra_;
    const std::string partition_at_;
    const Origin extra_at_;
};

void add(Registry& registry) {
    registry.add_engine("slurm", [](Config& options) { return std::make_unique<Slurm>(options); });
}

}  // namespace
}  // namespace orrery

ORRERY_FACTS("variables=SLURM_JOB_ID programs=sbatch,squeue,scancel,scontrol");
ORRERY_PLUGIN("engine.slurm", "0.1", orrery::add);

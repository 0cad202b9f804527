#include "cli/submit/own_job.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "base/env.h"
#include "base/limits.h"
#include "cli/command_line.h"
#include "cli/submit/engines.h"
#include "cli/submit/job_file.h"
#include "plugin/loader.h"

namespace orrery {
namespace {

/// Returns the job in which this process runs; empty names if no engine started it.
JobFile own_job(Config& config, const std::string& preferred) {
    const Environment environment([](const char* name) -> const char* { return std::getenv(name); });
    const Loader loader(and_plugin_folders(config.table("plugins").texts("path")));
    JobFile own;
    for (const std::string& name : loader.present("engine")) {
        const PluginFacts facts = loader.facts("engine", name, {});
        const std::vector<std::string> variables = facts.values("variables");
        if (std::ranges::none_of(variables, [&](const auto& one) { return environment.has(one.c_str()); })) continue;
        const std::string its = load_engine(name, config, {}).engine->own_name(environment);
        if (its.empty() || (!own.name.empty() && name != preferred)) continue;
        own = {name, its};
        for (const std::string& variable : facts.values("start"))
            own.start = environment.text(variable.c_str()).value_or("");
    }
    return own;
}

bool same(const JobFile& one, const JobFile& other) { return one.engine == other.engine && one.name == other.name; }

void reported(const std::string& folder, const std::function<void()>& work) {
    try {
        work();
    } catch (const Error& error) {
        std::fprintf(
            stderr,
            "cannot write %s/job.json: %s\n  `orrery status` and `orrery stop` do not find this job by its folder\n",
            folder.c_str(), error.what());
    }
}

}  // namespace

void note_own_job(Config& config, const std::string& folder) {
    reported(folder, [&] {
        const auto before = read_job_file(folder);
        JobFile own = own_job(config, before ? before->engine : "");
        if (own.name.empty()) return;
        if (before && same(*before, own)) own.submitted = before->submitted;
        if (before != own) write_job_file(folder, own);
    });
}

void note_own_end(const std::function<Config()>& config, const std::string& folder) {
    reported(folder, [&] {
        auto job = read_job_file(folder);
        if (!job) return;
        Config read = config();
        if (!same(*job, own_job(read, job->engine))) return;
        job->ended = true;
        write_job_file(folder, *job);
    });
}

bool own_job_ended(Config& config, const std::string& folder) {
    JobFile own;
    try {
        const auto job = read_job_file(folder);
        if (!job || !job->ended || job->start.empty()) return false;
        own = own_job(config, job->engine);
        if (!same(*job, own) || job->start != own.start) return false;
    } catch (const Error&) {
        return false;  // note_own_job() reports it
    }
    std::fprintf(stderr, "orrery: job %s of %s has ended: nothing is left to do\n", own.name.c_str(),
                 own.engine.c_str());
    return true;
}

int with_exit_file(const std::function<int()>& run) {
    const char* path = std::getenv("ORRERY_EXIT_FILE");
    const auto note = [path](int code) {
        try {
            if (path) system_env()->replace_file(path, std::to_string(code) + "\n");
        } catch (const Error& error) {
            std::fprintf(stderr, "orrery: the exit code %d is not written: %s\n", code, error.what());
        }
        return code;
    };
    try {
        return note(run());
    } catch (const std::exception& error) {
        note(exit_code(fault_of(error)));
        throw;
    }
}

}  // namespace orrery

#include "cli/submit/own_job.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>

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
        const std::vector<std::string> variables = loader.facts("engine", name, {}).values("variables");
        if (std::ranges::none_of(variables, [&](const auto& one) { return environment.has(one.c_str()); })) continue;
        const std::string its = load_engine(name, config, {}).engine->own_name(environment);
        if (!its.empty() && (own.name.empty() || name == preferred)) own = {name, its};
    }
    return own;
}

void reported(const std::string& folder, const std::function<void()>& work) {
    try {
        work();
    } catch (const Error& error) {
        std::fprintf(stderr,
                     "cannot write %s/job.json: %s; `orrery status` and `orrery stop` do not find this job by its "
                     "folder\n",
                     folder.c_str(), error.what());
    }
}

}  // namespace

JobFile note_own_job(Config& config, const std::string& folder) {
    JobFile own;
    reported(folder, [&] {
        const auto before = read_job_file(folder);
        own = own_job(config, before ? before->engine : "");
        if (own.name.empty()) return;
        if (before && before->engine == own.engine && before->name == own.name) own.submitted = before->submitted;
        if (before != own) write_job_file(folder, own);
    });
    return own;
}

void note_own_end(const std::string& folder, const JobFile& own) {
    if (own.name.empty()) return;
    reported(folder, [&] {
        auto job = read_job_file(folder);
        if (!job || job->engine != own.engine || job->name != own.name) return;
        job->ended = true;
        write_job_file(folder, *job);
    });
}

}  // namespace orrery

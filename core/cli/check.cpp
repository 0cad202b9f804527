#include <cstdio>
#include <filesystem>

#include "cli/commands.h"
#include "cli/script_host.h"
#include "plan/lint.h"

namespace orrery {

int check_command(const ScriptCommand& command) {
    ScriptHost host(command, command.script_help ? Mode::help : Mode::check, Job{});
    host.run_script();
    if (command.script_help) return 0;
    if (!host.compiled())
        throw Error(command.script + ": the script compiled no program\n  call program:compile() in it");
    if (!host.summary_shown()) std::printf("%s\n", host.summary().c_str());
    std::printf("%s", lint_text(redistributions(*host.compiled()->train)).c_str());
    // A plan for a cluster is checked where its data is not; data that is here must be sound.
    if (host.data() && std::filesystem::exists(host.data()->path))
        Dataset looked_at(*host.data());
    else if (host.data())
        std::printf("not looked at: data file %s is not here\n", host.data()->path.c_str());
    std::printf("checked: the plan is complete and free of deadlock%s\n",
                host.settings().memory_bytes > 0 ? ", and fits in device.memory_gib" : "");
    return 0;
}

}  // namespace orrery

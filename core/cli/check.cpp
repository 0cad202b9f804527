#include <cstdio>

#include "cli/commands.h"
#include "cli/script_host.h"

namespace orrery {

int check_command(const ScriptCommand& command) {
    ScriptHost host(command, command.script_help ? Mode::help : Mode::check, Job{});
    host.run_script();
    if (command.script_help) return 0;
    if (!host.compiled())
        throw Error(command.script + ": the script compiled no program\n  call program:compile() in it");
    std::printf("%s\nchecked: the plan is complete, free of deadlock and fits\n", host.summary().c_str());
    return 0;
}

}  // namespace orrery

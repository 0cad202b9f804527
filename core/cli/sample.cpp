#include <cstdio>

#include "cli/commands.h"
#include "cli/script_host.h"

namespace orrery {

int sample_command(const ScriptCommand& command) {
    ScriptHost host(command, command.script_help ? Mode::help : Mode::sample, Job{});
    host.be_quiet();
    host.run_script();
    if (command.script_help) return 0;
    const std::string text = host.sample(command.sample);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::printf("\n");
    return 0;
}

}  // namespace orrery

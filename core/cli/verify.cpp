#include <cstdio>

#include "cli/commands.h"
#include "cli/script_host.h"

namespace orrery {

int verify_command(const ScriptCommand& command) {
    ScriptHost host(command, command.script_help ? Mode::help : Mode::verify, Job{});
    host.run_script();
    if (command.script_help) return 0;
    if (!host.compiled())
        throw Error(command.script + ": the script compiled no program\n  call program:compile() in it");
    VerifyOptions options = command.verify;
    for (const std::string& text : command.injections) options.injections.push_back(parse_injection(text));
    const VerifyReport report = host.verify(options);
    std::printf("%s%s", host.not_verified().c_str(), report.text(*host.compiled()->train, options).c_str());
    return report.passed() ? 0 : 1;
}

}  // namespace orrery

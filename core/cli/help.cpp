#include <cstdio>

#include "base/text.h"
#include "cli/script_runner.h"

namespace orrery {

int show_options(const ScriptCommand& command, const Job& job) {
    ScriptUse use{.options_only = true};
    use.ignores = [](const GivenKey&) { return true; };
    ScriptRunner script(command, job, std::move(use));
    try {
        script.load();
        script.collectives.clear();
        script.run();
    } catch (const Error&) {
        if (!script.options) throw;
    }
    const char* const name = script.script.c_str();
    if (!script.options) return std::printf("%s declares no options\n", name), 0;
    std::printf("options of %s, set in [script] or with --set script.KEY=VALUE:\n", name);
    for (const Host::Option& option : *script.options) {
        const std::string values = option.one_of.empty() ? "" : "one of " + join(option.one_of, ", ") + "; ";
        std::printf("  %-24s %s (%sdefault %s)\n", option.key.c_str(), option.help.c_str(), values.c_str(),
                    option.fallback.c_str());
    }
    return 0;
}

}  // namespace orrery

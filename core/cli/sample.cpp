#include <cstdio>

#include "cli/commands.h"
#include "cli/script_host.h"

namespace orrery {

int sample_command(const ScriptCommand& command) {
    ScriptHost host(command, command.script_help ? Mode::help : Mode::sample, Job{});
    host.run_script();
    if (command.script_help) return 0;
    const SampleFlags& flags = command.sample;
    SampleOptions options = read_sample(host.config());
    options.prompt = flags.prompt.value_or(options.prompt);
    options.tokens = flags.tokens.value_or(options.tokens);
    options.temperature = flags.temperature.value_or(options.temperature);
    options.top_k = flags.top_k.value_or(options.top_k);
    options.seed = flags.seed.value_or(options.seed);
    const std::string text = host.sample(options);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::printf("\n");
    return 0;
}

}  // namespace orrery

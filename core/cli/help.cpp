#include <cstdio>

#include "cli/script_runner.h"

namespace orrery {
namespace {

/// Ends the script once it has declared its options.
struct HelpScript final : ScriptRunner {
    bool shown = false;

    using ScriptRunner::ScriptRunner;

    std::vector<CollectiveChoice> collectives() override { return {}; }
    void gives(const GivenKey&) override {}

    void declare_options(const std::vector<Option>& options) override {
        std::printf("options of %s, set in [script] or with --set script.KEY=VALUE:\n", script().c_str());
        for (const Option& option : options)
            std::printf("  %-24s %s (default %s)\n", option.key.c_str(), option.help.c_str(), option.fallback.c_str());
        shown = true;
        throw Error("options shown");
    }
};

}  // namespace

int show_options(const ScriptCommand& command, const Job& job) {
    HelpScript script(command, job);
    try {
        script.run_script();
    } catch (const Error&) {
        if (!script.shown) throw;
    }
    if (!script.shown) std::printf("%s declares no options\n", script.script().c_str());
    return 0;
}

}  // namespace orrery

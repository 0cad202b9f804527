#include <cstdio>

#include "cli/script_runner.h"
#include "run/checkpoint/saved_state.h"
#include "run/sample.h"
#include "run/session.h"

namespace orrery {
namespace {

/// One rank, which draws text and trains nothing.
struct SampleScript final : ScriptRunner {
    using ScriptRunner::ScriptRunner;

    void compile(Experiment experiment) override {
        refuse_idle_axes(experiment, config_.table("mesh"));
        experiment_ = std::move(experiment);
        compiled_ = compile_sampling().compiled;
    }

    std::string sample(const SampleOptions& options) override { return sample_newest(*this, options); }

    void prepare() override {
        settings_.mesh = Mesh();
        ScriptRunner::prepare();
    }
};

}  // namespace

std::string sample_newest(ScriptRunner& script, const SampleOptions& options) {
    auto [settings, device, compiled] = script.compile_sampling();
    Session session(settings, script.config(), script.registry(), Job{}, std::move(compiled), std::move(device));
    const auto store = script.open_store();
    const SavedState::Resumed loaded = SavedState(session, *store, settings.keep).load_params();
    for (const std::string& said : loaded.said) std::fprintf(stderr, "%s\n", said.c_str());
    std::fprintf(stderr, "sampling from step %lld: %s\n", static_cast<long long>(loaded.step), store->place().c_str());
    return draw_text(session, options);
}

int sample_command(const ScriptCommand& command) {
    if (command.script_help) return show_options(command, Job{});
    SampleScript script(command, Job{});
    script.run_script();
    script.compiled();  // there must be one
    const SampleFlags& flags = command.sample;
    SampleOptions options = read_sample(script.config());
    options.prompt = flags.prompt.value_or(options.prompt);
    options.tokens = flags.tokens.value_or(options.tokens);
    options.temperature = flags.temperature.value_or(options.temperature);
    options.top_k = flags.top_k.value_or(options.top_k);
    options.seed = flags.seed.value_or(options.seed);
    const std::string text = script.sample(options);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::printf("\n");
    return 0;
}

}  // namespace orrery

#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "cli/script_runner.h"
#include "run/checkpoint/save/saved_state.h"
#include "run/session.h"

namespace orrery {

SampledText sample_newest(ScriptRunner& script, ScriptRunner::Sampling sampling, const SampleOptions& options,
                          const std::function<void(std::string_view)>& say) {
    if (script.tokenizer) require_kept(*script.tokenizer, script.folder());
    const int64_t ids = vocabulary_of(sampling.compiled.programs.front().plan.program);
    const TokenText tokens(script.tokenizer, ids);
    Session session(sampling.settings, script.config(), script.registry, Job{}, std::move(sampling.compiled),
                    std::move(sampling.device));
    const auto store = script.open_store();
    const SavedState::Resumed loaded =
        SavedState(session, *store, sampling.settings.keep).load_params(script.experiment->train());
    for (const std::string& said : loaded.said) std::fprintf(stderr, "%s\n", said.c_str());
    std::fprintf(stderr, "sampling from step %lld: %s\n", static_cast<long long>(loaded.step), store->place().c_str());
    if (script.tokenizer)
        for (const std::string& note : tokenizer::template_notes(script.tokenizer->path, *script.tokenizer->tokenizer))
            std::fprintf(stderr, "%s\n", note.c_str());
    for (const std::string& said : sampling.notes) std::fprintf(stderr, "%s\n", said.c_str());
    return sample_text(session, options, tokens, std::move(sampling.shorter), say);
}

int sample_command(const ScriptCommand& command) {
    if (command.script_help) return show_options(command, Job{});
    std::optional<ScriptRunner::Sampling> sampling;  // of the command's text; script calls compile their own
    ScriptUse use;
    use.compile = [&](ScriptRunner& one, Experiment experiment) {
        refuse_idle_axes(experiment, one.config().table("mesh"));
        one.experiment = std::move(experiment);
        sampling.emplace(one.compile_sampling(true));
        one.keep(sampling->compiled);
    };
    use.sample = [](ScriptRunner& one, const SampleOptions& options) {
        return sample_newest(one, one.compile_sampling(true), options).text;
    };
    use.ignores = [](const GivenKey& key) { return key.table == "sample"; };  // only the command's [sample] counts
    ScriptRunner script(command, Job{}, std::move(use));
    script.settings.mesh = Mesh();
    script.load();
    script.run();
    script.compiled();  // throws if nothing was compiled
    const SampleFlags& flags = command.sample;
    SampleOptions options = read_sample(script.config());
    options.prompt = flags.prompt.value_or(options.prompt);
    options.tokens = flags.tokens.value_or(options.tokens);
    options.temperature = flags.temperature.value_or(options.temperature);
    options.top_k = flags.top_k.value_or(options.top_k);
    options.seed = flags.seed.value_or(options.seed);
    const SampledText drawn = sample_newest(script, std::move(*sampling), options, [](std::string_view text) {
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
    });
    std::printf("\n");
    if (drawn.ended) std::fprintf(stderr, "end of text: %s\n", drawn.end.c_str());
    return 0;
}

}  // namespace orrery

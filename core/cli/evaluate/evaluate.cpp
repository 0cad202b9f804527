#include "cli/evaluate/evaluate.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <numbers>
#include <optional>

#include "base/files/result_file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/evaluate/evaluate_script.h"
#include "cli/ranks.h"
#include "run/checkpoint/pretrained.h"
#include "run/checkpoint/saved_state.h"
#include "run/score/one_step.h"
#include "run/score/row_scores.h"

namespace orrery {
namespace {

/// Loads the params. Returns where they come from.
std::string load(EvaluateScript& script, const EvaluateCommand& command, Session& session) {
    const Settings& settings = session.settings();
    if (const auto& chosen = script.tokenizer(); chosen && session.job().rank == 0)
        for (const std::string& note : tokenizer::template_notes(chosen->path, *chosen->tokenizer))
            std::fprintf(stderr, "%s\n", note.c_str());
    if (command.published) {
        session.initialize(settings.seed);
        load_weights(session, settings.weights, script.experiment().recipe->weights);
        return settings.weights;
    }
    const auto store = script.open_store();
    std::optional<OneStep> one;
    if (command.step) one.emplace(*store, *command.step);
    CheckpointStore& read = one ? *one : *store;
    const SavedState::Resumed loaded = SavedState(session, read, settings.keep).load_params();
    if (session.job().rank == 0)
        for (const std::string& said : loaded.said) std::fprintf(stderr, "%s\n", said.c_str());
    return fmt::format("step {}: {}", loaded.step, store->place());
}

/// Throws unless the model's number is finite. `place` describes it, counting from 0.
double finite(double nats, const std::function<std::string()>& place) {
    if (std::isfinite(nats)) return nats;
    throw Error(fmt::format("the model gives {} nats for {}, counted from 0: its weights or what it computes are not "
                            "finite\n  evaluate an older checkpoint (--step), or in f32 (--set train.precision=f32)",
                            nats, place()),
                Fault::failed);
}

/// Sum of nats over all predicted tokens. Collective.
double score_text(const ScoredText& text, const Session& session, RowScores& rows) {
    const auto fill = [&](int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
        const TextWindow window = text.windows[row];
        fill_row(text.ids, window, tokens, targets);
        ignore(text.ignored, window, targets);
    };
    const auto windows = text.windows.count();
    double nats = 0;
    int64_t first = 0;
    for (const Calls& calls : evaluation_calls(session.compiled(), windows)) {
        if (calls.of != text.program) continue;
        const CompiledProgram& program = *session.compiled().find(calls.entry.name);
        for (int64_t i = 0; i < calls.times; ++i, first += calls.entry.batch) {
            int64_t predicted = 0;
            for (int64_t row = first; row < first + calls.entry.batch; ++row)
                predicted += counted(text.ignored, text.windows[row]);
            nats += finite(rows.score(program, first, fill, predicted).nats, [&] {
                return calls.entry.batch == 1 ? fmt::format("window {}", first)
                                              : fmt::format("windows {} to {}", first, first + calls.entry.batch - 1);
            });
        }
    }
    return nats;
}

/// The log-likelihood of each ending, by choice. Collective.
std::vector<std::vector<double>> score_endings(const EvaluateScript& script, const Session& session, RowScores& rows) {
    std::vector<std::vector<double>> all(script.choices().size());
    for (const ScoredEnding& ending : script.endings()) {
        const auto fill = [&](int64_t, std::span<int32_t> tokens, std::span<int32_t> targets) {
            fill_row(ending.row, tokens, targets);
        };
        const CompiledProgram& program = *session.compiled().find(ending.program);
        std::vector<double>& of = all[ending.choice];
        of.push_back(-finite(rows.score(program, 0, fill, ending.row.scored).nats,
                             [&] { return fmt::format("choice {}, ending {}", ending.choice, of.size()); }));
    }
    return all;
}

/// Each rank reads its own files, which may differ between hosts.
Agreement agreement_of(const EvaluateScript& script, const EvaluateCommand& command) {
    const auto digest = [](Sha256& of, const std::vector<int32_t>& ids) {
        of.update(fmt::format("{}:", ids.size()));
        of.update(std::as_bytes(std::span(ids)));
    };
    Agreement parts = {{"--step", command.step ? std::to_string(*command.step) : "the newest"}};
    if (const auto& text = script.text()) {
        Sha256 ids;
        digest(ids, text->ids);
        for (size_t i = 0; i < text->ignored.size(); ++i)
            if (text->ignored[i]) ids.update(fmt::format("{},", i));
        parts.insert(parts.end(), {{"the ids of the text", ids.hex()},
                                   {"--window", std::to_string(text->size)},
                                   {"--stride", std::to_string(text->stride)}});
    }
    if (!script.choices().empty()) {
        Sha256 all;
        for (const MultipleChoice& choice : script.choices()) all.update(fmt::format("{},", choice.label));
        for (const ScoredEnding& ending : script.endings()) {
            all.update(fmt::format("{},{},", ending.choice, ending.row.scored));
            digest(all, ending.row.ids);
        }
        parts.insert(parts.end(), {{"--delimiter", command.delimiter}, {"the choices", all.hex()}});
    }
    return parts;
}

Json tell_text(const ScoredText& text, const std::string& file, double nats) {
    const double each = nats / static_cast<double>(text.predicted),
                 bits = nats / std::numbers::ln2 / static_cast<double>(text.bytes);
    std::printf("%s: %s of %s tokens predicted, in %s of %s, every %s\n", file.c_str(),
                count_text(text.predicted).c_str(), count_text(static_cast<int64_t>(text.ids.size())).c_str(),
                plural(text.windows.count(), "window").c_str(), count_text(text.size).c_str(),
                count_text(text.stride).c_str());
    std::printf("nats per token  %.6f\nperplexity      %.6f\n", each, std::exp(each));
    Json json = {{"file", file},           {"tokens", text.ids.size()},   {"predicted", text.predicted},
                 {"window", text.size},    {"stride", text.stride},       {"nats", nats},
                 {"nats_per_token", each}, {"perplexity", std::exp(each)}};
    if (text.bytes > 0) {
        std::printf("bits per byte   %.6f\n", bits);
        json["bytes"] = text.bytes;
        json["bits_per_byte"] = bits;
    } else {
        std::printf("bits per byte   not known: no tokenizer says what text the ids stand for (data.tokenizer)\n");
    }
    return json;
}

Json tell_choices(const EvaluateScript& script, const std::string& file,
                  const std::vector<std::vector<double>>& log_likelihoods) {
    int64_t right = 0, right_normed = 0;
    const std::vector<MultipleChoice>& choices = script.choices();
    for (size_t i = 0; i < choices.size(); ++i) {
        const Chosen chosen = chosen_of(choices[i], log_likelihoods[i]);
        right += chosen.plain == choices[i].label;
        right_normed += chosen.normed == choices[i].label;
    }
    const auto all = static_cast<double>(choices.size());
    const double acc = static_cast<double>(right) / all, acc_norm = static_cast<double>(right_normed) / all;
    std::printf("%s: %s choices, %s endings\nacc       %.4f, %s are right\nacc_norm  %.4f, %s are right\n",
                file.c_str(), count_text(static_cast<int64_t>(choices.size())).c_str(),
                count_text(static_cast<int64_t>(script.endings().size())).c_str(), acc, count_text(right).c_str(),
                acc_norm, count_text(right_normed).c_str());
    return {{"file", file},
            {"choices", choices.size()},
            {"acc", acc},
            {"acc_norm", acc_norm},
            {"log_likelihoods", log_likelihoods}};
}

void evaluate_here(EvaluateScript& script, const EvaluateCommand& command, Sessions& sessions) {
    if (script.tokenizer() && !command.published) require_kept(*script.tokenizer(), script.folder());
    const bool first = script.job().rank == 0;
    const auto met = meet(script, script.settings(), script.compiled(), script.take_device(), sessions);
    Session& session = *met;
    in_session(script, session, sessions, [&] {
        session.agree("what is evaluated", agreement_of(script, command));
        const std::string what = load(script, command, session);
        if (first) std::fprintf(stderr, "evaluating %s\n", what.c_str());
        RowScores rows(session);
        Json results = {{"model", what}};
        if (script.text()) {
            const double nats = score_text(*script.text(), session, rows);
            if (first) results["text"] = tell_text(*script.text(), command.file, nats);
        }
        if (!script.choices().empty()) {
            const auto log_likelihoods = score_endings(script, session, rows);
            if (first) results["choices"] = tell_choices(script, command.choices, log_likelihoods);
        }
        if (first && !command.out.empty()) write_result(command.out, results.dump(1) + "\n");
    });
    std::fflush(stdout);
}

}  // namespace

int evaluate_command(const ScriptCommand& given, const EvaluateCommand& asked) {
    if (given.script_help) return show_options(given, Job{});
    if (asked.file.empty() && asked.choices.empty())
        throw Error("evaluate: name a text, a token file, or --choices FILE.jsonl");
    if (!asked.out.empty()) require_writable("--out", asked.out);
    ScriptCommand script = given;
    EvaluateCommand command = asked;
    stand_for_folder(script, command);
    if (command.published && command.step) throw Error("evaluate: --step is of a run, a published folder has no steps");
    RankCommand work;
    work.rank = [&](const Job& job, Sessions& sessions) {
        EvaluateScript mine(script, command, job, false);
        if (job.ranks != mine.settings().mesh.ranks())
            throw Error(mine.config().table("mesh").origin(),
                        fmt::format("mesh {} has {} ranks, {} were started", mine.settings().mesh.text(),
                                    mine.settings().mesh.ranks(), job.ranks));
        mine.run_script();
        mine.compiled();  // throws if nothing was compiled
        evaluate_here(mine, command, sessions);
    };
    work.check = [&](const Job& job) -> std::unique_ptr<ScriptRunner> {
        auto looked = std::make_unique<EvaluateScript>(script, command, job, true);
        if (looked->settings().mesh.ranks() == 1) return looked;  // this process would be the only rank and detects
                                                                  // errors itself
        looked->run_script();
        looked->compiled();
        return looked;
    };
    return run_on_ranks(script, work);
}

}  // namespace orrery

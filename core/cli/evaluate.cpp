#include "cli/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iterator>
#include <numbers>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/files/json_file.h"
#include "base/files/result_file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/regular_file.h"
#include "base/text.h"
#include "cli/ranks.h"
#include "cli/run_record/kept_script.h"
#include "cli/tokenize/documents.h"
#include "config/load.h"
#include "config/toml_text.h"
#include "lua/script.h"
#include "orrery/checkpoint.h"
#include "run/checkpoint/restore/pretrained.h"
#include "run/checkpoint/save/saved_state.h"
#include "run/evaluate/choices.h"
#include "run/evaluate/row_scores.h"
#include "run/evaluate/text_windows.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// Number of positions in a config.json, and the key that says it; nullopt: no key does.
std::optional<std::pair<int64_t, std::string>> positions_in(const std::string& file) {
    const Json json = read_json(file, 16 << 20);
    for (const char* key : {"max_position_embeddings", "n_positions"})
        if (json.is_object() && json.contains(key) && json.at(key).is_number_integer())
            return std::pair(std::max<int64_t>(1, whole_number(json.at(key), file + ": " + key)), key);
    return std::nullopt;
}

/// The window for a published model if data.tokens_per_sequence is not given. Throws Error for one that
/// is longer than the positions of its config.json.
int64_t window_of(const EvaluateCommand& command, const std::string& file) {
    constexpr int64_t longest = 1024;
    const auto positions = positions_in(file);
    if (!command.window) return std::min(longest, positions ? positions->first : longest);
    if (positions && *command.window > positions->first)
        throw Error(
            fmt::format("--window {}: {} of {} is {}: the model does not know later positions\n  give at most {}{}",
                        *command.window, positions->second, file, positions->first, positions->first,
                        positions->second == "n_positions"  // a table of positions, which has no more
                            ? ""
                            : fmt::format(", or ask for longer sequences all the same: --set "
                                          "data.tokens_per_sequence={}",
                                          *command.window)));
    return *command.window;
}

/// If the script is a folder, replaces it: a run's folder by its saved script, a published folder by hf.lua, with the
/// settings that the user did not give. Throws Error if the folder is neither.
void stand_for_folder(ScriptCommand& script, EvaluateCommand& command) {
    const fs::path folder = script.script;
    std::error_code ignored;
    if (!fs::is_directory(folder, ignored)) return;
    std::vector<std::string> under;  // settings that --set overrides
    if (fs::exists(folder / "config.toml", ignored)) {
        Config run = load_config((folder / "config.toml").string());
        if (const std::string kept = kept_script_of(folder.string(), run); fs::exists(kept, ignored))
            under.push_back("run.script=" + toml_string(kept));
        script.sets.insert(script.sets.begin(), under.begin(), under.end());
        return;
    }
    if (!fs::exists(folder / "config.json", ignored)) {
        const std::string copies = how_to_use_copies(folder.string());
        throw Error(fmt::format(
            "{} has neither config.toml nor config.json{}", folder.string(),
            copies.empty() ? "\n  name a run's folder, the folder of a published model, or a script" : copies));
    }
    command.published = true;
    const Config given = load_config(script.config, script.sets);
    const auto is_given = [&](const char* table, const char* key) {
        const ConfigValue* const found = given.find(table);
        const auto* const of = found ? std::get_if<std::shared_ptr<Config>>(&found->data) : nullptr;
        return of && (*of)->has(key);
    };
    const auto unless_given = [&](const char* table, const char* key, int64_t value) {
        if (!is_given(table, key)) under.push_back(fmt::format("{}.{}={}", table, key, value));
    };
    if (!is_given("data", "tokens_per_sequence"))
        under.push_back(
            fmt::format("data.tokens_per_sequence={}", window_of(command, (folder / "config.json").string())));
    unless_given("train", "steps", 1);
    int64_t batch = 1;  // samples per batch: one for each member of the data-parallel axes
    if (const ConfigValue* const mesh = given.find("mesh"))
        batch = std::get<std::shared_ptr<Config>>(mesh->data)->integer("dp", 1);
    unless_given("train", "sequences_per_step", batch);
    under.push_back("checkpoint.load=" + toml_string(folder.string()));
    under.push_back("data.path=\"\"");
    const Config library = load_config(script.config, script.sets);
    std::string configured;
    if (const ConfigValue* const lua = library.find("lua"))
        configured = std::get<std::shared_ptr<Config>>(lua->data)->text("library", "");
    script.script = (script_library(configured) / "hf.lua").string();
    script.sets.insert(script.sets.begin(), under.begin(), under.end());
}

struct ScoredText {
    std::string program;  ///< name of the program for a full batch
    std::vector<int32_t> ids;
    std::vector<bool> ignored;  ///< for each id: whether a mask excludes it as a target; empty: none
    TextWindows windows;
    int64_t predicted = 0;
    int64_t size = 0, stride = 0;  ///< tokens per window, and from one window to the next
    int64_t bytes = 0;             ///< bytes of text of the predicted tokens; 0: unknown
};

struct ScoredEnding {
    size_t choice = 0;
    EncodedEnding row;
    std::string program;
};

struct Scored {
    std::optional<ScoredText> text;
    std::vector<MultipleChoice> choices;
    std::vector<ScoredEnding> endings;
    std::vector<std::string> skipped;  ///< why a line of choices cannot be scored, one for each that is left out
};

constexpr int64_t most_text = int64_t{1} << 30;    ///< max bytes of a text, which is read whole
constexpr int64_t most_tokens = int64_t{1} << 28;  ///< max tokens of a file: 1 GiB as ids on each rank
constexpr int64_t least_positions = 64;            ///< min positions of the programs that score endings

int64_t positions_of(const Program& program) {
    const auto tokens = program.find("tokens");
    return program.value(*tokens).type.shape.back();
}

std::string whole_text(const std::string& path) {
    const RegularFile in(path);
    if (!in.problem().empty()) throw Error(fmt::format("text file {} {}", path, in.problem()));
    if (in.bytes() > most_text)
        throw Error(
            fmt::format("text file {} has {}, the maximum is {}\n  split it into several files, or convert it with "
                        "`orrery tokenize` and name the .bin file",
                        path, bytes_text(in.bytes()), bytes_text(most_text)));
    return in.text(static_cast<size_t>(in.bytes()));
}

/// Returns the smallest sequence length of 64, 128, ... that holds the ending; 0: only the full length does.
int64_t shortest_for(const EncodedEnding& ending, int64_t positions) {
    int64_t length = least_positions;
    while (length < static_cast<int64_t>(ending.ids.size()) - 1) length *= 2;
    return length < positions ? length : 0;
}

ScoredIds read_tokens(ScriptRunner& script, const std::string& path) {
    const RegularFile file(path);
    if (!file.problem().empty()) throw Error(fmt::format("token file {} {}", path, file.problem()));
    const auto source = [&](int64_t sequence) {
        Config options("data");
        options.set("path", {path, {}});
        options.set("seq", {sequence, {}});
        options.set("vocab", {int64_t{0}, {}});  // no limit of ids: the model limits them, not the training data
        options.fall_back_on(script.config().table("data"));
        return script.make_data("tokens", options, {});
    };
    return read_token_file(source, vocabulary_of(script.experiment->train()), most_tokens);
}

ScoredText read_text(ScriptRunner& script, const EvaluateCommand& asked, const TokenText& tokens, int64_t positions) {
    ScoredText scored;
    scored.size = asked.window.value_or(positions);
    scored.stride = asked.stride.value_or(scored.size);
    if (scored.size > positions)
        throw Error(fmt::format("--window {}: longer than the model's sequences of {} tokens", scored.size, positions));
    if (scored.stride > scored.size)
        throw Error(fmt::format(
            "--stride {}: larger than the window of {} tokens, so that tokens between windows would be skipped",
            scored.stride, scored.size));
    std::vector<int32_t>& ids = scored.ids;
    if (is_token_file(asked.file)) {
        ScoredIds read = read_tokens(script, asked.file);
        ids = std::move(read.ids);
        scored.ignored = std::move(read.ignored);
        scored.bytes = tokens.bytes_of(ids);
    } else {
        const std::string text = whole_text(asked.file);
        try {
            ids = tokens.encode(text, tokenizer::Around::both);
        } catch (const Error& error) {
            throw Error({"", asked.file}, error.what(), error.fault());
        }
        scored.bytes = static_cast<int64_t>(text.size());
    }
    if (ids.size() < 2)
        throw Error(fmt::format("{} has {}: expected at least 2, since the first one is not predicted", asked.file,
                                plural(static_cast<int64_t>(ids.size()), "token")));
    std::vector<int32_t> apart = {ids.front()};
    for (size_t i = 1; i < scored.ignored.size(); ++i)
        if (scored.ignored[i]) apart.push_back(ids[i]);
    scored.predicted = static_cast<int64_t>(ids.size() - apart.size());
    if (scored.predicted == 0)
        throw Error(fmt::format("{}: nothing to evaluate: its loss mask ignores every token", asked.file));
    if (scored.bytes > 0) scored.bytes -= tokens.bytes_of(apart);
    scored.windows = TextWindows(static_cast<int64_t>(ids.size()), scored.size, scored.stride);
    return scored;
}

void read_choices(Scored& scored, const EvaluateCommand& asked, const TokenText& tokens, int64_t positions) {
    std::vector<MultipleChoice>& choices = scored.choices;
    Documents lines({asked.choices}, true);
    for (std::vector<Document> batch; lines.next(batch);)
        for (const Document& line : batch) try {
                MultipleChoice choice = parse_choice(line.text, line.where);
                std::vector<ScoredEnding> endings;
                for (size_t ending = 0; ending < choice.endings.size(); ++ending)
                    endings.push_back(
                        {choices.size(), encode_ending(tokens, choice, ending, asked.delimiter, positions), ""});
                std::ranges::move(endings, std::back_inserter(scored.endings));
                choices.push_back(std::move(choice));
            } catch (const Error& error) {
                if (!asked.skip_bad)
                    throw Error(error.what() + std::string("\n  --skip-bad leaves such lines out"), error.fault());
                scored.skipped.push_back(error.what());
            }
    if (choices.empty())
        throw Error(fmt::format("{} has no line that can be scored{}", asked.choices,
                                scored.skipped.empty() ? "" : "; the first: " + scored.skipped.front()));
}

MarkedProgram made(const Experiment& experiment, const ProgramEntry& entry) {
    MarkedProgram program;
    experiment.recipe->later([&] { program = make_program(experiment, entry); });
    return program;
}

void add_choice_programs(std::vector<MarkedProgram>& programs, ScriptRunner& script, Scored& scored,
                         int64_t positions) {
    ProgramEntry one = at_batch(script.experiment->find("eval")->entry, 1);
    one.whole = script.settings.mesh.ranks() > 1;
    bool shorter = true;
    for (ScoredEnding& ending : scored.endings) {
        const int64_t length = shorter ? shortest_for(ending.row, positions) : 0;
        ProgramEntry entry = length > 0 ? at_length(one, length) : one;
        const auto known = [&](const MarkedProgram& program) { return program.entry.name == entry.name; };
        if (std::none_of(programs.begin(), programs.end(), known)) try {
                programs.push_back(made(*script.experiment, entry));
            } catch (const Error&) {
                if (length == 0) throw;
                shorter = false;  // the script depends on a fixed sequence length
                entry = one;
                if (std::none_of(programs.begin(), programs.end(), known))
                    programs.push_back(made(*script.experiment, entry));
            }
        ending.program = entry.name;
    }
}

void compile_scoring(ScriptRunner& script, const EvaluateCommand& asked, Scored& scored) {
    const Experiment& experiment = *script.experiment;
    const MarkedProgram& eval = *experiment.find("eval");
    require_scorable(eval.program, eval.entry.mean);
    const int64_t positions = positions_of(experiment.train());
    const TokenText tokens(script.tokenizer, vocabulary_of(experiment.train()));
    std::vector<MarkedProgram> programs;
    scored = {};
    if (!asked.file.empty()) {
        ScoredText& text = scored.text.emplace(read_text(script, asked, tokens, positions));
        programs.push_back(text.size == positions ? eval : made(experiment, at_length(eval.entry, text.size)));
        text.program = programs.back().entry.name;
    }
    if (!asked.choices.empty()) {
        read_choices(scored, asked, tokens, positions);
        add_choice_programs(programs, script, scored, positions);
    }
    const CompileOptions options = script.training_options();
    Compiled compiled = compile_alone(experiment, programs, options);
    if (scored.text)
        for (const Calls& calls : evaluation_calls(compiled, scored.text->windows.count()))
            if (calls.of == scored.text->program && !compiled.find(calls.entry.name))
                experiment.recipe->later([&] { add_program(compiled, experiment, calls.entry, options); });
    script.keep(std::move(compiled));
    script.refuse_unfit();
}

/// Returns a script whose training call reads the text or questions to score and compiles the programs that score them.
/// `looks`: this process starts ranks and scores nothing. `command` and `scored` must outlive the script.
std::unique_ptr<ScriptRunner> scoring_script(const ScriptCommand& script, const EvaluateCommand& command,
                                             const Job& job, bool looks, Scored& scored) {
    // The ranks open the device and report its problems, since it may hold resources while a process lives.
    using enum ScriptUse::Scratch;
    ScriptUse use{.scratch = looks ? by_ranks : counted,
                  .prints = false,
                  .tells = looks ? script.node_rank == 0 : first_of_foreign(job)};
    use.compile = [&](ScriptRunner& asked, Experiment experiment) {
        asked.begin(std::move(experiment));
        compile_scoring(asked, command, scored);
    };
    use.train = [](ScriptRunner&, const DataSpec&, const TrainOptions&) {};
    // data.token_bytes describes the scored file: the value that the script sets for its training data does not count.
    use.ignores = [](const GivenKey& key) { return key.key == "token_bytes"; };
    return std::make_unique<ScriptRunner>(script, job, std::move(use));
}

/// A read-only view of a store that shows a single checkpoint, even one marked as suspect, since the user chose it.
class OneStep final : public CheckpointStore {
public:
    /// Throws Error, listing the steps, if the store does not have the step.
    OneStep(CheckpointStore& store, int64_t step) : store_(store), step_(step) {
        const std::vector<int64_t> all = store.steps();
        if (std::find(all.begin(), all.end(), step) != all.end()) return;
        std::vector<std::string> names;
        for (const int64_t known : all) names.push_back(std::to_string(known));
        throw Error(fmt::format("{} has no checkpoint of step {}: {}", store.place(), step,
                                names.empty() ? "it has none" : "it has " + join(names, ", ")));
    }

    StoreContract contract() const override { return store_.contract(); }
    std::vector<int64_t> steps() override { return {step_}; }
    std::string manifest(int64_t step) override { return store_.manifest(step); }
    int64_t size(int64_t step, std::string_view key) override { return store_.size(step, key); }
    void get(int64_t step, std::string_view key, int64_t offset, std::span<std::byte> bytes) override {
        store_.get(step, key, offset, bytes);
    }
    std::string note(int64_t step, StepNote which) override {
        return which == StepNote::suspect ? "" : store_.note(step, which);
    }
    int64_t generation() override { return store_.generation(); }
    std::string place() const override { return store_.place(); }
    bool is_folder() const override { return store_.is_folder(); }

    void put(int64_t, std::string_view, std::span<const std::byte>) override { refuse(); }
    void flush(int64_t) override { refuse(); }
    void commit(int64_t, std::string_view) override { refuse(); }
    void discard(int64_t) override { refuse(); }
    void remove(int64_t) override { refuse(); }
    std::string set_aside(int64_t) override { return refuse(); }
    void set_note(int64_t, StepNote, std::string_view) override { refuse(); }
    void link(int64_t, std::string_view, int64_t, std::string_view) override { refuse(); }
    bool claim(int64_t) override { return refuse().empty(); }

private:
    static std::string refuse() { throw std::logic_error("a store of one step is only read"); }

    CheckpointStore& store_;
    int64_t step_;
};

std::string load(ScriptRunner& script, const EvaluateCommand& command, Session& session) {
    const Settings& settings = session.settings();
    if (const auto& chosen = script.tokenizer; chosen && session.job().rank == 0)
        for (const std::string& note : tokenizer::template_notes(chosen->path, *chosen->tokenizer))
            std::fprintf(stderr, "%s\n", note.c_str());
    if (command.published) {
        session.initialize(settings.seed);
        const auto fresh = load_weights(session, settings.weights, script.experiment->recipe->weights);
        if (!fresh.empty()) std::fprintf(stderr, "%s\n", fresh_text(fresh, settings.weights).c_str());
        return settings.weights;
    }
    const auto store = script.open_store();
    std::optional<OneStep> one;
    if (command.step) one.emplace(*store, *command.step);
    CheckpointStore& read = one ? *one : *store;
    const SavedState::Resumed loaded = SavedState(session, read, settings.keep).load_params(script.experiment->train());
    if (session.job().rank == 0)
        for (const std::string& said : loaded.said) std::fprintf(stderr, "%s\n", said.c_str());
    return fmt::format("step {}: {}", loaded.step, store->place());
}

/// Returns `nats`; throws Error if it is not finite. `place` names the position in the input, counted from 0.
double finite(double nats, const std::function<std::string()>& place) {
    if (std::isfinite(nats)) return nats;
    throw Error(fmt::format("the model's loss is {} nats for {}, counted from 0: its weights or activations are not "
                            "finite\n  evaluate an older checkpoint (--step), or in f32 (--set train.precision=f32)",
                            nats, place()),
                Fault::failed);
}

/// Returns the sum of nats over all predicted tokens. All ranks must call it.
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

/// Returns the log-likelihood of each ending, by question. All ranks must call it.
std::vector<std::vector<double>> score_endings(const Scored& scored, const Session& session, RowScores& rows) {
    std::vector<std::vector<double>> all(scored.choices.size());
    for (const ScoredEnding& ending : scored.endings) {
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

/// Returns what must be equal on all ranks, since each rank reads input files of its own host.
Agreement agreement_of(const Scored& scored, const EvaluateCommand& command) {
    const auto digest = [](Sha256& of, const std::vector<int32_t>& ids) {
        of.update(fmt::format("{}:", ids.size()));
        of.update(std::as_bytes(std::span(ids)));
    };
    Agreement parts = {{"--step", command.step ? std::to_string(*command.step) : "the newest"}};
    if (const auto& text = scored.text) {
        Sha256 ids;
        digest(ids, text->ids);
        for (size_t i = 0; i < text->ignored.size(); ++i)
            if (text->ignored[i]) ids.update(fmt::format("{},", i));
        parts.insert(parts.end(), {{"the ids of the text", ids.hex()},
                                   {"--window", std::to_string(text->size)},
                                   {"--stride", std::to_string(text->stride)}});
    }
    if (!scored.choices.empty()) {
        Sha256 all;
        for (const MultipleChoice& choice : scored.choices) all.update(fmt::format("{},", choice.label));
        for (const ScoredEnding& ending : scored.endings) {
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
    std::printf("%s: %s of %s tokens predicted, in %s of %s tokens, stride %s\n", file.c_str(),
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
        std::printf("bits per byte   unknown: no tokenizer to decode the token ids (set data.tokenizer)\n");
    }
    return json;
}

Json tell_choices(const Scored& scored, const std::string& file,
                  const std::vector<std::vector<double>>& log_likelihoods) {
    int64_t right = 0, right_normed = 0;
    const std::vector<MultipleChoice>& choices = scored.choices;
    for (size_t i = 0; i < choices.size(); ++i) {
        const Chosen chosen = chosen_of(choices[i], log_likelihoods[i]);
        right += chosen.plain == choices[i].label;
        right_normed += chosen.normed == choices[i].label;
    }
    const auto all = static_cast<double>(choices.size());
    const double acc = static_cast<double>(right) / all, acc_norm = static_cast<double>(right_normed) / all;
    std::printf("%s: %s choices, %s endings\nacc       %.4f, %s are correct\nacc_norm  %.4f, %s are correct\n",
                file.c_str(), count_text(static_cast<int64_t>(choices.size())).c_str(),
                count_text(static_cast<int64_t>(scored.endings.size())).c_str(), acc, count_text(right).c_str(),
                acc_norm, count_text(right_normed).c_str());
    if (!scored.skipped.empty())
        std::printf("skipped   %s, the first: %s\n",
                    plural(static_cast<int64_t>(scored.skipped.size()), "line").c_str(),
                    scored.skipped.front().c_str());
    return {{"file", file}, {"choices", choices.size()}, {"skipped", scored.skipped.size()},
            {"acc", acc},   {"acc_norm", acc_norm},      {"log_likelihoods", log_likelihoods}};
}

void evaluate_here(ScriptRunner& script, const Scored& scored, const EvaluateCommand& command, Sessions& sessions) {
    if (script.tokenizer && !command.published) require_kept(*script.tokenizer, script.folder());
    const bool first = script.job.rank == 0;
    const auto met = meet(script, script.settings, script.compiled(), script.take_device(), sessions);
    Session& session = *met;
    in_session(script, session, sessions, [&] {
        session.agree("what is evaluated", agreement_of(scored, command));
        const std::string what = load(script, command, session);
        if (first) std::fprintf(stderr, "evaluating %s\n", what.c_str());
        RowScores rows(session);
        Json results = {{"model", what}};
        if (scored.text) {
            const double nats = score_text(*scored.text, session, rows);
            if (first) results["text"] = tell_text(*scored.text, command.file, nats);
        }
        if (!scored.choices.empty()) {
            const auto log_likelihoods = score_endings(scored, session, rows);
            if (first) results["choices"] = tell_choices(scored, command.choices, log_likelihoods);
        }
        if (first && !command.out.empty()) write_result(command.out, results.dump(1) + "\n");
    });
    std::fflush(stdout);
}

}  // namespace

int evaluate_command(const ScriptCommand& given, const EvaluateCommand& asked) {
    if (given.script_help) return show_options(given, Job{});
    if (asked.skip_bad && asked.choices.empty()) throw Error("evaluate: --skip-bad is only supported with --choices");
    if (asked.file.empty() && asked.choices.empty())
        throw Error("evaluate: name a text, a token file, or --choices FILE.jsonl");
    if (!asked.out.empty()) require_writable("--out", asked.out);
    ScriptCommand script = given;
    EvaluateCommand command = asked;
    stand_for_folder(script, command);
    if (command.published && command.step)
        throw Error("evaluate: --step is not supported for a published model, which has no steps; leave --step out");
    RankCommand work;
    work.rank = [&](const Job& job, Sessions& sessions) {
        Scored scored;
        const auto mine = scoring_script(script, command, job, false, scored);
        const Mesh& mesh = mine->settings.mesh;
        if (job.ranks != mesh.ranks())
            throw Error(
                mine->config().table("mesh").origin(),
                fmt::format("mesh {} has {} ranks, but {} were started\n  start as many ranks, or change [mesh]",
                            mesh.text(), mesh.ranks(), job.ranks));
        mine->load();
        mine->run();
        mine->compiled();  // throws if nothing was compiled
        evaluate_here(*mine, scored, command, sessions);
    };
    work.check = [&](const Job& job) {
        Scored scored;
        auto looked = scoring_script(script, command, job, true, scored);
        if (looked->settings.mesh.ranks() == 1) return looked;
        looked->load_for_hosts(script.nodes);
        refuse_apart(looked->settings, looked->config(), looked->contracts, looked->job.local_ranks);
        looked->run();
        looked->compiled();
        return looked;
    };
    return run_on_ranks(script, work);
}

}  // namespace orrery

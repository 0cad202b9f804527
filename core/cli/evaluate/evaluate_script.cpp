#include "cli/evaluate/evaluate_script.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/regular_file.h"
#include "base/text.h"
#include "cli/tokenize/documents.h"
#include "run/score/row_scores.h"

namespace orrery {
namespace {

constexpr int64_t most_text = int64_t{1} << 30;    ///< bytes of a text that is read whole
constexpr int64_t most_tokens = int64_t{1} << 28;  ///< of a file, 1 GiB as ids on each rank
constexpr int64_t least_positions = 64;            ///< of the programs that score endings

int64_t positions_of(const Program& program) {
    const auto tokens = program.find("tokens");
    return program.value(*tokens).type.shape.back();
}

std::string whole_text(const std::string& path) {
    const RegularFile in(path);
    if (!in.problem().empty()) throw Error(fmt::format("text file {} {}", path, in.problem()));
    if (in.bytes() > most_text)
        throw Error(
            fmt::format("text file {} has {}, at most {} are read whole\n  cut it in several files, or write its "
                        "ids with `orrery tokenize` and name their .bin",
                        path, bytes_text(in.bytes()), bytes_text(most_text)));
    return in.text(static_cast<size_t>(in.bytes()));
}

/// The least of 64, 128 ... that has so many places; 0: all.
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
        options.set("vocab", {int64_t{0}, {}});  // the model's ids alone count, not those of the data trained on
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
        throw Error(fmt::format("--window {}: the model's sequences have {} tokens", scored.size, positions));
    if (scored.stride > scored.size)
        throw Error(
            fmt::format("--stride {}: tokens between windows of {} would be left out", scored.stride, scored.size));
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
        throw Error(fmt::format("{} has {}: there is none to predict", asked.file,
                                plural(static_cast<int64_t>(ids.size()), "token")));
    std::vector<int32_t> apart = {ids.front()};
    for (size_t i = 1; i < scored.ignored.size(); ++i)
        if (scored.ignored[i]) apart.push_back(ids[i]);
    scored.predicted = static_cast<int64_t>(ids.size() - apart.size());
    if (scored.predicted == 0) throw Error(fmt::format("{}: its mask ignores every token", asked.file));
    if (scored.bytes > 0) scored.bytes -= tokens.bytes_of(apart);
    scored.windows = TextWindows(static_cast<int64_t>(ids.size()), scored.size, scored.stride);
    return scored;
}

void read_choices(Scored& scored, const EvaluateCommand& asked, const TokenText& tokens, int64_t positions) {
    std::vector<MultipleChoice>& choices = scored.choices;
    Documents lines({asked.choices}, true);
    for (std::vector<Document> batch; lines.next(batch);)
        for (const Document& line : batch) choices.push_back(parse_choice(line.text, line.where));
    if (choices.empty()) throw Error(fmt::format("{} has no line", asked.choices));
    for (size_t i = 0; i < choices.size(); ++i)
        for (size_t ending = 0; ending < choices[i].endings.size(); ++ending)
            scored.endings.push_back({i, encode_ending(tokens, choices[i], ending, asked.delimiter, positions), ""});
}

MarkedProgram made(const Experiment& experiment, const ProgramEntry& entry) {
    MarkedProgram program;
    experiment.recipe->later([&] { program = make_program(experiment, entry); });
    return program;
}

/// Adds the programs of endings that are not there.
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
                shorter = false;  // the script has the length of a sequence in it
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

}  // namespace

std::unique_ptr<ScriptRunner> scoring_script(const ScriptCommand& script, const EvaluateCommand& command,
                                             const Job& job, bool looks, Scored& scored) {
    // A device may keep something of a process for as long as that lives: the ranks find out what is wrong with theirs.
    using enum ScriptUse::Scratch;
    ScriptUse use{.scratch = looks ? by_ranks : counted,
                  .prints = false,
                  .tells = looks ? script.node_rank == 0 : first_of_foreign(job)};
    use.compile = [&](ScriptRunner& asked, Experiment experiment) {
        asked.begin(std::move(experiment));
        compile_scoring(asked, command, scored);
    };
    use.train = [](ScriptRunner&, const DataSpec&, const TrainOptions&) {};
    // The file that is scored goes by data.token_bytes, whatever the data trained on has.
    use.ignores = [](const GivenKey& key) { return key.key == "token_bytes"; };
    return std::make_unique<ScriptRunner>(script, job, std::move(use));
}

}  // namespace orrery

#include "cli/evaluate/evaluate_script.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/regular_file.h"
#include "base/text.h"
#include "cli/tokenize/documents.h"
#include "run/score/row_scores.h"

namespace orrery {
namespace {

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
            fmt::format("text file {} has {}, at most {} are read whole\n  cut it in several files, or write its "
                        "ids with `orrery tokenize` and name their .bin",
                        path, bytes_text(in.bytes()), bytes_text(most_text)));
    return in.text(static_cast<size_t>(in.bytes()));
}

/// The smallest of 64, 128 ... positions that holds the ending; 0: the full length.
int64_t shortest_for(const EncodedEnding& ending, int64_t positions) {
    int64_t length = least_positions;
    while (length < static_cast<int64_t>(ending.ids.size()) - 1) length *= 2;
    return length < positions ? length : 0;
}

}  // namespace

EvaluateScript::EvaluateScript(const ScriptCommand& script, const EvaluateCommand& command, const Job& job, bool looks)
    : ScriptRunner(script, job), asked_(command), looks_(looks) {}

void EvaluateScript::prepare() {
    if (looks_) job_.local_ranks = ranks_per_host(settings_, config_, command_.nodes);
    ScriptRunner::prepare();
    if (looks_) refuse_apart(settings_, config_, contracts_, job_.local_ranks);
}

std::unique_ptr<Device> EvaluateScript::counting_device(const Job& job, const Settings& settings) {
    // A device may hold resources for the lifetime of a process, so the ranks open it and detect problems.
    if (looks_ && !device_facts().leaves_nothing && !ranks_are_threads()) return nullptr;
    return ScriptRunner::counting_device(job, settings);
}

ScoredIds EvaluateScript::read_tokens() {
    const RegularFile file(asked_.file);
    if (!file.problem().empty()) throw Error(fmt::format("token file {} {}", asked_.file, file.problem()));
    const auto source = [&](int64_t sequence) {
        Config options("data");
        options.set("path", {asked_.file, {}});
        options.set("seq", {sequence, {}});
        options.set("vocab", {int64_t{0}, {}});  // only the model's ids count, not those of the training data
        options.fall_back_on(config_.table("data"));
        return make_data("tokens", options, {});
    };
    return read_token_file(source, vocabulary_of(experiment_->train()), most_tokens);
}

void EvaluateScript::read_text(const TokenText& tokens, int64_t positions) {
    text_.emplace();
    text_->size = asked_.window.value_or(positions);
    text_->stride = asked_.stride.value_or(text_->size);
    if (text_->size > positions)
        throw Error(fmt::format("--window {}: the model's sequences have {} tokens", text_->size, positions));
    if (text_->stride > text_->size)
        throw Error(
            fmt::format("--stride {}: tokens between windows of {} would be left out", text_->stride, text_->size));
    std::vector<int32_t>& ids = text_->ids;
    if (is_token_file(asked_.file)) {
        ScoredIds read = read_tokens();
        ids = std::move(read.ids);
        text_->ignored = std::move(read.ignored);
        text_->bytes = tokens.bytes_of(ids);
    } else {
        const std::string text = whole_text(asked_.file);
        try {
            ids = tokens.encode(text, tokenizer::Around::both);
        } catch (const Error& error) {
            throw Error({"", asked_.file}, error.what(), error.fault());
        }
        text_->bytes = static_cast<int64_t>(text.size());
    }
    if (ids.size() < 2)
        throw Error(fmt::format("{} has {}: there is none to predict", asked_.file,
                                plural(static_cast<int64_t>(ids.size()), "token")));
    std::vector<int32_t> apart = {ids.front()};
    for (size_t i = 1; i < text_->ignored.size(); ++i)
        if (text_->ignored[i]) apart.push_back(ids[i]);
    text_->predicted = static_cast<int64_t>(ids.size() - apart.size());
    if (text_->predicted == 0) throw Error(fmt::format("{}: its mask ignores every token", asked_.file));
    if (text_->bytes > 0) text_->bytes -= tokens.bytes_of(apart);
    text_->windows = TextWindows(static_cast<int64_t>(ids.size()), text_->size, text_->stride);
}

void EvaluateScript::read_choices(const TokenText& tokens, int64_t positions) {
    Documents lines({asked_.choices}, true);
    for (std::vector<Document> batch; lines.next(batch);)
        for (const Document& line : batch) choices_.push_back(parse_choice(line.text, line.where));
    if (choices_.empty()) throw Error(fmt::format("{} has no line", asked_.choices));
    for (size_t i = 0; i < choices_.size(); ++i)
        for (size_t ending = 0; ending < choices_[i].endings.size(); ++ending)
            endings_.push_back({i, encode_ending(tokens, choices_[i], ending, asked_.delimiter, positions), ""});
}

MarkedProgram EvaluateScript::made(const ProgramEntry& entry) {
    MarkedProgram program;
    experiment_->recipe->later([&] { program = make_program(*experiment_, entry); });
    return program;
}

void EvaluateScript::add_text_programs(std::vector<MarkedProgram>& programs, int64_t positions) {
    const MarkedProgram& eval = *experiment_->find("eval");
    if (text_->size == positions)
        programs.push_back(eval);
    else
        programs.push_back(made(at_length(eval.entry, text_->size)));
    text_->program = programs.back().entry.name;
}

void EvaluateScript::add_choice_programs(std::vector<MarkedProgram>& programs, int64_t positions) {
    ProgramEntry one = at_batch(experiment_->find("eval")->entry, 1);
    one.whole = settings_.mesh.ranks() > 1;
    bool shorter = true;
    for (ScoredEnding& ending : endings_) {
        const int64_t length = shorter ? shortest_for(ending.row, positions) : 0;
        ProgramEntry entry = length > 0 ? at_length(one, length) : one;
        const auto known = [&](const MarkedProgram& program) { return program.entry.name == entry.name; };
        if (std::none_of(programs.begin(), programs.end(), known)) try {
                programs.push_back(made(entry));
            } catch (const Error&) {
                if (length == 0) throw;
                shorter = false;  // the script depends on the full sequence length
                entry = one;
                if (std::none_of(programs.begin(), programs.end(), known)) programs.push_back(made(entry));
            }
        ending.program = entry.name;
    }
}

void EvaluateScript::compile(Experiment experiment) {
    refuse_idle_axes(experiment, config_.table("mesh"));
    counting_ = counting_device(job_, settings_);
    experiment_ = std::move(experiment);
    text_.reset();
    choices_.clear();
    endings_.clear();
    const MarkedProgram* const eval = experiment_->find("eval");
    require_scorable(eval->program, eval->entry.mean);
    const int64_t positions = positions_of(experiment_->train());
    const TokenText tokens(tokenizer_, vocabulary_of(experiment_->train()));
    std::vector<MarkedProgram> programs;
    if (!asked_.file.empty()) {
        read_text(tokens, positions);
        add_text_programs(programs, positions);
    }
    if (!asked_.choices.empty()) {
        read_choices(tokens, positions);
        add_choice_programs(programs, positions);
    }
    const CompileOptions options = training_options(counting_.get());
    compiled_ = compile_alone(*experiment_, programs, options);
    if (text_)
        for (const Calls& calls : evaluation_calls(*compiled_, text_->windows.count()))
            if (calls.of == text_->program && !compiled_->find(calls.entry.name))
                experiment_->recipe->later([&] { add_program(*compiled_, *experiment_, calls.entry, options); });
    if (!counting_) refuse_without_kernels(*compiled_, settings_.device);
    if (counting_) refuse_elsewhere(*compiled_, *counting_);
}

}  // namespace orrery

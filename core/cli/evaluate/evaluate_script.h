#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli/evaluate/evaluate.h"
#include "cli/script_runner.h"
#include "run/score/choices.h"
#include "run/score/token_files.h"
#include "run/score/windows.h"

namespace orrery {

/// A text as windows of its tokens, and the program that takes them.
struct ScoredText {
    std::string program;  ///< of a full batch
    std::vector<int32_t> ids;
    std::vector<bool> ignored;  ///< by id, those that a mask says are no targets; empty: none
    TextWindows windows;
    int64_t predicted = 0;         ///< tokens
    int64_t size = 0, stride = 0;  ///< of a window, in tokens
    int64_t bytes = 0;             ///< of text that the predicted tokens stand for; 0: not known
};

/// An ending as a row, and the program of one row that is long enough.
struct ScoredEnding {
    size_t choice = 0;
    EncodedEnding row;
    std::string program;
};

/// Compiles what scores a text and choices, and nothing that trains.
class EvaluateScript final : public ScriptRunner {
public:
    /// `looks`: in the process that starts ranks, which scores nothing.
    EvaluateScript(const ScriptCommand& script, const EvaluateCommand& command, const Job& job, bool looks);

    void compile(Experiment experiment) override;
    void train(const DataSpec&, const TrainOptions&) override {}
    void print(const std::string&) override {}
    /// The file that is scored goes by data.token_bytes, whatever the data trained on has.
    void gives(const GivenKey& key) override {
        if (key.key != "token_bytes") ScriptRunner::gives(key);
    }

    const std::optional<ScoredText>& text() const { return text_; }
    const std::vector<MultipleChoice>& choices() const { return choices_; }
    const std::vector<ScoredEnding>& endings() const { return endings_; }
    std::unique_ptr<Device> take_device() { return std::move(counting_); }

protected:
    void prepare() override;
    bool speaks() const override { return looks_ ? command_.node_rank == 0 : first_of_foreign(); }
    std::unique_ptr<Device> counting_device(const Job& job, const Settings& settings) override;

private:
    ScoredIds read_tokens();
    void read_text(const TokenText& tokens, int64_t positions);
    void read_choices(const TokenText& tokens, int64_t positions);
    MarkedProgram made(const ProgramEntry& entry);
    void add_text_programs(std::vector<MarkedProgram>& programs, int64_t positions);
    void add_choice_programs(std::vector<MarkedProgram>& programs, int64_t positions);

    const EvaluateCommand& asked_;
    const bool looks_;
    std::optional<ScoredText> text_;
    std::vector<MultipleChoice> choices_;
    std::vector<ScoredEnding> endings_;
};

}  // namespace orrery

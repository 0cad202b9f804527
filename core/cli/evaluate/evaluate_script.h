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

/// A text as windows of tokens, and the program that scores them.
struct ScoredText {
    std::string program;  ///< name of the program for a full batch
    std::vector<int32_t> ids;
    std::vector<bool> ignored;  ///< by id: a mask excludes it as a target; empty: none
    TextWindows windows;
    int64_t predicted = 0;         ///< number of predicted tokens
    int64_t size = 0, stride = 0;  ///< of a window, in tokens
    int64_t bytes = 0;             ///< bytes of text of the predicted tokens; 0: unknown
};

/// An ending as a row, and the one-row program that is long enough for it.
struct ScoredEnding {
    size_t choice = 0;
    EncodedEnding row;
    std::string program;
};

/// Compiles the programs that score a text and choices, without training.
class EvaluateScript final : public ScriptRunner {
public:
    /// `looks`: in the process that starts the ranks, which scores nothing.
    EvaluateScript(const ScriptCommand& script, const EvaluateCommand& command, const Job& job, bool looks);

    void compile(Experiment experiment) override;
    void train(const DataSpec&, const TrainOptions&) override {}
    void print(const std::string&) override {}
    /// The scored file uses data.token_bytes, whatever the training data has.
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

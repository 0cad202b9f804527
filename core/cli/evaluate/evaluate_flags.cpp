#include "cli/evaluate/evaluate_flags.h"

#include "cli/flag_checks.h"

namespace orrery {

void add_evaluate_flags(CLI::App& evaluate, EvaluateCommand& command) {
    constexpr int64_t most = 1'000'000'000;
    evaluate.add_option("file", command.file, "a text, or a file of the model's tokens (.bin)")->check(file_name());
    evaluate
        .add_option("--choices", command.choices, "lines of JSON with context, endings and label: score the endings")
        ->check(file_name());
    evaluate.add_option("--window", command.window, "tokens that the model sees at once; those of the run if left out")
        ->check(whole_number_from(1, most));
    evaluate.add_option("--stride", command.stride, "tokens from a window to the next; a whole window if left out")
        ->check(whole_number_from(1, most));
    evaluate.add_option("--step", command.step, "the checkpoint of this step, not the newest")
        ->check(whole_number_from(0, most));
    evaluate.add_option("--delimiter", command.delimiter, "between a context and its ending; a space if left out");
    evaluate.add_option("-o,--out", command.out, "write the results to this .json file, with every log-likelihood")
        ->check(file_name());
    add_examples(evaluate, {"evaluate runs/quickstart data/bible.txt --stride 64",
                            "evaluate FOLDER text.txt --window 512 --stride 256 --set mesh.tp=2",
                            "evaluate runs/quickstart --choices questions.jsonl -o scores.json"});
}

}  // namespace orrery

// Scripts to programs, programs to numbers.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layout/token_order.h"
#include "plan_ranks.h"
#include "run/checkpoint/restore/pretrained.h"
#include "run/script_interface.h"

namespace orrery::equivalence {

/// Runs a script of this folder or of scripts/ with a configuration in TOML and returns what it compiled.
std::unique_ptr<Experiment> experiment(const std::string& script, const std::string& toml);

/// A run of models.lua over 8 sequences a step.
struct ModelRun {
    std::string model;
    std::string mesh = {};    ///< "dp = 2, tp = 2", or a line each
    std::string script = {};  ///< options of the script, a line each
    int64_t microbatches = 1;
    std::string precision = "f32";
    int64_t tokens = 8;  ///< of a sequence
    int64_t steps = 20;
};
std::unique_ptr<Experiment> experiment(const ModelRun& run);

/// What it compiled with its schedule, proved for the threads transport, which runs it here.
test::Lowered compiled(const Experiment& experiment);

/// "grad NAME" becomes a result for every param that has a gradient.
void show_gradients(Program& program);

/// A row in an order of its tokens.
std::vector<int32_t> ordered(std::span<const int32_t> row, std::span<const TokenRun> runs);

/// Global contents of a source, the same on every mesh: params as their `init` says, from the name; tokens below
/// `vocab` and targets that follow from them, about a quarter of them ignored, more in the first sequences; documents
/// of 1 to 40 tokens and positions in them; "step", "seed". `seed`: other params and tokens.
std::vector<char> draw(const Value& value, int64_t step, int64_t vocab, uint32_t seed = 0);

/// As draw(), for inputs of a plan: in the plan's order of tokens, and with places. `packed`: rows of documents; else a
/// row is one document.
std::function<std::vector<char>(const Value& value, int64_t step)> drawn_for(const Plan& plan, int64_t vocab,
                                                                             bool packed = false, uint32_t seed = 0);

/// Steps on the CPU's own kernels from sources of drawn_for, each looked at.
test::Ran run_drawn(const test::Lowered& lowered, int64_t steps, int64_t vocab, bool packed = false);

/// A param's part of a tensor of published files, f32; `prefix` goes before the published name.
std::vector<float> part(const WeightFiles& files, const Value& param, WeightSource source,
                        const std::string& prefix = "");
/// Of a param by name; throws when it has none.
const WeightSource& source_of(const PublishedWeights& weights, const std::string& param);

/// The step's loss_sum / count.
double loss_of(const test::Contents& step);

/// A value by name; throws when it is missing.
const std::vector<float>& at(const test::Contents& contents, const std::string& name);

}  // namespace orrery::equivalence

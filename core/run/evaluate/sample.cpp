#include "run/evaluate/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "compile/ids.h"
#include "ir/describe.h"
#include "run/data/input_feed.h"
#include "run/evaluate/row_scores.h"
#include "run/host_side.h"

namespace orrery {
namespace {

/// Draws a token id from logits; at temperature 0, returns the id of the largest.
int32_t draw(std::vector<float>& logits, const SampleOptions& options, std::mt19937_64& random) {
    if (options.temperature <= 0)
        return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    size_t kept = order.size();
    if (options.top_k > 0 && options.top_k < static_cast<int64_t>(kept)) {
        kept = static_cast<size_t>(options.top_k);
        std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                          [&](int32_t a, int32_t b) {
                              const auto x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
                              return x > y || (x == y && a < b);
                          });
    }
    float largest = -INFINITY;
    for (size_t i = 0; i < kept; ++i) largest = std::max(largest, logits[static_cast<size_t>(order[i])]);
    std::vector<double> weights(kept);
    double total = 0;
    for (size_t i = 0; i < kept; ++i)
        total += weights[i] = std::exp((logits[static_cast<size_t>(order[i])] - largest) / options.temperature);
    // Random bits are used directly (53 of them), because std distributions differ between standard libraries.
    double at = static_cast<double>(random() >> 11) * 0x1.0p-53 * total;
    size_t i = 0;
    while (i + 1 < kept && at >= weights[i]) at -= weights[i++];
    return order[i];
}

/// A logits program with host memory for its inputs, which hold the text as one document.
class Window {
public:
    Window(Session& session, Executor& executor)
        : session_(session),
          executor_(executor),
          program_(executor.plan().program),
          block_(session.device(), executor.inputs().bytes) {
        const auto input = program_.find("tokens"), result = program_.result("logits");
        if (!input || !result)
            throw Error(fmt::format("program \"{}\" needs an input \"tokens\" and a result \"logits\" to sample from",
                                    program_.name));
        if (!executor.inputs().offset(*input))
            throw Error(fmt::format("sample: the input \"tokens\" of program {} is not on this rank", program_.name));
        for (const ValueId id : program_.inputs()) {
            const Value& value = program_.value(id);
            if (!is_data_input(value)) continue;
            if (!DocumentRow::fills(value) || value.name == "targets")
                throw Error(value.origin,
                            fmt::format("to sample, all inputs of the logits must follow from the text: tokens, "
                                        "documents, positions and places, i32[batch,seq]; {} has the input {}\n"
                                        "  compute the logits from those alone",
                                        program_.name, describe(program_, id)));
        }
        logits_ = executor.tensor(*result);
        positions_ = program_.value(*input).type.shape.back();
        std::memset(block_.data(), 0, static_cast<size_t>(executor.inputs().bytes));
    }

    int64_t positions() const { return positions_; }
    int64_t columns() const { return logits_.shape.back(); }

    /// Runs the program on the last tokens that fit, and fills `row` with the logits after the last one.
    void run(const std::vector<int32_t>& tokens, uint64_t seed, int64_t step, std::vector<float>& row) {
        const auto used = std::min<int64_t>(positions_, static_cast<int64_t>(tokens.size()));
        DocumentRow padded(positions_);  // no position sees the padding, which is after the text
        std::copy(tokens.end() - used, tokens.end(), padded.tokens.begin());
        for (const HostPlaces::Place& place : executor_.inputs().places) {
            const Value& value = program_.value(place.value);
            if (!is_data_input(value)) continue;
            const std::vector<int32_t>& array = padded.array(value);
            std::memcpy(block_.data() + place.offset, array.data(), array.size() * sizeof(int32_t));
        }
        set_step(program_, executor_.inputs(), seed, step, block_.data());
        executor_.run(block_.data());
        const auto count = static_cast<int64_t>(row.size());  // without columns beyond the vocabulary (padding)
        Tensor last{static_cast<float*>(logits_.data) + (used - 1) * columns(), logits_.dtype, {count}};
        session_.download(row.data(), last);
    }

private:
    Session& session_;
    Executor& executor_;
    const Program& program_;
    HostMemory block_;
    Tensor logits_;
    int64_t positions_ = 0;
};

/// Chooses the shortest program that holds the text so far, or the full one. Compiles a program at its first use.
class Windows {
public:
    Windows(Session& session, std::vector<ShorterWindow> shorter)
        : session_(session), shorter_(std::move(shorter)), whole_(session, session.main()) {
        made_.resize(shorter_.size());
    }

    const Window& whole() const { return whole_; }

    Window& for_length(size_t tokens) {
        for (size_t i = 0; i < shorter_.size(); ++i) {
            if (shorter_[i].positions < static_cast<int64_t>(tokens)) continue;
            if (!made_[i]) made_[i] = std::make_unique<Window>(session_, session_.add(shorter_[i].compile()));
            return *made_[i];
        }
        return whole_;
    }

private:
    Session& session_;
    std::vector<ShorterWindow> shorter_;
    std::vector<std::unique_ptr<Window>> made_;
    Window whole_;
};

}  // namespace

SampledText sample_text(Session& session, const SampleOptions& options, const TokenText& words,
                        std::vector<ShorterWindow> shorter, const std::function<void(std::string_view)>& say) {
    Windows windows(session, std::move(shorter));
    const int64_t columns = windows.whole().columns(), known = vocabulary_of(session.main().plan().program);
    const int64_t vocab = known > 0 ? std::min(known, columns) : columns;
    std::vector<int32_t> tokens = words.prompt(options.prompt);
    std::mt19937_64 random(options.seed);
    std::vector<float> row(static_cast<size_t>(vocab));
    SampledText out;
    TokenText::Printer printer(words);
    const auto print = [&](const std::string& text) {
        if (say && !text.empty()) say(text);
        out.text += text;
    };
    if (!options.prompt.empty())
        for (const int32_t token : tokens) print(printer.put(token));
    for (int64_t i = 0; i < options.tokens && !out.ended; ++i) {
        windows.for_length(tokens.size()).run(tokens, options.seed, i + 1, row);
        for (int64_t id = 0; id < vocab; ++id)
            if (!words.stands(id)) row[static_cast<size_t>(id)] = -INFINITY;
        tokens.push_back(draw(row, options, random));
        out.ended = words.ends(tokens.back());
        if (!out.ended) print(printer.put(tokens.back()));
    }
    print(printer.finish());
    if (out.ended) out.end = words.end();
    return out;
}

}  // namespace orrery

#include "run/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <sstream>

#include "run/data/input_feed.h"
#include "run/host_side.h"

namespace orrery {
namespace {

std::vector<int32_t> tokens_of(const std::string& prompt, int64_t vocab) {
    std::vector<int32_t> tokens;
    if (vocab == 256) {
        for (unsigned char c : prompt.empty() ? std::string("\n") : prompt) tokens.push_back(c);
        return tokens;
    }
    std::istringstream in(prompt.empty() ? "0" : prompt);
    for (std::string word; in >> word;) {
        char* end = nullptr;
        const long id = std::strtol(word.c_str(), &end, 10);
        if (*end != '\0' || id < 0 || id >= vocab)
            throw Error(
                fmt::format("prompt: \"{}\" is no token id below {}; a model with a vocabulary other than 256 "
                            "takes ids separated by spaces",
                            word, vocab));
        tokens.push_back(static_cast<int32_t>(id));
    }
    return tokens;
}

/// Index of the drawn entry. Temperature 0 takes the largest.
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
    // 53 bits by hand: std's distributions differ between libraries.
    double at = static_cast<double>(random() >> 11) * 0x1.0p-53 * total;
    size_t i = 0;
    while (i + 1 < kept && at >= weights[i]) at -= weights[i++];
    return order[i];
}

}  // namespace

std::string draw_text(Session& session, const SampleOptions& options) {
    const Program& program = session.compiled().programs.front().plan.program;
    const auto input = program.find("tokens"), result = program.result("logits");
    if (!input || !result)
        throw Error(fmt::format("program \"{}\" needs an input \"tokens\" and a result \"logits\" to sample from",
                                program.name));
    Executor& executor = session.main();
    const Tensor logits = executor.tensor(*result);
    const int64_t length = program.value(*input).type.shape.back(), vocab = logits.shape.back();
    const HostPlaces& places = executor.inputs();
    const HostMemory block(session.device(), places.bytes);
    const std::optional<int64_t> window = places.offset(*input);
    if (!window) throw Error(fmt::format("sample: program {} has no place for its input on this rank", program.name));
    std::memset(block.data(), 0, static_cast<size_t>(places.bytes));
    std::vector<int32_t> tokens = tokens_of(options.prompt, vocab);
    const size_t given = tokens.size();
    std::mt19937_64 random(options.seed);
    std::vector<float> all(static_cast<size_t>(logits.count())), row(static_cast<size_t>(vocab));
    for (int64_t i = 0; i < options.tokens; ++i) {
        const auto used = std::min<int64_t>(length, static_cast<int64_t>(tokens.size()));
        std::vector<int32_t> padded(static_cast<size_t>(length), 0);
        std::copy(tokens.end() - used, tokens.end(), padded.begin());
        std::memcpy(block.data() + *window, padded.data(), padded.size() * sizeof(int32_t));
        set_step(program, places, options.seed, i + 1, block.data());
        executor.run(block.data());
        session.download(all.data(), logits);
        const float* from = all.data() + (used - 1) * vocab;
        row.assign(from, from + vocab);
        tokens.push_back(draw(row, options, random));
    }
    std::string text;
    const size_t first = options.prompt.empty() ? given : 0;
    for (size_t i = first; i < tokens.size(); ++i) {
        if (vocab == 256)
            text.push_back(static_cast<char>(tokens[i]));
        else
            text += (text.empty() ? "" : " ") + std::to_string(tokens[i]);
    }
    return text;
}

}  // namespace orrery

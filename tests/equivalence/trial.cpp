#include "trial.h"

#include <algorithm>
#include <random>
#include <span>
#include <stdexcept>

#include "folders.h"
#include "layout/token_order.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "run/data/input_feed.h"

namespace orrery::equivalence {
namespace {

std::vector<char> bytes_of(const void* data, size_t bytes) {
    const char* first = static_cast<const char*>(data);
    return {first, first + bytes};
}

std::vector<float> initial(const Value& value, uint32_t other) {
    const auto count = static_cast<size_t>(value.type.count());
    const std::string kind = value.init.text("kind", "zeros");
    const auto scale = static_cast<float>(value.init.number("scale", 1));
    if (kind != "normal") return std::vector<float>(count, kind == "ones" ? scale : 0.0f);
    std::string words = value.name;
    if (other > 0) words += std::to_string(other);
    std::seed_seq seed(words.begin(), words.end());
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> drawn(count);
    for (float& x : drawn) x = normal(engine);
    return drawn;
}

/// [B, T]: tokens at random; the target is a fixed function of the token, so that there is something to learn.
std::vector<int32_t> batch(const Value& value, int64_t step, int64_t vocab, uint32_t seed) {
    std::mt19937 engine(static_cast<uint32_t>(step) + 1000 * seed);
    std::vector<int32_t> drawn(static_cast<size_t>(value.type.count()));
    const int64_t half = value.type.count() / 2;
    for (int64_t i = 0; i < value.type.count(); ++i) {
        const auto token = static_cast<int64_t>(engine() % static_cast<uint32_t>(vocab));
        const bool ignored = engine() % 16 < (i < half ? 6 : 2);
        const int64_t target = ignored ? -1 : (3 * token + 1) % vocab;
        drawn[static_cast<size_t>(i)] = static_cast<int32_t>(value.name == "targets" ? target : token);
    }
    return drawn;
}

/// The number of each token's document in a row of `length` tokens; see drawn_for.
std::vector<int32_t> documents_of(int64_t length, int64_t longest, int64_t step, int64_t row) {
    std::mt19937 engine(static_cast<uint32_t>(7919 * step + row));
    std::vector<int32_t> all;
    for (int32_t number = 0; std::ssize(all) < length; ++number)
        all.insert(all.end(),
                   longest == 0 ? static_cast<size_t>(length) : 1 + engine() % static_cast<uint32_t>(longest), number);
    all.resize(static_cast<size_t>(length));
    return all;
}

/// Numbers the tokens of a row that has these documents, if the input does that.
void number_tokens(std::span<int32_t> row, const std::string& input, const std::vector<int32_t>& documents) {
    for (size_t i = 0; i < row.size(); ++i) {
        if (input == "documents") row[i] = documents[i];
        if (input == "places") row[i] = static_cast<int32_t>(i);
        if (input == "positions") row[i] = i > 0 && documents[i] == documents[i - 1] ? row[i - 1] + 1 : 0;
    }
}

}  // namespace

std::function<std::vector<char>(const Value& value, int64_t step)> drawn_for(const Plan& plan, int64_t vocab,
                                                                             int64_t longest) {
    return [order = token_order(plan.program, plan.mesh), vocab, longest](const Value& value, int64_t step) {
        std::vector<char> bytes = draw(value, step, vocab);
        if (value.role != Role::input || value.dims != std::vector<std::string>{"batch", "seq"}) return bytes;
        const int64_t rows = value.type.shape[0], length = value.type.shape[1];
        for (int64_t i = 0; i < rows; ++i) {
            const std::span<int32_t> row(reinterpret_cast<int32_t*>(bytes.data()) + i * length,
                                         static_cast<size_t>(length));
            const std::vector<int32_t> documents = documents_of(length, longest, step, i);
            number_tokens(row, value.name, documents);
            const std::vector<int32_t> natural(row.begin(), row.end());
            each_run(token_runs(order, length, documents), 0, length, [&](int64_t place, int64_t count, int64_t at) {
                std::copy_n(natural.begin() + place, count, row.begin() + at);
            });
        }
        return bytes;
    };
}

std::unique_ptr<Experiment> experiment(const std::string& script, const std::string& toml) {
    FakeHost host(toml);
    host.strategies = built_strategy;
    run_script(in_source(script), host);
    if (!host.experiment) throw std::runtime_error(script + " compiled nothing");
    return std::move(host.experiment);
}

test::Lowered compiled(const Experiment& experiment) {
    Config none;
    const TransportContract contract = test::registry().transport("threads", {})(none)->contract();
    CompileOptions lowering;
    for (const Axis& axis : experiment.mesh.axes()) lowering.contracts[axis.name] = contract;
    lowering.transports = test::one_transport(experiment.mesh);
    if (experiment.schedule) lowering.schedule = &*experiment.schedule;
    return test::compile(experiment.train(), experiment.mesh, lowering);
}

void show_gradients(Program& program) {
    for (const auto& [param, grad] : program.grads())
        program.results.push_back({"grad " + program.value(param).name, grad});
}

std::vector<char> draw(const Value& value, int64_t step, int64_t vocab, uint32_t seed) {
    const auto count = static_cast<size_t>(value.type.count());
    if (value.name == "seed") {
        const uint32_t seed = step_seed(7, step);
        return bytes_of(&seed, sizeof seed);
    }
    if (value.name == "step") {
        const auto number = static_cast<float>(step);
        return bytes_of(&number, sizeof number);
    }
    if (value.role == Role::input) return bytes_of(batch(value, step, vocab, seed).data(), 4 * count);
    return bytes_of(initial(value, seed).data(), 4 * count);
}

const std::vector<float>& at(const test::Contents& contents, const std::string& name) {
    const auto found = contents.find(name);
    if (found == contents.end()) throw std::runtime_error("nothing is called " + name);
    return found->second;
}

test::Ran run_drawn(const test::Lowered& lowered, int64_t steps, int64_t vocab, int64_t longest) {
    test::Running how;
    how.steps = steps;
    how.reference = false;
    how.every_step = true;
    how.contents = drawn_for(lowered.plan, vocab, longest);
    return run_steps(lowered, how);
}

std::vector<float> part(const WeightFiles& files, const Value& param, WeightSource source, const std::string& prefix) {
    source.tensor = prefix + source.tensor;
    return read_weights(files, param, source, Shape(param.type.shape.size(), 0), param.type.shape);
}

const WeightSource& source_of(const PublishedWeights& weights, const std::string& param) {
    for (const WeightSource& source : weights.sources)
        if (source.param == param) return source;
    throw std::runtime_error("no source for " + param);
}

double loss_of(const test::Contents& step) {
    return static_cast<double>(at(step, "result loss_sum")[0]) / static_cast<double>(at(step, "result count")[0]);
}

}  // namespace orrery::equivalence

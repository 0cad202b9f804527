#include "trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <stdexcept>

#include "folders.h"
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

/// [B, T]: documents of 1 to 40 tokens, or the positions in them, by name. About one in twelve is padding.
std::vector<int32_t> packed(const Value& value, int64_t step) {
    std::mt19937 engine(static_cast<uint32_t>(step) + 77);
    const int64_t row = value.type.shape[1];
    std::vector<int32_t> drawn;
    for (int64_t i = 0, document = 0, position = 0, length = 0; i < value.type.count(); ++i, ++position) {
        if (i % row == 0 || position == length)
            ++document, position = 0, length = 1 + static_cast<int64_t>(engine() % 40);
        const int64_t id = (document + step) % 12 == 0 ? -1 : document;
        drawn.push_back(static_cast<int32_t>(value.name == "documents" ? id : position));
    }
    return drawn;
}

}  // namespace

std::vector<int32_t> ordered(std::span<const int32_t> row, std::span<const TokenRun> runs) {
    std::vector<int32_t> filled(row.size());
    each_run(runs, 0, std::ssize(row), [&](int64_t place, int64_t count, int64_t to) {
        std::copy_n(row.begin() + place, count, filled.begin() + to);
    });
    return filled;
}

std::function<std::vector<char>(const Value& value, int64_t step)> drawn_for(const Plan& plan, int64_t vocab,
                                                                             bool packed, uint32_t seed) {
    return [order = token_order(plan.program, plan.mesh), vocab, packed, seed](const Value& value, int64_t step) {
        std::vector<char> bytes = draw(value, step, vocab, seed);
        if (value.role != Role::input || value.dims != std::vector<std::string>{"batch", "seq"}) return bytes;
        const auto length = static_cast<size_t>(value.type.shape[1]);
        const bool numbers = value.name == "documents" || value.name == "positions" || value.name == "places";
        Value of = value;
        of.name = "documents";
        const std::vector<char> drawn = draw(of, step, vocab);
        for (size_t at = 0; at < bytes.size() / 4; at += length) {
            const std::span<int32_t> row(reinterpret_cast<int32_t*>(bytes.data()) + at, length);
            std::span<const int32_t> documents;
            if (packed) documents = {reinterpret_cast<const int32_t*>(drawn.data()) + at, length};
            if (numbers && (!packed || value.name == "places"))
                for (size_t i = 0; i < length; ++i) row[i] = value.name == "documents" ? 0 : static_cast<int32_t>(i);
            std::ranges::copy(ordered(row, token_runs(order, value.type.shape[1], documents)), row.begin());
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

std::unique_ptr<Experiment> experiment(const ModelRun& run) {
    std::string mesh = run.mesh;
    std::replace(mesh.begin(), mesh.end(), ',', '\n');
    return experiment("tests/equivalence/models.lua",
                      fmt::format("[mesh]\n{}\n[train]\nsteps = {}\nsequences_per_step = 8\nmicrobatches = {}\n"
                                  "precision = \"{}\"\n[data]\npath = \"none\"\ntokens_per_sequence = {}\n"
                                  "[script]\nmodel = \"{}\"\n{}\n",
                                  mesh, run.steps, run.microbatches, run.precision, run.tokens, run.model, run.script));
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
    if (value.name == "documents" || value.name == "positions") return bytes_of(packed(value, step).data(), 4 * count);
    if (value.role == Role::input) return bytes_of(batch(value, step, vocab, seed).data(), 4 * count);
    return bytes_of(initial(value, seed).data(), 4 * count);
}

const std::vector<float>& at(const test::Contents& contents, const std::string& name) {
    const auto found = contents.find(name);
    if (found == contents.end()) throw std::runtime_error("nothing is called " + name);
    return found->second;
}

test::Ran run_drawn(const test::Lowered& lowered, int64_t steps, int64_t vocab, bool packed) {
    test::Running how;
    how.steps = steps;
    how.reference = false;
    how.every_step = true;
    how.contents = drawn_for(lowered.plan, vocab, packed);
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

// The library's models against PyTorch: tests/parity/README.md says what the numbers are.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <fstream>
#include <sstream>

#include "base/json.h"
#include "folders.h"
#include "run/checkpoint/restore/pretrained.h"
#include "table.h"
#include "trial.h"

using namespace orrery;
using namespace orrery::equivalence;

namespace {

/// The numbers of one folder of tests/parity.
struct Parity {
    explicit Parity(const std::string& name)
        : folder(in_source("tests/parity/") + name),
          weights(folder + "/model.safetensors"),
          expected(folder + "/expected.safetensors") {
        std::ifstream in(folder + "/config.json");
        std::ostringstream text;
        text << in.rdbuf();
        config = parse_json(text.str(), {"", folder + "/config.json"});
    }

    /// The config as a script's configuration.
    std::string toml() const {
        const auto number = [&](const char* key) { return config.at(key).get<int64_t>(); };
        std::string model = config.at("model");
        if (model == "gpt2") model = "gpt";
        return fmt::format(
            "[train]\nsteps = 10\nsequences_per_step = {}\n[data]\npath = \"none\"\ntokens_per_sequence = "
            "{}\n[script]\n"
            "model = \"{}\"\nlayers = {}\nembed = {}\nheads = {}\nkv_heads = {}\nmlp = {}\nvocab = {}\ncontext = "
            "{}\neps = {}\n"
            "theta = {:.1f}\n",
            number("batch"), number("seq"), model, number("layers"), number("embed"), number("heads"),
            number("kv_heads"), number("mlp"), number("vocab"), number("context"), config.at("norm_eps").get<double>(),
            config.value("rope_theta", 1e4));
    }

    std::vector<char> tokens(const std::string& name) const {
        const std::vector<std::byte> bytes = expected.file_of(name).bytes_of(name);
        const char* first = reinterpret_cast<const char*>(bytes.data());
        return {first, first + bytes.size()};
    }

    std::vector<float> array(const std::string& name) const {
        const std::vector<std::byte> bytes = expected.file_of(name).bytes_of(name);
        std::vector<float> values(bytes.size() / sizeof(float));
        std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
        return values;
    }

    /// Whether AdamW makes full steps of this part's rounding noise.
    bool skipped(const WeightSource& source) const {
        if (!config.contains("skip_after") || !config.at("skip_after").contains(source.tensor)) return false;
        const Json& range = config.at("skip_after").at(source.tensor);
        return source.start >= range.at(0).get<int64_t>() && source.start + source.size <= range.at(1).get<int64_t>();
    }

    std::string folder;
    WeightFiles weights, expected;
    Json config;
};

/// Logits, loss and gradients of the first step, ten losses, the params after ten updates.
std::vector<Line> compare(const Parity& parity, Experiment& made, bool reference) {
    Program& program = made.train();
    const PublishedWeights table = as_named(made.recipe->weights, parity.weights);
    show_gradients(program);
    for (const Op& op : program.ops)
        if (op.kind == "cross_entropy" && op.phase == Phase::forward)
            program.results.push_back({"logits", op.inputs[0]});
    test::Running how;
    how.steps = parity.config.at("optimizer").at("steps").get<int64_t>();
    how.reference = reference;
    how.every_step = true;
    how.contents = [&](const Value& value, int64_t step) {
        if (value.name == "tokens" || value.name == "targets") return parity.tokens(value.name);
        if (value.role != Role::param) return draw(value, step, 0);
        const std::vector<float> values = part(parity.weights, value, source_of(table, value.name));
        const char* first = reinterpret_cast<const char*>(values.data());
        return std::vector<char>(first, first + values.size() * sizeof(float));
    };
    const test::Ran ran = run_steps(test::compile(program, made.mesh), how);

    const auto expected_logits = parity.array("logits");
    double largest = 0;
    for (float x : expected_logits) largest = std::max(largest, std::abs(static_cast<double>(x)));
    Elements logits(1e-5, "relative"), losses(1e-5, "relative"), after(1e-4);
    logits.add("", at(ran.steps[0], "result logits"), expected_logits, largest);
    const auto expected_losses = parity.array("losses");
    for (size_t step = 0; step < ran.steps.size(); ++step)
        losses.add(fmt::format("step {}", step + 1), {static_cast<float>(loss_of(ran.steps[step]))},
                   {expected_losses[step]}, expected_losses[step]);
    const double count = at(ran.steps[0], "result count")[0];
    Gradients gradients(parity.config.at("expected").at("grad_norms").at(0).get<double>());
    for (ValueId id : program.params()) {
        const Value& param = program.value(id);
        const WeightSource& source = source_of(table, param.name);
        std::vector<float> gradient = at(ran.steps[0], "result grad " + param.name);
        for (float& x : gradient) x = static_cast<float>(static_cast<double>(x) / count);
        gradients.add(param.name, gradient, part(parity.expected, param, source, "grad."));
        if (!parity.skipped(source))
            after.add(param.name, at(ran.values, param.name), part(parity.expected, param, source, "after."));
    }
    return {logits.line("logits"), losses.line("loss, ten steps"), gradients.line("gradients"),
            after.line("params after ten updates")};
}

}  // namespace

TEST_CASE("GPT-2, Llama and Qwen2 give PyTorch's numbers", "[parity]") {
    for (const char* name : {"gpt2", "llama", "qwen2"}) {
        const Parity parity(name);
        for (bool reference : {false, true}) {
            const auto made = experiment("tests/equivalence/models.lua", parity.toml());
            CHECK(made->recipe->weights.sources.size() == made->train().params().size());
            const auto lines = compare(parity, *made, reference);
            CHECK(
                print(fmt::format("{}, {} kernels, against PyTorch in float64", name, reference ? "reference" : "cpu"),
                      lines) <= 1);
        }
    }
}

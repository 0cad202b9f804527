// Published folders against what transformers computes of them, on every mesh: tests/transformers/README.md.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "folders.h"
#include "run/checkpoint/restore/pretrained.h"
#include "table.h"
#include "trial.h"

using namespace orrery;
using namespace orrery::equivalence;

namespace {

/// A folder that generate.py wrote: a model, and expected.safetensors.
struct Published {
    explicit Published(const std::string& path)
        : folder(path), weights(path), expected(path + "/expected.safetensors"), params(expected.path()) {}

    /// A result of transformers, of f32 or i32.
    template <class T>
    std::vector<T> array(const std::string& name) const {
        const std::vector<std::byte> bytes = expected.bytes_of(name);
        std::vector<T> values(bytes.size() / sizeof(T));
        std::memcpy(values.data(), bytes.data(), bytes.size());
        return values;
    }

    bool has_mtp() const { return expected.has("mtp_losses"); }

    std::unique_ptr<Experiment> on(const std::string& mesh, std::string options = "") const {
        const Shape& tokens = expected.tensor("tokens").type.shape;
        if (has_mtp()) options += fmt::format("\nmtp_weight = {}", array<float>("mtp_weight")[0]);
        return experiment(
            "tests/equivalence/published.lua",
            fmt::format("[train]\nsteps = {}\nsequences_per_step = {}\n[data]\npath = \"none\"\n"
                        "tokens_per_sequence = {}\n[checkpoint]\nload = \"{}\"\n[script]\n{}\n"
                        "[mesh]\n{}\n",
                        expected.tensor("losses").type.shape[0], tokens[0], tokens[1], folder, options, mesh));
    }

    std::string folder;
    WeightFiles weights;
    SafetensorsFile expected;
    WeightFiles params;  ///< of the same file; of a mixture of experts its gradients and the params at the end, by name
};

/// The whole param, as its source in the files has it.
std::vector<char> contents(const Published& published, const PublishedWeights& table, const Value& param) {
    const std::vector<float> values = part(published.weights, param, source_of(table, param.name));
    const char* first = reinterpret_cast<const char*>(values.data());
    return {first, first + values.size() * sizeof(float)};
}

/// The logits without the padding columns, which must be too small for any softmax, and of each sequence of tokens as
/// many rows as `name` has.
std::vector<float> words_of(const std::vector<float>& all, const std::string& name, const SafetensorsFile& expected) {
    const Shape& tokens = expected.tensor("tokens").type.shape;
    const Shape& shape = expected.tensor(name).type.shape;
    const auto words = static_cast<size_t>(shape[2]), wanted = static_cast<size_t>(shape[1]);
    const auto rows = static_cast<size_t>(tokens[1]), columns = all.size() / static_cast<size_t>(count_of(tokens));
    std::vector<float> kept;
    for (size_t i = 0; i < all.size(); ++i) {
        const bool word = i % columns < words;
        if (!word && all[i] > -1e29f) throw std::runtime_error("a logit of a padding column is not small");
        if (word && i / columns % rows < wanted) kept.push_back(all[i]);
    }
    return kept;
}

/// Gradients of the first step, and the params at the end, where they are expected.
void compare_params(const Published& published, const Program& program, const PublishedWeights& table,
                    const test::Ran& ran, std::vector<Line>& lines) {
    const double count = at(ran.steps[0], "result count")[0];
    double all = 0;
    for (const StoredTensor* tensor : published.params.tensors())
        if (tensor->name.starts_with("grad.")) all = std::hypot(all, norm(published.array<float>(tensor->name)));
    if (all == 0) return;
    Gradients gradients(all);
    Elements after(1e-4);
    for (const ValueId id : program.params()) {
        const Value& param = program.value(id);
        const WeightSource& source = source_of(table, param.name);
        std::vector<float> gradient = at(ran.steps[0], "result grad " + param.name);
        for (float& x : gradient) x = static_cast<float>(static_cast<double>(x) / count);
        gradients.add(param.name, gradient, part(published.params, param, source, "grad."));
        after.add(param.name, at(ran.values, param.name), part(published.params, param, source, "after."));
    }
    lines.push_back(gradients.line("gradients"));
    lines.push_back(after.line(fmt::format("params after {} updates", ran.steps.size())));
}

/// Logits of the first step, and the losses of all; alone, on one rank, also compare_params.
std::vector<Line> compare(const Published& published, Experiment& made, bool alone) {
    Program& program = made.train();
    check_weights(program, published.folder, made.recipe->weights);
    const PublishedWeights table = as_named(made.recipe->weights, published.weights);
    if (alone) show_gradients(program);
    std::vector<std::string> logits;
    for (const Op& op : program.ops)
        if (op.kind == "cross_entropy" && op.phase == Phase::forward) {
            logits.push_back(logits.empty() ? "logits" : "mtp_logits");
            program.results.push_back({logits.back(), op.inputs[0]});
        }
    const std::vector<float> losses = published.array<float>("losses");
    test::Running how;
    how.steps = static_cast<int64_t>(losses.size());
    how.reference = false;
    how.every_step = true;
    how.contents = [&](const Value& value, int64_t step) {
        const bool stored = std::ranges::count(table.sources, value.name, &WeightSource::param) > 0;
        if (stored) return contents(published, table, value);  // a param, or a state of o.state
        if (value.name != "tokens" && value.name != "targets") return draw(value, step, 0);
        return published.array<char>(value.name);
    };
    const test::Ran ran = run_steps(compiled(made), how);
    Elements first(1e-5, "relative"), all(1e-4, "relative");
    for (const std::string& name : logits) {
        const std::vector<float> wanted = published.array<float>(name);
        double largest = 0;
        for (float x : wanted) largest = std::max(largest, std::abs(static_cast<double>(x)));
        first.add(name, words_of(at(ran.steps[0], "result " + name), name, published.expected), wanted, largest);
    }
    for (size_t step = 0; step < losses.size(); ++step) {
        const auto add = [&](const std::string& of, double loss, float wanted) {
            all.add(fmt::format("{}step {}", of, step + 1), {static_cast<float>(loss)}, {wanted}, wanted);
        };
        add("", loss_of(ran.steps[step]), losses[step]);
        const auto result = [&](const char* name) { return at(ran.steps[step], std::string("result ") + name)[0]; };
        if (published.has_mtp())
            add("mtp ", result("mtp_loss.sum") / result("mtp_loss.count"), published.array<float>("mtp_losses")[step]);
    }
    std::vector<Line> lines{first.line("logits"), all.line(fmt::format("loss, {} steps", losses.size()))};
    if (alone) compare_params(published, program, table, ran, lines);
    return lines;
}

/// Whether so many ranks divide every dim that tp would split.
bool splits(const Program& program, int64_t ranks) {
    for (const ValueId id : program.params()) {
        const Value& param = program.value(id);
        for (size_t d = 0; d < param.dims.size(); ++d)
            for (const char* dim : {"heads", "kv_heads", "mlp", "vocab"})
                if (param.dims[d] == dim && param.type.shape[d] % ranks != 0) return false;
    }
    for (const Op& op : program.ops)
        if (op.kind == "attention" && program.value(op.inputs[1]).type.shape[2] % ranks != 0) return false;
    return true;
}

void look_at(const std::string& folder, int64_t& split) {
    const Published published(folder);
    const std::string name = std::filesystem::path(folder).filename().string();
    const auto alone = published.on("");
    const auto say = [&](const std::string& mesh, Experiment& made) {
        CHECK(print(name + (mesh.empty() ? "" : ", " + mesh) + ", against transformers",
                    compare(published, made, mesh.empty())) <= 1);
    };
    say("", *alone);
    say("its own rows alone", *published.on("", "multiple = 1"));
    say("pp = 2", *published.on("pp = 2"));
    say("dp = 2, zero 3", *published.on("dp = 2", "zero = 3"));
    for (const int64_t ranks : {2, 4}) {
        if (!splits(alone->train(), ranks)) continue;
        say(fmt::format("tp = {}", ranks), *published.on(fmt::format("tp = {}", ranks)));
        ++split;
    }
}

}  // namespace

TEST_CASE("published folders give transformers' logits and losses on every mesh", "[transformers]") {
    const char* more = std::getenv("ORRERY_PUBLISHED");  // a folder of such folders, as scripts/conformance makes
    std::vector<std::string> folders;
    for (const auto& entry : std::filesystem::directory_iterator(more ? more : in_source("tests/transformers").c_str()))
        if (entry.is_directory()) folders.push_back(entry.path().string());
    std::sort(folders.begin(), folders.end());
    REQUIRE_FALSE(folders.empty());
    int64_t split = 0;
    for (const std::string& folder : folders) {
        INFO(folder);
        look_at(folder, split);
    }
    CHECK(split > 0);
}

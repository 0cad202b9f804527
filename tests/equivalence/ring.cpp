// Long rows over ranks: packed documents against the same documents one by one, and the memory that a plan needs.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <numeric>

#include "follow.h"
#include "plan/summary.h"

using namespace orrery;
using namespace orrery::equivalence;

namespace {

/// Tokens and targets of a row, and the lengths of its documents.
struct Row {
    std::vector<int32_t> tokens, targets;
    std::vector<int64_t> documents;
};

Row row_of(const std::vector<int64_t>& documents) {
    Row row;
    row.documents = documents;
    for (int64_t i = 0, n = std::accumulate(documents.begin(), documents.end(), int64_t{0}); i < n; ++i) {
        row.tokens.push_back(static_cast<int32_t>((7 * i * i + 3 * i) % 40));
        row.targets.push_back(static_cast<int32_t>(i % 9 == 4 ? -1 : (5 * i + 2) % 40));
    }
    return row;
}

std::vector<char> bytes_of(const std::vector<int32_t>& numbers) {
    const char* first = reinterpret_cast<const char*>(numbers.data());
    return {first, first + numbers.size() * 4};
}

/// Loss, count and gradients of one step over a row on a mesh. `packed`: with documents and positions.
test::Contents step_of(const Row& row, const std::string& mesh, const std::string& script, bool packed) {
    const auto made =
        experiment("tests/equivalence/grid.lua",
                   fmt::format("[mesh]\n{}\n[train]\nsteps = 1\nsequences_per_step = 1\n[data]\npath = \"none\"\n"
                               "tokens_per_sequence = {}\n[script]\nmodel = \"llama\"\npacked = {}\n{}\n",
                               mesh, row.tokens.size(), packed, script));
    show_gradients(made->train());
    const test::Lowered lowered = compiled(*made);
    std::vector<int32_t> documents, positions, places(row.tokens.size());
    for (size_t d = 0; d < row.documents.size(); ++d)
        for (int64_t p = 0; p < row.documents[d]; ++p) {
            documents.push_back(static_cast<int32_t>(d));
            positions.push_back(static_cast<int32_t>(p));
        }
    std::iota(places.begin(), places.end(), 0);
    // In the order of the mesh, as the feed fills a row.
    const auto runs = token_runs(token_order(lowered.plan.program, lowered.plan.mesh), std::ssize(row.tokens),
                                 packed ? std::span<const int32_t>(documents) : std::span<const int32_t>());
    const auto filled = [&](const std::vector<int32_t>& all) { return bytes_of(ordered(all, runs)); };
    test::Running how;
    how.steps = 1;
    how.every_step = true;
    how.reference = false;
    how.contents = [&](const Value& value, int64_t step) {
        if (value.name == "tokens") return filled(row.tokens);
        if (value.name == "targets") return filled(row.targets);
        if (value.name == "documents") return filled(documents);
        if (value.name == "positions") return filled(positions);
        if (value.name == "places") return filled(places);
        return draw(value, step, 40);
    };
    return run_steps(lowered, how).steps.at(0);
}

/// Each document as a row of its own on one rank: the sums of losses, counts, and gradients, which are those of sums.
test::Contents one_by_one(const Row& row) {
    test::Contents sum;
    size_t first = 0;
    for (const int64_t length : row.documents) {
        const auto part = [&](const std::vector<int32_t>& all) {
            return std::vector<int32_t>(all.begin() + static_cast<std::ptrdiff_t>(first),
                                        all.begin() + static_cast<std::ptrdiff_t>(first + static_cast<size_t>(length)));
        };
        const test::Contents step = step_of({part(row.tokens), part(row.targets), {length}}, "", "", false);
        for (const auto& [name, values] : step) {
            auto& all = sum[name];
            all.resize(values.size(), 0.0f);
            for (size_t i = 0; i < values.size(); ++i) all[i] += values[i];
        }
        first += static_cast<size_t>(length);
    }
    return sum;
}

}  // namespace

TEST_CASE("a row of packed documents over ranks has the losses and gradients of its documents one by one", "[ring]") {
    for (const std::vector<int64_t>& lengths :
         {std::vector<int64_t>{1, 5, 7, 2, 9}, std::vector<int64_t>{24}, std::vector<int64_t>(24, 1)}) {
        const Row row = row_of(lengths);
        const test::Contents expected = one_by_one(row);
        double all = 0;
        for (const auto& [name, values] : expected)
            if (name.starts_with("result grad ")) all += norm(values) * norm(values);
        const std::pair<const char*, const char*> methods[] = {{"ring", "natural"},
                                                               {"gather", "natural"},
                                                               {"heads", "natural"},
                                                               {"ring", "zigzag"},
                                                               {"gather", "balanced"}};
        for (const auto& [method, order] : methods)
            for (const int64_t members : {3, 4}) {
                if (std::string_view(method) == "heads" && members == 3) continue;  // of 4 heads
                INFO(lengths.size() << " documents, " << method << " of " << members << ", " << order);
                const test::Contents step =
                    step_of(row, fmt::format("cp = {}", members),
                            fmt::format("context = \"{}\"\norder = \"{}\"", method, order), true);
                CHECK(loss_of(step) == Approx(loss_of(expected)).epsilon(1e-5));
                CHECK(at(step, "result count") == at(expected, "result count"));
                Gradients gradients(std::sqrt(all));
                for (const auto& [name, values] : expected)
                    if (name.starts_with("result grad ")) gradients.add(name, at(step, name), values);
                CHECK(print(fmt::format("{} documents, {} of {}, {}, against one by one", lengths.size(), method,
                                        members, order),
                            {gradients.line("gradients")}) <= 1);
            }
    }
}

TEST_CASE("65,536 tokens need 1/P of the activations on P ranks, and the blocks that a method states", "[ring]") {
    constexpr int64_t tokens = 65536, heads = 8, embed = 384;
    const auto activations = [&](const std::string& mesh, const std::string& method) {
        const auto made = experiment(
            "tests/equivalence/models.lua",
            fmt::format("[mesh]\n{}\n[train]\nsteps = 2\nsequences_per_step = 1\n[data]\npath = \"none\"\n"
                        "tokens_per_sequence = {}\n[script]\nmodel = \"gpt\"\nlayers = 6\nembed = {}\nheads = {}\n"
                        "mlp = 1536\ncontext = {}\nvocab = 256\ncp = \"{}\"\n",
                        mesh, tokens, embed, heads, tokens, method));
        return summary(compiled(*made).plan).classes.at(0).activations;
    };
    const int64_t one = activations("", "");
    for (const std::string method : {"ring", "gather", "heads"})
        for (const int64_t P : {2, 4, 8}) {
            const int64_t U = 2 * (tokens / P) * embed * 4;
            // ring: two further blocks of k and v, three of their gradients; gather: those of all ranks; heads: q, k, v
            // and o by heads, of the size of those by tokens.
            const int64_t stated = method == "ring" ? 2 * U + 3 * U : method == "gather" ? 2 * (P - 1) * U : 2 * U;
            const int64_t needs = activations(fmt::format("cp = {}", P), method);
            fmt::print("  {} over {}: {:.4f} of 1/P of one rank's {:.1f} MiB, with the stated blocks {:.4f}\n", method,
                       P, static_cast<double>(needs * P) / static_cast<double>(one), static_cast<double>(one) / 1048576,
                       static_cast<double>(needs * P) / static_cast<double>(one + stated * P));
            CHECK(static_cast<double>(needs) <=
                  1.05 * static_cast<double>(one) / static_cast<double>(P) + static_cast<double>(stated));
        }
}

// What `orrery data` prints of a step is what the ranks of any mesh read for it, byte for byte.
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "cli/data/step_text.h"
#include "compile/compile.h"
#include "folders.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "run/data/input_feed.h"
#include "tokenizer/encoder.h"

using namespace orrery;

namespace {

constexpr int64_t sequence = 16, batch = 8;

struct File {
    std::string path = std::tmpnam(nullptr);
    File(int64_t bytes, unsigned seed) {
        std::ofstream out(path, std::ios::binary);
        for (int64_t i = 0; i < bytes; ++i) out.put(static_cast<char>((seed += 0x9e3779b9u + (seed << 6)) >> 24));
    }
    ~File() { std::remove(path.c_str()); }
};

/// Tokens that ranks of a mesh of dp read for a step, as the whole batch: by the samples of each rank.
std::string fed(const std::vector<std::string>& paths, int64_t dp, int64_t micro, int64_t first, std::string& printed) {
    FakeHost host("[train]\nsteps = 10\nsequences_per_step = 8\nmicrobatches = " + std::to_string(micro) +
                  "\n[data]\nvalidation = 0.1\ntokens_per_sequence = 16\nmix = [\"3 " + paths[0] + "\", \"2 " +
                  paths[1] + "\", \"1 " + paths[2] + "\"]\n[mesh]\ndp = " + std::to_string(dp) + "\n");
    host.strategies = built_strategy;
    run_script_text(
        "local o = require 'orrery'\nlocal data = o.data.file {}\n"
        "local m = require 'orrery.models.gpt' { layers = 1, embed = 4, heads = 1, vocab = data.vocab, seq = data.seq "
        "}\n"
        "local p = o.trace('m', data.signature, function(b) return m:loss(b.tokens, b.targets) end)\n"
        "p:train_with(o.optim.adamw {})\np:parallel { o.strategy.data { axis = 'dp' } }\np:compile():train(data)",
        "a.lua", ".", host);
    const Compiled compiled = compile_training(*host.experiment, {});
    const Dataset data(host.data);
    printed.clear();
    const TextOfIds bytes{nullptr, true};
    print_samples(data, first, batch, bytes, {}, [&](const std::string& sample) {
        printed += sample.substr(sample.find('\n') + 1, sequence);
        CHECK(sample.size() == sample.find('\n') + 1 + sequence + 1);
        CHECK(sample.find("16 tokens, 16 bytes of text") < sample.find('\n'));
    });
    std::string whole(batch * sequence, '?');
    const Plan& plan = compiled.train();
    for (int64_t rank = 0; rank < dp; ++rank) {
        const InputFeed feed(plan, rank, data, compiled.ids);
        std::vector<std::byte> memory(static_cast<size_t>(feed.bytes()));
        feed.fill(Split::train, first, memory.data());
        const ValueId id = *plan.program.find("tokens");
        const Value& tokens = plan.program.value(id);
        const HostPlaces places = host_inputs(plan.program, plan.class_of(rank));
        const auto* at = reinterpret_cast<const int32_t*>(memory.data() + *places.offset(id));
        for (int64_t m = 0; m < plan.mesh.microbatches(); ++m) {
            const Shape offset = tokens.layout.offset(tokens.type.shape, plan.mesh, rank, m);
            const Shape local = tokens.layout.local_shape(tokens.type.shape, plan.mesh);
            for (int64_t i = 0; i < local[0] * sequence; ++i)
                whole[static_cast<size_t>(offset[0] * sequence + i)] = static_cast<char>(*at++);
        }
    }
    return whole;
}

}  // namespace

TEST_CASE("orrery data prints a tokenizer's text byte for byte where samples cut characters") {
    const TextOfIds said{tokenizer::Tokenizer::load(in_source("tests/tokenizer/gpt2.json"))};
    const std::string text = "na\xc3\xafve \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\xa6\x8a";
    std::vector<int32_t> ids;
    tokenizer::Encoder(*said.tokenizer).encode(text, tokenizer::Around::none, ids);
    REQUIRE(ids.size() > 8);
    for (size_t i = 0; i <= ids.size(); ++i) {
        const auto middle = ids.begin() + static_cast<std::ptrdiff_t>(i);
        CHECK(said.of({ids.begin(), middle}) + said.of({middle, ids.end()}) == text);
    }
}

TEST_CASE("orrery data prints the bytes that the ranks read, on any mesh") {
    const File one(9000, 1), two(7000, 2), three(6000, 3);
    const std::vector<std::string> paths{one.path, two.path, three.path};
    for (const int64_t step : {1, 2, 40}) {
        const int64_t first = (step - 1) * batch;
        std::string printed;
        const std::string alone = fed(paths, 1, 1, first, printed);
        CHECK(alone == printed);
        for (const int64_t dp : {1, 2, 4}) {
            CHECK(fed(paths, dp, 8 / dp / 2, first, printed) == alone);
            CHECK(printed == alone);
        }
    }
}

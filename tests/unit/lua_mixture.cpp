// o.data.mixture, data.mix and data that is evaluated, as scripts and configurations write them.
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>

#include "lua/fake_host.h"
#include "lua/script.h"
#include "run/data/data.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

const char* const config =
    "[train]\nsteps = 9\nsequences_per_step = 4\n[data]\ntokens_per_sequence = 8\nvalidation = 0\n[mesh]\ndp = 1\n";

struct File {
    std::string path;
    explicit File(const std::string& ending, int64_t bytes = 1000) : path(std::string(std::tmpnam(nullptr)) + ending) {
        std::ofstream(path, std::ios::binary) << std::string(static_cast<size_t>(bytes), '\0');
    }
    ~File() { std::remove(path.c_str()); }
};

/// The data that a script trains on; `make` is an expression.
DataSpec data_of(const std::string& make, const std::vector<std::string>& sets = {}) {
    FakeHost host(config, sets);
    run_script_text("local o = require 'orrery'\nlocal data = " + make +
                        "\nlocal p = o.trace('t', data.signature, function(b) return b.tokens:embedding(\n"
                        "  o.nn.table('a', { 'vocab', 256 }, { 'embed', 2 }, 1)):sum(), o.constant(1) end)\n"
                        "p:train_with(o.optim.sgd { lr = 1, momentum = 0 })\np:compile():train(data)",
                    "a.lua", ".", host);
    REQUIRE(host.trained == 1);
    return host.data;
}

std::string refused(const std::string& make, const std::vector<std::string>& sets = {}) {
    try {
        Dataset(data_of(make, sets));
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing was refused";
}

int64_t share(const Dataset& data, int64_t source) {
    return data.source().identity().at(static_cast<size_t>(3 * source)).second;
}

}  // namespace

TEST_CASE("a script mixes sources by weight, a configuration files") {
    const File web(".txt"), books(".bin");
    const std::string sources = "{ o.data.text { path = '" + web.path + "' }, 3 }, { o.data.tokens { path = '" +
                                books.path + "', vocab = 256 }, 1 }";
    const Dataset one(data_of("o.data.mixture { " + sources + ", batch = 6, seed = 9 }"));
    CHECK(one.spec().sequences_per_step == 6);
    CHECK(one.spec().seed == 9);
    CHECK(share(one, 0) == 3072);
    CHECK(share(one, 1) == 1024);
    const std::string mix = "data.mix=[\"3 " + web.path + "\", \" 1.0   " + books.path + " \"]";
    const Dataset other(data_of("o.data.file {}", {mix, "data.vocab=256", "data.path="}));
    CHECK(other.source().identity() == one.source().identity());
    CHECK(other.digest() == one.digest());
    // A path of the script's own is no mixture.
    const Dataset own(data_of("o.data.file { path = '" + web.path + "' }", {mix}));
    CHECK(own.source().place() == "data file " + web.path);
}

TEST_CASE("mixtures that a script or a configuration has wrong are refused at their place") {
    const File web(".txt");
    const std::string source = "o.data.text { path = '" + web.path + "' }";
    CHECK_THAT(refused("o.data.mixture { { " + source + " } }"),
               Contains("a.lua:2: o.data.mixture: source 1 has nil for its weight, expected a number"));
    CHECK_THAT(refused("o.data.mixture { " + source + " }"),
               Contains("source 1 is a data source, expected { source, w"));
    CHECK_THAT(refused("o.data.mixture { { 'web.txt', 1 } }"),
               Contains("source 1 begins with") && Contains("o.data.NAME"));
    CHECK_THAT(refused("o.data.mixture { batch = 4 }"), Contains("a.lua:2: o.data.mixture: it has no sources"));
    CHECK_THAT(refused("o.data.mixture { { o.data.text { path = 'x', batch = 2, seed = 3 }, 1 } }"),
               Contains("a.lua:2: o.data.mixture: source 1 (o.data.text) sets batch and seed itself"));
    CHECK_THAT(refused("o.data.text { path = 'x', { " + source + ", 1 } }"),
               Contains("a.lua:2: o.data.text: it takes no sources\n  o.data.mixture does"));
    CHECK_THAT(refused("o.data.file {}", {"data.mix=[\"0 " + web.path + "\"]", "data.path="}),
               Contains("--set data.mix=") && Contains("the weights of its 1 sources sum to 0"));
    for (const std::string bad : {"web.txt", "0.5", "x web.txt", "0.5web.txt"})
        CHECK_THAT(refused("o.data.file {}", {"data.mix=[\"" + bad + "\"]", "data.path="}),
                   Contains("data.mix[1] is \"" + bad + "\", expected a weight and a file, as \"0.7 data/web.bin\""));
    CHECK_THAT(refused("o.data.file {}", {"data.mix=[\"1 a.txt\"]", "data.path=b.txt"}),
               Contains("data.mix and data.path = b.txt (--set data.path=b.txt) are both set"));
}

TEST_CASE("what is evaluated may be a source of its own") {
    const File train(".txt", 1000), held(".txt", 161);
    const std::string path = "path = '" + train.path + "'";
    const DataSpec script =
        data_of("o.data.text { " + path + ", validation = o.data.text { path = '" + held.path + "' } }");
    const DataSpec set = data_of("o.data.text { " + path + " }", {"data.validation_path=" + held.path});
    for (const DataSpec& spec : {script, set}) {
        const Dataset data(spec);
        CHECK(data.samples(Split::train) == 124);
        CHECK(data.samples(Split::validation) == 20);
        CHECK(data.position(Split::validation, 21) == 1);
        CHECK(data.source(Split::validation).place() == "data file " + held.path);
    }
    const Dataset mixture(
        data_of("o.data.mixture { { o.data.text { " + path + " }, 1 } }", {"data.validation_path=" + held.path}));
    CHECK(mixture.samples(Split::train) == 124);
    CHECK(mixture.source(Split::validation).place() == "data file " + held.path);
    const Dataset mixed(data_of("o.data.file { seq = 20 }",
                                {"data.mix=[\"1 " + train.path + "\"]", "data.validation_path=" + held.path}));
    CHECK(mixed.samples(Split::validation) == 8);
    CHECK_THAT(refused("o.data.text { " + path + ", validation = o.data.text { path = 'x', seq = 4 } }"),
               Contains("a.lua:2: arrays to evaluate on (data file x) differ from arrays to train on (data file " +
                        train.path));
    // Token files of four bytes a token, also the one that is evaluated: 250 tokens.
    const File wide(".bin"), rest(".bin");
    const std::string options = "seq = 20, vocab = 256, token_bytes = 4 }";
    const std::vector<std::string> evaluated{"data.validation_path=" + rest.path};
    const Dataset files(data_of("o.data.file { " + options, {evaluated[0], "data.mix=[\"1 " + wide.path + "\"]"}));
    CHECK(files.samples(Split::train) == 12);
    CHECK(files.samples(Split::validation) == 12);
    const Dataset sources(
        data_of("o.data.mixture { { o.data.tokens { path = '" + wide.path + "', " + options + ", 1 } }", evaluated));
    CHECK(sources.samples(Split::validation) == 12);
    // A share that the configuration has, too, is not held out.
    const Dataset both(
        data_of("o.data.text { " + path + " }", {"data.validation_path=" + held.path, "data.validation=0.1"}));
    CHECK(both.samples(Split::train) == 124);
    CHECK_THAT(refused("o.data.text { " + path + " }", {"data.validation_path=/nowhere/x"}), Contains("/nowhere/x"));
}

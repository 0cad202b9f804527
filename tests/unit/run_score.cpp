// Windows and choices; what programs that evaluate say of rows, against logits; windows of fewer positions.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "run/evaluate/choices.h"
#include "run/evaluate/row_scores.h"
#include "run/evaluate/sample.h"
#include "run/evaluate/text_windows.h"
#include "run/host_side.h"
#include "run/session.h"

using namespace orrery;

namespace {

const Registry& registry() {
    static Registry made;
    static const bool loaded = [] {
        Loader({in_build("plugins")}).load("device", "cpu", made, {});
        return true;
    }();
    (void)loaded;
    return made;
}

std::vector<TextWindow> windows_of(int64_t tokens, int64_t size, int64_t stride) {
    const TextWindows windows(tokens, size, stride);
    std::vector<TextWindow> all;
    for (int64_t i = 0; i < windows.count(); ++i) all.push_back(windows[i]);
    return all;
}

/// The windows of transformers' guide, as its loop makes them: those labels that are predicted.
std::vector<TextWindow> guide(int64_t tokens, int64_t size, int64_t stride) {
    std::vector<TextWindow> windows;
    int64_t before = 0;
    for (int64_t begin = 0; begin < tokens; begin += stride) {
        const int64_t end = std::min(begin + size, tokens), fresh = end - before;
        windows.push_back({begin, std::max(end - fresh, begin + 1), end});
        before = end;
        if (end == tokens) break;
    }
    return windows;
}

/// Calls `work` inside run:train of a small model of bytes, where its recipe can record.
struct Model final : FakeHost {
    explicit Model(std::function<void(Model&)> work)
        : FakeHost(
              "[run]\nthreads_per_rank = 1\n[device.cpu]\nreference = true\n[data]\ntokens_per_sequence = 40\n"
              "[train]\nsteps = 1\nsequences_per_step = 2\n"),
          work_(std::move(work)) {
        run_script_text(
            "local o = require 'orrery'\nlocal data = o.data.text {}\n"
            "local m = require 'orrery.models.gpt' { layers = 2, embed = 12, heads = 2, vocab = 256,\n"
            "  seq = 40, dropout = 0.1 }\n"
            "local p = o.trace('g', data.signature, function(b) return m:loss(b.tokens, b.targets) end)\n"
            "p:train_with(o.optim.adamw { lr = 1e-2 })\np:compile():train(data)",
            "a.lua", in_source("scripts"), *this);
    }
    void train(const DataSpec&, const TrainOptions&) override { work_(*this); }

    MarkedProgram made(const ProgramEntry& entry) {
        MarkedProgram program;
        experiment->recipe->later([&] { program = make_program(*experiment, entry); });
        return program;
    }
    CompileOptions options() { return compile_options(read_settings(config()), Job{}, device(), {}, {}); }
    Device* device() {
        if (!device_) device_ = make_device(read_settings(config()), config(), registry(), Job{});
        return device_.get();
    }
    std::unique_ptr<Session> session(Compiled compiled) {
        auto session = std::make_unique<Session>(read_settings(config()), config(), registry(), Job{},
                                                 std::move(compiled), std::move(device_));
        session->initialize(11);
        return session;
    }

private:
    std::function<void(Model&)> work_;
    std::unique_ptr<Device> device_;
};

/// The logits [positions, columns] of an executor's program.
std::vector<float> logits_of(Session& session, Executor& executor, const std::vector<int32_t>& tokens) {
    const Program& program = executor.plan().program;
    const HostMemory block(session.device(), executor.inputs().bytes);
    std::memset(block.data(), 0, static_cast<size_t>(block.bytes()));
    std::memcpy(block.data() + *executor.inputs().offset(*program.find("tokens")), tokens.data(),
                tokens.size() * sizeof(int32_t));
    executor.run(block.data());
    const Tensor logits = executor.tensor(*program.result("logits"));
    std::vector<float> all(static_cast<size_t>(logits.count()));
    session.download(all.data(), logits);
    return all;
}

/// Of a row of logits.
double nats_of(const float* row, int64_t columns, int32_t target) {
    double largest = row[0], sum = 0;
    for (int64_t i = 0; i < columns; ++i) largest = std::max(largest, static_cast<double>(row[i]));
    for (int64_t i = 0; i < columns; ++i) sum += std::exp(row[i] - largest);
    return largest + std::log(sum) - row[target];
}

std::vector<int32_t> some_text(size_t tokens) {
    std::vector<int32_t> text(tokens);
    for (size_t i = 0; i < tokens; ++i) text[i] = static_cast<int32_t>((i * i * 7 + i / 5) % 256);
    return text;
}

}  // namespace

TEST_CASE("windows are those of transformers' guide, and without overlap each token is predicted, too") {
    for (int64_t tokens = 2; tokens < 40; ++tokens)
        for (int64_t size = 1; size < 12; ++size)
            for (int64_t stride = 1; stride <= size; ++stride) {
                const std::vector<TextWindow> windows = windows_of(tokens, size, stride);
                INFO(tokens << " tokens, " << size << " wide, every " << stride);
                if (stride < size) REQUIRE(windows == guide(tokens, size, stride));
                int64_t next = 1;
                for (const TextWindow& window : windows) {
                    REQUIRE(window.from == next);
                    REQUIRE(window.from > window.begin);
                    REQUIRE(window.to - 1 <= window.begin + size);
                    next = window.to;
                }
                REQUIRE(next == tokens);
            }
    CHECK(windows_of(1, 8, 8).empty());
    const TextWindows many(int64_t{1} << 40, 8, 1);  // no list of them could be
    CHECK(many.count() == (int64_t{1} << 40) - 7);
    CHECK(many[many.count() - 1] == TextWindow{many.count() - 1, many.count() + 6, int64_t{1} << 40});
}

TEST_CASE("a window's row has targets where it predicts, and nothing behind the text") {
    const std::vector<int32_t> text = {10, 11, 12, 13, 14};
    std::vector<int32_t> tokens(4), targets(4);
    fill_row(text, {2, 4, 5}, tokens, targets);
    CHECK(tokens == std::vector<int32_t>{12, 13, 14, 0});
    CHECK(targets == std::vector<int32_t>{-1, 14, -1, -1});
    fill_row(text, {0, 1, 5}, tokens, targets);
    CHECK(targets == std::vector<int32_t>{11, 12, 13, 14});
    const std::vector<bool> ignored = {true, false, true, false, true};
    ignore(ignored, {0, 1, 5}, targets);
    CHECK(targets == std::vector<int32_t>{11, -1, 13, -1});
    CHECK(counted(ignored, {0, 1, 5}) == 2);
    CHECK(counted({}, {0, 1, 5}) == 4);
    targets = {-1, 14, -1, -1};
    ignore(ignored, {2, 4, 5}, targets);
    CHECK(targets == std::vector<int32_t>(4, -1));
}

TEST_CASE("perplexity by windows is that of the logits, whatever the stride and the batch") {
    const std::vector<int32_t> text = some_text(150);
    Model([&](Model& model) {
        const Compiled sampling = compile_sampling(*model.experiment, model.options());
        const auto whole = model.session(sampling);
        const std::vector<std::pair<int64_t, int64_t>> cases = {{40, 40}, {40, 17}, {24, 24}, {24, 5}};
        for (const auto& [size, stride] : cases) {
            const std::vector<TextWindow> windows = windows_of(150, size, stride);
            double expected = 0;
            std::vector<int32_t> tokens(static_cast<size_t>(size)), targets(tokens.size());
            for (const TextWindow& window : windows) {
                fill_row(text, window, tokens, targets);
                const std::vector<float> logits = logits_of(*whole, whole->main(), tokens);
                for (size_t i = 0; i < targets.size(); ++i)
                    if (targets[i] >= 0) expected += nats_of(logits.data() + i * 256, 256, targets[i]);
            }
            ProgramEntry entry = model.experiment->find("eval")->entry;
            if (size != 40) entry = at_length(entry, size);
            Compiled compiled = compile_alone(*model.experiment, {model.made(entry)}, model.options());
            const std::vector<Calls> calls = evaluation_calls(compiled, static_cast<int64_t>(windows.size()));
            for (const Calls& call : calls)
                if (!compiled.find(call.entry.name))
                    model.experiment->recipe->later(
                        [&] { add_program(compiled, *model.experiment, call.entry, model.options()); });
            const auto session = model.session(std::move(compiled));
            RowScores rows(*session);
            double nats = 0;
            int64_t first = 0;
            for (const Calls& call : calls)
                for (int64_t i = 0; i < call.times; ++i, first += call.entry.batch) {
                    int64_t predicted = 0;
                    for (int64_t row = first; row < first + call.entry.batch; ++row)
                        predicted += windows[static_cast<size_t>(row)].to - windows[static_cast<size_t>(row)].from;
                    nats += rows.score(
                                    *session->compiled().find(call.entry.name), first,
                                    [&](int64_t row, std::span<int32_t> to, std::span<int32_t> behind) {
                                        fill_row(text, windows[static_cast<size_t>(row)], to, behind);
                                    },
                                    predicted)
                                .nats;
                }
            CHECK(first == static_cast<int64_t>(windows.size()));
            INFO(size << " wide, every " << stride);
            CHECK(nats == Approx(expected).epsilon(1e-5));
            CHECK(expected / 149 > 5);
            // Rows that the loss counts otherwise than asked are no success.
            CHECK_THROWS_WITH(rows.score(
                                  session->compiled().programs.front(), 0,
                                  [&](int64_t, std::span<int32_t> to, std::span<int32_t> behind) {
                                      fill_row(text, windows.front(), to, behind);
                                  },
                                  1),
                              Catch::Contains("counts"));
        }
    });
}

TEST_CASE("fewer positions: the same logits as of the whole window, and the same text") {
    Model([](Model& model) {
        const Compiled sampling = compile_sampling(*model.experiment, model.options());
        const ProgramEntry entry = model.experiment->find("logits")->entry;
        const auto places = std::make_shared<Persistent>(sampling.persistent);
        const CompileOptions options = model.options();
        const auto session = model.session(sampling);
        const auto shorter = [&](int64_t length) {
            return [&model, &entry, &options, places, length] {
                return std::make_shared<const CompiledProgram>(
                    compile_shorter(model.made(at_length(entry, length)), *places, options));
            };
        };
        Executor& eight = session->add(shorter(8)());
        const std::vector<int32_t> tokens = some_text(8);
        const std::vector<float> few = logits_of(*session, eight, tokens);
        std::vector<int32_t> padded = tokens;
        padded.resize(40, 0);
        const std::vector<float> all = logits_of(*session, session->main(), padded);
        REQUIRE(few.size() == 8 * 256);
        float largest = 0, apart = 0;
        for (size_t i = 0; i < few.size(); ++i) {
            largest = std::max(largest, std::abs(all[i]));
            apart = std::max(apart, std::abs(all[i] - few[i]));
        }
        CHECK(largest > 0.01F);
        CHECK(apart <= 1e-5F * largest);

        const TokenText bytes(std::nullopt, 256);
        SampleOptions asked;
        asked.prompt = "abc";
        asked.tokens = 50;  // beyond the whole window
        asked.temperature = 0;
        std::string said;
        const SampledText grown =
            sample_text(*session, asked, bytes, {{4, shorter(4)}, {8, shorter(8)}, {16, shorter(16)}},
                        [&](std::string_view text) { said += text; });
        CHECK(grown.text == sample_text(*session, asked, bytes).text);
        CHECK(grown.text.size() == 53);
        CHECK(said == grown.text);
        CHECK_FALSE(grown.ended);
    });
}

TEST_CASE("a choice is a line with context, endings and label") {
    const Origin where{"", "a.jsonl", 7};
    const MultipleChoice choice =
        parse_choice(R"({"n": 1, "context": "The sky is", "endings": ["blue", "so"], "label": 1})", where);
    CHECK(choice.context == "The sky is");
    CHECK(choice.endings == std::vector<std::string>{"blue", "so"});
    CHECK(choice.label == 1);
    const auto refused = [&](const std::string& line, const std::string& words) {
        CHECK_THROWS_WITH(parse_choice(line, where), Catch::Contains("a.jsonl:7") && Catch::Contains(words));
    };
    refused("[]", "is not a JSON object");
    refused(R"({"endings": ["a"], "label": 0})", "no key \"context\"");
    refused(R"({"context": "a", "endings": "b", "label": 0})", "not a list of strings");
    refused(R"({"context": "a", "endings": ["b", ""], "label": 0})", "an element that is empty");
    refused(R"({"context": "a", "endings": ["b"], "label": 1})", "\"label\" is 1, but there are 1 endings");
}

TEST_CASE("white space at the end of a context is its ending's; a row keeps its last tokens") {
    const TokenText bytes(std::nullopt, 256);
    const auto encoded = [&](const std::string& context, const std::string& ending, int64_t positions = 100) {
        return encode_ending(bytes, {context, {ending}, 0, {}}, 0, " ", positions);
    };
    CHECK(encoded("ab", "cd").scored == 3);
    CHECK(encoded("ab \n", "cd").scored == 5);
    CHECK(encoded("ab\xe3\x80\x80", "cd").scored == 6);  // U+3000
    CHECK(encoded("ab\xe3\x80\x81", "cd").scored == 3);  // U+3001
    CHECK_THROWS_WITH(encoded("ab", "cdef", 4), Catch::Contains("5 tokens of its own"));
    CHECK_THROWS_WITH(encoded(" ", "cd"), Catch::Contains("only white space"));
    CHECK_THROWS_WITH(encoded("", "cd"), Catch::Contains("context is empty"));

    const EncodedEnding row{{1, 2, 3, 4, 5}, 2};
    std::vector<int32_t> tokens(6), targets(6);
    fill_row(row, tokens, targets);
    CHECK(tokens == std::vector<int32_t>{1, 2, 3, 4, 0, 0});
    CHECK(targets == std::vector<int32_t>{-1, -1, 4, 5, -1, -1});
    tokens.resize(3);
    targets.resize(3);
    fill_row(row, tokens, targets);
    CHECK(tokens == std::vector<int32_t>{2, 3, 4});
    CHECK(targets == std::vector<int32_t>{-1, 4, 5});
}

TEST_CASE("acc takes the greatest sum, acc_norm that by characters, both the first of equals") {
    const MultipleChoice choice{"", {"ab", "abcd", "\xc3\xa4\xc3\xb6"}, 0, {}};
    const auto chosen = [&](std::vector<double> sums) {
        const Chosen of = chosen_of(choice, sums);
        return std::pair{of.plain, of.normed};
    };
    CHECK(chosen({-4, -6, -5}) == std::pair<int64_t, int64_t>{0, 1});
    CHECK(chosen({-4, -9, -4}) == std::pair<int64_t, int64_t>{0, 0});  // two characters of four bytes
    CHECK(chosen({-4, -9, -3}) == std::pair<int64_t, int64_t>{2, 2});
}

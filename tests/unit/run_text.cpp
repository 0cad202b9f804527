// A run's tokenizer: which it is, its copy, and text of ids.
#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "config/load.h"
#include "folders.h"
#include "run/evaluate/choices.h"
#include "run/evaluate/kept_tokenizer.h"
#include "run/evaluate/token_text.h"

using namespace orrery;
using tokenizer::Around;
namespace fs = std::filesystem;

namespace {

std::string fixture(const std::string& name) { return in_source("tests/tokenizer/" + name + ".json"); }

/// A published folder with the tokenizer of a fixture, and more files.
std::string published(const std::string& name, const std::string& tokenizer,
                      const std::vector<std::pair<std::string, std::string>>& files) {
    const std::string folder = in_build("tests/run_text/" + name);
    fs::remove_all(folder);
    fs::create_directories(folder);
    fs::copy_file(fixture(tokenizer), folder + "/tokenizer.json");
    for (const auto& [file, text] : files) std::ofstream(folder + "/" + file) << text;
    return folder;
}

/// As transformers 4 saves a tokenizer with add_eos_token: <s> $A </s>.
void end_by_template(const std::string& file) {
    std::stringstream text;
    text << std::ifstream(file).rdbuf();
    Json json = parse_json(text.str(), {"", file});
    Json& single = json["post_processor"]["single"];
    single.push_back(Json::object({{"SpecialToken", Json::object({{"id", "</s>"}, {"type_id", 0}})}}));
    json["post_processor"]["special_tokens"]["</s>"] =
        Json::object({{"id", "</s>"}, {"ids", Json::array({2})}, {"tokens", Json::array({"</s>"})}});
    std::ofstream(file) << json.dump();
}

std::optional<ChosenTokenizer> chosen(const std::vector<std::string>& sets) {
    Config config = parse_config("", "test.toml", sets);
    return choose_tokenizer(config);
}

std::string printed(const TokenText& text, const std::vector<int32_t>& ids) {
    TokenText::Printer printer(text);
    std::string all;
    for (const int32_t id : ids) all += printer.put(id);
    return all + printer.finish();
}

}  // namespace

TEST_CASE("data.vocab follows from the tokenizer, which is asked for or lies beside the weights") {
    const std::string folder = published("beside", "gpt2", {});
    Config config =
        parse_config("", "test.toml", std::vector<std::string>{"data.tokenizer=\"" + fixture("qwen2") + "\""});
    const auto asked = choose_tokenizer(config);
    REQUIRE(asked);
    CHECK(config.table("data").integer("vocab", 0) == asked->tokenizer->vocabulary());
    const auto beside = chosen({"checkpoint.load=\"" + folder + "\""});
    REQUIRE(beside);
    CHECK(beside->path == folder);
    CHECK_FALSE(chosen({}));
    CHECK_FALSE(chosen({"checkpoint.load=\"" + folder + "/model.safetensors\""}));
    CHECK_THROWS_WITH(chosen({"data.tokenizer=\"" + folder + "/none\""}),
                      Catch::Contains("data.tokenizer") && Catch::Contains("none"));
    CHECK_NOTHROW(require_rows(*beside, beside->tokenizer->vocabulary()));
    CHECK_THROWS_WITH(require_rows(*beside, 300),
                      Catch::Contains("has 510 token ids, but the model's vocabulary has 300"));
}

TEST_CASE("a run keeps a copy of its tokenizer, and refuses another one") {
    const std::string folder =
        published("kept", "gpt2", {{"tokenizer_config.json", "{}"}, {"merges.txt", "m"}, {"model.safetensors", "w"}});
    const std::string run = in_build("tests/run_text/run");
    fs::remove_all(run);
    fs::create_directories(run + "/tokenizer.part");  // of a start that was killed
    std::ofstream(run + "/tokenizer.part/vocab.json") << "half";
    const auto first = chosen({"data.tokenizer=\"" + folder + "\""});
    keep_tokenizer(*first, run);
    std::vector<std::string> names;
    for (const auto& file : fs::directory_iterator(run + "/tokenizer"))
        names.push_back(file.path().filename().string());
    std::sort(names.begin(), names.end());
    CHECK(names == std::vector<std::string>{"merges.txt", "tokenizer.json", "tokenizer_config.json"});
    CHECK_FALSE(fs::exists(run + "/tokenizer.part"));
    CHECK_NOTHROW(keep_tokenizer(*first, run));
    const auto other = chosen({"data.tokenizer=\"" + fixture("qwen2") + "\""});
    CHECK_THROWS_WITH(keep_tokenizer(*other, run), Catch::Contains("differs from the one that the run in"));
    // A run that was moved to where the tokenizer is not.
    const std::string set = "run.folder=\"" + run + "\"";
    CHECK(chosen({set, "data.tokenizer=\"gone\""})->path == run + "/tokenizer");
    CHECK(chosen({set})->path == run + "/tokenizer");
    // Beside a file of another name lies what is not its own.
    const std::string second = in_build("tests/run_text/second");
    fs::remove_all(second);
    fs::create_directories(second);
    fs::copy_file(folder + "/tokenizer.json", folder + "/mine.json");
    keep_tokenizer(*chosen({"data.tokenizer=\"" + folder + "/mine.json\""}), second);
    CHECK_FALSE(fs::exists(second + "/tokenizer/merges.txt"));
}

TEST_CASE("ids are text of the tokenizer, in whole characters; it ends where the folder says") {
    const std::string folder =
        published("text", "gpt2", {{"tokenizer_config.json", R"({"eos_token": {"content": "<|endoftext|>"}})"}});
    const TokenText text(chosen({"data.tokenizer=\"" + folder + "\""}), 600);
    const std::vector<int32_t> ids = text.encode("a \xc3\xa9 and \xe6\xbc\xa2", Around::both);
    CHECK(printed(text, ids) == "a \xc3\xa9 and \xe6\xbc\xa2");
    CHECK(text.bytes_of(ids) == 12);
    CHECK(text.stands(509));
    CHECK_FALSE(text.stands(510));
    CHECK(text.ends(0));
    CHECK_FALSE(text.ends(1));
    CHECK(text.end() == "<|endoftext|> (" + folder + "/tokenizer_config.json)");
    CHECK(text.prompt("") == std::vector<int32_t>{0});
    CHECK(printed(text, {0, ids[0], 0}) == "a");
    CHECK_THROWS_WITH(text.encode("\xff", Around::begin), Catch::Contains("UTF-8"));

    std::ofstream(folder + "/generation_config.json") << R"({"eos_token_id": [7, 9]})";
    const TokenText two(chosen({"data.tokenizer=\"" + folder + "\""}), 600);
    CHECK((two.ends(7) && two.ends(9) && !two.ends(0)));
    std::ofstream(folder + "/generation_config.json") << R"({"eos_token_id": 510})";
    CHECK_THROWS_WITH(TokenText(chosen({"data.tokenizer=\"" + folder + "\""}), 600),
                      Catch::Contains("eos_token_id is 510") && Catch::Contains("below 510"));
}

TEST_CASE("a template's tail ends a text, and stands in no prompt and no choice") {
    const std::string folder = published("tail", "llama2", {});
    end_by_template(folder + "/tokenizer.json");
    const TokenText text(chosen({"data.tokenizer=\"" + folder + "\""}), 700);
    using Ids = std::vector<int32_t>;
    const auto with = [&](Around around) { return text.encode("the angle", around); };
    const Ids bare = with(Around::none);
    Ids begun = bare, ended = bare;
    begun.insert(begun.begin(), 1);
    ended.push_back(2);
    CHECK(with(Around::begin) == begun);
    CHECK(with(Around::end) == ended);
    Ids both = begun;
    both.push_back(2);
    CHECK(with(Around::both) == both);
    CHECK(text.prompt("the angle") == begun);
    CHECK(text.prompt("") == Ids{1});

    // A context has the same ids before its ending as alone, and the last that is scored is the ending's.
    const MultipleChoice choice{"the angle", {"of"}, 0, {}};
    const EncodedEnding row = encode_ending(text, choice, 0, " ", 16);
    CHECK(row.ids == text.encode("the angle of", Around::begin));
    CHECK(row.scored == static_cast<int64_t>(row.ids.size() - begun.size()));
    CHECK(row.ids.back() != 2);
    const EncodedEnding alone = encode_ending(text, {"", {"of"}, 0, {}}, 0, "", 16);
    CHECK(alone.ids.front() == 1);
    CHECK(alone.ids.back() != 2);
}

TEST_CASE("a line says where tokenizer_config.json asks for what the template does not do") {
    using Catch::Contains;
    const std::string folder = published("asked", "llama2", {});
    const auto notes = [&](const std::string& json) {
        std::ofstream(folder + "/tokenizer_config.json") << json;
        const auto tokenizer = tokenizer::Tokenizer::load(folder);
        return tokenizer::template_notes(folder, *tokenizer);
    };
    const std::string names = R"("bos_token": "<s>", "eos_token": {"content": "</s>"}, )";
    CHECK(notes("{}").empty());
    CHECK(notes("{" + names + R"("add_bos_token": true, "add_eos_token": false})").empty());
    CHECK(notes("{" + names + R"("add_bos_token": null, "add_eos_token": null})").empty());
    const auto both = notes("{" + names + R"("add_bos_token": false, "add_eos_token": true})");
    REQUIRE(both.size() == 2);
    CHECK_THAT(both[0], Contains("tokenizer_config.json has add_bos_token = false") && Contains("puts <s> before"));
    CHECK_THAT(both[1], Contains("has add_eos_token = true") && Contains("puts no eos_token after a text"));
    end_by_template(folder + "/tokenizer.json");
    CHECK(notes("{" + names + R"("add_bos_token": true, "add_eos_token": true})").empty());
    const auto one = notes("{" + names + R"("add_eos_token": false})");
    REQUIRE(one.size() == 1);
    CHECK_THAT(one[0], Contains("puts </s> after a text"));
}

TEST_CASE("without a tokenizer ids are bytes or numbers") {
    const TokenText bytes(std::nullopt, 256), numbers(std::nullopt, 300);
    CHECK(bytes.prompt("") == std::vector<int32_t>{'\n'});
    CHECK(printed(bytes, bytes.prompt("abc")) == "abc");
    CHECK(numbers.prompt("3 299") == std::vector<int32_t>{3, 299});
    CHECK(printed(numbers, {3, 299}) == "3 299");
    CHECK(numbers.prompt("") == std::vector<int32_t>{0});
    CHECK_THROWS_WITH(numbers.prompt("300"), Catch::Contains("prompt: \"300\" is not a token id below 300"));
    CHECK_THROWS_WITH(numbers.encode("text", Around::both), Catch::Contains("data.tokenizer"));
    CHECK(numbers.bytes_of({1, 2}) == 0);
    CHECK_FALSE(numbers.start());
}

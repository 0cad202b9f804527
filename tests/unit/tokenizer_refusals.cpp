// What a tokenizer.json may not have: each is refused with file, key and what was found.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "folders.h"
#include "tokenizer/encoder.h"
#include "tokenizer/folder.h"

using namespace orrery;
using namespace orrery::tokenizer;
using Catch::Matchers::Contains;

namespace {

Json small() {
    return parse_json(R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [
        {"id": 4, "content": "<x>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
         "special": true}],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}]},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [], "special_tokens": {"<x>": {"id": "<x>", "ids": [4], "tokens": ["<x>"]}}},
        "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": {"<unk>": 0, "a": 1, "b": 2, "ab": 3}, "merges": ["a b"]}})",
                      {});
}

/// The message for `small` with `value` at a JSON pointer.
std::string refusal(const std::string& at, const std::string& value) {
    Json json = small();
    json[Json::json_pointer(at)] = parse_json(value, {});
    try {
        const Tokenizer tokenizer(json, "a.json");
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing was refused";
}

std::vector<int32_t> ids_of(const Json& json, const std::string& text) {
    const Tokenizer tokenizer(json, "a.json");
    std::vector<int32_t> ids;
    Encoder(tokenizer).encode(text, Around::both, ids);
    return ids;
}

}  // namespace

TEST_CASE("tokenizer: the small file is taken, in both spellings of merges") {
    Json json = small();
    const std::vector<int32_t> right{4, 3, 1, 4, 3, 0};
    CHECK(ids_of(json, "aba<x>ab?") == right);
    json["model"]["merges"] = parse_json(R"([["a", "b"]])", {});
    CHECK(ids_of(json, "aba<x>ab?") == right);
    json["model"].erase("type");
    CHECK(ids_of(json, "aba<x>ab?") == right);
}

TEST_CASE("tokenizer: unknown kinds are refused by name, with file and key") {
    CHECK(refusal("/model/type", "\"Unigram\"") ==
          "a.json: model.type is \"Unigram\", which is unsupported; supported model: BPE");
    CHECK_THAT(refusal("/model/type", "\"WordPiece\""), Contains("model.type is \"WordPiece\""));
    CHECK_THAT(refusal("/model/type", "\"WordLevel\""), Contains("model.type is \"WordLevel\""));
    CHECK_THAT(refusal("/normalizer", R"({"type": "Lowercase"})"),
               Contains("a.json: normalizer.type is \"Lowercase\"") && Contains("NFC, Prepend, Replace, Sequence"));
    CHECK_THAT(refusal("/pre_tokenizer/pretokenizers/0", R"({"type": "Whitespace"})"),
               Contains("pre_tokenizer.pretokenizers[0].type is \"Whitespace\""));
    CHECK_THAT(refusal("/post_processor/type", "\"BertProcessing\""), Contains("post_processor.type is"));
    CHECK_THAT(refusal("/decoder", R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "CTC"}]})"),
               Contains("decoder.decoders[1].type is \"CTC\""));
    CHECK_THAT(refusal("/version", "\"2.0\""), Contains("version is \"2.0\", expected \"1.0\""));
}

TEST_CASE("tokenizer: what would change texts or be left undone is refused") {
    CHECK_THAT(refusal("/truncation", R"({"max_length": 8})"), Contains("truncation is set"));
    CHECK_THAT(refusal("/padding", R"({"pad_id": 0})"), Contains("padding is set"));
    CHECK_THAT(refusal("/model/dropout", "0.1"), Contains("model.dropout is not 0"));
    CHECK_THAT(refusal("/model/new", "1"), Contains("model has the unsupported key \"new\""));
    CHECK_THAT(refusal("/normalizer/form", "1"), Contains("normalizer has the unsupported key \"form\""));
    CHECK_THAT(refusal("/extra", "1"), Contains("has the unsupported key \"extra\""));
    CHECK_THAT(refusal("/pre_tokenizer/pretokenizers/0",
                       R"({"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": false})"),
               Contains("pretokenizers[0].pattern.Regex is \"(a\", which is not a valid regular expression for "
                        "libonig: end pattern with "
                        "unmatched parenthesis"));
    CHECK_THAT(refusal("/pre_tokenizer/pretokenizers/0",
                       R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "isolated", "invert": false})"),
               Contains("behavior is \"isolated\", expected Removed"));
    CHECK_THAT(refusal("/pre_tokenizer", R"({"type": "Metaspace", "replacement": "__"})"),
               Contains("replacement is \"__\", expected a single character"));
    CHECK_THAT(refusal("/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "add_prefix_space": false,
               "prepend_scheme": "first"})"),
               Contains("add_prefix_space is false, which contradicts prepend_scheme = first"));
    CHECK_THAT(refusal("/pre_tokenizer", R"({"type": "ByteLevel", "trim_offsets": true})"),
               Contains("pre_tokenizer has no key \"add_prefix_space\""));
}

TEST_CASE("tokenizer: a vocabulary that does not hold together is refused") {
    CHECK_THAT(refusal("/model/vocab", R"({"a": 1, "b": 1})"),
               Contains("has the duplicate id 1: of the tokens \"a\" and \"b\""));
    CHECK_THAT(refusal("/model/vocab", R"({"a": -1})"), Contains("model.vocab gives the token \"a\" the id \"-1\""));
    CHECK_THAT(refusal("/model/vocab", R"({"a": 4000000000})"), Contains("expected an integer below 67108864"));
    CHECK_THAT(refusal("/model/merges", R"(["a b", "b a"])"),
               Contains("model.merges[1] merges \"b\" and \"a\", but the token \"ba\" is missing in model.vocab"));
    CHECK_THAT(refusal("/model/merges", R"(["a b c"])"),
               Contains("model.merges[0] is \"a b c\", expected a merge: two"));
    CHECK_THAT(refusal("/model/merges", R"([["a", "b"], "a b"])"), Contains("model.merges[1] differs in format"));
    CHECK_THAT(refusal("/added_tokens/0/id", "9"),
               Contains("added_tokens[0].id is 9, but the added token \"<x>\" must have the id 4, as in Hugging Face"));
    CHECK_THAT(refusal("/added_tokens/0/content", "\"ab\""),
               Contains("added_tokens[0].id is 4, but the added token \"ab\" must have the id 3, as in model.vocab"));
    CHECK_THAT(refusal("/added_tokens/0/content", "\"\""), Contains("added_tokens[0].content is empty"));
    CHECK_THAT(refusal("/added_tokens/0/lstrip", "1"), Contains("added_tokens[0].lstrip is \"1\", expected true"));
    CHECK_THAT(refusal("/post_processor/special_tokens/<x>/ids/0", "77"),
               Contains("ids[0] is 77, which is not the id of a token"));
    CHECK_THAT(refusal("/post_processor/single", "[]"),
               Contains("post_processor.single is missing the entry for the text"));
}

TEST_CASE(
    "tokenizer: a character that nothing stands for is an error where an unknown token is missing, else counted") {
    Json json = small();
    json["model"]["unk_token"] = "<none>";
    CHECK_THROWS_WITH(
        ids_of(json, "a?"),
        Contains(
            "cannot encode the character \"?\": it is missing in model.vocab, and so is the unk_token \"<none>\""));
    json["model"]["unk_token"] = nullptr;
    const Tokenizer tokenizer(json, "a.json");
    Encoder encoder(tokenizer);
    std::vector<int32_t> ids;
    encoder.encode("a? ?b", Around::none, ids);
    CHECK(ids == std::vector<int32_t>{3});  // as if they were not there
    encoder.encode("a? ?b", Around::none, ids);
    CHECK(encoder.counts().lost == 6);
}

TEST_CASE("tokenizer: a folder without the file says what is there") {
    const std::filesystem::path folder = in_build("tokenizer_refusals");
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    const auto message = [&] {
        try {
            Tokenizer::load(folder.string());
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string("nothing was refused");
    };
    const auto write = [&](const char* name, const std::string& text) { std::ofstream(folder / name) << text; };
    CHECK_THAT(message(), Contains("tokenizer.json") && Contains("No such file"));
    write("tokenizer.model", "x");
    CHECK_THAT(message(), Contains("tokenizer.model was found"));
    write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n");
    CHECK_THAT(message(), Contains("pointer of Git LFS"));
    write("tokenizer.json", "{");
    CHECK_THAT(message(), Contains("not valid json"));
    write("tokenizer.json", small().dump());
    CHECK(Tokenizer::load(folder.string())->vocabulary() == 5);
    CHECK(Tokenizer::load((folder / "tokenizer.json").string())->vocabulary() == 5);
    const auto named = [&] { return named_token(folder.string(), "eos_token").token; };
    CHECK(named().empty());
    write("tokenizer_config.json", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n");
    CHECK_THROWS_WITH(named(), Contains("tokenizer_config.json is a pointer of Git LFS"));
    std::filesystem::remove(folder / "tokenizer_config.json");
    std::filesystem::create_directory(folder / "tokenizer_config.json");
    CHECK_THROWS_WITH(named(), Contains("tokenizer_config.json is a folder"));
    std::filesystem::remove_all(folder);
}

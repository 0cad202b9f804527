// Single parts of a tokenizer.json (tests/tokenizer/parts.jsonl) against what the reference made of texts.
#include <catch2/catch.hpp>
#include <fstream>

#include "base/json.h"
#include "folders.h"
#include "tokenizer/characters.h"
#include "tokenizer/decode.h"
#include "tokenizer/normalize.h"
#include "tokenizer/pretokenize.h"

using namespace orrery;
using namespace orrery::tokenizer;

namespace {

using Texts = std::vector<std::string>;

template <class Each>
void for_rows(const std::string& kind, Each each) {
    std::ifstream in(in_source("tests/tokenizer/parts.jsonl"));
    size_t seen = 0;
    for (std::string line; std::getline(in, line);) {
        const Json row = parse_json(line, {"", "parts.jsonl"});
        if (row["kind"] != kind) continue;
        const Field field(row["spec"], kind, "parts.jsonl");
        for (const Json& text : row["texts"]) {
            INFO(row["spec"].dump() << "\n  " << text.dump());
            each(field, text);
        }
        ++seen;
    }
    CHECK(seen > 6);
}

}  // namespace

TEST_CASE("tokenizer: pre-tokenizers cut as the reference does") {
    for_rows("pre_tokenizers", [](const Field& field, const Json& text) {
        PreTokenizer tool(field);
        tool.write_alphabet();
        const std::string whole = text[0].get<std::string>();
        Pieces pieces;
        pieces.begin(whole, length_of(whole[0]));
        tool.apply(pieces);
        Texts found;
        for (const Range& range : pieces.ranges)
            found.push_back(pieces.text.substr(range.begin, range.end - range.begin));
        CHECK(found == text[1].get<Texts>());
    });
}

TEST_CASE("tokenizer: normalizers write what the reference does") {
    for_rows("normalizers", [](const Field& field, const Json& text) {
        CHECK(Normalizer(field).apply(text[0].get<std::string>()) == text[1].get<std::string>());
    });
}

TEST_CASE("tokenizer: decoders write what the reference does") {
    for_rows("decoders", [](const Field& field, const Json& text) {
        const std::vector<DecodeStep> steps = read_decoders(field);
        std::string out;
        const auto stages = make_stages(steps, out);
        for (const Json& token : text[0]) stages->take(token.get_ref<const std::string&>());
        stages->finish();
        CHECK(out == text[1].get<std::string>());
    });
}

TEST_CASE("tokenizer: Metaspace's first is where the document begins, also behind a normalizer") {
    const Json spec = parse_json(R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"})", {});
    const PreTokenizer tool(Field(spec, "", "a file"));
    const auto cut = [&](std::string text, size_t head) {
        Pieces pieces;
        pieces.begin(text, head);
        tool.apply(pieces);
        return pieces.text;
    };
    CHECK(cut("ab c", 1) == "_ab_c");
    CHECK(cut("ab c", 0) == "ab_c");
    size_t head = 2;
    std::string text = "\xc3\xa9x";
    const Json prepend = parse_json(R"({"type": "Prepend", "prepend": "yy"})", {});
    Normalizer(Field(prepend, "", "a file")).apply(text, head);
    CHECK(head == 4);
    text = "a\u0301bc", head = 1;
    compose(text, head);
    CHECK(text == "\u00e1bc");
    CHECK(head == 2);
}

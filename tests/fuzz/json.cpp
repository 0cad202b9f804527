// JSON of files and of other ranks: base/json.
#include "base/json.h"

#include "target.h"

namespace orrery::fuzz {
namespace {

/// What is asked of numbers that a file has.
void walk(const Json& json) {
    if (json.is_structured())
        for (const Json& item : json) walk(item);
    try {
        require(whole_number(json, "a number") >= 0, "a whole number is not negative");
    } catch (const Error&) {
    }
}

void run(std::string_view input) {
    try {
        const Json json = parse_json(input, {"", "input", 0, 0});
        walk(json);
        const std::string text = message_text(json);
        require(parse_json(text, {}) == json, "what is written reads back");
    } catch (const Error&) {
    }
}

std::vector<std::string> seeds() {
    return {"{}",
            "[]",
            "null",
            "-0.5e-3",
            R"("é\u00e9\ud83d\ude00\n")",
            R"({"a":[1,2.5,-3,true,false,null,"x"],"b":{"c":{"d":[[[]]]}},"e":9223372036854775807})",
            R"([18446744073709551615,18446744073709551616,1e308,1e309,-9223372036854775808])",
            R"({"weight_map":{"a.weight":"model-1.safetensors","b.weight":"model-2.safetensors"}})",
            std::string(63, '[') + std::string(63, ']'),
            std::string(65, '[') + std::string(65, ']')};
}

}  // namespace

Target json_target() { return {"json", run, seeds}; }

}  // namespace orrery::fuzz

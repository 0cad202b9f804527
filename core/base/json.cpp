#include "base/json.h"

#include <fmt/format.h>

#include <unordered_set>
#include <utility>
#include <vector>

#include "base/text.h"
#include "orrery/json_text.h"

namespace orrery {

namespace {

/// Returns the length in bytes of a text's first UTF-8 character (RFC 3629); 0 if it is not UTF-8.
size_t character(std::string_view text) {
    const auto at = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
    const auto within = [&](size_t i, unsigned least, unsigned most) { return at(i) >= least && at(i) <= most; };
    const unsigned first = at(0);
    if (first < 0x80) return 1;
    // Bounds of the second byte. A byte outside would encode an overlong form, a surrogate or a value above U+10FFFF.
    const unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    const size_t length = first >= 0xc2 && first <= 0xdf   ? 2
                          : first >= 0xe0 && first <= 0xef ? 3
                          : first >= 0xf0 && first <= 0xf4 ? 4
                                                           : 0;
    if (length == 0 || !within(1, least, most)) return 0;
    for (size_t i = 2; i < length; ++i)
        if (!within(i, 0x80, 0xbf)) return 0;
    return length;
}

/// Returns the beginning of a UTF-8 text, in whole characters, for messages: a quoted token may have megabytes.
std::string beginning(const std::string& text, size_t bytes) {
    if (text.size() <= bytes) return text;
    while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
    return text.substr(0, bytes) + "...";
}

/// Builds a JSON document from parser events. nlohmann's own builder compares each new key with all keys of its object,
/// which takes minutes for the header of a file with 100,000 tensors.
class JsonReader final : public nlohmann::json_sax<Json> {
public:
    explicit JsonReader(const Origin& where) : where_(where) {}

    Json take() { return std::move(whole_); }

    bool null() override { return add(nullptr); }
    bool boolean(bool value) override { return add(value); }
    bool number_integer(number_integer_t value) override { return add(value); }
    bool number_unsigned(number_unsigned_t value) override { return add(value); }
    bool number_float(number_float_t value, const string_t&) override { return add(value); }
    bool string(string_t& value) override { return add(std::move(value)); }
    bool binary(binary_t& value) override { return add(std::move(value)); }
    bool start_object(std::size_t) override { return open(Json::object()); }
    bool start_array(std::size_t) override { return open(Json::array()); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(string_t& text) override {
        Open& in = open_.back();
        if (!in.keys.insert(text).second) throw Error(where_, "json has the key " + quote(text) + " twice");
        in.key = std::move(text);
        return true;
    }
    bool parse_error(std::size_t, const std::string&, const Json::exception& problem) override {
        throw Error(where_, "not valid json: " + reason_of(problem));
    }

private:
    struct Open {
        Json json;
        std::string key;  ///< key of the next value
        std::unordered_set<std::string> keys;
    };

    bool open(Json json) {
        constexpr size_t deepest = 64;
        if (open_.size() == deepest) throw Error(where_, "json is nested deeper than 64 levels");
        open_.push_back({std::move(json), {}, {}});
        return true;
    }

    bool close() {
        Json json = std::move(open_.back().json);
        open_.pop_back();
        return add(std::move(json));
    }

    bool add(Json value) {
        if (open_.empty())
            whole_ = std::move(value);
        else if (Open& in = open_.back(); in.json.is_array())
            in.json.push_back(std::move(value));
        else
            append(in.json, std::move(in.key), std::move(value));
        return true;
    }

    const Origin& where_;
    std::vector<Open> open_;
    Json whole_;
};

}  // namespace

std::string not_utf8(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
        const size_t bytes = character(text.substr(at));
        if (bytes == 0)
            return fmt::format("byte 0x{:02x} at offset {} is not UTF-8", static_cast<unsigned char>(text[at]), at);
        at += bytes;
    }
    return "";
}

std::string reason_of(const Json::exception& problem) {
    std::string reason = problem.what();
    if (const size_t end = reason.find("] "); end != std::string::npos) reason.erase(0, end + 2);
    return beginning(reason, 300);
}

void append(Json& object, std::string key, Json value) {
    object.get_ref<Json::object_t&>().emplace_back(std::move(key), std::move(value));
}

std::string message_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

int64_t whole_number(const Json& value, const std::string& what) {
    const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
    if (!fits)
        throw Error(what + " is " + beginning(message_text(value), 100) + ", expected an integer that is not negative");
    return value.get<int64_t>();
}

Json parse_json(std::string_view text, const Origin& where) {
    if (const std::string bad = not_utf8(text); !bad.empty()) throw Error(where, "not valid json: " + bad);
    JsonReader builder(where);
    Json::sax_parse(text.begin(), text.end(), &builder);
    return builder.take();
}

std::string json_text(std::string_view object, std::string_view field) {
    const Json json = parse_json(object, {});
    if (!json.is_object()) throw Error(fmt::format("it is not an object, but {}", json.type_name()));
    const auto found = json.find(std::string(field));
    if (found == json.end() || !found->is_string()) throw Error(fmt::format("it has no string \"{}\"", field));
    return found->get<std::string>();
}

}  // namespace orrery

#include "tokenizer/fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "tokenizer/characters.h"

namespace orrery::tokenizer {

void Field::refuse(const std::string& why) const {
    throw Error({"", *file_}, way_.empty() ? why : fmt::format("{} {}", way_, why));
}

const Json* Field::find(std::string_view key) const {
    if (!value_->is_object()) refuse("is " + quote(message_text(*value_)) + ", expected an object");
    for (const auto& [name, value] : value_->get_ref<const Json::object_t&>())
        if (name == key) return &value;
    return nullptr;
}

bool Field::has(std::string_view key) const {
    const Json* found = find(key);
    return found && !found->is_null();
}

Field Field::at(std::string_view key) const {
    const Json* found = find(key);
    if (!found) refuse(fmt::format("has no key \"{}\"", key));
    return {*found, way_.empty() ? std::string(key) : fmt::format("{}.{}", way_, key), *file_};
}

void Field::only(std::initializer_list<std::string_view> keys) const {
    find("");
    for (const auto& [name, value] : value_->get_ref<const Json::object_t&>()) {
        if (std::find(keys.begin(), keys.end(), name) == keys.end())
            refuse(fmt::format("has the unsupported key {}, which would be ignored; save the tokenizer without it",
                               quote(name)));
    }
}

const std::string& Field::text() const {
    if (!value_->is_string()) refuse("is " + quote(message_text(*value_)) + ", expected a text");
    return value_->get_ref<const std::string&>();
}

bool Field::truth() const {
    if (!value_->is_boolean()) refuse("is " + quote(message_text(*value_)) + ", expected true or false");
    return value_->get<bool>();
}

int64_t Field::whole() const {
    const bool fits = value_->is_number_unsigned() && value_->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
    if (!fits) refuse("is " + quote(message_text(*value_)) + ", expected an integer that is not negative");
    return value_->get<int64_t>();
}

std::vector<Field> Field::items() const {
    if (!value_->is_array()) refuse("is " + quote(message_text(*value_)) + ", expected a list");
    std::vector<Field> fields;
    for (const Json& value : *value_) fields.emplace_back(value, fmt::format("{}[{}]", way_, fields.size()), *file_);
    return fields;
}

char32_t Field::character() const {
    const std::string& value = text();
    if (value.empty() || value.size() != length_of(value[0]))
        refuse("is " + quote(value) + ", expected a single character");
    return character_at(value.data());
}

bool Field::truth_or(std::string_view key, bool otherwise) const { return has(key) ? at(key).truth() : otherwise; }

std::string Field::text_or(std::string_view key, const std::string& otherwise) const {
    return has(key) ? at(key).text() : otherwise;
}

void Field::refuse_type(const std::string& known) const {
    at("type").refuse(fmt::format("is {}, which is unsupported; supported {}", quote(at("type").text()), known));
}

}  // namespace orrery::tokenizer

#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"

namespace orrery::tokenizer {

/// A value of a tokenizer.json and the way to it, "pre_tokenizer.pretokenizers[1]". Throws Error naming file and way
/// for what is not of the type asked for. Refers to the document.
class Field {
public:
    Field(const Json& value, std::string way, const std::string& file) : value_(&value), way_(way), file_(&file) {}

    const Json& json() const { return *value_; }
    const std::string& way() const { return way_; }
    const std::string& file() const { return *file_; }
    [[noreturn]] void refuse(const std::string& why) const;

    bool has(std::string_view key) const;  ///< the object has it, and it is not null
    Field at(std::string_view key) const;  ///< refuses when it is not there
    /// Refuses keys that are not among these: what they ask for would not be done.
    void only(std::initializer_list<std::string_view> keys) const;

    const std::string& text() const;
    bool truth() const;
    int64_t whole() const;
    std::vector<Field> items() const;
    /// A text of one character.
    char32_t character() const;

    /// What `key` says, `otherwise` where it is not there or null.
    bool truth_or(std::string_view key, bool otherwise) const;
    std::string text_or(std::string_view key, const std::string& otherwise) const;

    /// The key "type" of an object; refuses to name another than `known` are, e.g. "ByteLevel, Split".
    [[noreturn]] void refuse_type(const std::string& known) const;

private:
    const Json* find(std::string_view key) const;

    const Json* value_;
    std::string way_;
    const std::string* file_;
};

}  // namespace orrery::tokenizer

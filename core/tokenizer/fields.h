#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"

namespace orrery::tokenizer {

/// A value of a tokenizer.json with its path, "pre_tokenizer.pretokenizers[1]". Throws Error naming file and path when
/// the value has another type than requested. Refers to the document, which must outlive it.
class Field {
public:
    Field(const Json& value, std::string way, const std::string& file) : value_(&value), way_(way), file_(&file) {}

    const Json& json() const { return *value_; }
    const std::string& way() const { return way_; }
    const std::string& file() const { return *file_; }
    [[noreturn]] void refuse(const std::string& why) const;

    bool has(std::string_view key) const;  ///< whether the object has the key with a value that is not null
    Field at(std::string_view key) const;  ///< throws Error when the key is missing
    /// Throws Error for a key of the object that is not among `keys`, because such a key would be ignored.
    void only(std::initializer_list<std::string_view> keys) const;

    const std::string& text() const;
    bool truth() const;
    int64_t whole() const;
    std::vector<Field> items() const;
    /// Returns the only character of a text; throws Error for values that are not a text of one character.
    char32_t character() const;

    /// Returns the value of `key`, or `otherwise` if the key is missing or null.
    bool truth_or(std::string_view key, bool otherwise) const;
    std::string text_or(std::string_view key, const std::string& otherwise) const;

    /// Throws Error for an unsupported "type"; `known` lists the supported ones, e.g. "ByteLevel, Split".
    [[noreturn]] void refuse_type(const std::string& known) const;

private:
    const Json* find(std::string_view key) const;

    const Json* value_;
    std::string way_;
    const std::string* file_;
};

}  // namespace orrery::tokenizer

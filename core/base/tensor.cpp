#include "orrery/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "orrery/error.h"

namespace orrery {

void throw_too_large(const Shape& shape) {
    throw Error("the shape " + text_of(shape) + " has more bytes than 64 bits can count");
}

std::string text_of(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

std::string TensorType::text() const { return std::string(name_of(dtype)) + text_of(shape); }

namespace {

std::string_view kind_of(const Attribute& value) {
    constexpr std::string_view kinds[] = {"a flag", "an integer", "a number", "a text", "a list of integers"};
    return kinds[value.index()];
}

template <class T>
const T& typed(std::string_view key, const Attribute& value, std::string_view expected) {
    if (const T* found = std::get_if<T>(&value)) return *found;
    throw Error(fmt::format("attribute '{}' is {}, expected {}", key, kind_of(value), expected));
}

}  // namespace

Attributes::Attributes(std::initializer_list<std::pair<std::string, Attribute>> items) {
    for (const auto& [key, value] : items) set(key, value);
}

void Attributes::set(std::string_view key, Attribute value) {
    auto place = std::lower_bound(items_.begin(), items_.end(), key,
                                  [](const auto& item, std::string_view k) { return item.first < k; });
    if (place != items_.end() && place->first == key) {
        place->second = std::move(value);
    } else {
        items_.emplace(place, std::string(key), std::move(value));
    }
}

void Attributes::erase(std::string_view key) {
    std::erase_if(items_, [&](const auto& item) { return item.first == key; });
}

const Attribute* Attributes::find(std::string_view key) const {
    for (const auto& [name, value] : items_) {
        if (name == key) return &value;
    }
    return nullptr;
}

bool Attributes::flag(std::string_view key, bool fallback) const {
    const Attribute* value = find(key);
    return value ? typed<bool>(key, *value, "a flag") : fallback;
}

int64_t Attributes::integer(std::string_view key, int64_t fallback) const {
    const Attribute* value = find(key);
    return value ? typed<int64_t>(key, *value, "an integer") : fallback;
}

double Attributes::number(std::string_view key, double fallback) const {
    const Attribute* value = find(key);
    if (!value) return fallback;
    if (const auto* whole = std::get_if<int64_t>(value)) return static_cast<double>(*whole);
    return typed<double>(key, *value, "a number");
}

std::string Attributes::text(std::string_view key, std::string_view fallback) const {
    const Attribute* value = find(key);
    return value ? typed<std::string>(key, *value, "a text") : std::string(fallback);
}

std::vector<int64_t> Attributes::integers(std::string_view key) const {
    const Attribute* value = find(key);
    return value ? typed<std::vector<int64_t>>(key, *value, "a list of integers") : std::vector<int64_t>{};
}

}  // namespace orrery

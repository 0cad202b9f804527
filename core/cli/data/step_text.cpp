#include "cli/data/step_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery {
namespace {

int64_t ids_array(const DataSource& source, const std::string& name) {
    const auto& arrays = source.arrays();
    for (size_t i = 0; i < arrays.size(); ++i)
        if (arrays[i].name == name && arrays[i].dtype == DType::i32 && arrays[i].dims.size() == 1)
            return static_cast<int64_t>(i);
    return -1;
}

std::vector<int32_t> ids_of(const Dataset& data, int64_t index, int64_t array) {
    const int64_t count = data.source().arrays()[static_cast<size_t>(array)].dims[0].second;
    std::vector<int32_t> ids(static_cast<size_t>(count));
    data.read(Split::train, index, static_cast<size_t>(array), {0}, {ids.data(), DType::i32, {count}});
    return ids;
}

}  // namespace

std::string TextOfIds::of(const std::vector<int32_t>& ids) const {
    if (tokenizer) return tokenizer->decode(ids, false, tokenizer::Unreadable::kept);
    if (!bytes) return fmt::format("{}", fmt::join(ids, " "));
    std::string text;
    for (const int32_t id : ids) text += static_cast<char>(id);
    return text;
}

void print_samples(const Dataset& data, int64_t first, int64_t count, const TextOfIds& text,
                   const std::function<void(const std::string&)>& put) {
    const DataSource& source = data.source();
    const int64_t tokens = ids_array(source, "tokens"), targets = ids_array(source, "targets");
    for (int64_t i = 0; i < count; ++i) {
        std::string said =
            fmt::format("{} of {}: {}", i + 1, count, source.where(data.position(Split::train, first + i)));
        if (tokens < 0) {
            put(said + "\n");
            continue;
        }
        const std::vector<int32_t> ids = ids_of(data, first + i, tokens);
        const std::string printed = text.of(ids);
        said += fmt::format("; {} tokens, {} {}", ids.size(), printed.size(), text.unit());
        if (targets >= 0) {
            const std::vector<int32_t> wanted = ids_of(data, first + i, targets);
            const auto ignored = std::count(wanted.begin(), wanted.end(), -1);
            if (ignored > 0) said += fmt::format(", {} targets ignored", ignored);
        }
        put(said + "\n" + printed + "\n");
    }
}

}  // namespace orrery

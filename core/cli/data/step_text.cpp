#include "cli/data/step_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"

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

/// The tokens of each document in a row, after a line with its number in the row and its length.
std::string by_document(const std::vector<int32_t>& ids, const std::vector<int32_t>& documents, const TextOfIds& text) {
    std::string all;
    for (size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
        while (end < ids.size() && documents[end] == documents[begin]) ++end;
        const auto at = [&](size_t i) { return ids.begin() + static_cast<std::ptrdiff_t>(i); };
        const std::string printed = text.of({at(begin), at(end)});
        all += fmt::format("  document {}: {}, {} {}\n{}\n", documents[begin],
                           plural(static_cast<int64_t>(end - begin), "token"), printed.size(), text.unit(), printed);
    }
    return all;
}

}  // namespace

std::string TextOfIds::of(const std::vector<int32_t>& ids) const {
    if (tokenizer) return tokenizer->decode(ids, false, tokenizer::Unreadable::kept);
    if (!bytes) return fmt::format("{}", fmt::join(ids, " "));
    std::string text;
    for (const int32_t id : ids) text += static_cast<char>(id);
    return text;
}

void print_samples(const Dataset& data, int64_t first, int64_t count, const TextOfIds& text, const TokenOrder& order,
                   const std::function<void(const std::string&)>& put) {
    const DataSource& source = data.source();
    const int64_t tokens = ids_array(source, "tokens"), targets = ids_array(source, "targets");
    const int64_t documents = ids_array(source, "documents");
    std::vector<int64_t> draws;
    data.rows(Split::train, first, count, draws);
    for (int64_t i = 0; i < count; ++i) {
        const int64_t draw = draws[static_cast<size_t>(i)];
        std::string said = fmt::format("{} of {}: {}", i + 1, count, data.where(Split::train, draw));
        if (tokens < 0) {
            put(said + "\n");
            continue;
        }
        const std::vector<int32_t> ids = ids_of(data, draw, tokens);
        const std::string printed = text.of(ids);
        said += fmt::format("; {} tokens, {} {}", ids.size(), printed.size(), text.unit());
        if (targets >= 0) {
            const std::vector<int32_t> wanted = ids_of(data, draw, targets);
            const auto ignored = std::count(wanted.begin(), wanted.end(), -1);
            if (ignored > 0) said += fmt::format(", {} targets ignored", ignored);
        }
        const std::vector<int32_t> numbers = documents < 0 ? std::vector<int32_t>() : ids_of(data, draw, documents);
        if (!order.natural())
            said += fmt::format("; read in the order {}: {}", order.text(), work_text(order, std::ssize(ids), numbers));
        put(said + "\n" + (documents < 0 ? printed + "\n" : by_document(ids, numbers, text)));
    }
}

}  // namespace orrery

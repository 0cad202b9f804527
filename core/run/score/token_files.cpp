#include "run/score/token_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace orrery {
namespace {

constexpr int64_t piece = 1 << 16;  ///< tokens that are read at once
enum : size_t { tokens_array = 0, targets_array = 1 };

}  // namespace

bool is_token_file(const std::string& path) { return path.ends_with(".bin"); }

ScoredIds read_token_file(const std::function<std::shared_ptr<DataSource>(int64_t sequence)>& source, int64_t ids,
                          int64_t most) {
    const auto pairs = source(1);  // each token with the one after it: says how many there are
    pairs->open(ids);
    const int64_t all = pairs->samples() + 1;
    if (all > most)
        throw Error(fmt::format("{} has {} tokens, at most {} are evaluated at once\n  cut it in several files",
                                pairs->place(), count_text(all), count_text(most)));
    const auto whole = source(all - 1);
    whole->open(ids);
    const DataSample sample;
    ScoredIds read;
    read.ids.resize(static_cast<size_t>(all));
    std::vector<int32_t> targets(static_cast<size_t>(std::min(all - 1, piece)));
    for (int64_t from = 0; from < all - 1; from += piece) {
        const int64_t count = std::min(piece, all - 1 - from);
        whole->read(tokens_array, sample, {from}, {read.ids.data() + from, DType::i32, {count}});
        whole->read(targets_array, sample, {from}, {targets.data(), DType::i32, {count}});
        for (int64_t i = 0; i < count; ++i) {
            if (targets[static_cast<size_t>(i)] >= 0) continue;
            read.ignored.resize(static_cast<size_t>(all));
            read.ignored[static_cast<size_t>(from + i + 1)] = true;
        }
        // The last token is a target alone. One that is ignored is never asked for: nothing is behind it.
        read.ids[static_cast<size_t>(from + count)] = std::max(0, targets[static_cast<size_t>(count - 1)]);
    }
    return read;
}

}  // namespace orrery

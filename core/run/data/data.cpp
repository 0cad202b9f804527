#include "run/data/data.h"

#include <unistd.h>

#include <fmt/format.h>

#include <chrono>
#include <numeric>

#include "base/files/atomic_file.h"
#include "base/foreign/plugin_call.h"
#include "base/regular_file.h"
#include "base/seconds.h"
#include "run/data/equal_parts.h"
#include "run/data/token_pair.h"

namespace orrery {

Dataset::Dataset(const DataSpec& spec) : spec_(spec) {
    source().open(spec_.ids);
    order_ = source().order(spec_.held_out ? 0 : spec_.validation, spec_.seed, spec_.origin);
    if (!spec_.held_out) return;
    spec_.held_out->open(spec_.ids);
    if (spec_.held_out->samples() < 1)
        throw Error(spec_.origin, fmt::format("{} has no sample to evaluate", spec_.held_out->place()));
}

DataSource& Dataset::source(Split split) const {
    return split == Split::validation && spec_.held_out ? *spec_.held_out : *spec_.source;
}

const std::string& Dataset::plugin(Split split) const {
    return split == Split::validation && spec_.held_out ? spec_.held_out_plugin : spec_.plugin;
}

std::string Dataset::plugin_of_last_read(Split split) const {
    return last_read_of().empty() ? plugin(split) : last_read_of();
}

int64_t Dataset::samples(Split split) const {
    return split == Split::validation && spec_.held_out ? spec_.held_out->samples() : order_->samples(split);
}

int64_t Dataset::position(Split split, int64_t index) const {
    if (split == Split::validation && spec_.held_out) return index % spec_.held_out->samples();
    return order_->position(split, index);
}

DataSample Dataset::sample(Split split, int64_t index) const {
    if (split == Split::validation && spec_.held_out)
        return {position(split, index), index, spec_.seed, Split::validation, 0};
    DataSample sample = order_->draw(split, index, spec_.seed);
    sample.held_out = spec_.held_out ? 0 : spec_.validation;
    return sample;
}

void Dataset::rows(Split split, int64_t first, int64_t count, std::vector<int64_t>& draws) const {
    draws.resize(static_cast<size_t>(count));
    std::iota(draws.begin(), draws.end(), first);
    std::vector<int64_t> pairs;
    for (const int64_t draw : draws) {
        const int64_t of = source(split).pairs(sample(split, draw));
        if (of == 0 && pairs.empty()) return;
        pairs.push_back(of);
    }
    const std::vector<int64_t> order = equal_parts(pairs);
    for (size_t i = 0; i < draws.size(); ++i) draws[i] = first + order[i];
}

void Dataset::read(Split split, int64_t index, size_t array, const Shape& offset, const Tensor& block) const {
    last_read_of().clear();
    source(split).read(array, sample(split, index), offset, block);
}

std::string Dataset::require_unchanged() {
    std::string said = source().require_unchanged();
    if (!spec_.held_out) return said;
    const std::string more = spec_.held_out->require_unchanged();
    return said + (said.empty() || more.empty() ? "" : "\n") + more;
}

std::vector<std::pair<std::string, std::string>> Dataset::agreement() const {
    std::vector<std::pair<std::string, std::string>> parts = {
        {"data.validation", fmt::format("{}", spec_.validation)},
        {"seed of the data", std::to_string(spec_.seed)},
        {"the data's samples", std::to_string(source().samples())},
        {"the data's digest", source().digest()},
        {"the held-out data's digest", spec_.held_out ? spec_.held_out->digest() : "none of its own"}};
    for (const auto& [name, number] : source().identity())
        parts.emplace_back("the data's " + name, fmt::format("{}", number));
    return parts;
}

Prefetch::Prefetch(Fill fill, int64_t first_step, std::byte* one, std::byte* other)
    : fill_(std::move(fill)), step_(first_step), ready_(one), shown_(other) {
    thread_ = std::thread([this] { work(); });
}

Prefetch::~Prefetch() {
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Prefetch::work() {
    for (;;) {
        std::exception_ptr error;
        try {
            fill_(step_, ready_);
        } catch (...) {
            error = std::current_exception();
        }
        std::unique_lock lock(mutex_);
        error_ = error;
        full_ = true;
        ++step_;
        changed_.notify_all();
        changed_.wait(lock, [this] { return stop_ || !full_; });
        if (stop_ || error) return;
    }
}

std::byte* Prefetch::next() {
    const auto begin = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return full_; });
    waited_s_ += seconds_since(begin);
    if (error_) std::rethrow_exception(error_);
    std::swap(ready_, shown_);
    full_ = false;
    changed_.notify_all();
    return shown_;
}

int64_t tokenize_bytes(const std::string& text_path, const std::string& bin_path, int token_bytes) {
    const RegularFile in(text_path);
    if (!in.problem().empty()) throw Error(fmt::format("text file {} {}", text_path, in.problem()));
    if (in.bytes() == 0)  // checked before an existing token file is replaced
        throw Error(fmt::format("text file {} is empty", text_path));
    AtomicFile out(bin_path);
    begin_tokens(out);
    std::vector<char> text(1 << 20), tokens;
    int64_t count = 0;
    while (const size_t n = in.read(count, text.data(), text.size())) {
        tokens.assign(n * static_cast<size_t>(token_bytes), 0);
        for (size_t i = 0; i < n; ++i) tokens[i * static_cast<size_t>(token_bytes)] = text[i];
        out.write({tokens.data(), tokens.size()});
        count += static_cast<int64_t>(n);
    }
    out.close();
    // The .idx and .mask of a replaced token file do not fit the new one.
    if (bin_path.ends_with(".bin"))
        for (const char* other : {"idx", "mask"}) ::unlink((bin_path.substr(0, bin_path.size() - 3) + other).c_str());
    out.name();
    return count;
}

}  // namespace orrery

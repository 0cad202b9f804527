#include "run/data/data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/regular_file.h"

namespace orrery {
namespace {

constexpr int64_t block_samples = 16;  ///< held-out samples come in runs, so that few neighbours touch

uint64_t mix(uint64_t x) {  // splitmix64 (Steele, Lea, Flood 2014)
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/// A keyed permutation of [0, n): a four-round Feistel network over the next even power of two, walked until it
/// lands inside (Black and Rogaway 2002). O(1) memory, at most 4 walks on average.
int64_t permute(int64_t index, int64_t n, uint64_t key) {
    int half = 1;
    while ((int64_t{1} << (2 * half)) < n) ++half;
    const uint64_t mask = (uint64_t{1} << half) - 1;
    uint64_t x = static_cast<uint64_t>(index);
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 4; ++round) {
            const uint64_t next = left ^ (mix(key ^ (round << 56) ^ right) & mask);
            left = right;
            right = next;
        }
        x = (left << half) | right;
    } while (x >= static_cast<uint64_t>(n));
    return static_cast<int64_t>(x);
}

}  // namespace

Dataset::Dataset(const DataSpec& spec) : spec_(spec) {
    source().open(spec_.ids);
    all_samples_ = source().samples();
    if (!(spec_.validation > 0)) return;
    every_ = std::max<int64_t>(2, std::llround(1 / spec_.validation));
    const int64_t need = block_samples * every_;
    if (all_samples_ >= need) return;
    // Too small for blocks: say so rather than hold nothing out.
    throw Error(spec_.origin, fmt::format("{} has {} samples; data.validation = {} needs at least {}\n"
                                          "  use more data, of text a shorter sequence, or data.validation = 0",
                                          source().place(), all_samples_, spec_.validation, need));
}

int64_t Dataset::samples(Split split) const {
    if (every_ == 0) return split == Split::train ? all_samples_ : 0;
    const int64_t blocks = all_samples_ / block_samples;
    const int64_t held_out = blocks / every_ * block_samples;
    return split == Split::validation ? held_out : all_samples_ - held_out;
}

int64_t Dataset::position(Split split, int64_t index) const {
    const int64_t n = samples(split);
    if (split == Split::validation) {
        const int64_t i = index % n;
        return (i / block_samples + 1) * every_ * block_samples - block_samples + i % block_samples;
    }
    const int64_t i = permute(index % n, n, mix(spec_.seed ^ mix(static_cast<uint64_t>(index / n))));
    if (every_ == 0) return i;
    const int64_t run = (every_ - 1) * block_samples;  // training samples between two held-out blocks
    const int64_t held_out = std::min(i / run, (all_samples_ - n) / block_samples);
    return i + held_out * block_samples;
}

void Dataset::read(Split split, int64_t index, size_t array, const Shape& offset, const Tensor& block) const {
    source().read(array, {position(split, index), index, spec_.seed}, offset, block);
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
    waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (error_) std::rethrow_exception(error_);
    std::swap(ready_, shown_);
    full_ = false;
    changed_.notify_all();
    return shown_;
}

int64_t tokenize_bytes(const std::string& text_path, const std::string& bin_path, int token_bytes) {
    const RegularFile in(text_path);
    if (!in.problem().empty()) throw Error(fmt::format("text file {} {}", text_path, in.problem()));
    if (in.bytes() == 0)  // before anything of the token file is replaced
        throw Error(fmt::format("text file {} is empty", text_path));
    if (const RegularFile there(bin_path); there.there() && !there.problem().empty())
        throw Error(fmt::format("token file {} {}", bin_path, there.problem()));
    const std::string partial = bin_path + ".part";
    std::ofstream out(partial, std::ios::binary | std::ios::trunc);
    if (!out) throw Error(fmt::format("cannot write token file {}: {}", bin_path, std::strerror(errno)));
    std::vector<char> text(1 << 20), tokens;
    int64_t count = 0;
    try {
        while (const size_t n = in.read(count, text.data(), text.size())) {
            tokens.assign(n * static_cast<size_t>(token_bytes), 0);
            for (size_t i = 0; i < n; ++i) tokens[i * static_cast<size_t>(token_bytes)] = text[i];  // little-endian
            out.write(tokens.data(), static_cast<std::streamsize>(tokens.size()));
            count += static_cast<int64_t>(n);
        }
    } catch (...) {
        ::unlink(partial.c_str());
        throw;
    }
    out.close();
    if (!out || ::rename(partial.c_str(), bin_path.c_str()) != 0) {
        const std::string reason = std::strerror(errno);
        ::unlink(partial.c_str());
        throw Error(fmt::format("cannot write token file {}: {}", bin_path, reason), Fault::failed);
    }
    return count;
}

}  // namespace orrery

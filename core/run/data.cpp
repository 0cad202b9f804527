#include "run/data.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <span>

#include "base/hash.h"

namespace orrery {
namespace {

constexpr int64_t block_samples = 16;  ///< held-out samples come in runs, so that few neighbours touch
constexpr int64_t scan_limit = 256 << 20;
constexpr int64_t piece_tokens = 1 << 18;

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

Dataset::Dataset(const DataSpec& spec) : spec_(spec), file_(spec.path) {
    if (spec_.path.empty())
        throw Error(spec_.origin,
                    "no data: path is missing\n  set data.path, or give path = to o.data.text or o.data.tokens");
    if (!file_.problem().empty())
        throw Error(spec_.origin, fmt::format("data file {} {}\n  set data.path to a file of text or of tokens",
                                              spec_.path, file_.problem()));
    known_ = named_ = file_.info();
    width_ = spec_.kind == DataSpec::Kind::text ? 1 : spec_.token_bytes;
    file_bytes_ = file_.bytes();
    tokens_ = file_bytes_ / width_;
    all_samples_ = (tokens_ - 1) / spec_.sequence;
    check_size();
    if (file_bytes_ <= scan_limit) check_all();
    digest_ = read_digest(file_);
}

void Dataset::check_size() {
    std::string problem;
    if (file_bytes_ == 0)
        problem = "is empty\n  set data.path to a file with text or tokens, or write this one again";
    else if (file_bytes_ % width_ != 0)
        problem = fmt::format(
            "has {} bytes, not a multiple of {} (data.token_bytes): it is truncated, or its tokens have another width",
            file_bytes_, width_);
    else if (all_samples_ < 1)
        problem = fmt::format("has {} tokens; one sample needs {} (sequence {} and the token after it)", tokens_,
                              spec_.sequence + 1, spec_.sequence);
    if (!problem.empty()) throw Error(spec_.origin, fmt::format("data file {} {}", spec_.path, problem));
    if (!(spec_.validation > 0)) return;
    every_ = std::max<int64_t>(2, std::llround(1 / spec_.validation));
    const int64_t need = block_samples * every_;
    if (all_samples_ >= need) return;
    // Too small for blocks: say so rather than hold nothing out.
    throw Error(spec_.origin,
                fmt::format("data file {} has {} samples of {} tokens; data.validation = {} needs at least {}\n"
                            "  use a shorter sequence, more text, or data.validation = 0",
                            spec_.path, all_samples_, spec_.sequence, spec_.validation, need));
}

const Dataset::Bytes& Dataset::stored(int64_t from, int64_t count, int64_t sample, Bytes& buffer) const {
    buffer.resize(static_cast<size_t>(count * width_));
    const int64_t begin = from * width_;
    const size_t got = file_.read(begin, buffer.data(), buffer.size());
    if (got == buffer.size()) return buffer;
    if (sample < 0)
        throw Error(spec_.origin,
                    fmt::format("data file {} was cut short while its tokens were checked: it ends at byte {}, and had "
                                "{} when it was opened\n  start again when it is whole",
                                spec_.path, begin + static_cast<int64_t>(got), file_bytes_),
                    Fault::failed);
    throw Error(spec_.origin,
                fmt::format("data file {} is cut short: sample {} is bytes {} to {}, and it had {} when the run began\n"
                            "  put it back as it was, and start again to go on from the last checkpoint",
                            spec_.path, sample, begin, begin + static_cast<int64_t>(buffer.size()) - 1, file_bytes_),
                Fault::failed);
}

int64_t Dataset::token(const Bytes& bytes, int64_t at) const {
    if (width_ == 1) return bytes[static_cast<size_t>(at)];
    if (width_ == 2) {
        uint16_t value;
        std::memcpy(&value, bytes.data() + 2 * at, 2);
        return value;
    }
    uint32_t value;
    std::memcpy(&value, bytes.data() + 4 * at, 4);
    return value;
}

void Dataset::check_range(const Bytes& bytes, int64_t from, int64_t count) const {
    if (spec_.vocab <= 0) return;
    for (int64_t i = 0; i < count; ++i)
        if (const int64_t id = token(bytes, i); id >= spec_.vocab)
            throw Error(spec_.origin, fmt::format("data file {}: token {} has id {}, the model's vocabulary is {}\n"
                                                  "  give the model vocab = {} or more, or tokenize again",
                                                  spec_.path, from + i, id, spec_.vocab, id + 1));
}

void Dataset::check_all() const {
    if (spec_.vocab <= 0) return;
    Bytes bytes;
    for (int64_t from = 0; from < tokens_; from += piece_tokens) {
        const int64_t count = std::min(piece_tokens, tokens_ - from);
        check_range(stored(from, count, -1, bytes), from, count);
    }
}

int64_t Dataset::samples(Split split) const {
    if (every_ == 0) return split == Split::train ? all_samples_ : 0;
    const int64_t blocks = all_samples_ / block_samples;
    const int64_t held_out = blocks / every_ * block_samples;
    return split == Split::validation ? held_out : all_samples_ - held_out;
}

std::string Dataset::read_digest(const RegularFile& file) const {
    const bool whole = file_bytes_ <= scan_limit;
    const int64_t most = whole ? 1 << 20 : 64 << 10;
    const int64_t pieces = whole ? (file_bytes_ + most - 1) / most : 1024;
    std::vector<std::byte> bytes(static_cast<size_t>(most));
    uint32_t crc = 0;
    for (int64_t i = 0; i < pieces; ++i) {
        const int64_t from = whole ? i * most : (file_bytes_ - most) / (pieces - 1) * i;
        const auto size = static_cast<size_t>(std::min(most, file_bytes_ - from));
        crc = crc32c(std::span(bytes).first(file.read(from, bytes.data(), size)), crc);
    }
    return fmt::format("{:08x}", crc);
}

std::string Dataset::require_unchanged() {
    const auto changed = [&](const std::string& what) {
        throw Error(spec_.origin,
                    fmt::format("data file {} {} since the run began: what is trained on is no longer what its "
                                "checkpoints say\n  put it back as it was, and start again to go on from the last "
                                "checkpoint; or train on the new one in another run.folder",
                                spec_.path, what),
                    Fault::failed);
    };
    const struct stat now = file_.now();
    if (now.st_size != known_.st_size) changed(fmt::format("has {} bytes, not the {}", now.st_size, known_.st_size));
    const bool touched = now.st_mtim.tv_sec != known_.st_mtim.tv_sec || now.st_mtim.tv_nsec != known_.st_mtim.tv_nsec;
    if (touched && file_bytes_ > scan_limit) changed("was written to");
    if (touched && read_digest(file_) != digest_) changed("has other contents");
    known_ = now;
    return name_changed();
}

std::string Dataset::name_changed() {
    struct stat there {};
    const bool gone = ::stat(spec_.path.c_str(), &there) != 0;
    const auto same = [&](const struct stat& a) { return a.st_ino == there.st_ino && a.st_dev == there.st_dev; };
    if (same(known_) || (same(named_) && there.st_mtime == named_.st_mtime)) return "";
    named_ = there;
    if (!gone) {
        const RegularFile other(spec_.path);
        if (other.problem().empty() && other.bytes() == file_bytes_ && read_digest(other) == digest_) return "";
    }
    return fmt::format(
        "data file {} {}: what was opened at the start is still read, but a restart would refuse this "
        "one; put the first one back before this run ends",
        spec_.path, gone ? "is gone" : "is another file now, with other contents");
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

void Dataset::read(Split split, int64_t index, int64_t first, int64_t count, int32_t* tokens, int32_t* targets) const {
    const int64_t sample = position(split, index), from = sample * spec_.sequence + first;
    thread_local Bytes buffer;
    const Bytes& bytes = stored(from, count + 1, sample, buffer);
    if (file_bytes_ > scan_limit) check_range(bytes, from, count + 1);
    for (int64_t i = 0; i < count; ++i) {
        tokens[i] = static_cast<int32_t>(token(bytes, i));
        targets[i] = static_cast<int32_t>(token(bytes, i + 1));
    }
}

Prefetch::Prefetch(Fill fill, int64_t first_step) : fill_(std::move(fill)), step_(first_step) {
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

const Prefetch::Batch& Prefetch::next() {
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

#include "run/data.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
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
    const int width = spec_.kind == DataSpec::Kind::text ? 1 : spec_.token_bytes;
    if (spec_.path.empty())
        throw Error(spec_.origin,
                    "no data: path is missing\n  set data.path, or give path = to o.data.text or o.data.tokens");
    descriptor_ = ::open(spec_.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0)
        throw Error(spec_.origin, fmt::format("cannot open data file {}: {}\n  set data.path to an existing file",
                                              spec_.path, std::strerror(errno)));
    struct stat info {};
    if (::fstat(descriptor_, &info) != 0 || !S_ISREG(info.st_mode)) {
        ::close(descriptor_);
        throw Error(spec_.origin,
                    fmt::format("data file {} is not a regular file\n  set data.path to one", spec_.path));
    }
    file_bytes_ = info.st_size;
    tokens_ = file_bytes_ / width;
    all_samples_ = (tokens_ - 1) / spec_.sequence;
    std::string problem;
    if (file_bytes_ == 0)
        problem = "is empty\n  set data.path to a file with text or tokens, or write this one again";
    else if (file_bytes_ % width != 0)
        problem = fmt::format(
            "has {} bytes, not a multiple of {} (data.token_bytes): it is truncated, or its tokens have another width",
            file_bytes_, width);
    else if (all_samples_ < 1)
        problem = fmt::format("has {} tokens; one sample needs {} (sequence {} and the token after it)", tokens_,
                              spec_.sequence + 1, spec_.sequence);
    if (!problem.empty()) {
        ::close(descriptor_);
        throw Error(spec_.origin, fmt::format("data file {} {}", spec_.path, problem));
    }
    void* map = ::mmap(nullptr, static_cast<size_t>(file_bytes_), PROT_READ, MAP_SHARED, descriptor_, 0);
    if (map == MAP_FAILED) {
        ::close(descriptor_);
        throw Error(spec_.origin, fmt::format("cannot map data file {}: {}", spec_.path, std::strerror(errno)),
                    Fault::failed);
    }
    bytes_ = static_cast<const unsigned char*>(map);
    if (spec_.validation > 0) {
        every_ = std::max<int64_t>(2, std::llround(1 / spec_.validation));
        if (all_samples_ < block_samples * every_) every_ = 0;
    }
    if (spec_.validation > 0 && every_ == 0) {
        // Too small for blocks: say so rather than hold nothing out.
        const int64_t need = block_samples * std::max<int64_t>(2, std::llround(1 / spec_.validation));
        ::munmap(map, static_cast<size_t>(file_bytes_));
        ::close(descriptor_);
        throw Error(spec_.origin,
                    fmt::format("data file {} has {} samples of {} tokens; data.validation = {} needs at least {}\n"
                                "  use a shorter sequence, more text, or data.validation = 0",
                                spec_.path, all_samples_, spec_.sequence, spec_.validation, need));
    }
    if (file_bytes_ <= scan_limit) check_range(0, tokens_);
    digest_ = read_digest();
}

Dataset::~Dataset() {
    if (bytes_) ::munmap(const_cast<unsigned char*>(bytes_), static_cast<size_t>(file_bytes_));
    if (descriptor_ >= 0) ::close(descriptor_);
}

int64_t Dataset::token(int64_t at) const {
    if (spec_.kind == DataSpec::Kind::text) return bytes_[at];
    if (spec_.token_bytes == 2) {
        uint16_t value;
        std::memcpy(&value, bytes_ + 2 * at, 2);
        return value;
    }
    uint32_t value;
    std::memcpy(&value, bytes_ + 4 * at, 4);
    return value;
}

void Dataset::check_range(int64_t from, int64_t to) const {
    if (spec_.vocab <= 0) return;
    for (int64_t at = from; at < to; ++at)
        if (token(at) >= spec_.vocab)
            throw Error(spec_.origin, fmt::format("data file {}: token {} has id {}, the model's vocabulary is {}\n"
                                                  "  give the model vocab = {} or more, or tokenize again",
                                                  spec_.path, at, token(at), spec_.vocab, token(at) + 1));
}

int64_t Dataset::samples(Split split) const {
    if (every_ == 0) return split == Split::train ? all_samples_ : 0;
    const int64_t blocks = all_samples_ / block_samples;
    const int64_t held_out = blocks / every_ * block_samples;
    return split == Split::validation ? held_out : all_samples_ - held_out;
}

std::string Dataset::read_digest() const {
    const int64_t pieces = file_bytes_ <= scan_limit ? 1 : 1024, most = 64 << 10;
    const int64_t size = pieces == 1 ? file_bytes_ : most;
    uint32_t crc = 0;
    for (int64_t i = 0; i < pieces; ++i) {
        const int64_t from = pieces == 1 ? 0 : (file_bytes_ - size) / (pieces - 1) * i;
        crc = crc32c(std::as_bytes(std::span(bytes_ + from, static_cast<size_t>(size))), crc);
    }
    return fmt::format("{:08x}", crc);
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
    const int64_t from = position(split, index) * spec_.sequence + first;
    if (file_bytes_ > scan_limit) check_range(from, from + count + 1);
    for (int64_t i = 0; i < count; ++i) {
        tokens[i] = static_cast<int32_t>(token(from + i));
        targets[i] = static_cast<int32_t>(token(from + i + 1));
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
    std::ifstream in(text_path, std::ios::binary);
    if (!in) throw Error(fmt::format("cannot open text file {}: {}", text_path, std::strerror(errno)));
    if (in.peek() == std::ifstream::traits_type::eof())  // before anything of the token file is replaced
        throw Error(in.bad() ? fmt::format("cannot read text file {}", text_path)
                             : fmt::format("text file {} is empty", text_path));
    const std::string partial = bin_path + ".part";
    std::ofstream out(partial, std::ios::binary | std::ios::trunc);
    if (!out) throw Error(fmt::format("cannot write token file {}: {}", bin_path, std::strerror(errno)));
    std::vector<char> text(1 << 20), tokens;
    int64_t count = 0;
    while (in.read(text.data(), static_cast<std::streamsize>(text.size())), in.gcount() > 0) {
        const auto n = static_cast<size_t>(in.gcount());
        tokens.assign(n * static_cast<size_t>(token_bytes), 0);
        for (size_t i = 0; i < n; ++i) tokens[i * static_cast<size_t>(token_bytes)] = text[i];  // little-endian
        out.write(tokens.data(), static_cast<std::streamsize>(tokens.size()));
        count += static_cast<int64_t>(n);
    }
    out.close();
    if (in.bad()) {
        ::unlink(partial.c_str());
        throw Error(fmt::format("cannot read text file {} to its end", text_path), Fault::failed);
    }
    if (!out || ::rename(partial.c_str(), bin_path.c_str()) != 0) {
        const std::string reason = std::strerror(errno);
        ::unlink(partial.c_str());
        throw Error(fmt::format("cannot write token file {}: {}", bin_path, reason), Fault::failed);
    }
    return count;
}

}  // namespace orrery

#include "run/preflight/trial_line.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "plan/lower/buffers.h"

namespace orrery {
namespace {

constexpr int64_t looked_at = 4 << 20;

char pattern(int rank, int64_t i) { return static_cast<char>(i * 131 + (i >> 8) + rank * 17 + 1); }

Tensor bytes_at(void* data, int64_t bytes) { return {data, DType::u8, {bytes}}; }

}  // namespace

TrialLine::TrialLine(Device& device, Communicator& communicator, const Memory& arena)
    : device_(device),
      communicator_(communicator),
      arena_(arena),
      half_((arena.bytes - control_bytes) / 2 / scratch_alignment * scratch_alignment) {}

int64_t TrialLine::arena_bytes(int64_t most, int64_t ranks) {
    // all() needs a word for each rank.
    return control_bytes + 2 * aligned(std::max<int64_t>(most, 4096 + 8 * ranks), scratch_alignment);
}

void TrialLine::put(void* to, const void* from, int64_t bytes) {
    device_.copy(0, to, from, bytes);
    device_.synchronize(0);
}

void TrialLine::get(void* to, const void* from, int64_t bytes) {
    device_.copy(0, to, from, bytes);
    device_.synchronize(0);
}

void TrialLine::fill_pattern() {
    std::vector<char> data(static_cast<size_t>(half_));
    for (int64_t i = 0; i < half_; ++i) data[static_cast<size_t>(i)] = pattern(me(), i);
    put(out(), data.data(), half_);
}

void TrialLine::forget_received(int64_t bytes) {
    const std::vector<char> zeros(static_cast<size_t>(std::min(bytes, looked_at)));
    put(in(), zeros.data(), static_cast<int64_t>(zeros.size()));
}

int64_t TrialLine::wrong_bytes(int64_t bytes, int from) {
    std::vector<char> found(static_cast<size_t>(std::min(bytes, looked_at)));
    get(found.data(), in(), static_cast<int64_t>(found.size()));
    int64_t wrong = 0;
    for (size_t i = 0; i < found.size(); ++i) wrong += found[i] != pattern(from, static_cast<int64_t>(i));
    return wrong;
}

void TrialLine::tell(int peer, std::span<const int64_t> words) {
    assert(words.size() <= most_words);
    put(arena_.data, words.data(), static_cast<int64_t>(words.size_bytes()));
    communicator_.send(bytes_at(arena_.data, static_cast<int64_t>(words.size_bytes())), peer, tag).wait();
}

std::vector<int64_t> TrialLine::hear(int peer, size_t count) {
    assert(count <= most_words);
    std::vector<int64_t> words(count);
    const auto bytes = static_cast<int64_t>(8 * count);
    communicator_.receive(bytes_at(arena_.data, bytes), peer, tag).wait();
    get(words.data(), arena_.data, bytes);
    return words;
}

double TrialLine::greatest(double mine) {
    const Tensor number{arena_.data, DType::f64, {1}};
    put(number.data, &mine, 8);
    communicator_.all_reduce(number, number, ReduceOp::max).wait();
    get(&mine, number.data, 8);
    return mine;
}

/// Gathers in slices that fit into the memory.
void TrialLine::all_bytes(const char* mine, int64_t bytes, char* whole) {
    const int64_t most = half_ / ranks();
    for (int64_t at = 0; at < bytes; at += most) {
        const int64_t slice = std::min(most, bytes - at);
        put(out(), mine + at, slice);
        communicator_.all_gather(bytes_at(out(), slice), bytes_at(in(), slice * ranks())).wait();
        std::vector<char> got(static_cast<size_t>(slice * ranks()));
        get(got.data(), in(), slice * ranks());
        for (int64_t rank = 0; rank < ranks(); ++rank)
            std::memcpy(whole + rank * bytes + at, got.data() + rank * slice, static_cast<size_t>(slice));
    }
}

std::vector<double> TrialLine::all(std::span<const double> mine) {
    std::vector<double> whole(mine.size() * static_cast<size_t>(ranks()));
    all_bytes(reinterpret_cast<const char*>(mine.data()), static_cast<int64_t>(mine.size_bytes()),
              reinterpret_cast<char*>(whole.data()));
    return whole;
}

std::vector<std::string> TrialLine::texts(const std::string& mine) {
    const auto longest = static_cast<size_t>(greatest(static_cast<double>(mine.size() + 1)));
    std::string padded = mine, whole(longest * static_cast<size_t>(ranks()), '\0');
    padded.resize(longest);
    all_bytes(padded.data(), static_cast<int64_t>(longest), whole.data());
    std::vector<std::string> texts;
    for (size_t rank = 0; rank < static_cast<size_t>(ranks()); ++rank)
        texts.emplace_back(whole.data() + rank * longest);
    return texts;
}

}  // namespace orrery

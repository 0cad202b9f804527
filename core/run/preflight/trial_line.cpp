#include "run/preflight/trial_line.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>

#include "base/text.h"
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

int64_t TrialLine::arena_bytes(int64_t most) {
    return control_bytes + 2 * aligned(std::max<int64_t>(most, 4096), scratch_alignment);
}

void TrialLine::copy(void* to, const void* from, int64_t bytes) {
    device_.copy(0, to, from, bytes);
    device_.synchronize(0);
}

void TrialLine::fill_pattern() {
    std::vector<char> data(static_cast<size_t>(half_));
    for (int64_t i = 0; i < half_; ++i) data[static_cast<size_t>(i)] = pattern(me(), i);
    copy(out(), data.data(), half_);
}

void TrialLine::forget_received(int64_t bytes) {
    const std::vector<char> zeros(static_cast<size_t>(std::min(bytes, looked_at)));
    copy(in(), zeros.data(), static_cast<int64_t>(zeros.size()));
}

int64_t TrialLine::wrong_bytes(int64_t bytes, int from) {
    std::vector<char> found(static_cast<size_t>(std::min(bytes, looked_at)));
    copy(found.data(), in(), static_cast<int64_t>(found.size()));
    int64_t wrong = 0;
    for (size_t i = 0; i < found.size(); ++i) wrong += found[i] != pattern(from, static_cast<int64_t>(i));
    return wrong;
}

void TrialLine::tell(int peer, std::span<const int64_t> words) {
    assert(words.size() <= most_words);
    copy(arena_.data, words.data(), static_cast<int64_t>(words.size_bytes()));
    communicator_.send(bytes_at(arena_.data, static_cast<int64_t>(words.size_bytes())), peer, tag).wait();
}

std::vector<int64_t> TrialLine::hear(int peer, size_t count) {
    assert(count <= most_words);
    std::vector<int64_t> words(count);
    const auto bytes = static_cast<int64_t>(8 * count);
    communicator_.receive(bytes_at(arena_.data, bytes), peer, tag).wait();
    copy(words.data(), arena_.data, bytes);
    return words;
}

double TrialLine::reduced(double mine, ReduceOp op) {
    const Tensor number{arena_.data, DType::f64, {1}};
    copy(number.data, &mine, 8);
    communicator_.all_reduce(number, number, op).wait();
    copy(&mine, number.data, 8);
    return mine;
}

std::vector<double> numbers_of_all(Exchange& ranks, std::span<const double> mine) {
    std::vector<double> whole;
    for (const std::string& told : ranks.all("numbers", fmt::format("{}", fmt::join(mine, " ")), WaitLimit::step))
        for (const std::string& number : split(told, ' '))
            if (!number.empty()) whole.push_back(std::stod(number));
    return whole;
}

}  // namespace orrery

#include "run/control/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "orrery/error.h"

namespace orrery {
namespace {

constexpr size_t piece_bytes = size_t{512} << 10;  // below the rendezvous' largest frame
constexpr size_t most_bytes = size_t{64} << 20;
constexpr auto files_limit = std::chrono::hours(1);
constexpr auto slice = std::chrono::milliseconds(1000);

std::string key_of(const std::string& round, int64_t rank, size_t piece) {
    return piece == 0 ? fmt::format("{}/{}", round, rank) : fmt::format("{}/{}/{}", round, rank, piece);
}

}  // namespace

Exchange::Exchange(TcpRendezvous& rendezvous, std::string name, int64_t rank, int64_t ranks,
                   std::chrono::milliseconds timeout)
    : rendezvous_(rendezvous), name_(std::move(name)), rank_(rank), ranks_(ranks), timeout_(timeout) {}

std::vector<std::string> Exchange::all(const std::string& topic, const std::string& mine, WaitLimit limit) {
    const std::vector<std::string> earlier = std::exchange(given_, {});
    const std::string round = give(topic, mine);
    std::vector<std::string> texts;
    for (int64_t rank = 0; rank < ranks_; ++rank) texts.push_back(take(round, rank, limit));
    // Whoever gave a text in this round has read all of the earlier ones.
    for (const std::string& key : earlier) rendezvous_.erase(key);
    return texts;
}

std::vector<std::string> Exchange::to_first(const std::string& topic, const std::string& mine, WaitLimit limit) {
    const std::string round = give(topic, mine);
    std::vector<std::string> texts;
    for (int64_t rank = 0; rank_ == 0 && rank < ranks_; ++rank) texts.push_back(take(round, rank, limit));
    return texts;
}

/// The first piece begins with the text's size and comes last: who has it need not wait for the others.
std::string Exchange::give(const std::string& topic, const std::string& mine) {
    if (mine.size() > most_bytes)
        throw Error(fmt::format("the text of rank {} for '{}' has {} bytes, at most {} are possible", rank_, topic,
                                mine.size(), most_bytes),
                    Fault::failed);
    std::string round = fmt::format("exchange/{}/{}/{}", name_, rounds_++, topic);
    const size_t pieces = std::max<size_t>(1, (mine.size() + piece_bytes - 1) / piece_bytes);
    for (size_t piece = pieces; piece-- > 0;) {
        std::string text = mine.substr(piece * piece_bytes, piece_bytes);
        if (piece == 0) text = fmt::format("{}:", mine.size()) + text;
        given_.push_back(key_of(round, rank_, piece));
        rendezvous_.set(given_.back(), text);
    }
    return round;
}

std::string Exchange::take(const std::string& round, int64_t rank, WaitLimit limit) {
    const size_t topic = round.find('/', round.find('/', round.find('/') + 1) + 1) + 1;  // exchange/NAME/NUMBER/TOPIC
    const std::string first = wait(key_of(round, rank, 0), round.substr(topic), rank, limit);
    size_t bytes = 0;
    const auto [end, problem] = std::from_chars(first.data(), first.data() + first.size(), bytes);
    if (problem != std::errc() || *end != ':' || bytes > most_bytes)
        throw Error(fmt::format("protocol error: what rank {} sent for '{}' cannot be read", rank, round), Fault::peer);
    std::string text = first.substr(static_cast<size_t>(end - first.data()) + 1);
    for (size_t piece = 1; text.size() < bytes; ++piece) text += rendezvous_.get(key_of(round, rank, piece), timeout_);
    return text;
}

std::string Exchange::wait(const std::string& key, const std::string& what, int64_t rank, WaitLimit limit) {
    if (limit == WaitLimit::step) {
        if (auto text = rendezvous_.look(key, timeout_)) return *std::move(text);
        throw Error(fmt::format("rank {}: rank {} has not come to '{}' within {} ms ({}): {}", rank_, rank, what,
                                timeout_.count(), setting_, rendezvous_.absent()),
                    Fault::peer);
    }
    // In slices, so that each costs the store one look; a lost rank ends any of them.
    const auto until = std::chrono::steady_clock::now() + files_limit;
    while (std::chrono::steady_clock::now() < until)
        if (auto text = rendezvous_.look(key, slice)) return *std::move(text);
    throw Error(fmt::format("rank {}: rank {} is alive but has not come to '{}' for {} s; does its storage answer?",
                            rank_, rank, what, std::chrono::seconds(files_limit).count()),
                Fault::peer);
}

}  // namespace orrery

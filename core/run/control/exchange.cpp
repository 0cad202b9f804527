#include "run/control/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/hash.h"
#include "orrery/error.h"

namespace orrery {
namespace {

constexpr size_t piece_bytes = size_t{512} << 10;  // pieces of a text, to fit into a frame of the rendezvous
constexpr size_t most_bytes = size_t{64} << 20;
constexpr int64_t few = 8;  // up to this many ranks read each other's texts without a tree
constexpr auto files_limit = std::chrono::hours(1);
constexpr auto slice = std::chrono::milliseconds(1000);

std::string piece_of(const std::string& key, size_t piece) {
    return piece == 0 ? key : fmt::format("{}/{}", key, piece);
}

std::string with_size(const std::string& text) { return fmt::format("{}:{}", text.size(), text); }

/// Removes "NUMBER:" from the start of a text and returns NUMBER; nullopt if it is missing or above `most`.
std::optional<size_t> number_of(std::string_view& text, size_t most) {
    size_t number = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (problem != std::errc() || end == text.data() + text.size() || *end != ':' || number > most) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
    return number;
}

Error unreadable(int64_t rank, const std::string& topic) {
    return Error(fmt::format("protocol error: malformed message of rank {} for '{}'", rank, topic), Fault::peer);
}

}  // namespace

Exchange::Exchange(Rendezvous& rendezvous, std::string name, int64_t rank, int64_t ranks,
                   std::chrono::milliseconds timeout)
    : rendezvous_(rendezvous), name_(std::move(name)), rank_(rank), ranks_(ranks), timeout_(timeout) {}

std::vector<std::string> Exchange::all(const std::string& topic, const std::string& mine, WaitLimit limit) {
    std::vector<std::string> earlier = std::exchange(given_, {});
    const Round round = begin(topic, limit);
    std::vector<std::string> texts;
    if (ranks_ <= few) {
        give(round, fmt::format("{}", rank_), mine, most_bytes);
        for (int64_t rank = 0; rank < ranks_; ++rank)
            texts.push_back(take(round, fmt::format("{}", rank), rank, most_bytes));
    } else {
        const size_t most = (most_bytes + 24) * static_cast<size_t>(ranks_);
        texts = gather(round, mine);
        std::string joined;
        for (const std::string& text : texts) joined += with_size(text);
        if (rank_ == 0) give(round, "all", joined, most);
        const std::string told = rank_ == 0 ? std::string() : take(round, "all", 0, most);
        for (std::string_view rest = told; !rest.empty();) {
            const auto size = number_of(rest, rest.size());
            if (!size || *size > rest.size()) throw unreadable(0, topic);
            texts.emplace_back(rest.substr(0, *size));
            rest.remove_prefix(*size);
        }
        if (static_cast<int64_t>(texts.size()) != ranks_) throw unreadable(0, topic);
    }
    // A rank that takes part in this round has read all texts of earlier rounds.
    forget(std::move(earlier));
    return texts;
}

std::vector<std::string> Exchange::to_first(const std::string& topic, const std::string& mine, WaitLimit limit) {
    return gather(begin(topic, limit), mine);
}

std::string Exchange::from_first(const std::string& topic, const std::string& mine, WaitLimit limit) {
    const Round round = begin(topic, limit);
    if (rank_ > 0) return take(round, "0", 0, most_bytes);
    give(round, "0", mine, most_bytes);
    return mine;
}

/// Each rank sends up the tree its digest and the lowest rank below it that differs, "DIGEST RANK"; -1: none.
std::optional<Exchange::Difference> Exchange::compare(const std::string& topic, const std::string& text,
                                                      const std::string& told, WaitLimit limit) {
    constexpr size_t most = 128;
    std::vector<std::string> earlier = std::exchange(given_, {});
    const Round round = begin(topic, limit);
    come(round);
    const std::string digest = sha256(text);
    int64_t other = -1;
    for (int64_t below = first_below(rank_); below < behind_below(rank_); ++below) {
        const std::string said = take(round, fmt::format("{}", below), below, most);
        const size_t space = said.find(' ');
        int64_t first = -1;
        if (space == std::string::npos ||
            std::from_chars(said.data() + space + 1, said.data() + said.size(), first).ec != std::errc())
            throw unreadable(below, topic);
        if (said.substr(0, space) != digest) first = below;  // the child itself differs: the lowest rank of its subtree
        if (first >= 0 && (other < 0 || first < other)) other = first;
    }
    if (rank_ > 0) give(round, fmt::format("{}", rank_), fmt::format("{} {}", digest, other), most);
    if (rank_ == 0) give(round, "verdict", fmt::format("{}", other), most);
    const std::string verdict = rank_ == 0 ? fmt::format("{}", other) : take(round, "verdict", 0, most);
    forget(std::move(earlier));
    if (verdict == "-1") return std::nullopt;
    Difference found;
    std::from_chars(verdict.data(), verdict.data() + verdict.size(), found.rank);
    if (rank_ == 0 || rank_ == found.rank) give(round, fmt::format("told/{}", rank_), told, most_bytes);
    found.first = take(round, "told/0", 0, most_bytes);
    found.other = take(round, fmt::format("told/{}", found.rank), found.rank, most_bytes);
    return found;
}

Exchange::Round Exchange::begin(const std::string& topic, WaitLimit limit) {
    return {fmt::format("exchange/{}/{}/{}", name_, rounds_++, topic), topic, limit};
}

/// Announces a rank with children before it waits for them, so that a missing child is named, and not this rank.
void Exchange::come(const Round& round) {
    if (first_below(rank_) == ranks_) return;
    given_.push_back(fmt::format("{}/here/{}", round.key, rank_));
    rendezvous_.set(given_.back(), "");
}

/// Collects all texts on rank 0. Other ranks send the texts of their subtree as one: "RANK:SIZE:TEXT" for each.
std::vector<std::string> Exchange::gather(const Round& round, const std::string& mine) {
    if (mine.size() > most_bytes)
        throw Error(fmt::format("the message of rank {} for '{}' has {} bytes, the maximum is {}", rank_, round.topic,
                                mine.size(), most_bytes),
                    Fault::failed);
    const size_t most = (most_bytes + 48) * static_cast<size_t>(ranks_);
    come(round);
    std::string pack = fmt::format("{}:", rank_) + with_size(mine);
    for (int64_t below = first_below(rank_); below < behind_below(rank_); ++below)
        pack += take(round, fmt::format("{}", below), below, most);
    if (rank_ > 0) {
        give(round, fmt::format("{}", rank_), pack, most);
        return {};
    }
    std::vector<std::string> texts(static_cast<size_t>(ranks_));
    int64_t seen = 0;
    for (std::string_view rest = pack; !rest.empty(); ++seen) {
        const auto rank = number_of(rest, static_cast<size_t>(ranks_ - 1));
        const auto size = rank ? number_of(rest, rest.size()) : std::nullopt;
        if (!size || *size > rest.size()) throw unreadable(seen, round.topic);
        texts[*rank] = rest.substr(0, *size);
        rest.remove_prefix(*size);
    }
    if (seen != ranks_) throw unreadable(seen, round.topic);
    return texts;
}

/// Stores a text in pieces. The first piece has the text's size and is stored last, so its reader finds all others.
void Exchange::give(const Round& round, const std::string& part, const std::string& text, size_t most) {
    if (text.size() > most)
        throw Error(fmt::format("the message of rank {} for '{}' has {} bytes, the maximum is {}", rank_, round.topic,
                                text.size(), most),
                    Fault::failed);
    const std::string key = fmt::format("{}/{}", round.key, part);
    const size_t pieces = std::max<size_t>(1, (text.size() + piece_bytes - 1) / piece_bytes);
    for (size_t piece = pieces; piece-- > 0;) {
        std::string value = text.substr(piece * piece_bytes, piece_bytes);
        if (piece == 0) value = fmt::format("{}:", text.size()) + value;
        given_.push_back(piece_of(key, piece));
        rendezvous_.set(given_.back(), value);
    }
}

std::string Exchange::take(const Round& round, const std::string& part, int64_t rank, size_t most) {
    const std::string key = fmt::format("{}/{}", round.key, part);
    const std::string first = wait(round, key, rank);
    std::string_view rest = first;
    const auto bytes = number_of(rest, most);
    if (!bytes) throw unreadable(rank, round.topic);
    std::string text(rest);
    for (size_t piece = 1; text.size() < *bytes; ++piece) text += rendezvous_.get(piece_of(key, piece), timeout_);
    return text;
}

std::string Exchange::wait(const Round& round, const std::string& key, int64_t rank) {
    if (round.limit == WaitLimit::step) {
        if (auto text = rendezvous_.look(key, timeout_)) return *std::move(text);
        const int64_t absent = missing(round, rank);
        throw Absent(absent, fmt::format("rank {}: timed out: rank {} has not reached '{}' within {} ms ({}): {}",
                                         rank_, absent, round.topic, timeout_.count(), setting_, rendezvous_.absent()));
    }
    // A lost rank must end the wait, so wait in slices.
    const auto until = std::chrono::steady_clock::now() + files_limit;
    while (std::chrono::steady_clock::now() < until)
        if (auto text = rendezvous_.look(key, slice)) return *std::move(text);
    const int64_t absent = missing(round, rank);
    throw Absent(absent, fmt::format("rank {}: timed out: rank {} is alive but has not reached '{}' for {} s; its "
                                     "storage may be hanging",
                                     rank_, absent, round.topic, std::chrono::seconds(files_limit).count()));
}

/// Returns the first rank that has not arrived: `rank`, or a rank below it in the tree.
int64_t Exchange::missing(const Round& round, int64_t rank) {
    const auto there = [&](const std::string& key) {
        return rendezvous_.look(key, std::chrono::milliseconds(0)).has_value();
    };
    if (!there(fmt::format("{}/here/{}", round.key, rank))) return rank;
    for (int64_t below = first_below(rank); below < behind_below(rank); ++below)
        if (below != rank_ && !there(fmt::format("{}/{}", round.key, below))) return missing(round, below);
    return rank;
}

void Exchange::forget(std::vector<std::string> keys) {
    for (const std::string& key : keys) rendezvous_.erase(key);
}

}  // namespace orrery

#include "control/strangers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace orrery {

LinkTime Strangers::due() const {
    if (open_.empty()) return LinkTime::max();
    return open_.front().since + (open_.size() >= most ? least : longest);
}

std::vector<uint64_t> Strangers::add(uint64_t connection, const wire::Nonce& nonce, const std::string& from,
                                     LinkTime now) {
    std::vector<uint64_t> pushed_out;
    while (open_.size() >= most) {
        pushed_out.push_back(open_.front().connection);
        closed(pushed_out.back());
    }
    open_.push_back({connection, nonce, now, {}, from});
    at_[connection] = std::prev(open_.end());
    return pushed_out;
}

std::optional<Strangers::Candidate> Strangers::received(uint64_t connection, std::string_view bytes) {
    Stranger& stranger = *at_.at(connection);
    const std::string_view mine = bytes.substr(0, sizeof(wire::Hello) - stranger.in.size());
    stranger.in += mine;
    if (stranger.in.size() < sizeof(wire::Hello)) return std::nullopt;
    Candidate candidate{stranger.nonce, {}, std::move(stranger.from), std::string(bytes.substr(mine.size()))};
    std::memcpy(&candidate.hello, stranger.in.data(), sizeof(wire::Hello));
    closed(connection);
    return candidate;
}

void Strangers::closed(uint64_t connection) {
    const auto found = at_.find(connection);
    if (found == at_.end()) return;
    open_.erase(found->second);
    at_.erase(found);
}

std::vector<uint64_t> Strangers::late(LinkTime now) {
    std::vector<uint64_t> late;
    while (!open_.empty() && now - open_.front().since > longest) {
        late.push_back(open_.front().connection);
        closed(late.back());
    }
    return late;
}

void Refusals::count(const std::string& from) {
    ++all_;
    if (places_.size() < most_places || places_.count(from)) ++places_[from];
}

std::string Refusals::text() const {
    constexpr size_t shown = 8;
    if (all_ == 0) return "";
    std::vector<std::pair<int64_t, std::string>> places;
    for (const auto& [from, times] : places_) places.emplace_back(times, from);
    std::sort(places.rbegin(), places.rend());
    std::string list;
    for (size_t i = 0; i < std::min(places.size(), shown); ++i)
        list += fmt::format("{}{} from {}", i ? ", " : "", places[i].first, places[i].second);
    if (places.size() > shown) list += ", and others";
    return fmt::format("; {} connection{} with another token or job {} refused: {}", all_, all_ == 1 ? "" : "s",
                       all_ == 1 ? "was" : "were", list);
}

}  // namespace orrery

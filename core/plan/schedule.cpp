#include "orrery/schedule.h"

#include <algorithm>
#include <charconv>

namespace orrery {
namespace {

char letter(Fragment::Kind kind) {
    switch (kind) {
        case Fragment::Kind::forward: return 'F';
        case Fragment::Kind::backward: return 'B';
        case Fragment::Kind::weight: return 'W';
    }
    return '?';
}

[[noreturn]] void refuse(std::string_view piece) {
    throw Error("'" + std::string(piece) +
                "' is no fragment; write F, B or W and the micro-batch, and .chunk where a " +
                "rank has several stages: F0 B0 W0 F1.1");
}

Fragment parse_fragment(std::string_view piece) {
    Fragment fragment;
    switch (piece.front()) {
        case 'F': fragment.kind = Fragment::Kind::forward; break;
        case 'B': fragment.kind = Fragment::Kind::backward; break;
        case 'W': fragment.kind = Fragment::Kind::weight; break;
        default: refuse(piece);
    }
    const char* end = piece.data() + piece.size();
    auto [at, error] = std::from_chars(piece.data() + 1, end, fragment.micro);
    if (error != std::errc() || fragment.micro < 0) refuse(piece);
    if (at == end) return fragment;
    if (*at != '.') refuse(piece);
    auto [rest, chunk_error] = std::from_chars(at + 1, end, fragment.chunk);
    if (chunk_error != std::errc() || rest != end || fragment.chunk < 0) refuse(piece);
    return fragment;
}

}  // namespace

std::string RankSchedule::text() const {
    std::string out;
    for (const Fragment& f : order) {
        if (!out.empty()) out += ' ';
        out += letter(f.kind) + std::to_string(f.micro);
        if (f.chunk > 0) out += '.' + std::to_string(f.chunk);
    }
    return out;
}

RankSchedule RankSchedule::parse(std::string_view text) {
    constexpr std::string_view blanks = " \t\r\n";
    RankSchedule schedule;
    for (size_t at = text.find_first_not_of(blanks); at != std::string_view::npos;) {
        const size_t end = std::min(text.find_first_of(blanks, at), text.size());
        schedule.order.push_back(parse_fragment(text.substr(at, end - at)));
        at = text.find_first_not_of(blanks, end);
    }
    return schedule;
}

int Schedule::stage_of(int rank, int chunk) const {
    if (stages.empty()) return chunk * std::ssize(ranks) + rank;
    return stages.at(rank).at(chunk);
}

std::vector<int> Schedule::stages_of(int rank) const {
    int chunks = 1;
    for (const Fragment& f : ranks.at(rank).order) chunks = std::max(chunks, f.chunk + 1);
    std::vector<int> list;
    for (int chunk = 0; chunk < chunks; ++chunk) list.push_back(stage_of(rank, chunk));
    return list;
}

Schedule forward_only(const Schedule& schedule, int64_t microbatches) {
    Schedule forward = schedule;
    for (RankSchedule& rank : forward.ranks)
        std::erase_if(rank.order,
                      [&](const Fragment& f) { return f.kind != Fragment::Kind::forward || f.micro >= microbatches; });
    return forward;
}

Schedule sequential_schedule(int64_t microbatches) {
    Schedule schedule{"sequential", {RankSchedule{}}, {}, {}};
    for (int64_t m = 0; m < microbatches; ++m) {
        schedule.ranks[0].order.push_back({Fragment::Kind::forward, m, 0});
        schedule.ranks[0].order.push_back({Fragment::Kind::backward, m, 0});
    }
    return schedule;
}

}  // namespace orrery

#pragma once
#include <cstdint>
#include <map>

namespace orrery {

/// Bytes of an arena, each range with a note. Ranges split where a new one begins or ends inside them.
template <class Note>
class Ranges {
public:
    struct Range {
        int64_t end = 0;
        Note note;
    };

    /// Calls visit(note) for every part of [begin, end), notes of bytes never seen being fresh.
    template <class Visit>
    void visit(int64_t begin, int64_t end, Visit&& visit) {
        if (begin >= end) return;
        if (Note* const whole = exactly(begin, end)) return visit(*whole);
        cut(begin);
        cut(end);
        int64_t at = begin;
        for (auto it = ranges_.lower_bound(begin); at < end; ++it) {
            if (it == ranges_.end() || it->first > at) {
                const int64_t stop = it == ranges_.end() || it->first > end ? end : it->first;
                it = ranges_.emplace_hint(it, at, Range{stop, Note{}});
            }
            visit(it->second.note);
            at = it->second.end;
        }
    }

    /// Forgets what [begin, end) was and gives it one note.
    void replace(int64_t begin, int64_t end, Note note) {
        if (begin >= end) return;
        if (Note* const whole = exactly(begin, end)) {
            *whole = std::move(note);
            return;
        }
        cut(begin);
        cut(end);
        const auto first = ranges_.lower_bound(begin), last = ranges_.lower_bound(end);
        ranges_.emplace_hint(ranges_.erase(first, last), begin, Range{end, std::move(note)});
    }

    /// The same for those parts alone that were seen.
    template <class Visit>
    void visit_seen(int64_t begin, int64_t end, Visit&& visit) {
        if (begin >= end) return;
        cut(begin);
        cut(end);
        for (auto it = ranges_.lower_bound(begin); it != ranges_.end() && it->first < end; ++it) visit(it->second.note);
    }

    /// Calls use(begin, end, note) for every range that was seen, in order.
    template <class Use>
    void for_each(Use&& use) const {
        for (const auto& [begin, range] : ranges_) use(begin, range.end, range.note);
    }

    /// The note of a range with these ends, to which most accesses go; nullptr where there is none.
    Note* exactly(int64_t begin, int64_t end) {
        const auto found = ranges_.find(begin);
        return found != ranges_.end() && found->second.end == end ? &found->second.note : nullptr;
    }

private:
    void cut(int64_t at) {
        auto after = ranges_.upper_bound(at);
        if (after == ranges_.begin()) return;
        auto inside = std::prev(after);
        if (inside->first == at || inside->second.end <= at) return;
        ranges_.emplace_hint(after, at, inside->second);
        inside->second.end = at;
    }

    std::map<int64_t, Range> ranges_;
};

}  // namespace orrery

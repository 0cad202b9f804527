#pragma once
#include <cstdint>
#include <map>

namespace orrery {

/// Maps byte ranges of an arena to notes, such as their contents. A range is split where a new one begins or ends.
template <class Note>
class Ranges {
public:
    struct Range {
        int64_t end = 0;
        Note note;
    };

    /// Calls visit(note) for all parts of the bytes [begin, end); parts without a note first get a default one.
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

    /// Gives the bytes [begin, end) one note in place of all previous ones.
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

    /// Calls visit(note) only for parts of the bytes [begin, end) that have a note.
    template <class Visit>
    void visit_seen(int64_t begin, int64_t end, Visit&& visit) {
        if (begin >= end) return;
        cut(begin);
        cut(end);
        for (auto it = ranges_.lower_bound(begin); it != ranges_.end() && it->first < end; ++it) visit(it->second.note);
    }

    /// Calls use(begin, end, note) for every range that has a note, by address.
    template <class Use>
    void for_each(Use&& use) const {
        for (const auto& [begin, range] : ranges_) use(begin, range.end, range.note);
    }

    /// The note of the range with exactly these ends, or nullptr. A fast path, as accesses often repeat a range.
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

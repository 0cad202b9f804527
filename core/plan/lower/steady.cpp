// Finds the steady state of a pipeline, which every stream stores once. It repeats every q micro-batches (1F1B: q = 1).
// On the first of two pipeline ranks, for example:
//     F0 F1 [B0 F2] [B1 F3] ... [B97 F99] B98 B99
//
// find_steady removes runs from the schedule and renumbers the later micro-batches. The rest is lowered like a step
// with fewer micro-batches. find_repeat then compares each instruction of the stream with the one that comes one run
// later. They must agree in op, kernel, queue and values; micro-batch and tag must differ by q; their buffers must be
// made by the same step, q micro-batches later. The longest part that satisfies this is the steady state. The Repeat
// begins at the instruction in it where the fewest bytes are alive.
//
// A buffer that is alive at the border of a run gets a slot for each micro-batch (Frames). Buffers of equal size share
// a pool of slots. The lifetimes for all micro-batches of the full step follow from those of one run. Slots are
// assigned in this order of time, the last freed first, so that all runs reuse slots in the same pattern.
#include "plan/lower/steady.h"

#include <algorithm>
#include <climits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "plan/access.h"
#include "plan/repeat.h"

namespace orrery::lowering {

namespace {

constexpr int64_t longest_run = 64;  // max number of micro-batches of a run

bool later(const Fragment& a, const Fragment& b, int64_t micros) {
    return a.kind == b.kind && a.chunk == b.chunk && b.micro == a.micro + micros;
}

/// The max distance between micro-batches of one chunk (stage of the rank) that are in flight at once, plus one.
int64_t under_way(const std::vector<Fragment>& order) {
    std::map<std::pair<int, int64_t>, size_t> last;
    for (size_t i = 0; i < order.size(); ++i) last[{order[i].chunk, order[i].micro}] = i;
    std::map<int, std::set<int64_t>> open;
    int64_t most = 1;
    for (size_t i = 0; i < order.size(); ++i) {
        std::set<int64_t>& here = open[order[i].chunk];
        here.insert(order[i].micro);
        most = std::max(most, *here.rbegin() - *here.begin() + 1);
        if (last[{order[i].chunk, order[i].micro}] == i) here.erase(order[i].micro);
    }
    return most;
}

/// The longest part [begin, end) of the order of a rank that repeats every `length` fragments.
struct Stretch {
    size_t begin = 0, end = 0, length = 0;
    int64_t runs(int64_t keep, size_t slack) const {
        const size_t kept = keep * length + slack;
        return end - begin > kept ? static_cast<int64_t>((end - begin - kept) / length) : 0;
    }
};

Stretch stretch(const std::vector<Fragment>& order, size_t length, int64_t micros) {
    Stretch best{0, 0, length};
    for (size_t at = 0; at + length < order.size();) {
        size_t end = at;
        while (end + length < order.size() && later(order[end], order[end + length], micros)) ++end;
        if (end > at && end + length - at > best.end - best.begin) best = {at, end + length, length};
        at = end + 1;
    }
    // The first micro-batch writes the sums to which the others add, so it is not in the part.
    size_t first = 0;
    for (size_t i = 0; i < order.size(); ++i)
        if (order[i].micro == 0) first = i + 1;
    best.begin = std::max(best.begin, first);
    best.end = std::max(best.begin, best.end);
    return best;
}

}  // namespace

std::optional<Steady> find_steady(const Schedule& schedule, int64_t micros, int64_t more) {
    std::optional<Steady> best;
    std::vector<int64_t> alive;
    for (const RankSchedule& rank : schedule.ranks) alive.push_back(under_way(rank.order));
    for (int64_t run = 1; run <= std::min(longest_run, micros / 2); ++run) {
        Steady found{&schedule, {}, micros, run, micros, {}, {}};
        std::vector<Stretch> stretches;
        for (size_t r = 0; r < schedule.ranks.size() && found.times > 1; ++r) {
            const std::vector<Fragment>& order = schedule.ranks[r].order;
            if (order.empty() || order.size() % micros != 0) return std::nullopt;
            const size_t each = order.size() / micros;
            const Stretch mine = stretch(order, each * run, run);
            const int64_t keep = (alive[r] + run - 1) / run + more;
            found.times = std::min(found.times, 1 + mine.runs(keep, 1));
            stretches.push_back(mine);
        }
        const int64_t left_out = (found.times - 1) * run;
        if (found.times <= 1 || (best && left_out <= (best->times - 1) * best->micros)) continue;
        found.written = micros - left_out;
        found.schedule = schedule;
        for (size_t r = 0; r < stretches.size(); ++r) {
            std::vector<Fragment>& order = found.schedule.ranks[r].order;
            const auto cut = order.begin() + stretches[r].begin;
            const std::ptrdiff_t length = stretches[r].length;
            for (auto at = order.erase(cut, cut + (found.times - 1) * length); at != order.end(); ++at)
                at->micro -= left_out;
            found.period.push_back(length);
            found.last.push_back(static_cast<int>(stretches[r].end) -
                                 static_cast<int>(found.times - 1) * static_cast<int>(length) - 1);
        }
        best = std::move(found);
    }
    return best;
}

namespace {

class FindRepeat {
public:
    FindRepeat(const Steady& steady, const std::vector<MadeBy>& made_by, RankClass& c)
        : steady_(steady), made_by_(made_by), class_(c) {}

    bool run() {
        const size_t rank = class_.stage;
        const std::vector<Fragment>& order = steady_.schedule.ranks[rank].order;
        // Finds the number of instructions between a fragment's first kernel and that of the fragment one run earlier.
        // Tries several fragments: some have no kernels, and the last micro-batch contains what runs once per step.
        const int period = steady_.period[rank];
        int begin = 0, end = 0;
        for (int last = steady_.last[rank], f = last; end == begin && f >= period && f > last - 2 * period; --f) {
            const int at = first_of(order[f]);
            const int then = first_of(order[f - period]);
            if (then == none || at <= then || at - then == length_) continue;
            length_ = at - then;
            begin = end = then;
            while (begin > 0 && alike(begin - 1)) --begin;
            while (end + length_ < size() && alike(end)) ++end;
            if (end - begin < length_) end = begin;
        }
        if (end == begin) return false;
        begin_ = best_begin(begin + length_, end);
        if (begin_ == none) return false;
        Repeat& repeat = class_.repeat;
        repeat = {begin_, begin_ + length_, steady_.times, steady_.micros};
        return make_frames(order);
    }

private:
    int size() const { return class_.stream.size(); }
    const Instruction& at(int index) const { return class_.stream[index]; }
    const MadeBy& made_by(int buffer) const { return made_by_[buffer]; }

    int first_of(const Fragment& fragment) const {
        for (int i = 0; i < size(); ++i)
            if (at(i).opcode == Opcode::kernel && at(i).fragment == fragment) return i;
        return none;
    }

    bool same_place(int a, int b) const {
        if (a == b) return made_by(a).micro < 0;
        const MadeBy &x = made_by(a), &y = made_by(b);
        return x.micro >= 0 && y.micro == x.micro + steady_.micros && x.op == y.op && x.part == y.part &&
               x.number == y.number && class_.buffers[a].bytes == class_.buffers[b].bytes;
    }

    bool alike(int index) const {
        if (index + length_ >= size()) return false;
        const Instruction &a = at(index), &b = at(index + length_);
        if (a.opcode != b.opcode || a.queue != b.queue || a.kernel != b.kernel || a.axis != b.axis ||
            a.reduce != b.reduce || a.peer != b.peer || a.relative != b.relative || a.op != b.op ||
            a.fragment.micro < 0 || !later(a.fragment, b.fragment, steady_.micros) ||
            a.operands.size() != b.operands.size() || (a.workspace == none) != (b.workspace == none))
            return false;
        if (is_message(a.opcode) && b.tag != a.tag + steady_.micros) return false;
        for (size_t o = 0; o < a.operands.size(); ++o) {
            const Operand &x = a.operands[o], &y = b.operands[o];
            if (x.value != y.value || x.step != y.step || y.offset != x.offset + steady_.micros * x.step ||
                !same_place(x.buffer, y.buffer) || x.type != y.type)
                return false;
        }
        return a.workspace == none || same_place(a.workspace, b.workspace);
    }

    int best_begin(int first, int last) const {
        std::vector<int64_t> change(size() + 2, 0);
        for (const Buffer& b : class_.buffers) {
            if (b.arena != Arena::scratch || b.first < 0) continue;
            change[b.first + 1] += b.bytes;
            change[b.last + 1] -= b.bytes;
        }
        int64_t alive = 0, least = INT64_MAX;
        int best = none;
        for (int i = 0; i <= last; ++i) {
            alive += change[i];
            // A run cannot begin after a message, because adjacent messages form a group.
            if (i < first || alive > least || (i > 0 && is_message(at(i - 1).opcode))) continue;
            least = alive;
            best = i;
        }
        return best;
    }

    bool lives_on(const Buffer& b) const {
        const Repeat& r = class_.repeat;
        for (int border = r.from(); border <= r.end; border += length_)
            if (b.first < border && border <= b.last) return true;
        return false;
    }

    /// By instruction: the index in `order` of the fragment during which it is issued. Messages may be issued outside
    /// of their own fragment, so the longest non-decreasing subsequence determines where each fragment begins.
    std::vector<int> places(const std::vector<Fragment>& order) const {
        std::map<std::tuple<Fragment::Kind, int, int64_t>, int> of;
        for (size_t i = 0; i < order.size(); ++i) of[{order[i].kind, order[i].chunk, order[i].micro}] = i;
        std::vector<int> found, ends, before, at;  // ends: by length, the subsequence with the smallest last element
        for (int i = 0; i < size(); ++i) {
            const Fragment& f = this->at(i).fragment;
            const auto known = of.find({f.kind, f.chunk, f.micro});
            if (f.micro < 0 || known == of.end()) continue;
            const int here = found.size();
            found.push_back(known->second);
            at.push_back(i);
            const auto end = std::upper_bound(ends.begin(), ends.end(), known->second,
                                              [&](int place, int e) { return place < found[e]; });
            before.push_back(end == ends.begin() ? none : *std::prev(end));
            if (end == ends.end())
                ends.push_back(here);
            else
                *end = here;
        }
        std::vector<int> all(size(), none);
        for (int k = ends.empty() ? none : ends.back(); k != none; k = before[k]) all[at[k]] = found[k];
        int now = 0;
        for (int& place : all) place = now = place == none ? now : place;
        return all;
    }

    using Key = std::tuple<OpId, Step::Part, int, int64_t>;
    /// A fragment, with its micro-batch counted from that of another one, and an instruction issued during it.
    struct Relative {
        Fragment::Kind kind = Fragment::Kind::forward;
        int chunk = 0;
        int64_t micro = 0;
        int within = 0;
    };
    /// The first and the last access to a buffer, by micro-batch of a run.
    using Life = std::vector<std::pair<Relative, Relative>>;

    /// A time in the full schedule: the index of a fragment, and of the instruction issued during it.
    struct When {
        int place = 0, within = 0;
        auto operator<=>(const When&) const = default;
    };
    /// Buffers that one step makes, one for each micro-batch.
    struct Kind {
        Life life;
        std::vector<std::pair<When, When>> lives;  ///< by micro-batch: when it is first and last accessed
    };

    static When when(const std::vector<int>& place, int index) {
        const int here = place[index];
        const auto first = std::lower_bound(place.begin(), place.end(), here) - place.begin();
        return {here, index - static_cast<int>(first)};
    }

    /// Finds the lifetimes of a group's buffers, by micro-batch of a run. False if one has no such buffer, or several.
    bool life_of(const std::vector<int>& group, const std::vector<Fragment>& order, const std::vector<int>& place,
                 Life& life) const {
        life.assign(steady_.micros, {});
        std::vector<char> known(life.size(), 0);
        for (const int id : group) {
            const Buffer& b = class_.buffers[id];
            if (b.last < class_.repeat.begin || b.last >= class_.repeat.end) continue;
            const int64_t micro = made_by(id).micro;
            const size_t at = micro % steady_.micros;
            if (known[at]) return false;
            known[at] = 1;
            const auto seen = [&](int index) -> Relative {
                const When at = when(place, index);
                const Fragment& f = order[at.place];
                return {f.kind, f.chunk, f.micro - micro, at.within};
            };
            life[at] = {seen(b.first), seen(b.last)};
        }
        return std::all_of(known.begin(), known.end(), [](char k) { return k != 0; });
    }

    bool make_frames(const std::vector<Fragment>& order) {
        const Repeat& repeat = class_.repeat;
        std::map<Key, std::vector<int>> groups;
        std::set<Key> living;
        for (size_t i = 0; i < class_.buffers.size(); ++i) {
            const Buffer& b = class_.buffers[i];
            const MadeBy& m = made_by_[i];
            if (b.arena != Arena::scratch || b.first < 0 || m.micro < 0) continue;
            const Key key{m.op, m.part, m.number, b.bytes};
            groups[key].push_back(i);
            if (lives_on(b)) living.insert(key);
        }
        const std::vector<int> place = places(order);
        const auto& whole = steady_.whole->ranks[class_.stage].order;
        const int64_t micros = steady_.written + (repeat.times - 1) * repeat.micros;
        std::map<std::pair<Fragment::Kind, int>, std::vector<int>> at;  // fragment of [kind, chunk][micro-batch]
        for (size_t i = 0; i < whole.size(); ++i)
            at.try_emplace({whole[i].kind, whole[i].chunk}, micros, none).first->second[whole[i].micro] = i;
        const auto lives = [&](const Relative& r, int64_t first, auto&& use) {
            const int64_t by = r.micro;
            const std::vector<int>& of = at.at({r.kind, r.chunk});
            for (int64_t m = first; m < micros; m += repeat.micros) {
                const bool before = m + by < 0, inside = !before && m + by < micros;
                if (inside && of[m + by] != none)
                    use(m, When{of[m + by], r.within});
                else
                    use(m, before ? When{0, 0} : When{static_cast<int>(whole.size()) - 1, INT_MAX});
            }
        };
        std::vector<Kind> kinds;
        std::map<int64_t, int> pools;
        std::set<int64_t> sizes;
        for (const Key& key : living) sizes.insert(std::get<3>(key));
        for (const auto& [key, group] : groups) {
            const bool needs = living.count(key) != 0;
            if (!needs && sizes.count(std::get<3>(key)) == 0) continue;
            Kind kind;
            if (!life_of(group, order, place, kind.life)) {
                if (needs) return false;
                continue;
            }
            kind.lives.resize(micros);
            for (int64_t m = 0; m < repeat.micros; ++m) {
                const auto& [begin, end] = kind.life[m];
                lives(begin, m, [&](int64_t micro, When at) { kind.lives[micro].first = at; });
                lives(end, m, [&](int64_t micro, When at) { kind.lives[micro].second = at; });
            }
            for (const int id : group) {
                on_the_way(kind, id, place);
                Buffer& b = class_.buffers[id];
                b.frames = class_.frames.size();
                b.micro = made_by(id).micro;
            }
            kinds.push_back(std::move(kind));
            const int64_t bytes = std::get<3>(key);
            const int pool = pools.try_emplace(bytes, pools.size()).first->second;
            class_.frames.push_back({pool, 0, aligned(bytes), 0, std::vector<int>(micros, none)});
        }
        give_slots(kinds);
        if (!slots_turn(class_)) return false;
        for (Buffer& b : class_.buffers)  // all runs access the buffer, so it is alive until the last one ends
            if (b.frames == none && b.first < repeat.begin && b.last >= repeat.begin)
                b.last = std::max(b.last, std::min(repeat.end, size() - 1));
        return true;
    }

    /// Sets the lifetimes of buffers in warm-up and cool-down, which differ from those in the steady state.
    void on_the_way(Kind& kind, int id, const std::vector<int>& place) const {
        const Repeat& repeat = class_.repeat;
        const Buffer& b = class_.buffers[id];
        const int64_t micro = made_by(id).micro, moved = (repeat.times - 1) * repeat.micros;
        const int behind = static_cast<int>(repeat.times - 1) * steady_.period[class_.stage];
        const When first = when(place, b.first), last = when(place, b.last);
        const auto later = [&](When at) { return When{at.place + behind, at.within}; };
        auto& early = kind.lives[micro];
        auto& late = kind.lives[micro + moved];
        if (b.first < repeat.begin) early.first = first;
        if (b.last < repeat.end) early.second = last;
        if (b.first >= repeat.end) late.first = later(first);
        if (b.last >= repeat.end) late.second = later(last);
    }

    /// Assigns slots to buffers in order of time, the slot freed last first.
    void give_slots(const std::vector<Kind>& kinds) {
        struct Event {
            int within;
            bool ends;
            int kind;
            int64_t micro;
            auto operator<=>(const Event&) const = default;
        };
        std::vector<std::vector<Event>> events;
        const auto note = [&](When at, bool ends, size_t kind, size_t micro) {
            if (std::ssize(events) <= at.place) events.resize(at.place + 1);
            events[at.place].push_back({at.within, ends, static_cast<int>(kind), static_cast<int64_t>(micro)});
        };
        for (size_t k = 0; k < kinds.size(); ++k)
            for (size_t m = 0; m < kinds[k].lives.size(); ++m) {
                note(kinds[k].lives[m].first, false, k, m);
                note(kinds[k].lives[m].second, true, k, m);
            }
        std::map<int, std::vector<int>> left;
        std::map<int, int> slots;
        for (std::vector<Event>& here : events) {
            std::sort(here.begin(), here.end());
            for (const Event& e : here) {
                Frames& f = class_.frames[e.kind];
                int& slot = f.slot_of[e.micro];
                if (e.ends) {
                    left[f.pool].push_back(slot);
                } else if (auto& free = left[f.pool]; !free.empty()) {
                    slot = free.back();
                    free.pop_back();
                } else {
                    slot = slots[f.pool]++;
                }
            }
        }
        for (Frames& f : class_.frames) f.slots = slots[f.pool];
    }

    int first(int buffer) const { return class_.buffers[buffer].first; }

    const Steady& steady_;
    const std::vector<MadeBy>& made_by_;
    RankClass& class_;
    int length_ = 0, begin_ = 0;
};

}  // namespace

bool find_repeat(const Steady& steady, const std::vector<MadeBy>& made_by, RankClass& c) {
    return FindRepeat(steady, made_by, c).run();
}

}  // namespace orrery::lowering

#include "published/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "plan/check/check.h"
#include "plan/lower/lower.h"
#include "plan/repeat.h"
#include "published/job.h"
#include "sim/kernel_prices.h"

namespace orrery::published {
namespace {

using Amounts = std::vector<std::pair<int, float>>;

bool is_collective(Opcode opcode) {
    return opcode != Opcode::kernel && opcode != Opcode::copy && opcode != Opcode::send && opcode != Opcode::receive;
}

void add_to(Amounts& all, int price, float times) {
    for (auto& [known, count] : all)
        if (known == price) return void(count += times);
    all.emplace_back(price, times);
}

/// Lays a tensor out for a collective, or takes it back.
bool is_staging(const std::string& op) { return op == "transpose" || op == "concat" || op == "slice"; }

bool is_product(const RankClass& c, const Instruction& i) {
    if (i.opcode != Opcode::kernel) return false;
    const std::string& op = c.kernels[static_cast<size_t>(i.kernel)].op;
    return op.starts_with("matmul") || op.starts_with("attention");
}

/// A node while the graph is made.
struct Draft {
    Amounts amounts;
    std::vector<int> before;
    int actor = none;  ///< none: several have it
    int lane = 0;
    int place = 0;                ///< in its lane
    int after = 0;                ///< how many wait for it
    int merged = none;            ///< it has become part of this one
    int known_to_compute = none;  ///< kernels of this class have waited for it
};

/// What is priced alike of one class of ranks.
class Prices {
public:
    Prices(const Plan& plan, const Words& words, std::vector<Priced>& all) : plan_(plan), words_(words), all_(all) {}

    int kernel(int of_class, int index) {
        const auto [place, fresh] = kernels_.try_emplace({of_class, index}, none);
        if (fresh) {
            const KernelSpec& spec = plan_.classes[static_cast<size_t>(of_class)].kernels[static_cast<size_t>(index)];
            const auto [known, first] = specs_.try_emplace(bare(spec), static_cast<int>(all_.size()));
            if (first) all_.push_back({.kind = Priced::Kind::kernel, .spec = spec});
            place->second = known->second;
        }
        return place->second;
    }
    int copy(int64_t bytes) {
        const auto [place, fresh] = copies_.try_emplace(bytes, static_cast<int>(all_.size()));
        if (fresh) all_.push_back({.kind = Priced::Kind::copy, .bytes = bytes});
        return place->second;
    }
    int collective(int of_class, const Instruction& i) {
        int64_t bytes = 0;
        for (size_t o = 0; o < std::min<size_t>(2, i.operands.size()); ++o)
            bytes = std::max(bytes, i.operands[o].type.bytes());
        const bool data = splits_data(i.axis);
        const DType type = i.operands[0].type.dtype;
        if (data && words_.reduce_bf16 && type == DType::f32 && i.opcode != Opcode::all_gather) bytes /= 2;
        if (data && words_.gather_f32 && type == DType::bf16 && i.opcode == Opcode::all_gather) bytes *= 2;
        // What no dim of divides stays whole here; the software cuts flat buffers: f32 scattered, bf16 gathered.
        if (data && words_.zero > 0 && i.opcode == Opcode::all_reduce && bytes > (1 << 20))
            bytes = words_.all_reduces ? bytes / 4 * 5 : bytes / 4 * 3;
        if (data && words_.all_reduces && words_.zero > 0 && i.opcode == Opcode::reduce_scatter) bytes *= 2;
        const auto [place, fresh] =
            collectives_.try_emplace({of_class, i.opcode, i.axis, bytes}, static_cast<int>(all_.size()));
        if (fresh) {
            const auto& ranks = plan_.classes[static_cast<size_t>(of_class)].ranks;
            all_.push_back({.kind = Priced::Kind::collective,
                            .opcode = i.opcode,
                            .axis = i.axis,
                            .bytes = bytes,
                            .from = ranks.front(),
                            .alike = ranks});
        }
        return place->second;
    }
    int message(int of_class, const Instruction& send, int64_t to) {
        const int64_t bytes = send.operands[0].type.bytes();
        const auto [place, fresh] =
            messages_.try_emplace({of_class, send.axis, bytes, to}, static_cast<int>(all_.size()));
        if (fresh) {
            const auto& ranks = plan_.classes[static_cast<size_t>(of_class)].ranks;
            all_.push_back({.kind = Priced::Kind::message,
                            .opcode = Opcode::send,
                            .axis = send.axis,
                            .bytes = bytes,
                            .from = ranks.front(),
                            .to = to,
                            .alike = ranks});
        }
        return place->second;
    }
    int beside(int collective, std::vector<int> products) {
        const auto [place, fresh] = besides_.try_emplace({collective, products}, static_cast<int>(all_.size()));
        if (fresh) all_.push_back({.kind = Priced::Kind::beside, .of = collective, .products = std::move(products)});
        return place->second;
    }
    /// Over which gradients and params go.
    bool splits_data(AxisId axis) const {
        const std::string& name = plan_.mesh.axis(axis).name;
        return name.find("dp") != std::string::npos || name.find("rep") != std::string::npos;
    }
    bool is_product(int price) const { return all_[static_cast<size_t>(price)].spec.op.starts_with("matmul"); }

private:
    /// Without what no price depends on, so that each layer's kernel is one.
    static std::string bare(const KernelSpec& spec) {
        KernelSpec copy = spec;
        for (const char* key : {"stream", "cause", "offset", "global_shape", "accumulate"}) copy.attributes.erase(key);
        return text_of(copy);
    }

    const Plan& plan_;
    const Words& words_;
    std::vector<Priced>& all_;
    std::map<std::pair<int, int>, int> kernels_;
    std::map<std::string, int> specs_;
    std::map<int64_t, int> copies_;
    std::map<std::tuple<int, Opcode, AxisId, int64_t>, int> collectives_;
    std::map<std::tuple<int, AxisId, int64_t, int64_t>, int> messages_;
    std::map<std::pair<int, std::vector<int>>, int> besides_;
};

/// Makes the drafts of all classes, in an order in which predecessors may still come later.
class Drafts {
public:
    Drafts(const Plan& plan, const Words& words, Waits waits, Graph& graph)
        : plan_(plan), words_(words), whose_(waits), prices_(plan, words, graph.prices), graph_(graph) {
        of_rank_.resize(static_cast<size_t>(plan.mesh.ranks()));
        for (size_t k = 0; k < plan.classes.size(); ++k)
            for (const int64_t rank : plan.classes[k].ranks) of_rank_[static_cast<size_t>(rank)] = static_cast<int>(k);
    }

    void all() {
        for (size_t k = 0; k < plan_.classes.size(); ++k) stream(static_cast<int>(k));
    }
    std::vector<Draft> drafts;

private:
    /// The instructions of a class from which chunked collectives are known: by index, its products.
    std::map<int, std::vector<int>> chunked(int of_class) const;

    void stream(int k);
    void compute(const RankClass& c, const Instruction& i, std::vector<int> waits);
    void wrote(const Instruction& i, int node);
    void collective(int k, const Instruction& i, int price, const std::vector<int>& waits);
    void message(int k, const Instruction& i, int64_t position, int group, const std::vector<int>& waits);
    /// What is reduced over tp or pp once a step, behind a collective over data, would hold up what fragments send
    /// there; the rows' software does it when all fragments are over.
    int lane_of(const Instruction& i) const {
        const bool once = whose_ == Waits::software && i.fragment.micro < 0 && is_collective(i.opcode) &&
                          !prices_.splits_data(i.axis);
        return once ? plan_.mesh.ids() + 1 : i.axis + 1;
    }
    /// Collectives over data wait for the end of all fragments, and those before the first for none.
    bool late_data() const { return whose_ == Waits::software && !words_.overlaps_data; }
    int fresh(int lane, std::vector<int> before);
    std::vector<int> with_lane(int lane, std::vector<int> before) const;

    const Plan& plan_;
    const Words& words_;
    const Waits whose_;
    Prices prices_;
    Graph& graph_;
    std::vector<int> of_rank_;

    // Of the class at hand.
    int class_ = 0;
    struct Writer {
        int node = none;
        int64_t cast = 0;  ///< bytes that its first reader casts to
    };
    std::map<int, Writer> writers_;  ///< by buffer: the last communication that wrote there
    std::vector<int> once_;          ///< collectives over data that run once a step: before the fragments, then behind
    int last_fragment_ = none;       ///< the last compute node with a fragment's product
    int sent_last_ = none;           ///< the messages since the last kernel
    bool begun_ = false;             ///< a fragment has
    std::vector<int> node_of_;       ///< by position
    std::map<int, int> last_;        ///< by lane: node
    std::map<int64_t, std::pair<int, int>> groups_;  ///< by position of the first: begin and end
    std::map<std::tuple<AxisId, int, int>, std::vector<int>> sent_, received_;  ///< by channel: messages, in order
    std::map<std::pair<AxisId, std::vector<int>>, std::vector<int>> met_;
    std::map<std::pair<AxisId, std::vector<int>>, size_t> meets_;  ///< of this class, so far
    bool closed_ = true;                                           ///< the last compute node is waited for by others
};

int Drafts::fresh(int lane, std::vector<int> before) {
    Draft draft;
    draft.actor = class_, draft.lane = lane;
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    draft.before = std::move(before);
    drafts.push_back(std::move(draft));
    return static_cast<int>(drafts.size()) - 1;
}

std::vector<int> Drafts::with_lane(int lane, std::vector<int> before) const {
    if (const auto last = last_.find(lane); last != last_.end()) before.push_back(last->second);
    return before;
}

/// Which collectives of tp run in chunks beside products: a gather beside those that wait for it, a scatter beside the
/// one that it waits for.
std::map<int, std::vector<int>> Drafts::chunked(int of_class) const {
    std::map<int, std::vector<int>> beside;
    if (!words_.chunks_tp) return beside;
    const auto& stream = plan_.classes[static_cast<size_t>(of_class)].stream;
    const auto over_tp = [&](const Instruction& i) {
        return (i.opcode == Opcode::all_gather || i.opcode == Opcode::reduce_scatter) &&
               plan_.mesh.axis(i.axis).name == "tp";
    };
    const auto is_product = [&](int index) {
        const Instruction& i = stream[static_cast<size_t>(index)];
        return i.opcode == Opcode::kernel &&
               plan_.classes[static_cast<size_t>(of_class)].kernels[static_cast<size_t>(i.kernel)].op.starts_with(
                   "matmul");
    };
    const auto staged = [&](int index) {
        const Instruction& i = stream[static_cast<size_t>(index)];
        if (i.opcode != Opcode::kernel) return i.opcode == Opcode::copy;
        return is_staging(plan_.classes[static_cast<size_t>(of_class)].kernels[static_cast<size_t>(i.kernel)].op);
    };
    const auto size = static_cast<int>(stream.size());
    for (int index = 0; index < size; ++index) {
        const Instruction& i = stream[static_cast<size_t>(index)];
        if (over_tp(i) && i.opcode == Opcode::reduce_scatter) {
            for (int wait : i.waits) {
                while (wait > 0 && staged(wait)) --wait;
                if (is_product(wait)) beside[index] = {wait};
            }
        } else if (i.opcode == Opcode::kernel) {
            for (const int wait : i.waits) {
                const Instruction& gather = stream[static_cast<size_t>(wait)];
                if (!over_tp(gather) || gather.opcode != Opcode::all_gather) continue;
                int next = index;
                while (next < size && staged(next)) ++next;
                if (next == size || !is_product(next)) continue;
                std::vector<int>& products = beside[wait];
                for (; next < size && is_product(next); ++next) products.push_back(next);
            }
        }
    }
    return beside;
}

void Drafts::stream(int k) {
    class_ = k;
    last_.clear(), groups_.clear(), meets_.clear(), writers_.clear(), once_.clear();
    last_fragment_ = none;
    begun_ = false, sent_last_ = none;
    closed_ = true;
    const RankClass& c = plan_.classes[static_cast<size_t>(k)];
    const std::vector<int> groups = groups_of(plan_, c, contracts_of(plan_.mesh));
    const auto beside = chunked(k);
    std::vector<char> awaited(c.stream.size(), 0);
    for (const Instruction& i : c.stream)
        for (const int wait : i.waits) awaited[static_cast<size_t>(wait)] = 1;
    const int64_t count = issues(c);
    node_of_.assign(static_cast<size_t>(count), none);
    for (int64_t position = 0; position < count; ++position) {
        const Issued issued = issued_at(c, position);
        const Instruction& i = c.stream[static_cast<size_t>(issued.index)];
        std::vector<int>
            waits;  // of a communication: on kernels as the plan has them, on others whose results it takes
        for (const int wait : i.waits)
            if (whose_ == Waits::planned || (i.axis != none && c.stream[static_cast<size_t>(wait)].axis == none))
                waits.push_back(node_of_[static_cast<size_t>(position_of(c, waited_for(c, issued, wait)))]);
        if (whose_ == Waits::software && i.axis != none && i.opcode != Opcode::receive)
            if (const auto writer = writers_.find(i.operands[0].buffer); writer != writers_.end())
                waits.push_back(writer->second.node);
        if (i.axis == none) {
            compute(c, i, std::move(waits));
            closed_ = awaited[static_cast<size_t>(issued.index)] != 0;
            node_of_[static_cast<size_t>(position)] = last_[0];
            continue;
        }
        if (is_collective(i.opcode)) {
            int price = prices_.collective(k, i);
            if (const auto found = beside.find(issued.index); found != beside.end()) {
                std::vector<int> products;
                for (const int product : found->second)
                    products.push_back(prices_.kernel(k, c.stream[static_cast<size_t>(product)].kernel));
                price = prices_.beside(price, products);
            }
            collective(k, i, price, waits);
            node_of_[static_cast<size_t>(position)] = last_[lane_of(i)];
            if (i.fragment.micro < 0 && prices_.splits_data(i.axis)) once_.push_back(last_[lane_of(i)]);
        } else {
            const int group = groups[static_cast<size_t>(issued.index)];
            const int64_t first = group == none ? position : position - (issued.index - group);
            message(k, i, first, group, waits);
            node_of_[static_cast<size_t>(position)] = groups_.at(first).second;
            if (i.fragment.micro >= 0) sent_last_ = groups_.at(first).second;
        }
        wrote(i, node_of_[static_cast<size_t>(position)]);
    }
    if (late_data() && last_fragment_ != none)
        for (const int node : once_) drafts[static_cast<size_t>(node)].before.push_back(last_fragment_);
}

/// Notes what a communication writes, for the kernels that read it.
void Drafts::wrote(const Instruction& i, int node) {
    const bool gathers = i.opcode == Opcode::all_gather && words_.gather_f32 && prices_.splits_data(i.axis);
    const int64_t cast = gathers ? i.operands[1].type.bytes() : 0;
    if (i.opcode == Opcode::send) return;
    if (i.opcode == Opcode::receive) writers_[i.operands[0].buffer] = {node, 0};
    for (size_t o = 1; o < i.operands.size(); ++o) writers_[i.operands[o].buffer] = {node, cast};
}

/// A kernel waits for the communications whose results it reads. That a plan reuses the place of what is on its way,
/// and so waits, is not how the rows' software has it, whose allocators keep such memory.
void Drafts::compute(const RankClass& c, const Instruction& i, std::vector<int> waits) {
    int64_t cast = 0;
    const size_t inputs =
        i.opcode == Opcode::kernel ? c.kernels[static_cast<size_t>(i.kernel)].inputs.size() : size_t{1};
    for (size_t o = 0; o < std::min(inputs, i.operands.size()) && whose_ == Waits::software; ++o)
        if (const auto writer = writers_.find(i.operands[o].buffer); writer != writers_.end()) {
            waits.push_back(writer->second.node);
            cast += std::exchange(writer->second.cast, 0);
        }
    if (whose_ == Waits::software && words_.blocks_messages && sent_last_ != none) waits.push_back(sent_last_);
    sent_last_ = none;
    const bool in_fragment = i.fragment.micro >= 0;
    const bool first = in_fragment && !begun_;
    begun_ |= in_fragment;
    if (first && late_data())
        waits.insert(waits.end(), once_.begin(), once_.end());  // all params are there before the first fragment
    if (first) once_.clear();
    std::erase_if(waits, [&](int wait) { return drafts[static_cast<size_t>(wait)].known_to_compute == class_; });
    if (closed_ || !waits.empty() || last_.find(0) == last_.end()) last_[0] = fresh(0, with_lane(0, waits));
    for (const int wait : waits) drafts[static_cast<size_t>(wait)].known_to_compute = class_;
    // Gradients of embeddings may come of what is gathered once a step: products do not.
    if (in_fragment && is_product(c, i)) last_fragment_ = last_[0];
    auto& amounts = drafts[static_cast<size_t>(last_[0])].amounts;
    add_to(amounts,
           i.opcode == Opcode::kernel ? prices_.kernel(class_, i.kernel) : prices_.copy(i.operands[0].type.bytes()), 1);
    if (cast > 0) add_to(amounts, prices_.copy(cast * 3 / 2), 1);  // f32 in, bf16 out
    graph_.launches += 1;
}

void Drafts::collective(int k, const Instruction& i, int price, const std::vector<int>& waits) {
    const int lane = lane_of(i);
    std::vector<int> classes;
    for (const int64_t rank : plan_.mesh.group(plan_.classes[static_cast<size_t>(k)].ranks.front(), i.axis))
        classes.push_back(of_rank_[static_cast<size_t>(rank)]);
    std::sort(classes.begin(), classes.end());
    classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
    const std::vector<int> before = with_lane(lane, waits);
    if (classes.size() == 1) {
        last_[lane] = fresh(lane, before);
        add_to(drafts[static_cast<size_t>(last_[lane])].amounts, price, 1);
        return;
    }
    auto& met = met_[{i.axis, classes}];
    const size_t number = meets_[{i.axis, classes}]++;
    if (number == met.size()) {
        met.push_back(fresh(lane, {}));
        drafts[static_cast<size_t>(met.back())].actor = none;
        add_to(drafts[static_cast<size_t>(met.back())].amounts, price, 1);
    }
    auto& all = drafts[static_cast<size_t>(met[number])].before;
    all.insert(all.end(), before.begin(), before.end());
    last_[lane] = met[number];
}

/// A send and its receive are one node, which begins when the groups of both have begun.
void Drafts::message(int k, const Instruction& i, int64_t first, int group, const std::vector<int>& waits) {
    const int lane = lane_of(i);
    const bool opens = groups_.find(first) == groups_.end();
    if (opens) {
        const int begin = fresh(lane, with_lane(lane, {}));
        const int end = fresh(lane, {begin});
        groups_[first] = {begin, end};
        last_[lane] = end;
    }
    const auto [begin, end] = groups_.at(first);
    for (const int wait : waits)
        if (wait != end) drafts[static_cast<size_t>(begin)].before.push_back(wait);
    (void)group;
    const RankClass& c = plan_.classes[static_cast<size_t>(k)];
    const std::vector<int64_t> line = plan_.mesh.group(c.ranks.front(), i.axis);
    const int64_t own = plan_.mesh.member(c.ranks.front(), i.axis);
    const int64_t peer = line[static_cast<size_t>(i.peer_of(own, static_cast<int64_t>(line.size())))];
    const int other = of_rank_[static_cast<size_t>(peer)];
    const bool sends = i.opcode == Opcode::send;
    const std::tuple<AxisId, int, int> channel{i.axis, sends ? k : other, sends ? other : k};
    auto &mine = sends ? sent_[channel] : received_[channel], &theirs = sends ? received_[channel] : sent_[channel];
    const size_t number = mine.size();
    int node = none;
    if (number < theirs.size()) {
        node = theirs[number];
    } else {
        node = fresh(lane, {});
        drafts[static_cast<size_t>(node)].actor = none;
    }
    mine.push_back(node);
    if (sends) add_to(drafts[static_cast<size_t>(node)].amounts, prices_.message(k, i, peer), 1);
    drafts[static_cast<size_t>(node)].before.push_back(begin);
    drafts[static_cast<size_t>(end)].before.push_back(node);
}

/// An order in which predecessors come first (Kahn). Throws where there is none: the plan would hang.
std::vector<int> ordered(const std::vector<Draft>& drafts) {
    std::vector<int> open(drafts.size(), 0), first(drafts.size() + 1, 0), order;
    for (const Draft& draft : drafts)
        for (const int b : draft.before) ++first[static_cast<size_t>(b) + 1];
    for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<int> after(static_cast<size_t>(first.back())), at(first.begin(), first.end() - 1);
    for (size_t i = 0; i < drafts.size(); ++i) {
        open[i] = static_cast<int>(drafts[i].before.size());
        for (const int b : drafts[i].before)
            after[static_cast<size_t>(at[static_cast<size_t>(b)]++)] = static_cast<int>(i);
        if (open[i] == 0) order.push_back(static_cast<int>(i));
    }
    for (size_t next = 0; next < order.size(); ++next) {
        const auto node = static_cast<size_t>(order[next]);
        for (int a = first[node]; a < first[node + 1]; ++a)
            if (--open[static_cast<size_t>(after[static_cast<size_t>(a)])] == 0)
                order.push_back(after[static_cast<size_t>(a)]);
    }
    if (order.size() != drafts.size())
        throw Error(fmt::format("the plan does not end: {} of {} parts wait for each other",
                                drafts.size() - order.size(), drafts.size()),
                    Fault::failed);
    return order;
}

/// Drops predecessors that others of the same actor come behind, then joins what follows each other without a choice.
void reduce(std::vector<Draft>& drafts, const std::vector<int>& order, size_t actors, int lanes) {
    const auto width = static_cast<size_t>(lanes);
    std::vector<std::vector<int>> places(actors, std::vector<int>(width, 0));
    std::vector<int> known(drafts.size() * width, none);  // of the own actor: the last of each lane that is done before
    for (const int id : order) {
        Draft& draft = drafts[static_cast<size_t>(id)];
        if (draft.actor == none) continue;
        draft.place = places[static_cast<size_t>(draft.actor)][static_cast<size_t>(draft.lane)]++;
        int* const mine = known.data() + static_cast<size_t>(id) * width;
        for (const int b : draft.before) {
            const Draft& earlier = drafts[static_cast<size_t>(b)];
            if (earlier.actor != draft.actor) continue;
            const int* const theirs = known.data() + static_cast<size_t>(b) * width;
            for (size_t lane = 0; lane < width; ++lane) mine[lane] = std::max(mine[lane], theirs[lane]);
        }
        std::erase_if(draft.before, [&](int b) {
            const Draft& earlier = drafts[static_cast<size_t>(b)];
            return earlier.actor == draft.actor && mine[earlier.lane] >= earlier.place;
        });
        for (const int b : draft.before) {
            const Draft& earlier = drafts[static_cast<size_t>(b)];
            if (earlier.actor == draft.actor) mine[earlier.lane] = std::max(mine[earlier.lane], earlier.place);
        }
    }
    for (Draft& draft : drafts) {
        std::sort(draft.before.begin(), draft.before.end());
        draft.before.erase(std::unique(draft.before.begin(), draft.before.end()), draft.before.end());
        for (const int b : draft.before) ++drafts[static_cast<size_t>(b)].after;
    }
    for (const int id : order) {
        Draft& draft = drafts[static_cast<size_t>(id)];
        for (int& b : draft.before)
            if (drafts[static_cast<size_t>(b)].merged != none) b = drafts[static_cast<size_t>(b)].merged;
        if (draft.before.size() != 1) continue;
        Draft& only = drafts[static_cast<size_t>(draft.before[0])];
        if (only.after != 1) continue;
        for (const auto& [price, times] : draft.amounts) add_to(only.amounts, price, times);
        only.after = draft.after;
        draft.merged = draft.before[0];
    }
}

/// Of params and states that stay whole over dp because no dim of theirs divides: what flat buffers would not hold.
int64_t whole_bytes(const Plan& plan, const RankClass& c, const Words& words) {
    const int64_t dp = plan.mesh.size("dp"), tp = plan.mesh.size("tp");
    int64_t bytes = 0;
    for (const Operand& place : c.places) {
        const Value& value = plan.program.value(place.value);
        if (words.zero == 0 || dp == 1 || (value.role != Role::param && value.role != Role::state)) continue;
        const int64_t parts = value.type.count() / std::max<int64_t>(1, place.type.count());
        if (parts == 1 || (parts == tp && parts != dp)) bytes += place.type.bytes() - place.type.bytes() / dp;
    }
    return bytes;
}

}  // namespace

Graph condense(const Plan& plan, const Words& words, Waits waits) {
    Graph graph;
    for (const RankClass& c : plan.classes)
        graph.peak_bytes =
            std::max(graph.peak_bytes, c.persistent_bytes + c.scratch_bytes - whole_bytes(plan, c, words));
    Drafts made(plan, words, waits, graph);
    made.all();
    std::vector<Draft>& drafts = made.drafts;
    const std::vector<int> order = ordered(drafts);
    reduce(drafts, order, plan.classes.size(), plan.mesh.ids() + 2);
    std::vector<int> place(drafts.size(), none);
    std::map<Amounts, int> known;
    for (const int id : order) {
        Draft& draft = drafts[static_cast<size_t>(id)];
        if (draft.merged != none) continue;
        std::sort(draft.amounts.begin(), draft.amounts.end());
        const auto [found, first] = known.try_emplace(draft.amounts, static_cast<int>(graph.durations.size()));
        if (first) graph.durations.push_back(draft.amounts);
        Graph::Node node{found->second, static_cast<int>(graph.before.size()), 0};
        for (const int b : draft.before) graph.before.push_back(place[static_cast<size_t>(b)]);
        node.last = static_cast<int>(graph.before.size());
        place[static_cast<size_t>(id)] = static_cast<int>(graph.nodes.size());
        graph.nodes.push_back(node);
    }
    return graph;
}

double Graph::play(const std::vector<double>& seconds, std::vector<double>* weights) const {
    std::vector<double> takes(durations.size(), 0), end(nodes.size(), 0);
    for (size_t d = 0; d < durations.size(); ++d)
        for (const auto& [price, times] : durations[d])
            takes[d] += static_cast<double>(times) * seconds[static_cast<size_t>(price)];
    std::vector<int> latest(weights ? nodes.size() : 0, none);
    size_t last = 0;
    for (size_t n = 0; n < nodes.size(); ++n) {
        double start = 0;
        for (int b = nodes[n].first; b < nodes[n].last; ++b) {
            const int earlier = before[static_cast<size_t>(b)];
            if (end[static_cast<size_t>(earlier)] <= start) continue;
            start = end[static_cast<size_t>(earlier)];
            if (weights) latest[n] = earlier;
        }
        end[n] = start + takes[static_cast<size_t>(nodes[n].duration)];
        if (end[n] > end[last]) last = n;
    }
    if (nodes.empty()) return 0;
    if (weights) {
        weights->assign(prices.size(), 0);
        for (int n = static_cast<int>(last); n != none; n = latest[static_cast<size_t>(n)])
            for (const auto& [price, times] : durations[static_cast<size_t>(nodes[static_cast<size_t>(n)].duration)])
                (*weights)[static_cast<size_t>(price)] += static_cast<double>(times);
    }
    return end[last];
}

}  // namespace orrery::published

#include "published/graph.h"

#include <fmt/format.h>

#include <map>

#include "plan/cost_table.h"
#include "plan/replay/plan_view.h"
#include "published/prices.h"
#include "sim/distance.h"

namespace orrery::published {
namespace {

/// Equal for launches of equal price.
std::string key_of(const KernelWork& w) {
    return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {}", static_cast<int>(w.work), static_cast<int>(w.type),
                       w.bytes, w.first, w.batch, w.m, w.n, w.k, w.heads, w.rows, w.columns, w.head, w.seen);
}

/// The answers that a plan's questions share.
class PriceList {
public:
    PriceList(const Plan& plan, const PlanView& view, const Questions::Mapped& mapped, std::vector<Priced>& all)
        : view_(view), questions_(plan, view, mapped), all_(all) {}

    Amounts of(int item) {
        const ReplayItem& what = view_.view().at(item);
        Amounts amounts;
        if (view_.instruction(item).axis != none) return {{price(questions_.of_transfer(item)), 1.0F}};
        const RankClass& c = view_.class_of_actor(what.actor);
        for (int position = what.source; position < what.source + what.length; ++position) {
            const Instruction& i = c.stream[static_cast<size_t>(issued_at(c, position).index)];
            if (const int one = price(questions_.of_work(what.actor, i)); one != none) add_to(amounts, one, 1);
        }
        return amounts;
    }

private:
    int price(int question) {
        while (static_cast<int>(of_questions_.size()) <= question)
            of_questions_.push_back(find(questions_.at(static_cast<int>(of_questions_.size()))));
        return of_questions_[static_cast<size_t>(question)];
    }

    int find(const Question& asked) {
        Priced one;
        one.kind = asked.kind, one.opcode = asked.opcode, one.axis = asked.axis, one.bytes = asked.bytes;
        one.from = asked.rank, one.to = asked.to, one.alike = asked.alike;
        std::string key;
        if (asked.kind == Question::Kind::kernel) {
            if (lays_out(*asked.spec)) return none;
            one.work = work_of(*asked.spec);
            one.text = spec_text(*asked.spec);
            key = key_of(one.work);
        } else if (asked.kind == Question::Kind::copy) {
            key = fmt::format("copy {}", asked.bytes);
        } else {
            key = fmt::format("transfer {}", all_.size());
        }
        const auto [known, fresh] = known_.try_emplace(key, static_cast<int>(all_.size()));
        if (fresh) all_.push_back(std::move(one));
        return known->second;
    }

    const PlanView& view_;
    Questions questions_;
    std::vector<Priced>& all_;
    std::vector<int> of_questions_;
    std::map<std::string, int> known_;
};

}  // namespace

Graph condense(const Plan& plan, const Network& contracts, const Questions::Mapped& mapped) {
    Graph graph;
    const PlanView view(plan, contracts, classes_by_distance(plan, {}), 1, PlanView::Detail::time);
    PriceList prices(plan, view, mapped, graph.prices);
    graph.dag = condensed(view.view(), [&](int item) { return prices.of(item); });
    return graph;
}

}  // namespace orrery::published

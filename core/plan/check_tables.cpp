// Collectives made of messages share lanes with the plan's own messages: do these stay apart?
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "plan/access.h"
#include "plan/check.h"
#include "plan/chunks.h"
#include "plan/print.h"

namespace orrery {

namespace {

/// Messages of a class with one member that stand before each of its collectives that tables make.
struct Before {
    std::vector<int> collectives;  ///< instructions
    std::vector<size_t> messages;  ///< by collective: how many
    std::vector<int> all;          ///< the messages' instructions
};

class TableCheck {
public:
    TableCheck(const Plan& plan, AxisId axis, const std::vector<ChunkTable>& tables)
        : plan_(plan), axis_(axis), tables_(tables) {}

    void run(const std::vector<int>& members) const {
        std::set<std::pair<int, int>> edges;
        for (const ChunkTable& table : tables_)
            for (const ChunkMove& move : table.moves) edges.emplace(move.from, move.to);
        for (const auto& [from, to] : edges)
            edge(members[static_cast<size_t>(from)], from, members[static_cast<size_t>(to)], to);
    }

private:
    /// Of a collective with a message between the two members.
    const ChunkTable* table_of(const Instruction& in, int from, int to) const {
        const auto meets = [&](const ChunkMove& move) { return move.from == from && move.to == to; };
        const auto found = std::find_if(tables_.begin(), tables_.end(), [&](const ChunkTable& table) {
            return table.collective == in.what && std::any_of(table.moves.begin(), table.moves.end(), meets);
        });
        return in.axis != axis_ || found == tables_.end() ? nullptr : &*found;
    }

    Before before(const RankClass& c, Do what, int from, int to) const {
        const int peer = what == Do::send ? to : from;
        Before result;
        for (size_t i = 0; i < c.stream.size(); ++i) {
            const Instruction& in = c.stream[i];
            if (in.what == what && in.axis == axis_ && in.peer == peer) result.all.push_back(static_cast<int>(i));
            if (!table_of(in, from, to)) continue;
            result.collectives.push_back(static_cast<int>(i));
            result.messages.push_back(result.all.size());
        }
        return result;
    }

    /// What member `from` sends to member `to`. Both run the same collectives: check_groups.
    void edge(int sender, int from, int receiver, int to) const {
        const RankClass& a = plan_.classes[static_cast<size_t>(sender)];
        const RankClass& b = plan_.classes[static_cast<size_t>(receiver)];
        const Before sent = before(a, Do::send, from, to), received = before(b, Do::receive, from, to);
        for (size_t k = 0; k < std::min(sent.messages.size(), received.messages.size()); ++k) {
            if (sent.messages[k] == received.messages[k]) continue;
            const bool unmet = sent.messages[k] > received.messages[k];
            const size_t message = std::min(sent.messages[k], received.messages[k]);
            const std::vector<int>& early = unmet ? sent.all : received.all;
            const RankClass& c = unmet ? a : b;
            const int collective = (unmet ? sent : received).collectives[k];
            const ChunkTable& table = *table_of(c.stream[static_cast<size_t>(collective)], from, to);
            throw Error(table.asked,
                        fmt::format("collective {} makes messages of {}, in the lanes of the plan's own over {}\n"
                                    "  but {} comes before it, and its partner after it: the message of one would be "
                                    "taken for the other's\n"
                                    "  leave {} out of [collectives], so that the transport's own collective runs",
                                    table.name, describe(plan_, c, collective), plan_.mesh.axis(axis_).name,
                                    describe(plan_, c, early[message]), plan_.mesh.axis(axis_).name));
        }
    }

    const Plan& plan_;
    const AxisId axis_;
    const std::vector<ChunkTable>& tables_;
};

}  // namespace

void check_tables(const Plan& plan, const std::map<std::string, std::vector<ChunkTable>>& tables,
                  const std::map<std::string, TransportContract>& contracts) {
    const std::vector<int> class_of = classes_of_ranks(plan);
    for (const auto& [name, own] : tables) {
        const std::optional<AxisId> axis = plan.mesh.find(name);
        if (!axis || plan.mesh.size(*axis) == 1) continue;
        const bool messages = std::any_of(plan.classes.begin(), plan.classes.end(), [&](const RankClass& c) {
            return std::any_of(c.stream.begin(), c.stream.end(),
                               [&](const Instruction& in) { return is_message(in.what) && in.axis == *axis; });
        });
        const auto contract = contracts.find(name);
        const bool by_tag =
            contract != contracts.end() && contract->second.matching == TransportContract::Matching::tag;
        if (!messages || by_tag) continue;
        for (const std::vector<int>& members : lineups(plan, *axis, class_of))
            TableCheck(plan, *axis, own).run(members);
    }
}

}  // namespace orrery

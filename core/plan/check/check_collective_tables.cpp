// Proves that messages of collectives cannot be confused with other messages of the plan in the same transport lanes.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "plan/access.h"
#include "plan/check/check.h"
#include "plan/chunks/chunks.h"
#include "plan/print.h"
#include "plan/repeat.h"

namespace orrery {

namespace {

/// The plan's messages between two members of an axis, and how many precede each collective with a chunk table.
struct Before {
    std::vector<Issued> collectives;
    std::vector<size_t> messages;
    std::vector<Issued> all;
};

class TableCheck {
public:
    TableCheck(const Plan& plan, AxisId axis, const std::vector<ChunkTable>& tables)
        : plan_(plan), axis_(axis), tables_(tables) {}

    void run(const std::vector<int>& members) const {
        std::map<std::pair<int, int>, Tables> edges;
        for (const ChunkTable& table : tables_)
            for (const ChunkMove& move : table.moves) edges[{move.from, move.to}].emplace(table.collective, &table);
        for (const auto& [ends, tables] : edges)
            edge({members[ends.first], ends.first}, {members[ends.second], ends.second}, tables);
    }

private:
    using Tables = std::map<Opcode, const ChunkTable*>;  ///< by opcode: table with messages between two members
    struct Member {
        int of_class, index;
    };

    Before before(const Member& own, Opcode what, int peer, const Tables& tables) const {
        const RankClass& c = plan_.classes[own.of_class];
        Before result;
        for (const Issued& issued : issued_of(c, [&](const Instruction& in) { return in.axis == axis_; })) {
            const Instruction& in = c.stream[issued.index];
            if (in.opcode == what && in.peer_of(own.index, plan_.mesh.size(axis_)) == peer)
                result.all.push_back(issued);
            if (!tables.contains(in.opcode)) continue;
            result.collectives.push_back(issued);
            result.messages.push_back(result.all.size());
        }
        return result;
    }

    /// Checks the messages from one member to another. Both run the same collectives (check_collectives).
    void edge(Member from, Member to, const Tables& tables) const {
        const Before sent = before(from, Opcode::send, to.index, tables);
        const Before received = before(to, Opcode::receive, from.index, tables);
        for (size_t k = 0; k < std::min(sent.messages.size(), received.messages.size()); ++k) {
            if (sent.messages[k] == received.messages[k]) continue;
            const bool unmet = sent.messages[k] > received.messages[k];
            const size_t message = std::min(sent.messages[k], received.messages[k]);
            const std::vector<Issued>& early = unmet ? sent.all : received.all;
            const RankClass& c = plan_.classes[unmet ? from.of_class : to.of_class];
            const Issued& collective = (unmet ? sent : received).collectives[k];
            const ChunkTable& table = *tables.at(c.stream[collective.index].opcode);
            throw Error(table.asked,
                        fmt::format("messages of collective {} ({}) and of the plan over {} would be confused\n"
                                    "  {} comes before the collective on this rank, and its partner after the "
                                    "collective on the other rank\n"
                                    "  remove {} from [collectives], so that the transport's own collective runs",
                                    table.name, describe(plan_, c, collective), plan_.mesh.axis(axis_).name,
                                    describe(plan_, c, early[message]), plan_.mesh.axis(axis_).name));
        }
    }

    const Plan& plan_;
    const AxisId axis_;
    const std::vector<ChunkTable>& tables_;
};

}  // namespace

void check_collective_tables(const Plan& plan, const std::map<std::string, std::vector<ChunkTable>>& tables,
                             const Network& contracts) {
    const std::vector<int> class_of = classes_of_ranks(plan);
    for (const auto& [name, own] : tables) {
        const std::optional<AxisId> axis = plan.mesh.find(name);
        if (!axis || plan.mesh.size(*axis) == 1) continue;
        const bool messages = std::any_of(plan.classes.begin(), plan.classes.end(), [&](const RankClass& c) {
            return std::any_of(c.stream.begin(), c.stream.end(),
                               [&](const Instruction& in) { return is_message(in.opcode) && in.axis == *axis; });
        });
        const bool by_tag = contracts.of(name).matching == TransportContract::Matching::tag;
        if (!messages || by_tag) continue;
        for (const std::vector<int>& members : lineups(plan, *axis, class_of))
            TableCheck(plan, *axis, own).run(members);
    }
}

}  // namespace orrery

#include "run/preflight/preflight.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <tuple>

#include <fmt/format.h>

#include "base/seconds.h"
#include "collective/staged_communicator.h"
#include "run/control/address.h"
#include "run/control/exchange.h"
#include "run/settings.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;

/// Timeout for connecting a pair of ranks. A rank's first connection may take longer, since the transport may set up
/// devices for it; a later one that does is unusable.
constexpr auto pair_timeout = std::chrono::milliseconds(5000);

/// The numeric fields of RankFigures, in the order in which ranks exchange them.
constexpr double RankFigures::*rank_numbers[] = {&RankFigures::matrix_f32, &RankFigures::matrix_bf16,
                                                 &RankFigures::copy_bytes, &RankFigures::write_bytes,
                                                 &RankFigures::read_bytes, &RankFigures::sync_s};

struct Joined {
    std::unique_ptr<Communicator> communicator;
    std::optional<TrialLine> line;
    Reach reach = Reach::all;
    int64_t group = 0;
    std::vector<int64_t> ranks;
};

class Preflight {
public:
    Preflight(const PreflightRank& rank, const PreflightOptions& options, const ExpectedFigures& expected,
              const PreflightBars& bars)
        : rank_(rank), options_(options), given_(expected), bars_(bars), limits_(rank.device.limits()) {
        if (options_.message_bytes == 0)
            options_.message_bytes = limits_.host_visible ? int64_t{16} << 20 : int64_t{256} << 20;
        std::error_code ignored;
        for (std::filesystem::path folder = options_.rank.folder;
             !folder.empty() && !std::filesystem::exists(folder, ignored); folder = folder.parent_path())
            made_.push_back(folder);
    }

    ~Preflight() {
        joined_.clear();
        if (arena_.data) rank_.device.release(arena_);
    }
    Preflight(const Preflight&) = delete;

    PreflightReport report() {
        const auto begin = Clock::now();
        PreflightReport report;
        figures_.host_memory = limits_.host_visible;
        if (rank_.ranks > 1) report.findings = join_pairs();
        if (!report.findings.empty()) {  // ends here, as collectives over all ranks would hang
            report.figures = std::move(figures_);
            report.seconds = seconds_since(begin);
            return report;
        }
        if (rank_.ranks > 1) join_all();
        all_ranks();
        if (rank_.ranks > 1) {
            join_groups();
            pairs();
            collectives();
        }
        report.findings = judge(figures_, given_, bars_);
        for (; report.measured <= options_.again && measure_again(report.findings); ++report.measured)
            report.findings = judge(figures_, given_, bars_);
        remove_folders();
        report.figures = std::move(figures_);
        report.seconds = seconds_since(begin);
        return report;
    }

private:
    void stage(const std::string& what) {
        if (rank_.stage) rank_.stage(what);
    }
    void meet() {
        if (!joined_.empty()) joined_.front().line->meet();
    }

    std::vector<std::string> texts(const std::string& mine) { return texts_->all("text", mine, WaitLimit::step); }

    void remove_folders() {
        meet();
        std::error_code ignored;
        // remove() fails, as intended, for folders that are not empty
        for (const auto& folder : made_) std::filesystem::remove(folder, ignored);
    }

    void allocate() {
        if (arena_.data) return;
        const TransportContract contract = rank_.transport->contract();
        staged_ = !serves(contract, rank_.memory);
        const bool own = contract.needs_arena && !contract.memory.empty() && !staged_;
        arena_ = rank_.device.allocate(TrialLine::arena_bytes(options_.message_bytes),
                                       own ? contract.memory.front() : MemoryKind::device);
    }

    std::unique_ptr<Communicator> make(const Group& group, std::chrono::milliseconds timeout) {
        return rank_.transport->make(group, *rank_.rendezvous,
                                     staged_ ? std::span<const Memory>() : std::span(&arena_, 1), timeout);
    }

    /// Connects pairs of ranks on different nodes, each pair by itself, while there is time. A pair that cannot connect
    /// or cannot pass small messages is reported and blocks no other pair. After one failed pair, no other pair of the
    /// same two nodes is tried.
    std::vector<PreflightFinding> join_pairs() {
        if (rank_.transport->contract().same_host) return {};
        Exchange texts(*rank_.rendezvous, "preflight", rank_.rank, rank_.ranks, rank_.timeout + 2 * pair_timeout);
        std::vector<std::string> hosts;
        std::vector<int64_t> places;
        for (const std::string& told :
             texts.all("host", fmt::format("{} {}", rank_.local_rank, host_name()), WaitLimit::step)) {
            const size_t space = told.find(' ');
            places.push_back(std::stoll(told.substr(0, space)));
            hosts.push_back(told.substr(space + 1));
        }
        const std::vector<int64_t> nodes = nodes_of(hosts, places);
        if (*std::max_element(nodes.begin(), nodes.end()) == 0) return {};
        stage("connections between nodes");
        allocate();
        const auto begin = Clock::now();
        std::vector<PreflightFinding> findings;
        std::set<std::pair<int64_t, int64_t>> apart;
        const auto between = [&](const std::pair<int64_t, int64_t>& pair) {
            return std::minmax(nodes[static_cast<size_t>(pair.first)], nodes[static_cast<size_t>(pair.second)]);
        };
        for (const PairRound& round : pair_rounds(nodes)) {
            std::vector<std::pair<int64_t, int64_t>> pairs = round.pairs;
            std::erase_if(pairs, [&](const auto& pair) {
                const auto [a, b] = between(pair);
                return a == b || apart.count({a, b}) > 0;
            });
            if (pairs.empty()) continue;
            std::string mine = join_one(pairs);
            const double spent = seconds_since(begin);
            if (rank_.rank == 0) mine = (spent > options_.pair.limit_s ? "over " : "more ") + mine;
            const std::vector<std::string> outcomes = texts.all("pair", mine, WaitLimit::step);
            const auto outcome = [&](int64_t rank) {
                return outcomes[static_cast<size_t>(rank)].substr(rank == 0 ? 5 : 0);
            };
            for (const auto& pair : pairs) {
                std::string why = outcome(pair.first), other = outcome(pair.second);
                // The other end's reason may be better, since one end may only know that its peer is not ready.
                if (!why.starts_with("transport ") && !other.empty()) why = std::move(other);
                if (why.empty()) continue;
                const auto [a, b] = between(pair);
                apart.insert({a, b});
                findings.push_back({Checked::link, "connection", {pair.first, pair.second}, "", why, 0, 0, false});
            }
            if (outcomes[0].starts_with("over ")) break;
        }
        if (findings.empty()) return {};
        for (size_t rank = 0; rank < hosts.size(); ++rank) {
            RankFigures one;
            one.host = hosts[rank];
            one.device = limits_.name;
            one.node = nodes[rank];
            figures_.ranks.push_back(one);
        }
        figures_.nodes = 1 + *std::max_element(nodes.begin(), nodes.end());
        for (PreflightFinding& finding : findings)
            finding.subject = fmt::format("link {} - {}", rank_name(figures_, finding.ranks[0]),
                                          rank_name(figures_, finding.ranks[1]));
        return findings;
    }

    /// Connects this rank's pair in a round. Returns why that failed; "" if it succeeded or the rank has no pair.
    std::string join_one(const std::vector<std::pair<int64_t, int64_t>>& pairs) {
        for (const auto& [a, b] : pairs) {
            if (a != rank_.rank && b != rank_.rank) continue;
            try {
                make({fmt::format("preflight/pair/{}-{}", a, b), "preflight", {a, b}, rank_.rank == a ? 0 : 1},
                     first_pair_ ? rank_.timeout : std::min(rank_.timeout, pair_timeout));
                first_pair_ = false;
            } catch (const Error& error) {
                if (!rank_.rendezvous->lost().empty() || error.fault() != Fault::peer) throw;
                const std::string text = error.what();
                return text.substr(0, text.find('\n'));
            }
        }
        return "";
    }

    void join_all() {
        allocate();
        std::vector<int64_t> everybody;
        for (int64_t rank = 0; rank < rank_.ranks; ++rank) everybody.push_back(rank);
        join(Reach::all, 0, std::move(everybody));
        texts_.emplace(*rank_.rendezvous, "preflight/figures", rank_.rank, rank_.ranks, rank_.timeout);
        texts_->wait_for(rank_.timeout, "run.timeout_s");
    }

    void join(Reach reach, int64_t number, std::vector<int64_t> ranks) {
        constexpr const char* names[] = {"node", "rail", "all"};
        const auto me = std::find(ranks.begin(), ranks.end(), rank_.rank);
        if (me == ranks.end()) return;
        Group group{fmt::format("preflight/{}/{}", names[static_cast<size_t>(reach)], number), "preflight", ranks,
                    static_cast<int>(me - ranks.begin())};
        auto made = make(group, rank_.timeout);
        if (staged_) made = std::make_unique<StagedCommunicator>(std::move(made), rank_.device);
        Joined& joined = joined_.emplace_back();
        joined.communicator = std::move(made);
        joined.line.emplace(rank_.device, *joined.communicator, arena_);
        joined.reach = reach;
        joined.group = number;
        joined.ranks = std::move(ranks);
    }

    /// Measures this rank by itself: each part on all ranks at once as in training, or in turns on shared processors.
    RankFigures own_figures() {
        if (joined_.empty()) return check_rank(rank_.device, options_.rank);
        const int64_t turn = rank_.at_once > 0 ? rank_.local_rank / rank_.at_once : 0;
        const auto turns = 1 + static_cast<int64_t>(joined_.front().line->greatest(static_cast<double>(turn)));
        const auto wait = [&](int64_t others) {
            for (int64_t i = 0; i < others; ++i) meet();
        };
        bool begun = false;
        RankFigures mine = check_rank(rank_.device, options_.rank, [&](const char* part) {
            if (begun) wait(turns - turn);
            begun = true;
            stage(part);
            wait(turn);
        });
        wait(turns - turn);
        return mine;
    }

    void all_ranks() {
        const std::vector<RankFigures> found = shared(own_figures());
        const bool first = figures_.ranks.empty();
        if (first) figures_.ranks = found;
        for (size_t i = 0; i < found.size() && !first; ++i) keep_better(figures_.ranks[i], found[i]);
        if (!first) return;
        std::vector<std::string> hosts;
        for (const RankFigures& one : figures_.ranks) hosts.push_back(one.host);
        std::vector<int64_t> places{rank_.local_rank};
        if (rank_.ranks > 1) {
            places.clear();
            const double mine[] = {static_cast<double>(rank_.local_rank)};
            for (const double place : numbers_of_all(*texts_, mine)) places.push_back(static_cast<int64_t>(place));
        }
        nodes_ = nodes_of(hosts, places);
        for (size_t i = 0; i < nodes_.size(); ++i) figures_.ranks[i].node = nodes_[i];
        figures_.nodes = 1 + *std::max_element(nodes_.begin(), nodes_.end());
    }

    std::vector<RankFigures> shared(const RankFigures& mine) {
        if (rank_.ranks == 1) return {mine};
        std::vector<double> numbers;
        for (const auto part : rank_numbers) numbers.push_back(mine.*part);
        const std::vector<double> all = numbers_of_all(*texts_, numbers);
        const auto hosts = texts(mine.host), devices = texts(mine.device), problems = texts(mine.storage_problem);
        std::vector<RankFigures> found(hosts.size());
        for (size_t i = 0; i < found.size(); ++i) {
            found[i].host = hosts[i];
            found[i].device = devices[i];
            found[i].storage_problem = problems[i];
            for (size_t k = 0; k < numbers.size(); ++k) found[i].*rank_numbers[k] = all[i * numbers.size() + k];
        }
        return found;
    }

    static void keep_better(RankFigures& kept, const RankFigures& found) {
        for (const auto part : {&RankFigures::matrix_f32, &RankFigures::matrix_bf16, &RankFigures::copy_bytes,
                                &RankFigures::write_bytes, &RankFigures::read_bytes})
            kept.*part = std::max(kept.*part, found.*part);
        kept.sync_s = std::min(kept.sync_s, found.sync_s);
        if (kept.storage_problem.empty()) kept.storage_problem = found.storage_problem;
    }

    void pairs() {
        rounds_ = pair_rounds(nodes_);
        stage(fmt::format("links, {} rounds", rounds_.size()));
        figures_.pairs = check_pairs(*joined_.front().line, *texts_, nodes_, rounds_, options_.pair);
        figures_.pairs_left_out = rank_.ranks * (rank_.ranks - 1) / 2 - static_cast<int64_t>(figures_.pairs.size());
        std::sort(figures_.pairs.begin(), figures_.pairs.end(),
                  [](const PairFigures& x, const PairFigures& y) { return std::tie(x.a, x.b) < std::tie(y.a, y.b); });
    }

    void pairs_again(const std::vector<std::pair<int64_t, int64_t>>& suspects) {
        const auto found = check_pairs(*joined_.front().line, *texts_, nodes_, only(rounds_, suspects), options_.pair);
        for (const PairFigures& again : found)
            for (PairFigures& kept : figures_.pairs) {
                if (kept.a != again.a || kept.b != again.b) continue;
                kept.latency_s = std::min(kept.latency_s, again.latency_s);
                for (const auto part : {&PairFigures::there_bytes, &PairFigures::back_bytes, &PairFigures::both_bytes})
                    kept.*part = std::max(kept.*part, again.*part);
                kept.wrong_bytes += again.wrong_bytes;
            }
    }

    /// With several nodes, joins the ranks of each node, and the ranks with each local index that all nodes have.
    void join_groups() {
        if (figures_.nodes == 1) {
            joined_.front().reach = Reach::node;
            return;
        }
        std::vector<std::vector<int64_t>> of_node(static_cast<size_t>(figures_.nodes));
        for (size_t rank = 0; rank < nodes_.size(); ++rank)
            of_node[static_cast<size_t>(nodes_[rank])].push_back(static_cast<int64_t>(rank));
        size_t least = of_node.front().size(), most = least;
        for (const auto& ranks : of_node) {
            least = std::min(least, ranks.size());
            most = std::max(most, ranks.size());
        }
        for (size_t node = 0; node < of_node.size(); ++node)
            if (of_node[node].size() > 1) join(Reach::node, static_cast<int64_t>(node), of_node[node]);
        for (size_t i = 0; i < least && most > 1; ++i) {
            std::vector<int64_t> rail;
            for (const auto& ranks : of_node) rail.push_back(ranks[i]);
            join(Reach::rail, static_cast<int64_t>(i), rail);
        }
    }

    void collectives() {
        std::vector<CollectiveFigures> found;
        for (const Reach reach : {Reach::node, Reach::rail, Reach::all}) {
            stage(reach == Reach::node   ? "collectives inside nodes"
                  : reach == Reach::rail ? "collectives of one rank a node"
                                         : "collectives of all ranks");
            meet();
            std::vector<CollectiveFigures> mine;
            for (Joined& joined : joined_)
                if (joined.reach == reach) mine = of_group(joined);
            const auto all = shared(std::move(mine), reach);
            found.insert(found.end(), all.begin(), all.end());
        }
        if (figures_.collectives.empty()) {
            figures_.collectives = std::move(found);
            return;
        }
        for (size_t i = 0; i < found.size(); ++i) {
            CollectiveFigures& kept = figures_.collectives[i];
            kept.latency_s = std::min(kept.latency_s, found[i].latency_s);
            kept.wrong += found[i].wrong;
            if (found[i].bus_bytes <= kept.bus_bytes) continue;
            kept.bus_bytes = found[i].bus_bytes;
            kept.seconds = found[i].seconds;
            kept.bytes = found[i].bytes;
        }
    }

    std::vector<CollectiveFigures> of_group(Joined& joined) {
        std::vector<CollectiveFigures> figures = check_collectives(*joined.line, options_.collective);
        for (CollectiveFigures& one : figures) {
            one.reach = joined.reach;
            one.group = joined.group;
            one.ranks = joined.ranks;
        }
        return figures;
    }

    /// Exchanges all groups' figures as text, sent by each group's first rank, because some ranks are in no group.
    std::vector<CollectiveFigures> shared(std::vector<CollectiveFigures> mine, Reach reach) {
        std::string told;
        for (const CollectiveFigures& one : mine) {
            if (one.ranks.front() != rank_.rank) break;
            told += fmt::format("{} {} {} {} {} {} {} {}", one.name, one.group, one.bytes, one.seconds, one.bus_bytes,
                                one.latency_s, one.wrong, one.ranks.size());
            for (const int64_t rank : one.ranks) told += fmt::format(" {}", rank);
            told += '\n';
        }
        std::vector<CollectiveFigures> all;
        for (const std::string& text : texts(told)) {
            std::istringstream words(text);
            CollectiveFigures one;
            size_t members = 0;
            while (words >> one.name >> one.group >> one.bytes >> one.seconds >> one.bus_bytes >> one.latency_s >>
                   one.wrong >> members) {
                one.reach = reach;
                one.ranks.assign(members, 0);
                for (int64_t& rank : one.ranks) words >> rank;
                all.push_back(one);
            }
        }
        return all;
    }

    /// Measures again the parts with findings. Returns false if another measurement cannot clear any finding. All ranks
    /// decide the same, since they have the same figures.
    bool measure_again(const std::vector<PreflightFinding>& findings) {
        bool ranks = false, groups = false;
        std::set<std::pair<int64_t, int64_t>> suspects;
        for (const PreflightFinding& finding : findings) {
            if (!finding.again) continue;
            groups = groups || finding.checked == Checked::collective;
            if (finding.checked == Checked::matrix || finding.checked == Checked::copy ||
                finding.checked == Checked::storage)
                ranks = true;
            if (finding.checked != Checked::link) continue;
            for (const PairFigures& pair : figures_.pairs) {
                const auto in = [&](int64_t rank) {
                    return std::find(finding.ranks.begin(), finding.ranks.end(), rank) != finding.ranks.end();
                };
                if (finding.ranks.size() == 1 ? in(pair.a) || in(pair.b) : in(pair.a) && in(pair.b))
                    suspects.insert({pair.a, pair.b});
            }
        }
        if (!ranks && !groups && suspects.empty()) return false;
        stage("what is not fit, again");
        if (ranks) all_ranks();
        if (!suspects.empty()) pairs_again({suspects.begin(), suspects.end()});
        if (groups) collectives();
        return true;
    }

    const PreflightRank& rank_;
    PreflightOptions options_;
    const ExpectedFigures given_;
    const PreflightBars bars_;
    const DeviceLimits limits_;
    Memory arena_;
    bool staged_ = false;
    bool first_pair_ = true;      ///< whether this rank has not connected to another rank yet
    std::vector<Joined> joined_;  ///< communicators of this rank, first that of all ranks
    std::optional<Exchange> texts_;
    std::vector<std::filesystem::path> made_;  ///< folders that the check created, innermost first
    std::vector<int64_t> nodes_;
    std::vector<PairRound> rounds_;
    PreflightFigures figures_;
};

}  // namespace

PreflightOptions quick_preflight() {
    PreflightOptions options;
    options.rank.matrix_s = 0.2;
    options.rank.copy_s = 0.1;
    options.rank.storage_bytes = 8 << 20;
    options.pair.pings = 15;
    options.pair.repeats = 3;
    options.pair.message_s = 0.004;
    options.pair.limit_s = 8;
    options.collective.repeats = 3;
    options.collective.call_s = 0.005;
    return options;
}

PreflightReport preflight(const PreflightRank& rank, const PreflightOptions& options, const ExpectedFigures& expected,
                          const PreflightBars& bars) {
    assert(rank.ranks == 1 || (rank.transport && rank.rendezvous));
    return Preflight(rank, options, expected, bars).report();
}

std::vector<int64_t> nodes_of(const std::vector<std::string>& hosts, const std::vector<int64_t>& local_ranks) {
    struct Node {
        std::string host;
        std::set<int64_t> places;
    };
    std::vector<Node> nodes;
    std::vector<int64_t> of_rank;
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
        auto node = std::find_if(nodes.begin(), nodes.end(), [&](const Node& one) {
            return one.host == hosts[rank] && one.places.count(local_ranks[rank]) == 0;
        });
        if (node == nodes.end()) node = nodes.insert(nodes.end(), Node{hosts[rank], {}});
        node->places.insert(local_ranks[rank]);
        of_rank.push_back(node - nodes.begin());
    }
    return of_rank;
}

}  // namespace orrery

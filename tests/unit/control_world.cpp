#include "control_world.h"

#include <algorithm>

#include "orrery/error.h"

namespace orrery::test {

using std::chrono::milliseconds;

/// Both directions keep their order.
struct World::Wire {
    uint64_t number = 0;
    Node* node = nullptr;  ///< nullptr: a stranger's
    LinkTime up_until{0}, down_until{0};
    bool open = false, up_lost = false, down_lost = false;
    bool forge = false, repeat = false;       ///< the next piece to the service
    bool challenge = false, welcome = false;  ///< the service has sent that
};

struct World::Node {
    Node(int64_t rank, const JoinOptions& options, const LinkHost& here) : rank(rank), link(options, here) {}
    int64_t rank;
    MemberLink link;
    Wire* wire = nullptr;
    bool asked = false, dead = false, ended = false;
    LinkTime waits_since{0};
    std::map<int64_t, uint64_t> gets;
    uint64_t sum = 0, absent = 0;
};

World::World(uint64_t seed, int64_t ranks, Trouble trouble, int strangers)
    : endings(static_cast<size_t>(ranks)), random_(seed), trouble_(trouble) {
    const LinkHost here{"n1", 1,
                        [this](size_t bytes) {
                            std::string text(bytes, '\0');
                            for (char& c : text) c = static_cast<char>(random_());
                            return text;
                        },
                        [](int64_t) { return std::string("is stopped (SIGSTOP)"); }};
    ServeOptions serving;
    serving.world = ranks;
    serving.token = {"a secret of the test's", "world", 2};
    serving.silence = std::chrono::duration_cast<milliseconds>(silence);
    serving.linger = milliseconds(500);
    service_ = std::make_unique<Membership>(serving, here);
    for (int64_t rank = 0; rank < ranks; ++rank) {
        JoinOptions joining;
        joining.rank = rank;
        joining.token = serving.token;
        joining.silence = serving.silence;
        LinkHost mine = here;
        mine.pid = 100 + rank;
        nodes_.push_back(std::make_unique<Node>(rank, joining, mine));
        at(milliseconds(random_() % 300), [this, rank] { connect(*nodes_[static_cast<size_t>(rank)]); });
    }
    for (int i = 0; i < strangers; ++i)
        at(milliseconds(random_() % 600), [this, i] { stranger(i, static_cast<int>(random_() % 3)); });
    victim = static_cast<int64_t>(random_() % static_cast<uint64_t>(ranks));
    if (trouble != Trouble::none) at(milliseconds(random_() % 500), [this] { strike(); });
    at(LinkTime(0), [this] { tick_service(); });
}

World::~World() = default;

void World::at(LinkTime time, std::function<void()> what) {
    queue_.emplace(std::pair(std::max(time, now_), std::pair(random_() % 4, order_++)), std::move(what));
}

LinkTime World::delay() {
    return std::chrono::microseconds(random_() % 10 == 0 ? random_() % 200'000 : random_() % 3000);
}

void World::run() {
    const LinkTime limit = std::chrono::seconds(30);
    while (!queue_.empty() && now_ < limit && !over) {
        const auto first = queue_.begin();
        now_ = first->first.first;
        const std::function<void()> what = std::move(first->second);
        queue_.erase(first);
        what();
        service_acts();
        most_strangers = std::max(most_strangers, unproved());
        const bool all = std::all_of(nodes_.begin(), nodes_.end(), [](const auto& n) { return n->ended || n->dead; });
        if (all && ends_at_ == LinkTime(0)) {
            ends_at_ = now_;
            service_->end(now_);
        }
    }
}

size_t World::unproved() const {
    return static_cast<size_t>(std::count_if(wires_.begin(), wires_.end(), [&](const auto& entry) {
        const Wire& wire = *entry.second;
        return wire.open && !(wire.node && wire.welcome);
    }));
}

void World::connect(Node& node) {
    if (node.dead || node.ended) return;
    auto wire = std::make_unique<Wire>();
    wire->number = ++wires_made_;
    wire->node = &node;
    node.wire = wire.get();
    node.link.opened(now_);
    Wire& kept = *(wires_[wires_made_] = std::move(wire));
    at(now_ + delay(), [this, &kept] { open(kept); });
    if (!node.asked && node.gets.empty()) at(now_ + milliseconds(250), [this, &node] { tick(node); });
}

/// Says nothing, nonsense, or what could be a hello; comes again a few times.
void World::stranger(int number, int left) {
    auto wire = std::make_unique<Wire>();
    wire->number = ++wires_made_;
    Wire& kept = *(wires_[wires_made_] = std::move(wire));
    open(kept);
    if (number % 3 > 0) to_service(kept, std::string(number % 3 == 1 ? 300 : 256, static_cast<char>(random_())));
    if (left > 0) at(now_ + milliseconds(random_() % 400), [this, number, left] { stranger(number, left - 1); });
}

void World::open(Wire& wire) {
    if (!service_->accepts(now_)) {  // it waits in the listener's queue
        at(now_ + milliseconds(5), [this, &wire] { open(wire); });
        return;
    }
    wire.open = true;
    service_->opened(wire.number, "10.0.0.1", now_);
}

void World::to_service(Wire& wire, std::string bytes) {
    if (bytes.empty() || wire.up_lost) return;
    if (std::exchange(wire.forge, false)) bytes[random_() % bytes.size()] ^= 4;
    if (std::exchange(wire.repeat, false)) bytes += bytes;
    while (!bytes.empty()) {
        const size_t piece = random_() % 4 == 0 ? 1 + random_() % bytes.size() : bytes.size();
        wire.up_until = std::max(wire.up_until, now_ + delay());
        at(wire.up_until, [this, &wire, text = bytes.substr(0, piece)] {
            if (!wire.open || wire.up_lost) return;
            ++frames;
            service_->received(wire.number, text, now_);
        });
        bytes.erase(0, piece);
        if (!bytes.empty()) wire.up_until += LinkTime(1);  // behind what has just been sent
    }
    wire.up_until += LinkTime(1);
}

void World::service_acts() {
    for (LinkAction& action : service_->actions()) {
        Wire& wire = *wires_.at(action.connection);
        service_->sent(wire.number, action.bytes.size());
        wire.welcome = wire.welcome || (wire.challenge && !action.bytes.empty());
        wire.challenge = true;
        if (action.close) wire.open = false;
        wire.down_until = std::max(wire.down_until, now_ + delay()) + LinkTime(1);
        if (!wire.node) continue;
        at(wire.down_until, [this, &wire, bytes = std::move(action.bytes), close = action.close] {
            Node& node = *wire.node;
            if (wire.down_lost || node.dead || node.wire != &wire) return;
            try {
                if (!bytes.empty()) node.link.received(bytes, now_);
            } catch (const Error& error) {
                endings[static_cast<size_t>(node.rank)].wrong = error.what();
                node.dead = true;
                return;
            }
            if (close) node.link.closed();
            if (close && !node.link.joined()) {  // pushed out by strangers: it comes again
                at(now_ + milliseconds(20), [this, &node] { connect(node); });
                return;
            }
            heard(node);
        });
    }
}

void World::tick_service() {
    service_->tick(now_);
    over = service_->over();
    const LinkTime next = std::clamp<LinkTime>(service_->due(), now_ + milliseconds(1), now_ + milliseconds(100));
    at(next, [this] { tick_service(); });
}

void World::tick(Node& node) {
    if (node.dead || node.ended) return;
    node.link.tick(now_, "");
    heard(node);
    at(std::max(node.link.due(), now_ + milliseconds(10)), [this, &node] { tick(node); });
}

/// What a rank does: it tells its key, wants those of all others and a sum, and leaves.
void World::heard(Node& node) {
    if (node.dead || node.ended) return;
    Ending& end = endings[static_cast<size_t>(node.rank)];
    if (node.link.joined() && !node.asked) {
        node.asked = true;
        node.waits_since = now_;
        node.link.request("set", "key/" + std::to_string(node.rank), "value " + std::to_string(node.rank));
        for (size_t other = 0; other < nodes_.size(); ++other)
            node.gets[static_cast<int64_t>(other)] = node.link.request("get", "key/" + std::to_string(other), "");
        node.sum = node.link.request("count", "sum", "1");
    }
    std::erase_if(node.gets, [&](const auto& get) {
        const auto value = node.link.answer(get.second);
        if (value && *value != "value " + std::to_string(get.first)) end.wrong = *value;
        return value.has_value();
    });
    if (node.sum && node.link.answer(node.sum)) node.sum = 0;
    if (const std::string lost = node.link.loss().text.shown(); !lost.empty()) {
        end.lost = lost;
        end.lost_at = now_;
        return hang_up(node);
    }
    if (node.asked && node.gets.empty() && node.sum == 0) {
        end.done = true;
        node.link.request("leave", "", "");
        return hang_up(node);
    }
    if (node.asked && !node.absent && now_ - node.waits_since > patience) {
        for (const auto& [other, number] : node.gets) node.link.cancel(number);
        node.absent = node.link.request("absent", "", "");
    }
    if (const auto absent = node.absent ? node.link.answer(node.absent) : std::nullopt) {
        end.absent = absent->empty() ? "all ranks joined" : *absent;
        node.link.request("leave", "", "");
        return hang_up(node);
    }
    to_service(*node.wire, node.link.output());
}

void World::hang_up(Node& node) {
    node.ended = true;
    Wire& wire = *node.wire;
    to_service(wire, node.link.output());
    at(wire.up_until + delay(), [this, &wire] {
        if (!wire.open || wire.up_lost) return;
        wire.open = false;
        service_->closed(wire.number, now_);
    });
}

void World::strike() {
    Node& node = *nodes_[static_cast<size_t>(victim)];
    trouble_at = now_;
    victim_was_in = service_->joined(victim);
    victim_had_left = node.ended;
    if (trouble_ == Trouble::told_gone)
        service_->gone(
            {.cause = Cause::process, .rank = victim, .pid = 100 + victim, .text = "was killed by signal 9"});
    if (trouble_ == Trouble::killed) node.dead = true;
    if (node.ended || !node.wire) {
        if (trouble_ == Trouble::silent) node.dead = true;
        return;
    }
    Wire& wire = *node.wire;
    if (trouble_ == Trouble::fails && node.link.joined()) {
        node.link.fail({.cause = Cause::error, .text = "no space left on the disk"});
        to_service(wire, node.link.output());
    }
    if (trouble_ == Trouble::killed)
        at(now_ + delay(), [this, &wire] {
            if (!std::exchange(wire.open, false)) return;
            service_->closed(wire.number, now_);
        });
    if (trouble_ == Trouble::silent) node.dead = wire.up_lost = true;
    if (trouble_ == Trouble::mute) wire.up_lost = true;
    if (trouble_ == Trouble::deaf) wire.down_lost = true;
    if (trouble_ == Trouble::deaf && !node.link.joined())  // its own bound ends the handshake
        at(now_ + patience, [this, &node] {
            node.dead = true;
            hang_up(node);
        });
    wire.forge = trouble_ == Trouble::forged && node.link.joined();
    wire.repeat = trouble_ == Trouble::repeated && node.link.joined();
}

}  // namespace orrery::test

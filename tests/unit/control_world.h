#pragma once
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "orrery/rendezvous.h"

/// A rendezvous in a world of virtual time: one Membership, members, strangers, and connections that delay, cut into
/// pieces, lose, forge and stay half open, all drawn from a seed. What happens at one time happens in a drawn order.
namespace orrery::test {

enum class Trouble { none, killed, silent, deaf, mute, fails, told_gone, forged, repeated };

struct Ending {
    bool done = false;   ///< it had all keys of all, and left
    std::string lost;    ///< what it was told
    std::string absent;  ///< who had not come, when its patience was over
    std::string wrong;   ///< a key with another value than was set
    LinkTime lost_at{0};
};

class World {
public:
    static constexpr LinkTime silence = std::chrono::milliseconds(1500), patience = std::chrono::seconds(4);

    World(uint64_t seed, int64_t ranks, Trouble trouble, int strangers);
    ~World();
    /// Until nothing is left to happen, or the virtual time is over.
    void run();

    std::vector<Ending> endings;
    int64_t victim = 0;
    LinkTime trouble_at{0};
    bool victim_was_in = false, victim_had_left = false;  ///< when the trouble came
    size_t most_strangers = 0;                            ///< open at a time without having proved themselves
    bool over = false;                                    ///< the service ended
    size_t frames = 0;                                    ///< pieces of bytes that came to the service

private:
    struct Wire;
    struct Node;
    void at(LinkTime time, std::function<void()> what);
    LinkTime delay();
    void connect(Node& node);
    void stranger(int number, int left);
    void open(Wire& wire);
    void to_service(Wire& wire, std::string bytes);
    void service_acts();
    void tick_service();
    void tick(Node& node);
    void heard(Node& node);
    void hang_up(Node& node);
    void strike();
    size_t unproved() const;

    std::mt19937_64 random_;
    LinkTime now_{0};
    uint64_t order_ = 0, wires_made_ = 0;
    Trouble trouble_;
    std::map<std::pair<LinkTime, std::pair<uint64_t, uint64_t>>, std::function<void()>> queue_;
    std::unique_ptr<Membership> service_;
    std::map<uint64_t, std::unique_ptr<Wire>> wires_;
    std::vector<std::unique_ptr<Node>> nodes_;
    LinkTime ends_at_{0};
};

}  // namespace orrery::test

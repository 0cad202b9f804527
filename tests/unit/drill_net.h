#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "orrery/error.h"
#include "orrery/rendezvous.h"

/// Processes in virtual time, and the connections between those that hold a rendezvous and their members. What happens
/// at one time happens in an order that the seed draws.
namespace orrery::test {

struct Process {
    int64_t pid = 0, node = 0;
    std::string nonce = {};
    bool alive = true, stopped = false;
    bool runs() const { return alive && !stopped; }
};

struct Wire;
class Link;
class Service;

class Net {
public:
    explicit Net(uint64_t seed);
    ~Net();
    Net(const Net&) = delete;

    void at(LinkTime delay, std::function<void()> what);
    /// Plays the next event; false: none is left.
    bool next();
    LinkTime now() const { return now_; }
    double now_s() const { return std::chrono::duration<double>(now_).count(); }
    LinkTime between(int64_t least_us, int64_t most_us);
    bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(random_) < p; }

    Process& process(int64_t node);
    /// It ends, and its connections with it.
    void die(Process& process);
    Service& serve(const Process& process, ServeOptions options);
    Link& link(const Process& process, JoinOptions options);
    /// Bytes that are sent meanwhile arrive when it is healed.
    void cut(int64_t node) { cut_.insert(node); }
    void heal(int64_t node);
    bool apart(int64_t one, int64_t other) const { return one != other && cut_.count(one) + cut_.count(other) > 0; }

private:
    friend class Link;
    friend class Service;
    LinkHost host_of(const Process& process);
    Wire& wire(Service& service, Link& link);
    /// In the order in which it was sent.
    void deliver(Wire& wire, bool up, std::function<void()> what);

    std::mt19937_64 random_;
    LinkTime now_{0};
    uint64_t order_ = 0;
    std::map<std::pair<LinkTime, std::pair<uint64_t, uint64_t>>, std::function<void()>> queue_;
    std::set<int64_t> cut_;
    std::vector<std::pair<Wire*, std::function<void()>>> held_;
    std::deque<Process> processes_;
    std::vector<std::unique_ptr<Wire>> wires_;
    std::vector<std::unique_ptr<Link>> links_;
    std::vector<std::unique_ptr<Service>> services_;
};

/// A Membership, in the process that holds it.
class Service {
public:
    Service(Net& net, const Process& process, const ServeOptions& options);
    bool open() const { return open_ && process.alive; }
    void close();
    /// Sends the bytes that its membership wants sent.
    void act();

    const Process& process;
    Membership membership;

private:
    friend class Link;
    void tick();
    Net& net_;
    bool open_ = true;
};

/// A MemberLink, in its process.
class Link {
public:
    Link(Net& net, const Process& process, const JoinOptions& options);
    void connect(Service& service);
    /// Sends the bytes that its member wants sent.
    void send();
    /// Ends the connection after all that was sent.
    void close();
    bool down() const { return down_; }
    const std::optional<Error>& refused() const { return refused_; }

    const Process& process;
    MemberLink member;
    std::function<void()> heard = [] {};  ///< something has come, or the time of a heartbeat
    std::function<std::string()> position = [] { return std::string(); };

private:
    friend class Net;
    friend class Service;
    void open(Wire& wire);
    void received(Wire& wire, const std::string& bytes, bool close);
    void ended();
    void tick();

    Net& net_;
    Wire* wire_ = nullptr;
    bool down_ = false, ticks_ = false;
    std::optional<Error> refused_;
};

}  // namespace orrery::test

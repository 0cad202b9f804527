#include "drill_net.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::test {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// Both directions keep their order.
struct Wire {
    uint64_t number = 0;
    Service* service = nullptr;
    Link* link = nullptr;
    bool up_open = false, down_open = true;  ///< as the service, as the member has it
    LinkTime up{0}, down{0};                 ///< when the last of what was sent comes
};

Net::Net(uint64_t seed) : random_(seed) {}
Net::~Net() = default;

void Net::at(LinkTime delay, std::function<void()> what) {
    queue_.emplace(std::pair(now_ + delay, std::pair(random_() % 4, order_++)), std::move(what));
}

bool Net::next() {
    if (queue_.empty()) return false;
    const auto first = queue_.begin();
    now_ = first->first.first;
    const std::function<void()> what = std::move(first->second);
    queue_.erase(first);
    what();
    return true;
}

LinkTime Net::between(int64_t least_us, int64_t most_us) {
    return microseconds(std::uniform_int_distribution<int64_t>(least_us, most_us)(random_));
}

Process& Net::process(int64_t node) {
    const auto number = static_cast<int64_t>(processes_.size());
    return processes_.emplace_back(Process{100 + number, node, fmt::format("{:032x}", number + 1)});
}

void Net::die(Process& process) {
    process.alive = false;
    for (const auto& link : links_)
        if (&link->process == &process) link->close();
    for (const auto& service : services_)
        if (&service->process == &process) service->close();
}

Service& Net::serve(const Process& process, ServeOptions options) {
    return *services_.emplace_back(std::make_unique<Service>(*this, process, options));
}

Link& Net::link(const Process& process, JoinOptions options) {
    return *links_.emplace_back(std::make_unique<Link>(*this, process, options));
}

void Net::heal(int64_t node) {
    cut_.erase(node);
    for (auto& [wire, what] : std::exchange(held_, {})) what();
}

LinkHost Net::host_of(const Process& process) {
    const auto draw = [this](size_t bytes) {
        std::string text(bytes, '\0');
        for (char& c : text) c = static_cast<char>(random_());
        return text;
    };
    const auto state = [this](int64_t pid) {
        const Process& one = processes_.at(static_cast<size_t>(pid - 100));
        return std::string(one.stopped ? "is stopped (SIGSTOP)" : one.alive ? "runs" : "is gone");
    };
    return {fmt::format("n{}", process.node), process.pid, draw, state};
}

Wire& Net::wire(Service& service, Link& link) {
    return *wires_.emplace_back(std::make_unique<Wire>(Wire{wires_.size() + 1, &service, &link}));
}

void Net::deliver(Wire& wire, bool up, std::function<void()> what) {
    LinkTime& last = up ? wire.up : wire.down;
    last = std::max(last, now_ + between(0, chance(0.1) ? 100'000 : 2000)) + LinkTime(1);
    at(last - now_, [this, &wire, what = std::move(what)] {
        if (apart(wire.service->process.node, wire.link->process.node)) return held_.emplace_back(&wire, what), void();
        what();
    });
}

Service::Service(Net& net, const Process& process, const ServeOptions& options)
    : process(process), membership(options, net.host_of(process)), net_(net) {
    tick();
}

void Service::act() {
    for (LinkAction& action : membership.actions()) {
        Wire& wire = *net_.wires_.at(action.connection - 1);
        membership.sent(wire.number, action.bytes.size());
        if (action.close) wire.up_open = false;
        net_.deliver(wire, false, [&wire, bytes = std::move(action.bytes), close = action.close] {
            wire.link->received(wire, bytes, close);
        });
    }
}

void Service::close() {
    if (!std::exchange(open_, false)) return;
    for (const auto& wire : net_.wires_)
        if (wire->service == this) net_.deliver(*wire, false, [&wire = *wire] { wire.link->received(wire, "", true); });
}

void Service::tick() {
    if (!open()) return;
    if (process.runs()) membership.tick(net_.now());
    act();
    net_.at(std::clamp<LinkTime>(membership.due() - net_.now(), milliseconds(1), milliseconds(100)),
            [this] { tick(); });
}

Link::Link(Net& net, const Process& process, const JoinOptions& options)
    : process(process), member(options, net.host_of(process)), net_(net) {}

void Link::connect(Service& service) {
    wire_ = &net_.wire(service, *this);
    member.opened(net_.now());
    net_.deliver(*wire_, true, [this, &wire = *wire_] { open(wire); });
    if (!std::exchange(ticks_, true)) tick();
}

void Link::open(Wire& wire) {
    if (wire_ != &wire || down_) return;
    Service& service = *wire.service;
    if (!service.open()) return ended();
    if (!service.membership.accepts(net_.now())) return net_.at(milliseconds(5), [this, &wire] { open(wire); });
    wire.up_open = true;
    service.membership.opened(wire.number, "10.0.0.1", net_.now());
    service.act();
}

void Link::send() {
    std::string bytes = member.output();
    if (bytes.empty() || !wire_) return;
    net_.deliver(*wire_, true, [&net = net_, &wire = *wire_, bytes = std::move(bytes)] {
        if (!wire.up_open || !wire.service->open()) return;
        wire.service->membership.received(wire.number, bytes, net.now());
        wire.service->act();
    });
}

void Link::close() {
    if (std::exchange(down_, true) || !wire_) return;
    send();
    net_.deliver(*wire_, true, [&net = net_, &wire = *wire_] {
        if (!std::exchange(wire.up_open, false) || !wire.service->open()) return;
        wire.service->membership.closed(wire.number, net.now());
        wire.service->act();
    });
}

void Link::received(Wire& wire, const std::string& bytes, bool close) {
    if (wire_ != &wire || !wire.down_open || down_ || !process.runs()) return;
    try {
        if (!bytes.empty()) member.received(bytes, net_.now());
    } catch (const Error& error) {
        refused_ = error;
        this->close();
    }
    if (close) wire.down_open = false;
    if (close) return ended();
    send();
    heard();
    send();
}

/// By the service. A member that has not joined comes again.
void Link::ended() {
    member.closed();
    Service& service = *wire_->service;
    const bool again = !down_ && !member.joined() && service.open();
    if (again) return net_.at(milliseconds(20), [this, &service] { down_ ? void() : connect(service); });
    down_ = true;
    heard();
}

void Link::tick() {
    if (down_ || !process.runs()) return;
    member.tick(net_.now(), position());
    send();
    heard();
    send();
    net_.at(std::max<LinkTime>(member.due() - net_.now(), milliseconds(10)), [this] { tick(); });
}

}  // namespace orrery::test

// The rendezvous over TCP: a service that listens at a host and port, and each member's connection to it. The protocol
// and the decisions are in Membership and MemberLink of orrery/rendezvous.h; sockets and threads are here.
#include <cstdio>

#include "member.h"
#include "orrery/plugin.h"
#include "service.h"

namespace {

class Tcp final : public orrery::RendezvousBackend {
public:
    explicit Tcp(orrery::Config& config) {
        const std::string range = config.text("ports", "");  // run.ports, which core has checked
        std::sscanf(range.c_str(), "%d-%d", &ports_.first, &ports_.last);
    }
    std::unique_ptr<orrery::RendezvousService> serve(const orrery::ServeOptions& options) override {
        return std::make_unique<tcp::Service>(options, ports_);
    }
    std::unique_ptr<orrery::Member> join(const orrery::JoinOptions& options) override {
        return std::make_unique<tcp::Member>(options);
    }

private:
    tcp::Ports ports_;
};

void add(orrery::Registry& registry) {
    registry.add_rendezvous("tcp", [](orrery::Config& config) { return std::make_unique<Tcp>(config); });
}

}  // namespace

ORRERY_PLUGIN("rendezvous.tcp", "0.1", add);

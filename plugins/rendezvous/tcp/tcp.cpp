// The rendezvous over TCP: a service that listens at a host and port, and a connection to it of each member. What they
// say and decide is orrery/rendezvous.h's Membership and MemberLink; here are their sockets and threads.
#include "member.h"
#include "orrery/plugin.h"
#include "service.h"

namespace {

class Tcp final : public orrery::RendezvousBackend {
public:
    std::unique_ptr<orrery::RendezvousService> serve(const orrery::ServeOptions& options) override {
        return std::make_unique<tcp::Service>(options);
    }
    std::unique_ptr<orrery::Member> join(const orrery::JoinOptions& options) override {
        return std::make_unique<tcp::Member>(options);
    }
};

void add(orrery::Registry& registry) {
    registry.add_rendezvous("tcp", [](orrery::Config&) { return std::make_unique<Tcp>(); });
}

}  // namespace

ORRERY_PLUGIN("rendezvous.tcp", "0.1", add);

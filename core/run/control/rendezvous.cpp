#include "run/control/rendezvous.h"

#include <fmt/format.h>

#include "base/env.h"
#include "base/limits.h"
#include "run/control/exchange.h"
#include "run/control/standing.h"

namespace orrery {
namespace {

Loss explain_told(int64_t late, const std::vector<ServeOptions::Standing>& all) {
    std::vector<Standing> told;
    for (const ServeOptions::Standing& one : all)
        told.push_back({one.rank, Position::decode(one.position), one.silent_s, one.process});
    return explain_wait(late, told);
}

}  // namespace

std::string make_secret() {
    constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (const char byte : system_env()->random_bytes(32)) {
        text += digits[static_cast<unsigned char>(byte) >> 4];
        text += digits[byte & 15];
    }
    return text;
}

std::string make_nonce() { return make_secret().substr(0, 32); }

ServeOptions options_of(const Job& job, int64_t per_host) {
    ServeOptions options;
    options.host = job.host;
    options.port = job.port;
    options.world = job.ranks;
    options.per_host = per_host;
    options.silence = job.silence;
    options.token = {job.token, job.id, job.generation, job.run};
    return options;
}

std::unique_ptr<RendezvousService> serve(RendezvousBackend& backend, ServeOptions options) {
    constexpr int64_t strangers = 64, others = 32;  // open files: for unauthenticated connections, for all else
    need_descriptors(options.world + strangers + others, fmt::format("the rendezvous of {} ranks", options.world));
    options.explain = explain_told;
    options.seen = [](const std::string& position) {
        const Position last = Position::decode(position);
        return last.of > 0 ? last.text : "";
    };
    return backend.serve(options);
}

std::unique_ptr<RendezvousService> serve(RendezvousBackend& backend, const Job& job) {
    ServeOptions options = options_of(job, per_host(job));
    options.home = job.rank;
    return serve(backend, options);
}

Loss loss_of(Fault fault, const Message& why, std::string_view site) {
    Loss loss{.site = std::string(site), .text = why};
    loss.cause = fault == Fault::usage ? Cause::mistake : fault == Fault::requeue ? Cause::stopped : Cause::error;
    loss.code = fault == Fault::usage ? 2 : fault == Fault::requeue ? 75 : 1;
    return loss;
}

Loss end_by(const Job& job, const std::exception& error, std::string_view site, const Loss& heard) {
    const Fault fault = fault_of(error);
    Loss loss = loss_of(fault, explain(error), site);
    loss.rank = job.rank;
    if (fault != Fault::peer) return loss;
    loss.cause = Cause::hang;
    loss.hearsay = true;
    loss.rank = heard.rank;
    loss.node = heard.node;
    if (heard) loss.site = heard.site;
    if (const auto* absent = dynamic_cast<const Absent*>(&error); absent && !heard) loss.rank = absent->rank;
    return loss;
}

JoinOptions place_of(const Job& job) {
    JoinOptions options;
    options.host = job.host;
    options.port = job.port;
    options.rank = job.rank;
    options.nonce = job.nonce;
    options.silence = job.silence;
    options.token = {job.token, job.id, job.generation, job.run};
    return options;
}

}  // namespace orrery

// Out-of-line anchors of the interfaces: one vtable each, in liborrery.so.
#include "orrery/checkpoint.h"
#include "orrery/communicator.h"
#include "orrery/data.h"
#include "orrery/device.h"
#include "orrery/strategy.h"

namespace orrery {

EventSource::~EventSource() = default;
Kernel::~Kernel() = default;
Device::~Device() = default;
std::unique_ptr<Kernel> Device::capture(const std::function<void()>&, std::string& why_not) {
    why_not = "the device captures nothing";
    return nullptr;
}
void Device::use_products(std::string_view name) {
    throw Error("products \"" + std::string(name) + "\": the device has one kind");
}
Rendezvous::~Rendezvous() = default;
Transport::~Transport() = default;
Strategy::~Strategy() = default;
CheckpointStore::~CheckpointStore() = default;
std::vector<Stray> CheckpointStore::strays() { return {}; }

DataSource::~DataSource() = default;
std::string DataSource::path() const { return ""; }
std::string DataSource::require_unchanged() { return ""; }
std::vector<std::pair<std::string, int64_t>> DataSource::identity() const { return {{"data_samples", samples()}}; }
int64_t DataSource::vocabulary() const {
    throw Error(place() + " has no ids, and so no vocabulary\n  give the model its sizes in the script");
}

void CheckpointStore::put_parts(int64_t step, std::string_view key, std::span<const std::span<const std::byte>> parts) {
    std::vector<std::byte> whole;
    for (const auto& part : parts) whole.insert(whole.end(), part.begin(), part.end());
    put(step, key, whole);
}

std::string TransportContract::text() const {
    std::string all = send == Send::rendezvous ? "rendezvous sends"
                      : send == Send::grouped  ? "grouped sends"
                                               : std::to_string(slots) + " buffered sends";
    all += lanes == Lanes::communicator ? " in one lane per communicator"
           : lanes == Lanes::peer       ? " in one lane per peer"
                                        : " in one lane per peer and direction";
    all += matching == Matching::order ? ", matched in order" : ", matched by tag";
    if (!checks_tags) all += ", tags unchecked";
    all += reduction == Reduction::by_rank ? ", reduces by rank" : ", reduces in its algorithm's order";
    if (small_bytes > 0) all += ", whole up to " + std::to_string(small_bytes) + " bytes";
    if (!in_place) all += ", not in place";
    if (!deterministic) all += ", other bits at each run";
    if (!rank_invariant) all += ", other bits on each rank";
    if (queued) all += ", queued behind the caller";
    if (needs_arena) all += ", in arenas";
    if (same_process)
        all += ", threads of one process";
    else if (same_host)
        all += ", one host";
    if (staging) all += ", stages memory of other devices";
    if (!aborts) all += ", aborts reach no peer";
    return all;
}

}  // namespace orrery

// Defines destructors of the interfaces out of line, so that each vtable is emitted once, in liborrery.so.
#include <charconv>

#include "orrery/checkpoint.h"
#include "orrery/communicator.h"
#include "orrery/data.h"
#include "orrery/device.h"
#include "orrery/engine.h"
#include "orrery/launcher.h"
#include "orrery/rendezvous.h"
#include "orrery/strategy.h"

namespace orrery {

EventSource::~EventSource() = default;
Kernel::~Kernel() = default;
Device::~Device() = default;
std::unique_ptr<Kernel> Device::capture(const std::function<void()>&, std::string& why_not) {
    why_not = "the device captures nothing";
    return nullptr;
}
Rendezvous::~Rendezvous() = default;
RendezvousService::~RendezvousService() = default;
RendezvousBackend::~RendezvousBackend() = default;
Launcher::~Launcher() = default;
Engine::~Engine() = default;

std::optional<std::string> Environment::text(const char* name) const {
    const char* text = lookup_(name);
    return text && *text ? std::optional<std::string>(text) : std::nullopt;
}
int64_t Environment::count(const char* name) const {
    const auto all = text(name);
    int64_t value = 0;
    if (!all) throw Error("environment: " + std::string(name) + " is not set, but other variables of its launcher are");
    const char* const last = all->data() + all->size();
    const auto [end, fault] = std::from_chars(all->data(), last, value);
    if (fault != std::errc() || end != last || value < 0)
        throw Error("environment: " + std::string(name) + "=" + *all + ": expected an integer of 0 or more");
    return value;
}
int64_t Environment::count_or(const char* name, int64_t otherwise) const { return has(name) ? count(name) : otherwise; }

Transport::~Transport() = default;
Strategy::~Strategy() = default;
CheckpointStore::~CheckpointStore() = default;
std::vector<Stray> CheckpointStore::strays() { return {}; }

DataOrder::~DataOrder() = default;
std::string DataOrder::told(int64_t) const { return ""; }
DataSample DataOrder::draw(Split split, int64_t index, uint64_t seed) const {
    return {position(split, index), index, seed, split, 0};
}
DataSource::~DataSource() = default;
bool DataSource::over(std::vector<DataPart>) { return false; }
std::unique_ptr<DataOrder> DataSource::order(double held_out, uint64_t seed, const Origin& asked) const {
    return permuted_order(*this, held_out, seed, asked);
}
std::string DataSource::where(const DataSample& sample) const {
    return place() + ": sample " + std::to_string(sample.number);
}
int64_t DataSource::pairs(const DataSample&) const { return 0; }
std::string DataSource::path() const { return ""; }
std::string DataSource::require_unchanged() { return ""; }
std::vector<std::pair<std::string, int64_t>> DataSource::identity() const { return {{"data_samples", samples()}}; }
int64_t DataSource::vocabulary() const {
    throw Error(place() + " has no ids, and so no vocabulary\n  give the model its sizes in the script");
}

std::string StoreContract::text() const {
    std::string all = survives == Survives::power_cut ? "survives a power cut"
                      : survives == Survives::process ? "survives its processes"
                                                      : "survives nothing";
    all += shared == Shared::hosts  ? ", shared by hosts"
           : shared == Shared::host ? ", shared by the processes of a host"
                                    : ", of one process";
    all += links ? ", links" : ", copies";
    all += fences ? ", fences" : ", fences nobody";
    return all;
}

StoreContract CheckpointStore::contract() const { return {}; }

void CheckpointStore::link(int64_t step, std::string_view key, int64_t from, std::string_view from_key) {
    const int64_t bytes = size(from, from_key);
    if (bytes < 0)
        throw Error(place() + ": step " + std::to_string(from) + " has no object \"" + std::string(from_key) + "\"",
                    Fault::failed);
    std::vector<std::byte> whole(static_cast<size_t>(bytes));
    get(from, from_key, 0, whole);
    put(step, key, whole);
}

bool CheckpointStore::claim(int64_t) { return true; }
int64_t CheckpointStore::generation() { return 0; }
void CheckpointStore::act_for(int64_t) {}
int64_t CheckpointStore::free_bytes() { return -1; }
int64_t CheckpointStore::finish_removals(bool) { return 0; }

void CheckpointStore::put_parts(int64_t step, std::string_view key, std::span<const std::span<const std::byte>> parts) {
    std::vector<std::byte> whole;
    for (const auto& part : parts) whole.insert(whole.end(), part.begin(), part.end());
    put(step, key, whole);
}

bool TransportContract::groups_messages() const {
    switch (send) {
        case Send::rendezvous:
        case Send::buffered: return false;
        case Send::grouped: return true;
    }
    return false;
}

int TransportContract::sends_done_unmet() const {
    switch (send) {
        case Send::rendezvous:
        case Send::grouped: return 0;
        case Send::buffered: return slots;
    }
    return 0;
}

std::string TransportContract::text() const {
    std::string all;
    switch (send) {
        case Send::rendezvous: all = "rendezvous sends"; break;
        case Send::buffered: all = std::to_string(slots) + " buffered sends"; break;
        case Send::grouped: all = "grouped sends"; break;
    }
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
    if (authenticates) all += ", authenticates";
    return all;
}

}  // namespace orrery

// A store: checkpoints are kept one after another in the order of their commits, and read from any place.
#include <algorithm>
#include <map>

#include "orrery/plugin.h"

namespace {

using orrery::Error;

class Tape final : public orrery::CheckpointStore {
public:
    explicit Tape(std::string place) : place_(std::move(place)) {}

    void put(int64_t step, std::string_view key, std::span<const std::byte> bytes) override {
        const auto entry = std::make_pair(step, std::string(key));
        if (!objects_.emplace(entry, std::vector<std::byte>(bytes.begin(), bytes.end())).second)
            throw Error(place_ + ": " + std::string(key) + " is there already", orrery::Fault::failed);
    }
    void flush(int64_t) override {}
    void commit(int64_t step, std::string_view manifest) override {
        if (!manifests_.emplace(step, manifest).second)
            throw Error(place_ + ": the step is committed already", orrery::Fault::failed);
    }
    void discard(int64_t step) override {
        if (manifests_.count(step)) return;
        std::erase_if(objects_, [&](const auto& entry) { return entry.first.first == step; });
    }
    std::vector<int64_t> steps() override {
        std::vector<int64_t> steps;
        for (const auto& entry : manifests_) steps.insert(steps.begin(), entry.first);
        return steps;
    }
    std::string manifest(int64_t step) override { return manifests_.at(step); }
    int64_t size(int64_t step, std::string_view key) override {
        const auto found = objects_.find({step, std::string(key)});
        return found == objects_.end() || !manifests_.count(step) ? -1 : static_cast<int64_t>(found->second.size());
    }
    void get(int64_t step, std::string_view key, int64_t offset, std::span<std::byte> bytes) override {
        const auto& object = objects_.at({step, std::string(key)});
        if (offset < 0 || offset + static_cast<int64_t>(bytes.size()) > static_cast<int64_t>(object.size()))
            throw Error(place_ + ": " + std::string(key) + " ends before that", orrery::Fault::failed);
        std::copy_n(object.begin() + offset, bytes.size(), bytes.begin());
    }
    void remove(int64_t step) override {
        manifests_.erase(step);
        marks_.erase(step);
        discard(step);
    }
    std::string set_aside(int64_t step) override {  // what is on tape stays on tape
        if (!manifests_.count(step)) return "";
        remove(step);
        return place_ + ": no more in the list";
    }
    void mark(int64_t step, std::string_view text) override { marks_.emplace(step, text); }
    std::string mark_of(int64_t step) override { return marks_.count(step) ? marks_.at(step) : ""; }
    std::string place() const override { return place_; }

private:
    std::string place_;
    std::map<std::pair<int64_t, std::string>, std::vector<std::byte>> objects_;
    std::map<int64_t, std::string> manifests_, marks_;
};

void add(orrery::Registry& registry) {
    registry.add_store("tape", [](orrery::Config& config, const std::string& place) {
        return std::make_unique<Tape>(config.text("drive", "/dev/st0") + ":" + place);
    });
}

}  // namespace

ORRERY_PLUGIN("store.tape", "0.1", add);

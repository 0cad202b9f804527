// A store: checkpoints are kept one after another in the order of their commits, and read from any place.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "orrery/plugin.h"

namespace {

using orrery::Error;

/// What lies on a tape; whoever opens it by its name shares it.
struct Reel {
    std::mutex mutex;
    std::map<std::pair<int64_t, std::string>, std::vector<std::byte>> objects;
    std::map<int64_t, std::string> manifests;
    std::map<int64_t, std::map<orrery::StepNote, std::string>> notes;
};

// Promises the least: the default contract.
class Tape final : public orrery::CheckpointStore {
public:
    Tape(std::string place, std::shared_ptr<Reel> reel) : place_(std::move(place)), reel_(std::move(reel)) {}

    void put(int64_t step, std::string_view key, std::span<const std::byte> bytes) override {
        const std::lock_guard lock(reel_->mutex);
        const auto entry = std::make_pair(step, std::string(key));
        if (!reel_->objects.emplace(entry, std::vector<std::byte>(bytes.begin(), bytes.end())).second)
            fail(std::string(key) + " is there already");
    }
    void flush(int64_t) override {}
    void commit(int64_t step, std::string_view manifest) override {
        const std::lock_guard lock(reel_->mutex);
        if (!reel_->manifests.emplace(step, manifest).second) fail("the step is committed already");
    }
    void discard(int64_t step) override {
        const std::lock_guard lock(reel_->mutex);
        if (!reel_->manifests.count(step)) erase(step);
    }
    std::vector<int64_t> steps() override {
        const std::lock_guard lock(reel_->mutex);
        std::vector<int64_t> steps;
        for (const auto& entry : reel_->manifests) steps.insert(steps.begin(), entry.first);
        return steps;
    }
    std::string manifest(int64_t step) override {
        const std::lock_guard lock(reel_->mutex);
        need(step);
        return reel_->manifests.at(step);
    }
    int64_t size(int64_t step, std::string_view key) override {
        const std::lock_guard lock(reel_->mutex);
        const auto found = reel_->objects.find({step, std::string(key)});
        const bool there = found != reel_->objects.end() && reel_->manifests.count(step) > 0;
        return there ? static_cast<int64_t>(found->second.size()) : -1;
    }
    void get(int64_t step, std::string_view key, int64_t offset, std::span<std::byte> bytes) override {
        const std::lock_guard lock(reel_->mutex);
        need(step);
        const auto found = reel_->objects.find({step, std::string(key)});
        if (found == reel_->objects.end()) fail("there is no " + std::string(key));
        const auto size = static_cast<int64_t>(found->second.size());
        if (offset < 0 || offset > size || static_cast<int64_t>(bytes.size()) > size - offset)
            fail(std::string(key) + " ends before that");
        std::copy_n(found->second.begin() + offset, bytes.size(), bytes.begin());
    }
    void remove(int64_t step) override {
        const std::lock_guard lock(reel_->mutex);
        need(step);
        forget(step);
    }
    std::string set_aside(int64_t step) override {  // what is on tape stays on tape
        const std::lock_guard lock(reel_->mutex);
        if (!reel_->manifests.count(step)) return "";
        forget(step);
        return place_ + ": no more in the list";
    }
    std::string note(int64_t step, orrery::StepNote which) override {
        const std::lock_guard lock(reel_->mutex);
        need(step);
        return reel_->notes[step][which];
    }
    void set_note(int64_t step, orrery::StepNote which, std::string_view text) override {
        const std::lock_guard lock(reel_->mutex);
        need(step);
        reel_->notes[step][which] = text;
    }
    std::string place() const override { return place_; }

private:
    [[noreturn]] void fail(const std::string& what) const { throw Error(place_ + ": " + what, orrery::Fault::failed); }
    void need(int64_t step) const {
        if (!reel_->manifests.count(step)) fail("step " + std::to_string(step) + " is not committed");
    }
    void erase(int64_t step) {
        std::erase_if(reel_->objects, [&](const auto& entry) { return entry.first.first == step; });
    }
    void forget(int64_t step) {
        reel_->manifests.erase(step);
        reel_->notes.erase(step);
        erase(step);
    }

    std::string place_;
    std::shared_ptr<Reel> reel_;
};

struct Reels {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<Reel>> by_place;
};

void add(orrery::Registry& registry) {
    registry.add_store("tape", [reels = std::make_shared<Reels>()](orrery::Config& config, const std::string& where) {
        const std::string place = config.text("drive", "/dev/st0") + ":" + where;
        const std::lock_guard lock(reels->mutex);
        std::shared_ptr<Reel>& reel = reels->by_place[place];
        if (!reel) reel = std::make_shared<Reel>();
        return std::make_unique<Tape>(place, reel);
    });
}

}  // namespace

ORRERY_PLUGIN("store.tape", "0.1", add);

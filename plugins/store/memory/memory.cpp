// Checkpoints in this process' memory: for tests and for ranks that are threads. Every store made from one registry
// for one place shares its steps; they end with the registry and the last store.
#include <algorithm>
#include <map>
#include <mutex>

#include "orrery/plugin.h"

namespace {

using orrery::Error;
using orrery::Fault;

struct Step {
    std::map<std::string, std::vector<std::byte>, std::less<>> objects;
    std::string manifest, mark;
    bool committed = false;
};

struct Place {
    std::mutex mutex;
    std::map<int64_t, Step> steps;
    std::vector<Step> aside;
};

struct Places {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<Place>> by_name;

    std::shared_ptr<Place> at(const std::string& name) {
        const std::lock_guard lock(mutex);
        auto& place = by_name[name];
        if (!place) place = std::make_shared<Place>();
        return place;
    }
};

class Memory final : public orrery::CheckpointStore {
public:
    Memory(std::string name, std::shared_ptr<Place> place) : name_(std::move(name)), place_(std::move(place)) {}

    void put(int64_t step, std::string_view key, std::span<const std::byte> bytes) override {
        const std::lock_guard lock(place_->mutex);
        Step& open = place_->steps[step];
        if (open.committed) fail(step, "is committed, nothing can be added");
        if (!open.objects.emplace(key, std::vector<std::byte>(bytes.begin(), bytes.end())).second)
            fail(step, "has the object \"" + std::string(key) + "\" already");
    }

    void flush(int64_t) override {}

    void commit(int64_t step, std::string_view manifest) override {
        const std::lock_guard lock(place_->mutex);
        Step& open = place_->steps[step];
        if (open.committed) fail(step, "is committed already");
        open.manifest = manifest;
        open.committed = true;
    }

    void discard(int64_t step) override {
        const std::lock_guard lock(place_->mutex);
        const auto found = place_->steps.find(step);
        if (found != place_->steps.end() && !found->second.committed) place_->steps.erase(found);
    }

    std::vector<int64_t> steps() override {
        const std::lock_guard lock(place_->mutex);
        std::vector<int64_t> steps;
        for (const auto& [number, step] : place_->steps) {
            if (step.committed) steps.push_back(number);
        }
        std::reverse(steps.begin(), steps.end());
        return steps;
    }

    std::string manifest(int64_t step) override {
        const std::lock_guard lock(place_->mutex);
        return committed(step).manifest;
    }

    int64_t size(int64_t step, std::string_view key) override {
        const std::lock_guard lock(place_->mutex);
        const auto found = place_->steps.find(step);
        if (found == place_->steps.end() || !found->second.committed) return -1;
        const auto object = found->second.objects.find(key);
        return object == found->second.objects.end() ? -1 : static_cast<int64_t>(object->second.size());
    }

    void get(int64_t step, std::string_view key, int64_t offset, std::span<std::byte> bytes) override {
        const std::lock_guard lock(place_->mutex);
        const Step& from = committed(step);
        const auto object = from.objects.find(key);
        if (object == from.objects.end()) fail(step, "has no object \"" + std::string(key) + "\"");
        const auto held = static_cast<int64_t>(object->second.size());
        const auto wanted = static_cast<int64_t>(bytes.size());
        if (offset < 0 || wanted > held - offset)
            fail(step, "has " + std::to_string(held) + " bytes in \"" + std::string(key) + "\", asked for " +
                           std::to_string(wanted) + " from byte " + std::to_string(offset));
        std::copy_n(object->second.begin() + offset, bytes.size(), bytes.begin());
    }

    void remove(int64_t step) override {
        const std::lock_guard lock(place_->mutex);
        committed(step);
        place_->steps.erase(step);
    }

    std::string set_aside(int64_t step) override {
        const std::lock_guard lock(place_->mutex);
        auto found = place_->steps.extract(step);
        if (found.empty()) return "";
        place_->aside.push_back(std::move(found.mapped()));
        return name_ + ": aside " + std::to_string(place_->aside.size());
    }

    void mark(int64_t step, std::string_view text) override {
        const std::lock_guard lock(place_->mutex);
        committed(step);
        if (std::string& kept = place_->steps[step].mark; kept.empty()) kept = text;
    }

    std::string mark_of(int64_t step) override {
        const std::lock_guard lock(place_->mutex);
        return committed(step).mark;
    }

    std::string place() const override { return name_; }

private:
    [[noreturn]] void fail(int64_t step, const std::string& what) const {
        throw Error(name_ + ": step " + std::to_string(step) + " " + what, Fault::failed);
    }

    const Step& committed(int64_t step) const {
        const auto found = place_->steps.find(step);
        if (found == place_->steps.end() || !found->second.committed) fail(step, "is not committed");
        return found->second;
    }

    std::string name_;
    std::shared_ptr<Place> place_;
};

void add(orrery::Registry& registry) {
    registry.add_store("memory", [places = std::make_shared<Places>()](orrery::Config&, const std::string& place) {
        return std::make_unique<Memory>(place, places->at(place));
    });
}

}  // namespace

ORRERY_PLUGIN("store.memory", "0.1", add);

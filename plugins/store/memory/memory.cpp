// Stores checkpoints in the memory of this process, for tests and for ranks that are threads. All stores that one
// registry makes for the same place share its steps. The steps are freed with the registry and the last store.
#include <algorithm>
#include <map>
#include <mutex>

#include "orrery/plugin.h"

namespace {

using orrery::Error;
using orrery::Fault;

using Bytes = std::shared_ptr<const std::vector<std::byte>>;  // shared by linked objects

struct Step {
    std::map<std::string, Bytes, std::less<>> objects;
    std::string manifest;
    std::map<orrery::StepNote, std::string> notes;
    int64_t generation = 0;  ///< generation that began it; 0: none
    bool committed = false;
};

struct Place {
    std::mutex mutex;
    std::map<int64_t, Step> steps;
    std::vector<Step> aside;
    int64_t generation = 0;  ///< newest claimed generation; 0: none
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

    orrery::StoreContract contract() const override {
        return {orrery::StoreContract::Survives::nothing, orrery::StoreContract::Shared::process, true, true};
    }

    void put(int64_t step, std::string_view key, std::span<const std::byte> bytes) override {
        add(step, key, std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end()));
    }

    void link(int64_t step, std::string_view key, int64_t from, std::string_view from_key) override {
        Bytes bytes;
        {
            const std::lock_guard lock(place_->mutex);
            bytes = object(from, from_key);
        }
        add(step, key, std::move(bytes));
    }

    void flush(int64_t step) override {
        const std::lock_guard lock(place_->mutex);
        need_current(step);
    }

    void commit(int64_t step, std::string_view manifest) override {
        const std::lock_guard lock(place_->mutex);
        Step& open = opened(step);
        if (open.committed) fail(step, "is committed already");
        open.manifest = manifest;
        open.committed = true;
    }

    void discard(int64_t step) override {
        const std::lock_guard lock(place_->mutex);
        need_current(step);
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
        return object == found->second.objects.end() ? -1 : static_cast<int64_t>(object->second->size());
    }

    void get(int64_t step, std::string_view key, int64_t offset, std::span<std::byte> bytes) override {
        const std::lock_guard lock(place_->mutex);
        const Bytes from = object(step, key);
        const auto held = static_cast<int64_t>(from->size());
        const auto wanted = static_cast<int64_t>(bytes.size());
        if (offset < 0 || wanted > held - offset)
            fail(step, "has " + std::to_string(held) + " bytes in \"" + std::string(key) + "\", asked for " +
                           std::to_string(wanted) + " from byte " + std::to_string(offset));
        std::copy_n(from->begin() + offset, bytes.size(), bytes.begin());
    }

    void remove(int64_t step) override {
        const std::lock_guard lock(place_->mutex);
        need_current(step);
        committed(step);
        place_->steps.erase(step);
    }

    std::string set_aside(int64_t step) override {
        const std::lock_guard lock(place_->mutex);
        need_current(step);
        auto found = place_->steps.extract(step);
        if (found.empty()) return "";
        place_->aside.push_back(std::move(found.mapped()));
        return name_ + ": aside " + std::to_string(place_->aside.size());
    }

    std::string note(int64_t step, orrery::StepNote which) override {
        const std::lock_guard lock(place_->mutex);
        const auto& notes = committed(step).notes;
        const auto found = notes.find(which);
        return found == notes.end() ? "" : found->second;
    }

    void set_note(int64_t step, orrery::StepNote which, std::string_view text) override {
        const std::lock_guard lock(place_->mutex);
        need_current(step);
        committed(step);
        place_->steps[step].notes[which] = text;
    }

    bool claim(int64_t generation) override {
        const std::lock_guard lock(place_->mutex);
        if (generation <= place_->generation) return false;
        place_->generation = generation;
        std::erase_if(place_->steps, [&](const auto& entry) {
            return !entry.second.committed && entry.second.generation > 0 && entry.second.generation < generation;
        });
        return true;
    }

    int64_t generation() override {
        const std::lock_guard lock(place_->mutex);
        return place_->generation;
    }

    void act_for(int64_t generation) override { acts_for_ = generation; }

    std::string place() const override { return name_; }

private:
    [[noreturn]] void fail(int64_t step, const std::string& what) const {
        throw Error(name_ + ": step " + std::to_string(step) + " " + what, Fault::failed);
    }

    void need_current(int64_t step) const {
        if (acts_for_ > 0 && place_->generation > acts_for_)
            fail(step, "belongs to generation " + std::to_string(place_->generation) +
                           " of the job; this process is of the older generation " + std::to_string(acts_for_) +
                           " and must not write any more");
    }

    /// The step that is written to. Begins it if it does not exist.
    Step& opened(int64_t step) {
        need_current(step);
        const auto [found, fresh] = place_->steps.try_emplace(step);
        if (fresh) found->second.generation = acts_for_;
        return found->second;
    }

    void add(int64_t step, std::string_view key, Bytes bytes) {
        const std::lock_guard lock(place_->mutex);
        Step& open = opened(step);
        if (open.committed) fail(step, "is committed already, so nothing can be added");
        if (!open.objects.emplace(key, std::move(bytes)).second)
            fail(step, "has the object \"" + std::string(key) + "\" already");
    }

    Bytes object(int64_t step, std::string_view key) const {
        const Step& from = committed(step);
        const auto found = from.objects.find(key);
        if (found == from.objects.end()) fail(step, "has no object \"" + std::string(key) + "\"");
        return found->second;
    }

    const Step& committed(int64_t step) const {
        const auto found = place_->steps.find(step);
        if (found == place_->steps.end() || !found->second.committed) fail(step, "is not committed");
        return found->second;
    }

    std::string name_;
    std::shared_ptr<Place> place_;
    int64_t acts_for_ = 0;  ///< generation that this store acts for; 0: none
};

void add(orrery::Registry& registry) {
    registry.add_store("memory", [places = std::make_shared<Places>()](orrery::Config&, const std::string& place) {
        return std::make_unique<Memory>(place, places->at(place));
    });
}

}  // namespace

ORRERY_PLUGIN("store.memory", "0.1", add);

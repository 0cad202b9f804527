// A store that breaks one rule of orrery/checkpoint.h, which its key `fault` names; otherwise the template's.
#include "orrery/plugin.h"
#pragma push_macro("ORRERY_PLUGIN")
#undef ORRERY_PLUGIN
#define ORRERY_PLUGIN(...) static_assert(true)
#include "../scripts/templates/store/sundial.cpp"
#pragma pop_macro("ORRERY_PLUGIN")
#include "forwarding_store.h"

namespace {

class Wrong final : public orrery::test::ForwardingStore {
public:
    Wrong(std::unique_ptr<orrery::CheckpointStore> inner, std::string fault)
        : ForwardingStore(std::move(inner)), fault_(std::move(fault)) {}

    orrery::StoreContract contract() const override {
        orrery::StoreContract contract = inner_->contract();
        contract.fences = fault_ == "fences";  // it grants every claim
        return contract;
    }
    void put(int64_t step, std::string_view key, std::span<const std::byte> bytes) override {
        if (fault_ == "drops") fs::remove_all(inner_->place() + "/" + std::to_string(step) + ".open");
        try {
            inner_->put(step, key, bytes);
        } catch (const orrery::Error&) {
            if (fault_ != "replace") throw;
        }
    }
    std::vector<int64_t> steps() override {
        std::vector<int64_t> all = inner_->steps();
        if (fault_ == "order") std::reverse(all.begin(), all.end());
        return all;
    }
    void get(int64_t step, std::string_view key, int64_t offset, std::span<std::byte> bytes) override {
        try {
            inner_->get(step, key, offset, bytes);
        } catch (const orrery::Error&) {
            if (fault_ != "short") throw;
        }
    }
    void set_note(int64_t step, orrery::StepNote which, std::string_view text) override {
        if (fault_ != "note" || !text.empty()) inner_->set_note(step, which, text);  // none is taken off
    }
    std::string set_aside(int64_t step) override {
        if (fault_ != "aside") return inner_->set_aside(step);
        return std::to_string(step) + " stays where it is";
    }

private:
    std::string fault_;
};

void add_wrong(orrery::Registry& registry) {
    registry.add_store("wrong", [](orrery::Config& config, const std::string& place) {
        return std::make_unique<Wrong>(std::make_unique<Sundial>(place), config.text("fault", ""));
    });
}

}  // namespace

ORRERY_PLUGIN("store.wrong", "0.1", add_wrong);

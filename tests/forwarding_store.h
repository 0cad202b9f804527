// A store that hands everything to another one: for those that look at, or spoil, some of it.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "orrery/checkpoint.h"

namespace orrery::test {

/// Objects in parts come as one, by put.
class ForwardingStore : public CheckpointStore {
public:
    explicit ForwardingStore(std::unique_ptr<CheckpointStore> inner) : inner_(std::move(inner)) {}

    StoreContract contract() const override { return inner_->contract(); }
    void put(int64_t step, std::string_view key, std::span<const std::byte> bytes) override {
        inner_->put(step, key, bytes);
    }
    void link(int64_t step, std::string_view key, int64_t from, std::string_view from_key) override {
        inner_->link(step, key, from, from_key);
    }
    void flush(int64_t step) override { inner_->flush(step); }
    void commit(int64_t step, std::string_view manifest) override { inner_->commit(step, manifest); }
    void discard(int64_t step) override { inner_->discard(step); }
    std::vector<int64_t> steps() override { return inner_->steps(); }
    std::string manifest(int64_t step) override { return inner_->manifest(step); }
    int64_t size(int64_t step, std::string_view key) override { return inner_->size(step, key); }
    void get(int64_t step, std::string_view key, int64_t offset, std::span<std::byte> bytes) override {
        inner_->get(step, key, offset, bytes);
    }
    void remove(int64_t step) override { inner_->remove(step); }
    int64_t finish_removals(bool only_look) override { return inner_->finish_removals(only_look); }
    std::vector<Stray> strays() override { return inner_->strays(); }
    std::string set_aside(int64_t step) override { return inner_->set_aside(step); }
    std::string note(int64_t step, StepNote which) override { return inner_->note(step, which); }
    void set_note(int64_t step, StepNote which, std::string_view text) override { inner_->set_note(step, which, text); }
    bool claim(int64_t generation) override { return inner_->claim(generation); }
    int64_t generation() override { return inner_->generation(); }
    void act_for(int64_t generation) override { inner_->act_for(generation); }
    int64_t free_bytes() override { return inner_->free_bytes(); }
    std::string place() const override { return inner_->place(); }
    bool is_folder() const override { return inner_->is_folder(); }

protected:
    const std::unique_ptr<CheckpointStore> inner_;
};

}  // namespace orrery::test

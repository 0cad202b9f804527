#pragma once
#include "orrery/checkpoint.h"

namespace orrery {

/// A store of which one checkpoint is seen, to be read; one that is marked as suspect, too, as somebody asked for it.
class OneStep final : public CheckpointStore {
public:
    /// Throws Error, naming the steps that there are, where the store has none of that step.
    OneStep(CheckpointStore& store, int64_t step);

    StoreContract contract() const override { return store_.contract(); }
    std::vector<int64_t> steps() override { return {step_}; }
    std::string manifest(int64_t step) override { return store_.manifest(step); }
    int64_t size(int64_t step, std::string_view key) override { return store_.size(step, key); }
    void get(int64_t step, std::string_view key, int64_t offset, std::span<std::byte> bytes) override {
        store_.get(step, key, offset, bytes);
    }
    std::string note(int64_t step, Note which) override {
        return which == Note::suspect ? "" : store_.note(step, which);
    }
    int64_t generation() override { return store_.generation(); }
    std::string place() const override { return store_.place(); }
    bool is_folder() const override { return store_.is_folder(); }

    void put(int64_t, std::string_view, std::span<const std::byte>) override { refuse(); }
    void flush(int64_t) override { refuse(); }
    void commit(int64_t, std::string_view) override { refuse(); }
    void discard(int64_t) override { refuse(); }
    void remove(int64_t) override { refuse(); }
    std::string set_aside(int64_t) override { return refuse(); }
    void set_note(int64_t, Note, std::string_view) override { refuse(); }
    void link(int64_t, std::string_view, int64_t, std::string_view) override { refuse(); }
    bool claim(int64_t) override { return refuse().empty(); }

private:
    static std::string refuse();

    CheckpointStore& store_;
    int64_t step_;
};

}  // namespace orrery

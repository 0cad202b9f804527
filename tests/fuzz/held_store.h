#pragma once
#include <cstring>
#include <map>
#include <string>

#include "orrery/checkpoint.h"
#include "target.h"

namespace orrery::fuzz {

/// A store of one step: the objects that an input makes, and one more for every other key.
struct HeldStore final : CheckpointStore {
    std::map<std::string, std::string, std::less<>> objects;
    std::string text;  ///< its manifest
    std::string any;   ///< under each further key of an object; "": there is none
    int64_t of = 0;    ///< the step

    void put(int64_t, std::string_view key, std::span<const std::byte> bytes) override {
        objects[std::string(key)] = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
    void flush(int64_t) override {}
    void commit(int64_t, std::string_view) override {}
    void discard(int64_t) override {}
    std::vector<int64_t> steps() override { return {of}; }
    std::string manifest(int64_t) override { return text; }
    int64_t size(int64_t, std::string_view key) override {
        const std::string* const bytes = object(key);
        return bytes ? static_cast<int64_t>(bytes->size()) : -1;
    }
    void get(int64_t, std::string_view key, int64_t offset, std::span<std::byte> out) override {
        const std::string* const bytes = object(key);
        require(bytes && offset >= 0 && offset <= static_cast<int64_t>(bytes->size()) &&
                    out.size() <= bytes->size() - static_cast<size_t>(offset),
                "reads stay in the object");
        std::memcpy(out.data(), bytes->data() + offset, out.size());
    }
    void remove(int64_t) override {}
    std::string set_aside(int64_t) override { return ""; }
    std::string note(int64_t, StepNote) override { return ""; }
    void set_note(int64_t, StepNote, std::string_view) override {}
    std::string place() const override { return "held"; }

private:
    const std::string* object(std::string_view key) const {
        const auto found = objects.find(key);
        if (found != objects.end()) return &found->second;
        return any.empty() || key.ends_with(".json") ? nullptr : &any;
    }
};

}  // namespace orrery::fuzz

#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "store/texts.h"
#include "suites/chosen.h"

namespace orrery::suites {

/// A store of a place that is not there yet, opened twice.
struct OpenedStore {
    std::string name;
    Scratch scratch;
    std::unique_ptr<CheckpointStore> store = open(), reader = open();

    explicit OpenedStore(std::string plugin) : name(std::move(plugin)) {}
    std::unique_ptr<CheckpointStore> open() const {
        Config config = settings("store", name);
        auto made = loaded("store", name).store(name, {})(config, scratch.path.string());
        config.reject_unused();
        return made;
    }
    /// Whether the store has what not every one must: false where it says that it lacks it. Other errors pass.
    bool has(const std::function<void()>& call, const std::string& lack) const {
        try {
            call();
        } catch (const Error& error) {
            if (std::string_view(error.what()).find(lack) == std::string_view::npos) throw;
            return false;
        }
        return true;
    }
};

}  // namespace orrery::suites

#pragma once
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
};

}  // namespace orrery::suites

#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "folders.h"
#include "plugin/loader.h"
#include "store/texts.h"

namespace orrery {

/// A store of the build's plugins, or of those that tests and templates have, with the registry that it came from.
struct TestStore {
    Registry registry;
    std::string name;

    explicit TestStore(const std::string& store) : name(store) {
        Loader({in_build("plugins"), in_build("tests/store_plugins")}).load("store", store, registry, {});
    }
    std::unique_ptr<CheckpointStore> open(const std::string& place) const {
        Config config("store." + name);
        return registry.store(name, {})(config, place);
    }
};

/// A folder of this test that does not exist yet, removed at the end.
struct Scratch {
    std::filesystem::path path;
    explicit Scratch(const std::string& name) : path(std::filesystem::path(in_build("tests")) / name) {
        std::filesystem::remove_all(path);
    }
    ~Scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
};

}  // namespace orrery

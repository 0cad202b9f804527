#pragma once
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "check_passes.h"
#include "config/load.h"
#include "folders.h"
#include "ir/op.h"
#include "orrery/data.h"
#include "plugin/loader.h"
#include "run/script_interface.h"

namespace orrery {

/// Checks that a message names a part; shows the whole where it does not.
inline bool has(const std::string& text, const std::string& part) {
    INFO(text);
    const bool found = text.find(part) != std::string::npos;
    CHECK(found);
    return found;
}

/// A data source from the plugins of this build.
inline std::unique_ptr<DataSource> built_data(std::string_view name, Config& options, const Origin& asked) {
    static Registry registry;
    Loader({in_build("plugins")}).load("data", name, registry, asked);
    return registry.data(name, asked)(options, asked);
}

/// A host that records what scripts ask for and starts nothing.
class FakeHost : public Host {
public:
    explicit FakeHost(const std::string& toml = "", const std::vector<std::string>& sets = {})
        : Host(parse_config(toml, "test.toml", sets)) {
        look = test::check_passes();
        std::vector<Axis> axes;
        Config& mesh = config_.table("mesh");
        for (const std::string& name : mesh.keys()) axes.push_back({name, mesh.integer(name, 1), false});
        mesh_ = Mesh(axes);
    }

    std::unique_ptr<Strategy> make_strategy(std::string_view name, Config& options, const Origin& asked) override {
        if (strategies) return strategies(name, options, asked);
        throw Error(asked, "no strategy \"" + std::string(name) + "\"");
    }
    std::unique_ptr<DataSource> make_data(std::string_view name, Config& options, const Origin& asked) override {
        return built_data(name, options, asked);
    }
    const OpDef& use_op(std::string_view name, const Origin& asked) override {
        static Registry registry;
        Loader({in_build("plugins")}).load_op(name, registry, asked);
        return op_def(name);
    }
    const Mesh& mesh() override { return mesh_; }
    void compile(Experiment made) override {
        make_sizes(made);  // later there is no Lua that could
        experiment = std::make_unique<Experiment>(std::move(made));
    }
    std::string summary() override { return "summary"; }
    void train(const DataSpec& spec, const TrainOptions& asked) override {
        data = spec;
        options = asked;
        ++trained;
    }
    std::string sample(const SampleOptions& asked) override {
        sampled = asked;
        return "text";
    }
    void declare_options(const std::vector<Option>& all) override {
        declared = all;
        if (on_options) on_options();
    }
    void print(const std::string& line) override { lines.push_back(line); }

    std::function<std::unique_ptr<Strategy>(std::string_view, Config&, const Origin&)> strategies;
    std::function<void()> on_options;
    std::unique_ptr<Experiment> experiment;
    DataSpec data;
    TrainOptions options;
    SampleOptions sampled;
    std::vector<Option> declared;
    std::vector<std::string> lines;
    int trained = 0;

private:
    Mesh mesh_;
};

}  // namespace orrery

// An engine that breaks one rule of orrery/engine.h, which its key `fault` names; otherwise the template's.
#include "orrery/plugin.h"
#pragma push_macro("ORRERY_PLUGIN")
#undef ORRERY_PLUGIN
#define ORRERY_PLUGIN(...) static_assert(true)
#include "../scripts/templates/engine/sundial.cpp"
#pragma pop_macro("ORRERY_PLUGIN")

#include <cstdlib>

namespace {

class Wrong final : public Engine {
public:
    explicit Wrong(Config& options)
        : fault_(std::getenv("ORRERY_TEST_FAULT") ? std::getenv("ORRERY_TEST_FAULT") : ""), right_(options) {}

    std::string text(const EngineJob& job) const override {
        EngineJob other = job;
        if (fault_ == "deaf") other.environment.pop_back();
        if (fault_ == "changes") ::setenv("SUNDIAL_SEEN", std::to_string(++texts_).c_str(), 1);
        if (fault_ == "unquoted") return right_.text(other) + "echo " + job.environment.back().second + "\n";
        return right_.text(other) + (fault_ == "counts" ? std::to_string(++texts_) : "");
    }
    EngineCall submit(const EngineJob& job, const std::string& text) const override { return right_.submit(job, text); }
    std::string name_in(const EngineJob& job, const std::string& output) const override {
        return fault_ == "nameless" ? "" : right_.name_in(job, output);
    }
    std::string own_name(const Environment& environment) const override {
        return fault_ == "always" ? "1" : right_.own_name(environment);
    }
    EngineCall status(const std::string& name) const override {
        if (fault_ == "stranger") return {{"who", name}, ""};
        return right_.status(fault_ == "other" ? "1" : name);
    }
    std::vector<EngineCall> stop(const std::string& name, bool now) const override {
        return fault_ == "endless" ? std::vector<EngineCall>() : right_.stop(name, now);
    }

private:
    const std::string fault_;
    Sundial right_;
    mutable int texts_ = 0;
};

void add_wrong(Registry& registry) {
    registry.add_engine("wrong", [](Config& options) { return std::make_unique<Wrong>(options); });
}

}  // namespace

ORRERY_PLUGIN("engine.wrong", "0.1", add_wrong);

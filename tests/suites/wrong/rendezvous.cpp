// A rendezvous that breaks one rule of orrery/rendezvous.h, which its key `fault` names; otherwise the template's.
#include "orrery/plugin.h"
#pragma push_macro("ORRERY_PLUGIN")
#undef ORRERY_PLUGIN
#define ORRERY_PLUGIN(...) static_assert(true)
#include "../scripts/templates/rendezvous/sundial.cpp"
#pragma pop_macro("ORRERY_PLUGIN")

namespace {

class WrongMember final : public orrery::Member {
public:
    WrongMember(std::unique_ptr<orrery::Member> inner, std::string fault)
        : inner_(std::move(inner)), fault_(std::move(fault)) {}

    void set(std::string_view key, std::string_view value) override {
        const size_t text = ::strnlen(value.data(), value.size());
        inner_->set(key, fault_ == "text" ? value.substr(0, text) : value);
    }
    std::string get(std::string_view key, Milliseconds timeout) override {
        if (fault_ == "early") return inner_->look(key, Milliseconds(0)).value_or("");
        return inner_->get(key, timeout);
    }
    std::optional<std::string> look(std::string_view key, Milliseconds timeout) override {
        return inner_->look(key, timeout);
    }
    void erase(std::string_view key) override { inner_->erase(key); }
    std::string absent() override { return inner_->absent(); }
    int64_t add(std::string_view key, int64_t amount) override { return inner_->add(key, amount); }
    orrery::Message lost() const override { return fault_ == "silent" ? orrery::Message() : inner_->lost(); }
    void tell_position(std::function<std::string()> position) override {
        if (fault_ != "position" || !position) return inner_->tell_position(std::move(position));
        inner_->tell_position([position] { return position() + "0"; });  // step 70
    }
    void leave() override {
        if (fault_ != "leave") inner_->leave();
    }
    void fail(const orrery::Loss& why) override { inner_->fail(why); }
    void gone(const orrery::Loss& how) override { inner_->gone(how); }
    orrery::Loss loss() const override { return inner_->loss(); }
    std::string run() const override { return inner_->run(); }

private:
    std::unique_ptr<orrery::Member> inner_;
    std::string fault_;
};

class WrongBackend final : public orrery::RendezvousBackend {
public:
    explicit WrongBackend(std::string fault) : fault_(std::move(fault)) {}

    std::unique_ptr<orrery::RendezvousService> serve(const orrery::ServeOptions& options) override {
        served_ = options.token;
        return right_.serve(options);
    }
    std::unique_ptr<orrery::Member> join(const orrery::JoinOptions& options) override {
        orrery::JoinOptions mine = options;
        if (fault_ == "token") mine.token.secret = served_.secret;  // whoever asks is let in
        if (fault_ == "hurry") mine.give_up = [] { return true; };
        return std::make_unique<WrongMember>(right_.join(mine), fault_);
    }

private:
    std::string fault_;
    orrery::JobToken served_;
    Backend right_;
};

void add_wrong(orrery::Registry& registry) {
    registry.add_rendezvous(
        "wrong", [](orrery::Config& config) { return std::make_unique<WrongBackend>(config.text("fault", "")); });
}

}  // namespace

ORRERY_PLUGIN("rendezvous.wrong", "0.1", add_wrong);

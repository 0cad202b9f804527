#include "plugin/named.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/control_groups.h"
#include "base/foreign/plugin_call.h"
#include "base/limits.h"
#include "base/text.h"
#include "orrery/codec.h"
#include "orrery/data.h"
#include "orrery/engine.h"
#include "orrery/launcher.h"
#include "orrery/op.h"
#include "orrery/rendezvous.h"

namespace orrery {
namespace {

/// Base of wrappers of objects that a plugin made. An error of the object names the plugin.
template <class Made>
class Named {
public:
    Named(std::string plugin, std::unique_ptr<Made> made) : plugin_(std::move(plugin)), made_(std::move(made)) {}

protected:
    template <class Call>
    decltype(auto) call(std::string_view function, Call&& call) const {
        return call_plugin(plugin_, function, std::forward<Call>(call));
    }

    std::string plugin_;
    std::unique_ptr<Made> made_;
};

/// Returns an object made by a plugin, wrapped in `NamedMade`; nullptr when `made` is nullptr.
template <class NamedMade, class Made, class... More>
std::unique_ptr<Made> named_made(const std::string& plugin, std::unique_ptr<Made> made, const More&... more) {
    return made ? std::make_unique<NamedMade>(plugin, std::move(made), more...) : nullptr;
}

class NamedDevice final : public Device, Named<Device> {
public:
    NamedDevice(std::string plugin, std::unique_ptr<Device> made, const DeviceFacts& facts)
        : Named(std::move(plugin), std::move(made)), in_host_memory_(facts.host_memory) {}
    DeviceLimits limits() override {
        DeviceLimits limits = call("limits", [&] { return made_->limits(); });
        if (in_host_memory_) limits.memory_bytes = std::min(limits.memory_bytes, usable_memory());
        return limits;
    }
    Memory allocate(int64_t bytes, MemoryKind kind) override {
        if (kind != MemoryKind::device || in_host_memory_) need_memory(bytes);
        return call("allocate", [&] { return made_->allocate(bytes, kind); });
    }
    void release(Memory& memory) override {
        call("release", [&] { made_->release(memory); });
    }
    std::string why_not(const KernelSpec& spec) override {
        return call("why_not", [&] { return made_->why_not(spec); });
    }
    std::unique_ptr<Kernel> prepare(const KernelSpec& spec) override {
        return call("prepare", [&] { return made_->prepare(spec); });
    }
    void launch(int queue, Kernel& kernel, std::span<const Tensor> operands, void* scratch) override {
        call("launch", [&] { made_->launch(queue, kernel, operands, scratch); });
    }
    void copy(int queue, void* to, const void* from, int64_t bytes) override {
        call("copy", [&] { made_->copy(queue, to, from, bytes); });
    }
    Event record(int queue) override {
        return call("record", [&] { return made_->record(queue); });
    }
    Event gate(int queue) override {
        return call("gate", [&] { return made_->gate(queue); });
    }
    void wait(int queue, const Event& event) override {
        call("wait", [&] { made_->wait(queue, event); });
    }
    void synchronize(int queue) override {
        call("synchronize", [&] { made_->synchronize(queue); });
    }
    void* native(int queue) override {
        return call("native", [&] { return made_->native(queue); });
    }
    ProductKinds products() override {
        return call("products", [&] { return made_->products(); });
    }
    std::string arithmetic() override {
        return call("arithmetic", [&] { return made_->arithmetic(); });
    }
    std::string machine() override {
        return call("machine", [&] { return made_->machine(); });
    }
    bool captures() override {
        return call("captures", [&] { return made_->captures(); });
    }
    // `work` is code of core: its exceptions must not name the plugin.
    std::unique_ptr<Kernel> capture(const std::function<void()>& work, std::string& why_not) override {
        return made_->capture(work, why_not);
    }

private:
    const bool in_host_memory_;
};

/// Wraps a plugin's communicator. Events that its calls return are not wrapped: they belong to the plugin's own.
class NamedCommunicator final : public Communicator, Named<Communicator> {
public:
    using Named::Named;
    const Group& group() const override { return made_->group(); }
    Event all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override {
        return call("all_reduce", [&] { return made_->all_reduce(in, out, op, after); });
    }
    Event all_gather(const Tensor& in, const Tensor& out, const Event& after) override {
        return call("all_gather", [&] { return made_->all_gather(in, out, after); });
    }
    Event reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override {
        return call("reduce_scatter", [&] { return made_->reduce_scatter(in, out, op, after); });
    }
    Event all_to_all(const Tensor& in, const Tensor& out, const Event& after) override {
        return call("all_to_all", [&] { return made_->all_to_all(in, out, after); });
    }
    Event broadcast(const Tensor& tensor, int root, const Event& after) override {
        return call("broadcast", [&] { return made_->broadcast(tensor, root, after); });
    }
    Event send(const Tensor& tensor, int peer, int64_t tag, const Event& after) override {
        return call("send", [&] { return made_->send(tensor, peer, tag, after); });
    }
    Event receive(const Tensor& tensor, int peer, int64_t tag, const Event& after) override {
        return call("receive", [&] { return made_->receive(tensor, peer, tag, after); });
    }
    void begin_group() override {
        call("begin_group", [&] { made_->begin_group(); });
    }
    void end_group() override {
        call("end_group", [&] { made_->end_group(); });
    }
    Event guard(const Event& work) override {
        return call("guard", [&] { return made_->guard(work); });
    }
    void abort(std::string_view reason) override {
        call("abort", [&] { made_->abort(reason); });
    }
    Traffic traffic() const override {
        return call("traffic", [&] { return made_->traffic(); });
    }
    bool done(uint64_t ticket) override {
        return call("done", [&] { return made_->done(ticket); });
    }
    void wait(uint64_t ticket) override {
        call("wait", [&] { made_->wait(ticket); });
    }
    void* native(uint64_t ticket) override {
        return call("native", [&] { return made_->native(ticket); });
    }
};

class NamedTransport final : public Transport, Named<Transport> {
public:
    NamedTransport(std::string plugin, std::unique_ptr<Transport> made, TransportFacts facts)
        : Named(std::move(plugin), std::move(made)), facts_(std::move(facts)) {}
    TransportContract contract() const override {
        TransportContract contract = call("contract", [&] { return made_->contract(); });
        contract.devices = facts_.devices;
        contract.same_process = facts_.same_process;
        contract.pins_ranks = facts_.pins_ranks;
        return contract;
    }
    std::unique_ptr<Communicator> make(const Group& group, Rendezvous& rendezvous, std::span<const Memory> arenas,
                                       std::chrono::milliseconds timeout) override {
        return named_made<NamedCommunicator>(
            plugin_, call("make", [&] { return made_->make(group, rendezvous, arenas, timeout); }));
    }

private:
    const TransportFacts facts_;
};

class NamedLauncher final : public Launcher, Named<Launcher> {
public:
    using Named::Named;
    bool detect(const Environment& environment) const override {
        return call("detect", [&] { return made_->detect(environment); });
    }
    LaunchedRank read(const Environment& environment) const override {
        return call("read", [&] { return made_->read(environment); });
    }
    std::string left_out(const Environment& environment) const override {
        return call("left_out", [&] { return made_->left_out(environment); });
    }
};

class NamedEngine final : public Engine, Named<Engine> {
public:
    using Named::Named;
    std::string text(const EngineJob& job) const override {
        return call("text", [&] { return made_->text(job); });
    }
    EngineCall submit(const EngineJob& job, const std::string& text) const override {
        return call("submit", [&] { return made_->submit(job, text); });
    }
    std::string name_in(const EngineJob& job, const std::string& output) const override {
        return call("name_in", [&] { return made_->name_in(job, output); });
    }
    std::string own_name(const Environment& environment) const override {
        return call("own_name", [&] { return made_->own_name(environment); });
    }
    EngineCall status(const std::string& name) const override {
        return call("status", [&] { return made_->status(name); });
    }
    std::vector<EngineCall> stop(const std::string& name, bool now) const override {
        return call("stop", [&] { return made_->stop(name, now); });
    }
    std::optional<EngineCall> logs(const std::string& name, std::optional<int64_t> rank, bool follow) const override {
        return call("logs", [&] { return made_->logs(name, rank, follow); });
    }
};

class NamedStrategy final : public Strategy, Named<Strategy> {
public:
    using Named::Named;
    void annotate(Program& program, const Mesh& mesh) override {
        call("annotate", [&] { made_->annotate(program, mesh); });
    }
    Pipeline* pipeline() override {
        return call("pipeline", [&] { return made_->pipeline(); });
    }
};

class NamedStore final : public CheckpointStore, Named<CheckpointStore> {
public:
    using Named::Named;
    StoreContract contract() const override {
        return call("contract", [&] { return made_->contract(); });
    }
    void put(int64_t step, std::string_view key, std::span<const std::byte> bytes) override {
        call("put", [&] { made_->put(step, key, bytes); });
    }
    void put_parts(int64_t step, std::string_view key, std::span<const std::span<const std::byte>> parts) override {
        call("put_parts", [&] { made_->put_parts(step, key, parts); });
    }
    void link(int64_t step, std::string_view key, int64_t from, std::string_view from_key) override {
        call("link", [&] { made_->link(step, key, from, from_key); });
    }
    void flush(int64_t step) override {
        call("flush", [&] { made_->flush(step); });
    }
    void commit(int64_t step, std::string_view manifest) override {
        call("commit", [&] { made_->commit(step, manifest); });
    }
    void discard(int64_t step) override {
        call("discard", [&] { made_->discard(step); });
    }
    std::vector<int64_t> steps() override {
        return call("steps", [&] { return made_->steps(); });
    }
    std::string manifest(int64_t step) override {
        return call("manifest", [&] { return made_->manifest(step); });
    }
    int64_t size(int64_t step, std::string_view key) override {
        return call("size", [&] { return made_->size(step, key); });
    }
    void get(int64_t step, std::string_view key, int64_t offset, std::span<std::byte> bytes) override {
        call("get", [&] { made_->get(step, key, offset, bytes); });
    }
    void remove(int64_t step) override {
        call("remove", [&] { made_->remove(step); });
    }
    int64_t finish_removals(bool only_look) override {
        return call("finish_removals", [&] { return made_->finish_removals(only_look); });
    }
    std::vector<Stray> strays() override {
        return call("strays", [&] { return made_->strays(); });
    }
    std::string set_aside(int64_t step) override {
        return call("set_aside", [&] { return made_->set_aside(step); });
    }
    std::string note(int64_t step, StepNote which) override {
        return call("note", [&] { return made_->note(step, which); });
    }
    void set_note(int64_t step, StepNote which, std::string_view text) override {
        call("set_note", [&] { made_->set_note(step, which, text); });
    }
    bool claim(int64_t generation) override {
        return call("claim", [&] { return made_->claim(generation); });
    }
    int64_t generation() override {
        return call("generation", [&] { return made_->generation(); });
    }
    void act_for(int64_t generation) override {
        call("act_for", [&] { made_->act_for(generation); });
    }
    int64_t free_bytes() override {
        return call("free_bytes", [&] { return made_->free_bytes(); });
    }
    std::string place() const override {
        return call("place", [&] { return made_->place(); });
    }
    bool is_folder() const override {
        return call("is_folder", [&] { return made_->is_folder(); });
    }
};

class NamedMember final : public Member, Named<Member> {
public:
    using Named::Named;
    void set(std::string_view key, std::string_view value) override {
        call("set", [&] { made_->set(key, value); });
    }
    std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
        return call("get", [&] { return made_->get(key, timeout); });
    }
    std::optional<std::string> look(std::string_view key, std::chrono::milliseconds timeout) override {
        return call("look", [&] { return made_->look(key, timeout); });
    }
    void erase(std::string_view key) override {
        call("erase", [&] { made_->erase(key); });
    }
    std::string absent() override {
        return call("absent", [&] { return made_->absent(); });
    }
    int64_t add(std::string_view key, int64_t amount) override {
        return call("add of a key", [&] { return made_->add(key, amount); });
    }
    Message lost() const override {
        return call("lost", [&] { return made_->lost(); });
    }
    void tell_position(std::function<std::string()> position) override {
        call("tell_position", [&] { made_->tell_position(std::move(position)); });
    }
    void leave() override {
        call("leave", [&] { made_->leave(); });
    }
    void fail(const Loss& why) override {
        call("fail", [&] { made_->fail(why); });
    }
    void gone(const Loss& how) override {
        call("gone", [&] { made_->gone(how); });
    }
    Loss loss() const override {
        return call("loss", [&] { return made_->loss(); });
    }
    std::string run() const override {
        return call("run", [&] { return made_->run(); });
    }
};

class NamedService final : public RendezvousService, Named<RendezvousService> {
public:
    using Named::Named;
    int port() const override {
        return call("port", [&] { return made_->port(); });
    }
    void fail(const Loss& why) override {
        call("fail", [&] { made_->fail(why); });
    }
    bool joined(int64_t rank) const override {
        return call("joined", [&] { return made_->joined(rank); });
    }
    bool gone(const Loss& how) override {
        return call("gone", [&] { return made_->gone(how); });
    }
    Loss loss() const override {
        return call("loss", [&] { return made_->loss(); });
    }
};

class NamedRendezvous final : public RendezvousBackend, Named<RendezvousBackend> {
public:
    using Named::Named;
    std::unique_ptr<RendezvousService> serve(const ServeOptions& options) override {
        return named_made<NamedService>(plugin_, call("serve", [&] { return made_->serve(options); }));
    }
    std::unique_ptr<Member> join(const JoinOptions& options) override {
        return named_made<NamedMember>(plugin_, call("join", [&] { return made_->join(options); }));
    }
};

class NamedOrder final : public DataOrder, Named<DataOrder> {
public:
    using Named::Named;
    int64_t samples(Split split) const override {
        return call("samples", [&] { return made_->samples(split); });
    }
    int64_t position(Split split, int64_t index) const override {
        return call("position", [&] { return made_->position(split, index); });
    }
    DataSample draw(Split split, int64_t index, uint64_t seed) const override {
        return call("draw", [&] { return made_->draw(split, index, seed); });
    }
    std::string told(int64_t drawn) const override {
        return call("told", [&] { return made_->told(drawn); });
    }
};

class NamedData final : public DataSource, Named<DataSource> {
    template <class Call>
    decltype(auto) timed(std::string_view function, Call&& one) const {
        const OpenCalls::Call open(*calls_, plugin_, function);
        return call(function, std::forward<Call>(one));
    }

public:
    NamedData(std::string plugin, std::unique_ptr<DataSource> made, std::shared_ptr<OpenCalls> calls)
        : Named(std::move(plugin), std::move(made)), calls_(std::move(calls)) {}

    bool over(std::vector<DataPart> parts) override {
        return timed("over", [&] { return made_->over(std::move(parts)); });
    }
    const std::vector<DataArray>& arrays() const override {
        return timed("arrays", [&]() -> const std::vector<DataArray>& { return made_->arrays(); });
    }
    int64_t vocabulary() const override {
        return timed("vocabulary", [&] { return made_->vocabulary(); });
    }
    bool byte_ids() const override {
        return timed("byte_ids", [&] { return made_->byte_ids(); });
    }
    std::string path() const override {
        return timed("path", [&] { return made_->path(); });
    }
    bool complete() const override {
        return timed("complete", [&] { return made_->complete(); });
    }
    void open(int64_t ids) override {
        timed("open", [&] { made_->open(ids); });
    }
    int64_t samples() const override {
        return timed("samples", [&] { return made_->samples(); });
    }
    std::unique_ptr<DataOrder> order(double held_out, uint64_t seed, const Origin& asked) const override {
        return named_made<NamedOrder>(plugin_, timed("order", [&] { return made_->order(held_out, seed, asked); }));
    }
    std::string where(const DataSample& sample) const override {
        return timed("where", [&] { return made_->where(sample); });
    }
    int64_t pairs(const DataSample& sample) const override {
        return timed("pairs", [&] { return made_->pairs(sample); });
    }
    const std::string& digest() const override {
        return timed("digest", [&]() -> const std::string& { return made_->digest(); });
    }
    std::vector<std::pair<std::string, int64_t>> identity() const override {
        return timed("identity", [&] { return made_->identity(); });
    }
    void read(size_t array, const DataSample& sample, const Shape& offset, const Tensor& block) const override {
        const OpenCalls::Call open(*calls_, plugin_, "read", sample.number);
        last_read_of() = plugin_;
        try {
            made_->read(array, sample, offset, block);
        } catch (...) {
            throw_of_plugin(plugin_,
                            fmt::format("read of {} of sample {}", quote(made_->arrays()[array].name), sample.number));
        }
    }
    std::string require_unchanged() override {
        return timed("require_unchanged", [&] { return made_->require_unchanged(); });
    }
    std::string place() const override {
        return timed("place", [&] { return made_->place(); });
    }

private:
    std::shared_ptr<OpenCalls> calls_;
};

/// Returns a plugin's factory, changed so that it wraps what it makes in `NamedMade` and its errors name the plugin.
template <class NamedMade, class Factory, class... More>
Factory named_factory(const std::string& plugin, const Factory& make, const More&... more) {
    if (!make) return make;
    return [plugin, make, more...](auto&&... options) {
        auto made =
            call_plugin(plugin, "its factory", [&] { return make(std::forward<decltype(options)>(options)...); });
        return named_made<NamedMade>(plugin, std::move(made), more...);
    };
}

DataFactory named_data(const std::string& plugin, const DataFactory& make, const std::shared_ptr<OpenCalls>& calls) {
    if (!make) return make;
    return [plugin, make, calls](Config& options, const Origin& asked) -> std::unique_ptr<DataSource> {
        const OpenCalls::Call open(*calls, plugin, "its factory");
        auto made = call_plugin(plugin, "its factory", [&] { return make(options, asked); });
        if (!made) return made;
        return std::make_unique<NamedData>(plugin, std::move(made), calls);
    };
}

template <class Result, class... Given>
std::function<Result(Given...)> named_call(const std::string& plugin, const std::string& what,
                                           const std::function<Result(Given...)>& call) {
    if (!call) return call;
    return [plugin, what, call](Given... given) { return call_plugin(plugin, what, [&] { return call(given...); }); };
}

Codec named_codec(const std::string& plugin, Codec codec) {
    codec.encode = named_call(plugin, "encode", codec.encode);
    codec.decode = named_call(plugin, "decode", codec.decode);
    codec.keep = named_call(plugin, "keep", codec.keep);
    for (CodeRound& round : codec.rounds) {
        round.encode = named_call(plugin, "encode", round.encode);
        round.make = named_call(plugin, "make", round.make);
    }
    return codec;
}

KernelMaker named_kernel(const std::string& plugin, const std::string& op, const KernelMaker& make) {
    return [plugin, what = "the kernel of " + op, make](const KernelSpec& spec, int threads) {
        OpKernel kernel = call_plugin(plugin, what, [&] { return make(spec, threads); });
        if (kernel.launch)
            kernel.launch = [plugin, what, launch = std::move(kernel.launch)](const KernelCall& call) {
                call_plugin(plugin, what, [&] { launch(call); });
            };
        return kernel;
    };
}

}  // namespace

Registry named(const std::string& plugin, const Registry& alone, const PluginFacts& facts,
               const std::shared_ptr<OpenCalls>& calls) {
    Registry all;
    for (const std::string& full : alone.names()) {
        const size_t cut = full.find('/');
        const std::string kind = full.substr(0, cut), name = full.substr(cut + 1);
        if (kind == "device")
            all.add_device(name, named_factory<NamedDevice>(plugin, alone.device(name, {}), facts.of_device()));
        if (kind == "transport")
            all.add_transport(name,
                              named_factory<NamedTransport>(plugin, alone.transport(name, {}), facts.of_transport()));
        if (kind == "strategy") all.add_strategy(name, named_factory<NamedStrategy>(plugin, alone.strategy(name, {})));
        if (kind == "store") all.add_store(name, named_factory<NamedStore>(plugin, alone.store(name, {})));
        if (kind == "rendezvous")
            all.add_rendezvous(name, named_factory<NamedRendezvous>(plugin, alone.rendezvous(name, {})));
        if (kind == "launcher") all.add_launcher(name, named_factory<NamedLauncher>(plugin, alone.launcher(name, {})));
        if (kind == "engine") all.add_engine(name, named_factory<NamedEngine>(plugin, alone.engine(name, {})));
        if (kind == "codec") all.add_codec(name, named_codec(plugin, alone.codec(name, {})));
        if (kind == "data") all.add_data(name, named_data(plugin, alone.data(name, {}), calls));
    }
    for (const auto& op : alone.ops()) all.add_op(*op);
    for (const Registry::AddedKernel& kernel : alone.kernels())
        all.add_kernel(kernel.op, kernel.device_kind, named_kernel(plugin, kernel.op, kernel.make));
    return all;
}

}  // namespace orrery

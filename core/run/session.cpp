#include "run/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/hash.h"
#include "base/limits.h"
#include "base/text.h"
#include "run/address.h"
#include "run/chunk_communicator.h"
#include "run/group.h"
#include "run/initial.h"
#include "run/overlap.h"
#include "run/staged_communicator.h"

namespace orrery {
namespace {

constexpr auto late = std::chrono::milliseconds(1500);
constexpr auto settled = std::chrono::milliseconds(300);  // by then news of a lost rank has come

/// The memory that every transport of the mesh can use.
MemoryKind wanted_memory(const std::map<std::string, TransportContract>& contracts) {
    for (const auto& [axis, contract] : contracts)
        if (contract.needs_arena && !contract.memory.empty()) return contract.memory.front();
    return MemoryKind::device;
}

}  // namespace

Session::Session(const Settings& settings, Config& config, const Registry& registry, const Job& job, Compiled compiled,
                 std::unique_ptr<Device> device, bool* met)
    : settings_(settings), job_(job), compiled_(std::move(compiled)) {
    meet();
    if (met) *met = true;
    try {
        start(config, registry, std::move(device));
    } catch (const std::exception& error) {
        ends_by_itself();
        const auto* own = dynamic_cast<const Error*>(&error);
        if (own && own->fault() == Fault::peer && other_stopped())
            throw Error(orrery::other_stopped, Fault::requeue);
        fail(explain(error));  // the others wait for this rank: they must know why it does not come
        throw;
    }
}

void Session::start(Config& config, const Registry& registry, std::unique_ptr<Device> device) {
    agree("settings", settings_of(config));
    Agreement same = compiled_.agreement();
    same.emplace_back("the device", settings_.device);  // some capture their steps, others would wait for their vote
    agree("plan", same);
    device_ = device ? std::move(device) : make_device(settings_, config, registry, job_);
    bound_ =
        settings_.timeout_given ? settings_.timeout : generous_bound(compiled_, device_->limits().matrix_flops_f32);
    allocate();
    connect(config, registry);
    if (compiled_.train) train_ = executor(*compiled_.train);
    for (const Plan& plan : compiled_.smaller) smaller_.push_back(executor(plan));
    if (compiled_.eval) eval_ = executor(*compiled_.eval);
    if (compiled_.logits) logits_ = executor(*compiled_.logits);
    watch();
    if (exchange_) exchange_->wait_for(bound_, "run.timeout_s");
}

std::unique_ptr<Executor> Session::executor(const Plan& plan) {
    std::vector<Communicator*> by_axis;
    for (const auto& c : communicators_) by_axis.push_back(c.get());
    auto made =
        std::make_unique<Executor>(plan, job_.rank, *device_, std::move(by_axis), arenas_[0].data, arenas_[1].data);
    if (rendezvous_)
        made->capture_together([this](const std::string& mine) { return exchange("captured step", mine); });
    if (thread_) made->collectives_by(*thread_);
    return made;
}

Session::~Session() {
    answer_.reset();
    if (rendezvous_) rendezvous_->tell_position({});
    train_.reset();
    smaller_.clear();
    eval_.reset();
    logits_.reset();
    if (thread_ && !thread_->idle())
        for (const auto& communicator : communicators_)
            if (communicator) communicator->abort("this rank ends in the middle of a step");
    thread_.reset();
    communicators_.clear();
    transports_.clear();
    if (device_)
        for (auto arena = arenas_.rbegin(); arena != arenas_.rend(); ++arena) device_->release(*arena);
}

void Session::meet() {
    if (job_.ranks == 1) {
        answer_.emplace(std::function<void()>());
        return;
    }
    need_descriptors(compiled_.mesh);
    const JobToken token{job_.token, job_.id, job_.generation};
    if (job_.serves) server_ = serve(job_);
    TcpRendezvous::Options options;
    options.host = job_.host;
    options.port = job_.port;
    options.rank = job_.rank;
    options.world = job_.ranks;
    options.per_host = per_host(job_);
    options.token = token;
    options.timeout = settings_.join_timeout;
    rendezvous_ = std::make_unique<TcpRendezvous>(options);
    exchange_.emplace(*rendezvous_, std::to_string(job_.session), job_.rank, job_.ranks, settings_.join_timeout);
    answer_.emplace([this] { tell_stopped(); });
}

/// The store closes this connection when it has told the others.
void Session::tell_stopped() {
    rendezvous_->fail(stopped_early);
    for (int i = 0; i < 100 && rendezvous_->lost().empty(); ++i) std::this_thread::sleep_for(settled / 30);
}

bool Session::other_stopped() const {
    if (!rendezvous_) return false;
    // A transport may see a process end before this one's link has read why.
    for (int i = 0; i < 30 && rendezvous_->lost().empty(); ++i) std::this_thread::sleep_for(settled / 30);
    return says_stopped_early(rendezvous_->lost());
}

void Session::agree(const std::string& topic, const Agreement& parts) {
    if (!rendezvous_) return;
    std::vector<std::string> texts = exchange(topic, host_name() + "\n" + encode(parts)), hosts;
    for (std::string& text : texts) {
        const size_t line = std::min(text.find('\n'), text.size() - 1);
        hosts.push_back(text.substr(0, line));
        text.erase(0, line + 1);
    }
    require_agreement(texts, hosts);
}

std::vector<std::string> Session::exchange(const std::string& topic, const std::string& text, Patience patience) {
    return exchange_ ? exchange_->all(topic, text, patience) : std::vector{text};
}

std::vector<std::string> Session::to_first(const std::string& topic, const std::string& text, Patience patience) {
    return exchange_ ? exchange_->to_first(topic, text, patience) : std::vector{text};
}

void Session::allocate() {
    const MemoryKind kind = wanted_memory(compiled_.contracts);
    arenas_.push_back(device_->allocate(compiled_.persistent_bytes(), kind));
    arenas_.push_back(device_->allocate(compiled_.scratch_bytes(), kind));
}

void Session::connect(Config& config, const Registry& registry) {
    const Mesh& mesh = compiled_.mesh;
    communicators_.resize(mesh.axes().size());
    const Overlapping beside = overlapping(settings_, job_, compiled_);
    notes_ = beside.notes;
    for (size_t id = 0; id < mesh.axes().size(); ++id) {
        const Axis& axis = mesh.axes()[id];
        if (axis.sequential || axis.size == 1) continue;
        const std::string& name = settings_.transport_of(axis.name);
        auto& transport = transports_[name];
        if (!transport)
            transport = registry.transport(
                name, transport_origin(settings_, config, axis.name))(config.table("transport").table(name));
        const Group group = group_along(mesh, job_.rank, static_cast<AxisId>(id));
        // The watch, which knows who is behind, speaks before a transport that only knows who did not come.
        const bool staged = !serves(transport->contract(), settings_.device);
        communicators_[id] = transport->make(group, *rendezvous_, staged ? std::span<const Memory>() : arenas_,
                                             std::max(settings_.join_timeout, bound_) + late);
        const auto made = compiled_.collectives.find(axis.name);
        if (made != compiled_.collectives.end())
            communicators_[id] = std::make_unique<ChunkCommunicator>(std::move(communicators_[id]), made->second);
        if (staged) communicators_[id] = std::make_unique<StagedCommunicator>(std::move(communicators_[id]), *device_);
        if (!beside.axes.count(axis.name)) continue;
        if (!thread_) thread_ = std::make_unique<CommunicationThread>();
        communicators_[id] = std::make_unique<BackgroundCommunicator>(std::move(communicators_[id]), *thread_);
    }
}

/// Tells the others where this rank is, so that a wait beyond the bound names who is behind.
void Session::watch() {
    if (!rendezvous_) return;
    std::vector<const Executor*> executors;
    for (const auto* executor : {&train_, &eval_, &logits_})
        if (*executor) executors.push_back(executor->get());
    for (const auto& executor : smaller_) executors.push_back(executor.get());
    const bool alike = compiled_.smaller.empty();  // a step says nothing about one of a larger batch
    watch_ = std::make_unique<StepWatch>(compiled_, job_.rank, std::move(executors),
                                         StepBound(bound_, alike && !settings_.timeout_given));
    rendezvous_->tell_position([this] { return watch_->look(); });
}

void Session::initialize(uint64_t seed) {
    const Plan& plan = compiled_.train ? *compiled_.train : *compiled_.logits;
    for (size_t id = 0; id < plan.program.values.size(); ++id) {
        const Role role = plan.program.values[id].role;
        const bool here = (train_ ? *train_ : *logits_).holds(static_cast<ValueId>(id));
        if (here && (role == Role::param || role == Role::state)) fill(plan.program, static_cast<ValueId>(id), seed);
    }
    device_->synchronize(0);
}

void Session::fill(const Program& program, ValueId id, uint64_t seed) {
    const Value& value = program.value(id);
    Executor& executor = train_ ? *train_ : *logits_;
    const Tensor local = executor.tensor(id);
    const KernelSpec spec = initial_kernel(value, {local.dtype, local.shape},
                                           value.layout.offset(value.type.shape, compiled_.mesh, job_.rank));
    std::vector<Tensor> operands;
    const uint32_t word = seed_word(seed);
    Memory seed_memory;
    if (!spec.inputs.empty()) {
        seed_memory = device_->allocate(64, MemoryKind::device);
        operands.push_back({seed_memory.data, DType::u32, {}});
        upload(operands.back(), &word);
    }
    operands.push_back(local);
    const auto kernel = device_->prepare(spec);
    Memory scratch = device_->allocate(std::max<int64_t>(64, kernel->scratch_bytes()), MemoryKind::device);
    device_->launch(0, *kernel, operands, scratch.data);
    device_->synchronize(0);
    device_->release(scratch);
    if (seed_memory.data) device_->release(seed_memory);
}

void Session::upload(const Tensor& to, const void* from) {
    device_->copy(0, to.data, from, to.bytes());
    device_->synchronize(0);
}

void Session::download(void* to, const Tensor& from) {
    device_->copy(0, to, from.data, from.bytes());
    device_->synchronize(0);
}

double Session::scalar(Executor& executor, const Program& program, std::string_view result) {
    const auto id = program.result(result);
    if (!id) return 0;
    float value = 0;
    download(&value, executor.tensor(*id));
    return value;
}

void Session::fail(const std::string& why) {
    for (const auto& communicator : communicators_)
        if (communicator) communicator->abort(why);
    if (rendezvous_) rendezvous_->fail(why);
}

void Session::leave() {
    if (!rendezvous_) return;
    exchange("leave", "");
    rendezvous_->leave();
}

}  // namespace orrery

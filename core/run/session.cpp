#include "run/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <thread>

#include "base/hash.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "ir/op.h"
#include "plan/access.h"
#include "run/checkpoint/restore/init.h"
#include "run/control/address.h"
#include "run/matrix_rate.h"
#include "run/overlap.h"

namespace orrery {
namespace {

constexpr auto late = std::chrono::milliseconds(1500);
constexpr auto connecting = std::chrono::milliseconds(5000);  // added to the user's timeout: machines may be busy
constexpr auto settled = std::chrono::milliseconds(300);      // max time until a lost rank's reason arrives

/// Whether this host's ranks have more threads than the host has processors.
bool takes_turns(const Job& job, const Plan& plan) {
    return job.local_ranks * std::max(1, plan.threads_per_rank) > processors_of_host(job);
}

}  // namespace

CompileOptions compile_options(const Settings& settings, const Job& job, Device* device, const Network& contracts,
                               const std::map<std::string, std::vector<ChunkTable>>& collectives) {
    CompileOptions options;
    options.contracts = contracts;
    options.collectives = collectives;
    for (const auto& [axis, contract] : contracts) options.transports[axis] = settings.transport_of(axis);
    options.threads_per_rank = threads_of(settings, job);
    options.memory_bytes = settings.memory_bytes;
    if (!device) return options;
    options.workspace = [device](const KernelSpec& spec) -> int64_t {
        // 0 for an op that the device lacks, which a run rejects (runs_elsewhere)
        if (op_def(spec.op).elsewhere && !device->why_not(spec).empty()) return 0;
        return device->prepare(spec)->scratch_bytes();
    };
    options.runs = [device](const KernelSpec& spec) { return device->why_not(spec).empty(); };
    return options;
}

Session::Session(const Settings& settings, Config& config, const Registry& registry, const Job& job, Compiled compiled,
                 std::unique_ptr<Device> device, bool* met, Loss* end)
    : settings_(settings), job_(job), compiled_(std::move(compiled)) {
    meet(config, registry);
    if (met) *met = true;
    try {
        start(config, registry, std::move(device));
    } catch (const std::exception& error) {
        ends_by_itself();
        if (fault_of(error) == Fault::peer && other_stopped()) throw Error(orrery::other_stopped, Fault::requeue);
        if (end) *end = end_by(error);
        fail(explain(error), fault_of(error));  // the other ranks wait for this rank and must know why it ends
        throw;
    }
}

void Session::start(Config& config, const Registry& registry, std::unique_ptr<Device> device) {
    agree("settings", settings_of(config));
    Agreement same = compiled_.agreement();
    same.emplace_back("the device", settings_.device);  // compared, as a captured step needs every rank's vote
    device_ = device ? std::move(device) : make_device(settings_, config, registry, job_);
    if (const std::string kind = device_->products().in_use; !kind.empty())
        same.emplace_back("the kind of matrix products", kind);  // compared, as it affects the last bits of results
    agree("plan", same);
    bound_ =
        settings_.timeout_given ? settings_.timeout : generous_bound(compiled_, device_->limits().matrix_flops_f32);
    assemble(config, registry);
    for (const CompiledProgram& program : compiled_.programs)
        if (!is_smaller_step(program.entry, compiled_.sizes.full()))
            executors_.push_back(context_->executor(program.plan));
    if (takes_turns(job_, compiled_.train())) main().count_processor_time();
    watch();
    if (exchange_) exchange_->wait_for(bound_, "run.timeout_s");
}

std::vector<std::string> Session::settle_bits(const BitSources& code, const std::optional<BitSources>& saved,
                                              int64_t step) {
    bits_ = {{"threads_per_rank", std::to_string(compiled_.train().threads_per_rank)},
             {"mesh", compiled_.mesh.text()},
             {"device", settings_.device}};
    for (const Axis& axis : compiled_.mesh.axes())
        if (axis.size > 1) bits_.push_back({"transport of " + axis.name, settings_.transport_of(axis.name)});
    if (const std::string kind = device_->products().in_use; !kind.empty()) bits_.push_back({"products", kind});
    for (BitSource& source : bit_sources_of(device_->arithmetic())) bits_.push_back(std::move(source));
    bits_.insert(bits_.end(), code.begin(), code.end());
    const RankBits mine{host_name(), bits_};
    std::vector<std::string> lines;
    if (exchange_ && exchange_->compare("code and machine", to_json(bits_).dump(), "", WaitLimit::step)) {
        std::vector<RankBits> ranks;
        for (const std::string& text : to_first("code and machines", encode(mine), WaitLimit::step))
            ranks.push_back(decode_bits(text));
        if (job_.rank == 0) lines = bits_between(ranks);
    }
    if (const std::string since = step > 0 ? bits_since(saved, mine, step) : ""; job_.rank == 0 && !since.empty())
        lines.push_back(since);
    return lines;
}

Executor& Session::executor(const Plan& plan) {
    const auto found =
        std::find_if(executors_.begin(), executors_.end(), [&](const auto& made) { return &made->plan() == &plan; });
    if (found == executors_.end()) throw Error("program " + plan.program.name + " has no executor in this session");
    return **found;
}

std::unique_ptr<Executor>& Session::executor_slot(const ProgramEntry& step) {
    auto slot = executors_.begin();  // in the order of programs, without smaller steps
    for (const CompiledProgram& other : compiled_.programs) {
        if (is_smaller_step(other.entry, compiled_.sizes.full())) continue;
        if (other.entry.role == ProgramRole::train && other.entry.also == step.also) return *slot;
        ++slot;
    }
    throw Error("bug in Orrery: no executor of " + step.name, Fault::failed);
}

Executor& Session::train_with(const CompiledProgram& program) {
    std::unique_ptr<Executor>& old = executor_slot(program.entry);
    std::unique_ptr<Executor> made = context_->executor(program.plan);
    if (watch_) watch_->replace(*old, *made);
    if (takes_turns(job_, program.plan)) made->count_processor_time();
    old = std::move(made);
    return *old;
}

Executor& Session::add(std::shared_ptr<const CompiledProgram> program) {
    assert(job_.ranks == 1);
    auto executor = context_->executor(program->plan);
    return *added_.emplace_back(std::move(program), std::move(executor)).second;
}

Session::~Session() {
    answer_.reset();
    if (rendezvous_) rendezvous_->tell_position({});
}

void Session::meet(Config& config, const Registry& registry) {
    if (job_.ranks == 1) {
        answer_.emplace(std::function<void()>());
        return;
    }
    need_descriptors(compiled_.mesh, joined_axes(compiled_.plans()));
    backend_ = make_rendezvous(settings_.rendezvous, config, registry);
    job_.silence = settings_.silence;
    if (job_.serves) server_ = serve(*backend_, job_);
    JoinOptions options = place_of(job_);
    options.world = job_.ranks;
    options.per_host = per_host(job_);
    options.timeout = settings_.join_timeout;
    rendezvous_ = backend_->join(options);
    exchange_.emplace(*rendezvous_, std::to_string(job_.session), job_.rank, job_.ranks, settings_.join_timeout);
    answer_.emplace([this] { tell_stopped(); });
}

/// Reports to the rendezvous that this rank was stopped. Waits up to 1 s for the rendezvous to close the connection,
/// which it does after it has informed the other ranks.
void Session::tell_stopped() {
    rendezvous_->fail(loss_of(Fault::requeue, stopped_early));
    for (int i = 0; i < 100 && rendezvous_->lost().empty(); ++i) std::this_thread::sleep_for(settled / 30);
}

bool Session::other_stopped() const {
    if (!rendezvous_) return false;
    // A transport may see a process end before the rendezvous has delivered the reason.
    for (int i = 0; i < 30 && rendezvous_->lost().empty(); ++i) std::this_thread::sleep_for(settled / 30);
    const Loss lost = rendezvous_->loss();
    return lost.cause == Cause::stopped && lost.rank >= 0;
}

void Session::agree(const std::string& topic, const Agreement& parts) {
    if (exchange_) require_agreement(*exchange_, topic, parts, host_name());
}

std::vector<std::string> Session::exchange(const std::string& topic, const std::string& text, WaitLimit limit) {
    return exchange_ ? exchange_->all(topic, text, limit) : std::vector{text};
}

std::vector<std::string> Session::to_first(const std::string& topic, const std::string& text, WaitLimit limit) {
    return exchange_ ? exchange_->to_first(topic, text, limit) : std::vector{text};
}

std::string Session::from_first(const std::string& topic, const std::string& text, WaitLimit limit) {
    return exchange_ ? exchange_->from_first(topic, text, limit) : text;
}

std::unique_ptr<Exchange> Session::exchange_beside(const std::string& name) {
    if (!rendezvous_) return nullptr;
    auto made = std::make_unique<Exchange>(*rendezvous_, fmt::format("{}-{}", job_.session, name), job_.rank,
                                           job_.ranks, settings_.join_timeout);
    made->wait_for(bound_, "run.timeout_s");
    return made;
}

void Session::assemble(Config& config, const Registry& registry) {
    const Overlapping beside = overlapping(settings_, job_, compiled_.contracts, compiled_.plans());
    notes_ = beside.notes;
    if (job_.local_ranks < job_.ranks) {
        std::map<std::string, bool> proved;  // by name of the transport: whether it authenticates members
        for (const auto& [axis, contract] : compiled_.contracts)
            if (compiled_.mesh.size(axis) > 1) proved[settings_.transport_of(axis)] = contract.authenticates;
        for (const auto& [name, good] : proved)
            notes_.push_back(fmt::format(
                "transport {} {}", name,
                good ? "authenticates its members"
                     : "does not authenticate its members: whoever reaches its ports may speak; keep others off that "
                       "network"));
    }
    RankSetting setting{job_.rank, *device_, settings_.memory(), compiled_.persistent, compiled_.plans()};
    std::map<std::string, std::shared_ptr<Transport>> transports;
    setting.transport = [&](const Axis& axis) {
        const std::string& name = settings_.transport_of(axis.name);
        auto& transport = transports[name];
        if (!transport)
            transport = make_transport(name, transport_origin(settings_, config, axis.name), config, registry);
        return transport;
    };
    setting.own_transport = [&](const Axis& axis) {
        return make_transport(settings_.transport_of(axis.name), transport_origin(settings_, config, axis.name), config,
                              registry);
    };
    setting.rendezvous = rendezvous_.get();
    // All ranks have joined now: connecting takes only network time, so it is limited like a wait within a step.
    exchange("connecting", "", WaitLimit::step);
    // StepWatch must time out before a transport: it knows the late rank, a transport only the rank it waits for.
    setting.timeout = settings_.timeout_given ? bound_ + connecting : std::max(settings_.join_timeout, bound_) + late;
    setting.collectives = compiled_.collectives;
    setting.background = beside.axes;
    if (rendezvous_) setting.vote = [this](const std::string& mine) { return exchange("captured step", mine); };
    setting.failed = [this](const std::string& why) {
        ends_by_itself();
        if (rendezvous_ && !other_stopped()) rendezvous_->fail(loss_of(Fault::failed, why, "device"));
    };
    context_.emplace(setting);
}

/// Reports this rank's current instruction with each heartbeat, so that a late rank can be named at a timeout.
void Session::watch() {
    if (!rendezvous_) return;
    std::vector<const Executor*> executors;
    for (const auto& executor : executors_) executors.push_back(executor.get());
    // whether the times of past steps predict later ones
    const bool uniform = compiled_.ramp.start == 0 && compiled_.round.plain();
    watch_ = std::make_unique<StepWatch>(job_.rank, std::move(executors),
                                         StepBound(bound_, uniform && !settings_.timeout_given));
    rendezvous_->tell_position([this] { return watch_->look().told(); });
}

void Session::initialize(uint64_t seed) {
    for (const Operand& place : main().plan().class_of(job_.rank).places) {
        const Value& value = main().plan().program.value(place.value);
        if (value.role != Role::param && value.role != Role::state) continue;
        Tensor local = main().tensor(place.value);
        const Value one = compiled_.islands.any() ? slice_of(value, compiled_.islands) : value;
        local.shape = one.layout.local_shape(one.type.shape, compiled_.mesh);
        draw_initial(*device_, one, local, one.layout.offset(one.type.shape, compiled_.mesh, job_.rank), seed);
    }
}

void Session::upload(const Tensor& to, const void* from) {
    device_->copy(0, to.data, from, to.bytes());
    device_->synchronize(0);
}

void Session::download(void* to, const Tensor& from) {
    device_->copy(0, to, from.data, from.bytes());
    device_->synchronize(0);
}

void Session::fail(const std::string& why, Fault fault) {
    if (context_) context_->abort(why);
    if (rendezvous_) rendezvous_->fail(loss_of(fault, why, site_.load()));
}

Loss Session::end_by(const std::exception& error) const {
    return orrery::end_by(job_, error, site_.load(), rendezvous_ ? rendezvous_->loss() : Loss());
}

void Session::leave() {
    if (!rendezvous_) return;
    exchange("leave", "");
    rendezvous_->leave();
}

}  // namespace orrery

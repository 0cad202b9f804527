#include <algorithm>

#include "apart/apart.h"
#include "collective/forwarding_communicator.h"

namespace orrery::apart {

namespace {

class QueuedCommunicator : public ForwardingCommunicator {
public:
    QueuedCommunicator(std::unique_ptr<Communicator> inner, std::vector<Memory> arenas,
                       std::shared_ptr<Timeline> timeline)
        : ForwardingCommunicator(std::move(inner)), arenas_(std::move(arenas)), timeline_(std::move(timeline)) {}

    Event all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override {
        return queue("all_reduce", out, after,
                     [this, a = at(in), b = at(out), op] { inner_->all_reduce(a, b, op).wait(); });
    }
    Event all_gather(const Tensor& in, const Tensor& out, const Event& after) override {
        return queue("all_gather", out, after, [this, a = at(in), b = at(out)] { inner_->all_gather(a, b).wait(); });
    }
    Event reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override {
        return queue("reduce_scatter", in, after,
                     [this, a = at(in), b = at(out), op] { inner_->reduce_scatter(a, b, op).wait(); });
    }
    Event all_to_all(const Tensor& in, const Tensor& out, const Event& after) override {
        return queue("all_to_all", in, after, [this, a = at(in), b = at(out)] { inner_->all_to_all(a, b).wait(); });
    }
    Event broadcast(const Tensor& tensor, int root, const Event& after) override {
        return queue("broadcast", tensor, after, [this, a = at(tensor), root] { inner_->broadcast(a, root).wait(); });
    }
    Event send(const Tensor& tensor, int peer, int64_t tag, const Event& after) override {
        alone();
        return message(
            after, [this, a = at(tensor), peer, tag](int64_t&) { sent_.push_back(inner_->send(a, peer, tag)); }, true);
    }
    Event receive(const Tensor& tensor, int peer, int64_t tag, const Event& after) override {
        alone();
        return message(
            after, [this, a = at(tensor), peer, tag](int64_t&) { inner_->receive(a, peer, tag).wait(); }, false);
    }
    void begin_group() override {
        group_.clear();
        grouped_ = true;
    }
    /// All sends start, then receives end, then sends: none waits for another of the group.
    void end_group() override {
        grouped_ = false;
        if (group_.empty()) return;
        std::stable_sort(group_.begin(), group_.end(),
                         [](const Message& a, const Message& b) { return a.sends > b.sends; });
        issue(std::move(group_));
        group_.clear();
    }
    Event guard(const Event& work) override {
        guarded_ = work;
        return {this, 0};
    }

    bool done(uint64_t ticket) override { return ticket == 0 ? guarded_.done() : mark(ticket).done(); }
    void wait(uint64_t ticket) override {
        if (ticket == 0) return guarded_.wait();
        const int64_t until = mark(ticket).wait();
        if (timeline_) timeline_->host = std::max(timeline_->host, until);
    }
    void* native(uint64_t ticket) override { return ticket == 0 ? guarded_.native() : &mark(ticket); }

private:
    Tensor at(const Tensor& tensor) const {
        Tensor there = tensor;
        there.data = real(arenas_, tensor.data);
        if (there.data == tensor.data) throw Error("a message outside of the arenas", Fault::failed);
        return there;
    }

    Mark& mark(uint64_t ticket) {
        const std::lock_guard lock(mutex_);
        return *marks_.at(ticket);
    }

    struct Message {
        std::shared_ptr<Mark> before;
        Work work;
        bool sends;
        std::shared_ptr<Mark> mine;
    };

    void alone() const {
        if (timeline_) throw Error("a timeline is for collectives", Fault::failed);
    }

    /// Members meet at the latest one's time.
    template <class Moves>
    Event queue(std::string_view what, const Tensor& larger, const Event& after, Moves moves) {
        const int64_t lasts = timeline_ ? timeline_->message(what, larger.bytes()) : 0;
        return message(
            after,
            [this, moves, lasts](int64_t& now) {
                moves();
                if (!timeline_) return;
                const Tensor time{&now, DType::i64, {1}};
                inner_->all_reduce(time, time, ReduceOp::max).wait();
                now += lasts;
            },
            false);
    }

    Event message(const Event& after, Work work, bool sends) {
        auto* const before = static_cast<Mark*>(after.native());
        if (after.owner && !before) throw Error("work that no queue can wait for", Fault::failed);
        Message one{before ? before->shared_from_this() : nullptr, std::move(work), sends, std::make_shared<Mark>()};
        if (before && before->recorded) recording_ = before->recording.lock();
        if (recording_ && recording_->over) recording_ = nullptr;
        if (before && before->recorded != (recording_ != nullptr))
            throw Error(recording_ ? "a recorded message waits for what is not recorded"
                                   : "a message waits for work of a step that is over",
                        Fault::failed);
        one.mine->recorded = recording_ != nullptr;
        if (recording_) one.mine->recording = recording_;
        Event event;
        {
            const std::lock_guard lock(mutex_);
            marks_[++ticket_] = one.mine;
            if (marks_.size() > 4096) marks_.erase(marks_.begin());
            event = {this, ticket_};
        }
        if (grouped_)
            group_.push_back(std::move(one));
        else
            issue({std::move(one)});
        return event;
    }

    /// Messages that go together.
    void issue(std::vector<Message> messages) {
        auto all = std::make_shared<std::vector<Message>>(std::move(messages));
        const auto run = [this, all](int64_t& now) {
            std::exception_ptr failure;
            try {
                for (const Message& one : *all) one.work(now);
                for (const Event& event : sent_) event.wait();
                sent_.clear();
            } catch (...) {
                failure = std::current_exception();
            }
            if (failure)
                for (const Message& one : *all) one.mine->set(now, failure);
            if (failure) std::rethrow_exception(failure);
        };
        for (const Message& one : *all)
            if (one.mine->recorded != (recording_ != nullptr))
                throw Error("a group is recorded in part", Fault::failed);
        if (recording_) {
            for (const Message& one : *all)
                if (one.before) recording_->wait(queue_, one.before);
            recording_->add(queue_, run);
            for (const Message& one : *all) recording_->set(queue_, one.mine);
            return;
        }
        queue_.add(
            [all, run](int64_t& now) {
                std::exception_ptr failure;
                try {
                    for (const Message& one : *all)
                        if (one.before) now = std::max(now, one.before->join());
                    run(now);
                } catch (...) {
                    failure = std::current_exception();
                }
                for (const Message& one : *all) one.mine->set(now, failure);
            },
            timeline_ ? timeline_->host : 0);
    }

    std::vector<Memory> arenas_;
    std::shared_ptr<Timeline> timeline_;
    std::shared_ptr<Recording> recording_;  ///< that the queue takes part in
    std::vector<Event> sent_;               ///< of the messages at hand
    bool grouped_ = false;
    std::vector<Message> group_;
    Event guarded_;
    std::mutex mutex_;
    std::map<uint64_t, std::shared_ptr<Mark>> marks_;
    uint64_t ticket_ = 0;
    Queue queue_;
};

class QueuedTransport : public Transport {
public:
    QueuedTransport(std::unique_ptr<Transport> inner, std::vector<std::shared_ptr<Timeline>> timelines)
        : inner_(std::move(inner)), timelines_(std::move(timelines)) {}
    TransportContract contract() const override {
        TransportContract c = inner_->contract();
        c.send = TransportContract::Send::grouped;
        c.queued = true;
        c.lanes = TransportContract::Lanes::communicator;
        c.matching = TransportContract::Matching::order;
        c.devices = {"apart"};
        c.staging = false;
        return c;
    }
    std::unique_ptr<Communicator> make(const Group& group, Rendezvous& rendezvous, std::span<const Memory> arenas,
                                       std::chrono::milliseconds timeout) override {
        const auto rank = static_cast<size_t>(group.ranks[static_cast<size_t>(group.me)]);
        return std::make_unique<QueuedCommunicator>(inner_->make(group, rendezvous, {}, timeout),
                                                    std::vector<Memory>(arenas.begin(), arenas.end()),
                                                    timelines_.empty() ? nullptr : timelines_.at(rank));
    }

private:
    std::unique_ptr<Transport> inner_;
    std::vector<std::shared_ptr<Timeline>> timelines_;
};

}  // namespace

std::unique_ptr<Transport> make_transport(std::unique_ptr<Transport> threads,
                                          std::vector<std::shared_ptr<Timeline>> timelines) {
    return std::make_unique<QueuedTransport>(std::move(threads), std::move(timelines));
}

}  // namespace orrery::apart

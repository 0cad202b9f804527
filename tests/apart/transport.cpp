#include <algorithm>

#include "apart/apart.h"
#include "collective/forwarding_communicator.h"

namespace orrery::apart {

namespace {

class QueuedCommunicator : public ForwardingCommunicator {
public:
    QueuedCommunicator(std::unique_ptr<Communicator> inner, std::vector<Memory> arenas)
        : ForwardingCommunicator(std::move(inner)), arenas_(std::move(arenas)) {}

    Event all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override {
        return queue(after, [this, a = at(in), b = at(out), op] { inner_->all_reduce(a, b, op).wait(); });
    }
    Event all_gather(const Tensor& in, const Tensor& out, const Event& after) override {
        return queue(after, [this, a = at(in), b = at(out)] { inner_->all_gather(a, b).wait(); });
    }
    Event reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override {
        return queue(after, [this, a = at(in), b = at(out), op] { inner_->reduce_scatter(a, b, op).wait(); });
    }
    Event all_to_all(const Tensor& in, const Tensor& out, const Event& after) override {
        return queue(after, [this, a = at(in), b = at(out)] { inner_->all_to_all(a, b).wait(); });
    }
    Event broadcast(const Tensor& tensor, int root, const Event& after) override {
        return queue(after, [this, a = at(tensor), root] { inner_->broadcast(a, root).wait(); });
    }
    Event send(const Tensor& tensor, int peer, int64_t tag, const Event& after) override {
        return message(
            after, [this, a = at(tensor), peer, tag] { sent_.push_back(inner_->send(a, peer, tag)); }, true);
    }
    Event receive(const Tensor& tensor, int peer, int64_t tag, const Event& after) override {
        return message(
            after, [this, a = at(tensor), peer, tag] { inner_->receive(a, peer, tag).wait(); }, false);
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
    void wait(uint64_t ticket) override { ticket == 0 ? guarded_.wait() : mark(ticket).wait(); }
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
        Mark* before;
        Work work;
        bool sends;
        std::shared_ptr<Mark> mine;
    };

    Event queue(const Event& after, Work work) { return message(after, std::move(work), false); }

    Event message(const Event& after, Work work, bool sends) {
        Message one{static_cast<Mark*>(after.native()), std::move(work), sends, std::make_shared<Mark>()};
        if (after.owner && !one.before) throw Error("work that no queue can wait for", Fault::failed);
        if (one.before && one.before->recording) {
            one.mine->recording = one.before->recording;
            one.mine->queue = this;
            one.mine->place = ++one.mine->recording->queues[this].issued;
        }
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
        Recording* const recording = messages.front().mine->recording;
        for (const Message& one : messages)
            if (one.mine->recording != recording) throw Error("a group is recorded in part", Fault::failed);
        auto all = std::make_shared<std::vector<Message>>(std::move(messages));
        const auto run = [this, all] {
            for (const Message& one : *all) one.work();
            for (const Event& event : sent_) event.wait();
            sent_.clear();
        };
        if (recording) {
            recording->work.push_back(run);
            return;
        }
        queue_.add([all, run] {
            std::exception_ptr failure;
            try {
                for (const Message& one : *all)
                    if (one.before) one.before->wait();
                run();
            } catch (...) {
                failure = std::current_exception();
            }
            for (const Message& one : *all) one.mine->set(failure);
        });
    }

    std::vector<Memory> arenas_;
    std::vector<Event> sent_;  ///< of the messages at hand
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
    explicit QueuedTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
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
        return std::make_unique<QueuedCommunicator>(inner_->make(group, rendezvous, {}, timeout),
                                                    std::vector<Memory>(arenas.begin(), arenas.end()));
    }

private:
    std::unique_ptr<Transport> inner_;
};

}  // namespace

std::unique_ptr<Transport> make_transport(std::unique_ptr<Transport> threads) {
    return std::make_unique<QueuedTransport>(std::move(threads));
}

}  // namespace orrery::apart

#include "collective/communication_thread.h"

namespace orrery {

CommunicationThread::CommunicationThread(size_t slots) : calls_(slots) {
    constexpr size_t dims = 8;  // max number of dims of a tensor for which a call allocates nothing
    for (Call& call : calls_)
        for (Tensor* tensor : {&call.in, &call.out}) tensor->shape.reserve(dims);
    thread_ = std::thread([this] { work(); });
}

CommunicationThread::~CommunicationThread() {
    block(issued_);
    begun_.store(stop, std::memory_order_release);
    begun_.notify_all();
    thread_.join();
}

uint64_t CommunicationThread::issue(Opcode opcode, Communicator& to, const Tensor& in, const Tensor& out, ReduceOp op) {
    rethrow(issued_);
    const uint64_t ticket = issued_ + 1;
    if (ticket > calls_.size()) block(ticket - calls_.size());
    Call& call = calls_[ticket % calls_.size()];
    call.opcode = opcode;
    call.to = &to;
    call.in = in;  // assigned, not moved, so that the memory of the queue's shape is reused
    call.out = out;
    call.op = op;
    call.mark = mark_;
    call.times = times_;
    call.when = when_;
    issued_ = ticket;
    begun_.store(ticket, std::memory_order_release);
    begun_.notify_all();
    return ticket;
}

void CommunicationThread::block(uint64_t ticket) const {
    for (uint64_t seen = finished_.load(std::memory_order_acquire); seen < ticket;
         seen = finished_.load(std::memory_order_acquire))
        finished_.wait(seen, std::memory_order_acquire);
}

void CommunicationThread::rethrow(uint64_t ticket) const {
    if (failed_.load(std::memory_order_acquire) <= ticket) std::rethrow_exception(error_);
}

bool CommunicationThread::done(uint64_t ticket) const {
    if (finished_.load(std::memory_order_acquire) < ticket) return false;
    rethrow(ticket);
    return true;
}

void CommunicationThread::wait(uint64_t ticket) const {
    block(ticket);
    rethrow(ticket);
}

void CommunicationThread::work() {
    for (uint64_t next = 1;; ++next) {
        uint64_t may = begun_.load(std::memory_order_acquire);
        for (; may < next; may = begun_.load(std::memory_order_acquire)) begun_.wait(may, std::memory_order_acquire);
        if (may == stop) return;
        if (!error_) {
            try {
                at_hand_.store(calls_[next % calls_.size()].mark, std::memory_order_relaxed);
                const Call& call = calls_[next % calls_.size()];
                const auto begin = std::chrono::steady_clock::now();
                call_collective(*call.to, call.opcode, call.in, call.out, call.op).wait();
                const auto end = std::chrono::steady_clock::now();
                if (call.times) call.times->add(std::chrono::duration<double>(end - begin).count());
                if (call.when) *call.when = {begin, end};
                at_hand_.store(-1, std::memory_order_relaxed);
            } catch (...) {
                error_ = std::current_exception();
                failed_.store(next, std::memory_order_release);
            }
        }
        finished_.store(next, std::memory_order_release);
        finished_.notify_all();
    }
}

Event BackgroundCommunicator::collective(Opcode which, const Tensor& in, const Tensor& out, ReduceOp op,
                                         const Event& after) {
    after.wait();
    return {this, thread_.issue(which, *inner_, in, out, op)};
}

Event BackgroundCommunicator::broadcast(const Tensor& tensor, int root, const Event& after) {
    thread_.drain();
    return inner_->broadcast(tensor, root, after);
}

Event BackgroundCommunicator::send(const Tensor& tensor, int peer, int64_t tag, const Event& after) {
    thread_.drain();
    return inner_->send(tensor, peer, tag, after);
}

Event BackgroundCommunicator::receive(const Tensor& tensor, int peer, int64_t tag, const Event& after) {
    thread_.drain();
    return inner_->receive(tensor, peer, tag, after);
}

}  // namespace orrery

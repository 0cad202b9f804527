#pragma once
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "run/control/rendezvous.h"

namespace orrery::test {

/// Runs body(rank, rendezvous) on `ranks` threads and rethrows the first exception; the other ranks learn of it through
/// the rendezvous' lost(). Catch2's assertions are not thread-safe: collect in the body, assert after.
template <class Body>
void run_ranks(int64_t ranks, Body body) {
    LocalRendezvous rendezvous;
    std::exception_ptr first;
    std::mutex mutex;
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                body(rank, static_cast<Rendezvous&>(rendezvous));
            } catch (const std::exception& error) {
                const std::lock_guard lock(mutex);
                if (!first) first = std::current_exception();
                rendezvous.fail(rank, error.what());
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    if (first) std::rethrow_exception(first);
}

}  // namespace orrery::test

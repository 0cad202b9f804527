// Memory that ends, or begins, where no page is: a kernel that reads or writes beyond it dies at once, whatever it was
// compiled with.
#pragma once

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

namespace orrery::testing {

/// `bytes` bytes at an address that `alignment` (at most a page's size) divides, between two pages that cannot be
/// touched. They lie as close to the one behind them, or to the one before them, as the alignment lets them; what is
/// left of their pages AddressSanitizer refuses, and without it `whole` tells whether it was written.
class Guarded {
public:
    enum class Edge : std::uint8_t { end, begin };
    static constexpr unsigned char unused = 0xa5;

    Guarded(std::int64_t bytes, std::int64_t alignment, Edge edge)
        : bytes_(static_cast<std::size_t>(bytes)), room_(rounded(std::max(bytes, std::int64_t{1}), page())) {
        first_ = taken(room_);
        const std::size_t size = rounded(bytes, static_cast<std::size_t>(alignment));
        at_ = edge == Edge::begin ? first_ : first_ + room_ - size;
        std::memset(first_, unused, room_);
        ASAN_POISON_MEMORY_REGION(first_, static_cast<std::size_t>(at_ - first_));
        ASAN_POISON_MEMORY_REGION(at_ + bytes_, room_ - bytes_ - static_cast<std::size_t>(at_ - first_));
    }
    Guarded(Guarded&& other) noexcept
        : bytes_(other.bytes_),
          room_(other.room_),
          first_(std::exchange(other.first_, nullptr)),
          at_(other.at_),
          read_only_(other.read_only_) {}
    ~Guarded() {
        if (first_ == nullptr) return;
        ASAN_UNPOISON_MEMORY_REGION(first_, room_);
        if (read_only_) protect(PROT_READ | PROT_WRITE);
        free()[room_].push_back(first_);
    }

    void* data() const { return at_; }
    void read_only() {
        protect(PROT_READ);
        read_only_ = true;
    }
    /// Whether nothing beside the bytes was written. Nothing is refused by AddressSanitizer after this.
    bool whole() const {
        ASAN_UNPOISON_MEMORY_REGION(first_, room_);
        const auto is_unused = [](unsigned char byte) { return byte == unused; };
        return std::all_of(first_, at_, is_unused) && std::all_of(at_ + bytes_, first_ + room_, is_unused);
    }

private:
    static std::size_t page() {
        static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        return size;
    }
    static std::size_t rounded(std::int64_t n, std::size_t unit) {
        return (static_cast<std::size_t>(n) + unit - 1) / unit * unit;
    }
    /// Pages are kept by their number: mapping them takes longer than most launches.
    static std::map<std::size_t, std::vector<unsigned char*>>& free() {
        static std::map<std::size_t, std::vector<unsigned char*>> rooms;
        return rooms;
    }
    static unsigned char* taken(std::size_t room) {
        if (auto& rooms = free()[room]; !rooms.empty()) {
            unsigned char* const last = rooms.back();
            rooms.pop_back();
            return last;
        }
        void* all = mmap(nullptr, room + 2 * page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all == MAP_FAILED) throw std::bad_alloc();
        unsigned char* const first = static_cast<unsigned char*>(all) + page();
        if (mprotect(first, room, PROT_READ | PROT_WRITE) != 0) throw std::runtime_error("mprotect failed");
        return first;
    }
    void protect(int access) const {
        if (mprotect(first_, room_, access) != 0) throw std::runtime_error("mprotect failed");
    }

    std::size_t bytes_, room_;
    unsigned char *first_ = nullptr, *at_ = nullptr;
    bool read_only_ = false;
};

}  // namespace orrery::testing

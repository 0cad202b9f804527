#include "standin/world.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

namespace orrery::standin {

std::string World::create() {
    const int file = ::memfd_create("stand-in world", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, sizeof(Shared)) != 0) throw std::runtime_error("no memory for a world");
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file);
}

/// Closes the file, which members keep mapped; nothing to do in a process that has not made it.
void World::forget(const std::string& name) {
    const std::string mine = "/proc/" + std::to_string(::getpid()) + "/fd/";
    if (name.rfind(mine, 0) == 0) ::close(std::stoi(name.substr(mine.size())));
}

World::World(const std::string& name) {
    const int file = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) throw std::runtime_error("there is no world " + name);
    void* const data = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (data == MAP_FAILED) throw std::runtime_error("no memory for a world");
    shared_ = static_cast<Shared*>(data);
}

World::~World() { ::munmap(shared_, sizeof(Shared)); }

void Transfers::send(int to, const void* data, size_t bytes) {
    all_.push_back(
        {&world_.channel(kind_, me_, to), true, static_cast<char*>(const_cast<void*>(data)), bytes, 0, 0, false, {}});
}

void Transfers::receive(int from, void* data, size_t bytes, std::function<bool()> then) {
    all_.push_back(
        {&world_.channel(kind_, from, me_), false, static_cast<char*>(data), bytes, 0, 0, false, std::move(then)});
}

/// None before it has bytes left to move.
bool Transfers::first_of_its_kind(size_t index) const {
    for (size_t i = 0; i < index; ++i)
        if (all_[i].channel == all_[index].channel && all_[i].sends == all_[index].sends && all_[i].at < all_[i].bytes)
            return false;
    return true;
}

/// Moves what can be moved now. true: something was.
bool Transfers::advance(Transfer& t) {
    Channel& c = *t.channel;
    const uint64_t written = c.written.load(std::memory_order_acquire), read = c.read.load(std::memory_order_acquire);
    const uint64_t from = t.sends ? written : read;
    if (!t.started) {
        t.started = true;
        t.end = from + t.bytes;
    }
    const uint64_t possible = t.sends ? Channel::room - (written - read) : written - read;
    const uint64_t place = from % Channel::room;
    const uint64_t n = std::min({t.bytes - t.at, possible, Channel::room - place});
    if (n == 0) return false;
    if (t.sends)
        std::memcpy(c.bytes + place, t.data + t.at, n);
    else
        std::memcpy(t.data + t.at, c.bytes + place, n);
    (t.sends ? c.written : c.read).store(from + n, std::memory_order_release);
    t.at += n;
    return true;
}

bool Transfers::run(const std::function<bool()>& over) {
    for (int idle = 0;;) {
        bool moved = false, all = true;
        for (size_t i = 0; i < all_.size(); ++i) {
            Transfer& t = all_[i];
            if ((!t.started || t.at < t.bytes) && first_of_its_kind(i)) {
                moved |= advance(t);
                if (t.at == t.bytes && t.then && !std::exchange(t.then, {})()) return false;
            }
            const bool done =
                t.started && t.at == t.bytes && (!t.sends || t.channel->read.load(std::memory_order_acquire) >= t.end);
            all = all && done;
        }
        if (all) return true;
        if (over()) return false;
        idle = moved ? 0 : idle + 1;
        if (idle > 200)
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        else
            std::this_thread::yield();
    }
}

}  // namespace orrery::standin

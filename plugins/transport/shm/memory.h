#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "orrery/p2p.h"

/// The memory of one member that other members of an shm group can access.
namespace orrery::shm {

/// Mapped memory that unmaps itself. It is an anonymous file, so nothing remains when the process is killed.
class Mapping {
public:
    /// New zeroed memory; other processes open it by handle().
    explicit Mapping(int64_t bytes);
    /// Another process' memory. Throws Fault::peer naming the rank and the system's reason.
    Mapping(int fd, int64_t bytes);
    ~Mapping();
    Mapping(const Mapping&) = delete;

    char* data() const { return data_; }
    const std::string& handle() const { return handle_; }
    int fd() const { return fd_; }  ///< the file of new memory, -1 for another process' memory

private:
    char* data_ = nullptr;
    int64_t bytes_;
    int fd_ = -1;
    std::string handle_;
};

/// Mappings that several communicators of one rank share, by the identity of the file.
class Mappings {
public:
    std::shared_ptr<Mapping> open(const std::string& handle, int64_t bytes, int64_t rank);

private:
    std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<Mapping>> open_;
};

/// The place of a tensor, the same for every member.
struct Place {
    int32_t arena = 0;
    int64_t offset = 0;
};

/// The address of each arena of each member in this process.
class Arenas {
public:
    /// Collective over the group. `pids`: by member.
    Arenas(const Group& group, Rendezvous& rendezvous, std::span<const Memory> mine, const std::vector<int64_t>& pids,
           Mappings& mappings, const std::string& name, std::chrono::milliseconds timeout);

    /// Throws Fault::failed naming the op unless the bytes are in one of this member's arenas.
    Place place(const Tensor& tensor, std::string_view op) const;
    char* at(int member, Place place) const { return base_[static_cast<size_t>(member)][place.arena] + place.offset; }

private:
    std::vector<Memory> mine_;
    std::vector<std::vector<char*>> base_;
    std::vector<std::shared_ptr<Mapping>> kept_;
};

}  // namespace orrery::shm

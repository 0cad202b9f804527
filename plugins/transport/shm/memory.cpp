#include "memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

namespace orrery::shm {
namespace {

char* map(int fd, int64_t bytes) {
    void* data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        throw Error("transport shm: cannot map " + std::to_string(bytes) + " bytes: " + std::strerror(errno),
                    Fault::failed);
    return static_cast<char*>(data);
}

}  // namespace

Mapping::Mapping(int64_t bytes) : bytes_(bytes), fd_(::memfd_create("orrery-shm", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::ftruncate(fd_, bytes) != 0) {
        const std::string why = std::strerror(errno);
        if (fd_ >= 0) ::close(fd_);
        throw Error("transport shm: cannot allocate a shared block of " + std::to_string(bytes) + " bytes: " + why,
                    Fault::failed);
    }
    data_ = map(fd_, bytes);
    handle_ = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd_);
}

Mapping::Mapping(int fd, int64_t bytes) : data_(map(fd, bytes)), bytes_(bytes) {}

Mapping::~Mapping() {
    ::munmap(data_, static_cast<size_t>(bytes_));
    if (fd_ >= 0) ::close(fd_);
}

std::shared_ptr<Mapping> Mappings::open(const std::string& handle, int64_t bytes, int64_t rank) {
    const std::string of = "transport shm: memory '" + handle + "' of rank " + std::to_string(rank);
    if (handle.empty())
        throw Error(of + " cannot be mapped here: it has no handle; the device must allocate it as shared",
                    Fault::failed);
    const bool path = handle.starts_with("/proc/");
    const int fd =
        path ? ::open(handle.c_str(), O_RDWR | O_CLOEXEC) : ::shm_open(handle.c_str(), O_RDWR | O_CLOEXEC, 0);
    if (fd < 0)
        throw Error(of + " cannot be opened: " + std::strerror(errno) +
                        "; ranks must run as one user in one container, otherwise use transport gloo",
                    Fault::peer);
    struct Closer {
        int fd;
        ~Closer() { ::close(fd); }
    } const closer{fd};
    struct stat file {};
    if (::fstat(fd, &file) != 0 || file.st_size < bytes)
        throw Error(of + " has " + std::to_string(file.st_size) + " bytes, " + std::to_string(bytes) + " expected",
                    Fault::peer);
    std::weak_ptr<Mapping>& known = open_[{file.st_dev, file.st_ino}];
    if (auto mapping = known.lock()) return mapping;
    auto mapping = std::make_shared<Mapping>(fd, static_cast<int64_t>(file.st_size));
    known = mapping;
    return mapping;
}

Arenas::Arenas(const Group& group, Rendezvous& rendezvous, std::span<const Memory> mine,
               const std::vector<int64_t>& pids, Mappings& mappings, const std::string& name,
               std::chrono::milliseconds timeout)
    : mine_(mine.begin(), mine.end()) {
    std::ostringstream told;
    told << mine.size();
    for (const Memory& memory : mine)
        told << '\n' << memory.bytes << ' ' << reinterpret_cast<uintptr_t>(memory.data) << ' ' << memory.handle;
    const auto texts = exchange(group, rendezvous, name + "/arenas", told.str(), timeout);
    for (int member = 0; member < group.size(); ++member) {
        const auto m = static_cast<size_t>(member);
        const int64_t rank = group.ranks[m];
        std::istringstream text(texts[m]);
        size_t count = 0;
        text >> count;
        if (count != mine.size())
            throw Error("transport shm: rank " + std::to_string(rank) + " has " + std::to_string(count) +
                            " arenas, but this rank has " + std::to_string(mine.size()),
                        Fault::peer);
        base_.emplace_back();
        for (size_t arena = 0; arena < count; ++arena) {
            int64_t bytes = 0;
            uintptr_t address = 0;
            std::string handle;
            text >> bytes >> address;
            std::getline(text.ignore(1), handle);
            if (pids[m] == ::getpid()) {
                base_.back().push_back(reinterpret_cast<char*>(address));
                continue;
            }
            kept_.push_back(mappings.open(handle, bytes, rank));
            base_.back().push_back(kept_.back()->data());
        }
    }
}

Place Arenas::place(const Tensor& tensor, std::string_view op) const {
    const auto* data = static_cast<const char*>(tensor.data);
    if (tensor.count() == 0) return {};
    for (size_t i = 0; i < mine_.size(); ++i) {
        const auto* begin = static_cast<const char*>(mine_[i].data);
        if (data >= begin && data + tensor.bytes() <= begin + mine_[i].bytes)
            return {static_cast<int32_t>(i), data - begin};
    }
    throw Error("transport shm: a tensor of " + std::string(op) + " of " + std::to_string(tensor.bytes()) +
                    " bytes is outside the arenas given to make(), so other ranks cannot access it",
                Fault::failed);
}

}  // namespace orrery::shm

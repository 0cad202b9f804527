#include "file_system.h"

#include <algorithm>
#include <random>

#include "folder.h"

namespace posix_store {

namespace {

using orrery::StoreContract;

/// Types (from statfs) of file systems that belong to one host. Any other may be shared by hosts.
constexpr int64_t in_memory[] = {0x01021994, 0x858458f6};                       // tmpfs, ramfs
constexpr int64_t on_disk[] = {0xef53,     0x58465342, 0x9123683e, 0x794c7630,  // ext, xfs, btrfs, overlay
                               0x2fc12fc1, 0xf2f52010};                         // zfs, f2fs

bool among(std::span<const int64_t> kinds, int64_t kind) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

Folder nearest(const std::string& place) {
    std::string path = place;
    for (;;) {
        if (Folder found = Folder::find(path)) return found;
        while (path.size() > 1 && path.back() == '/') path.pop_back();
        const size_t cut = path.find_last_of('/');
        if (cut == std::string::npos) return Folder::find(".");
        path = cut == 0 ? "/" : path.substr(0, cut);
    }
}

/// Creates a file and links it, under random names, because processes of two containers may have the same pid.
bool try_link(const Folder& folder) {
    std::random_device random;
    const std::string name = std::string(link_trial) + std::to_string(random()) + "-" + std::to_string(random());
    const std::string other = name + "-2";
    bool links = false;
    try {
        if (!folder.make_file(name)) return false;
        links = folder.link(name, folder, other);
    } catch (const orrery::Error&) {
        // A place without write permission is reported by the first write to it.
    }
    for (const std::string& made : {name, other}) try {
            folder.remove_file(made);
        } catch (const orrery::Error&) {
            links = false;
        }
    return links;
}

/// Tries a second time after a failure, because another process that cleans up may have deleted the first trial's file.
bool links_in(const Folder& folder) { return try_link(folder) || try_link(folder); }

}  // namespace

StoreContract contract_at(const std::string& place) {
    const Folder folder = nearest(place);
    const int64_t kind = folder.file_system();
    StoreContract contract;
    contract.survives = among(in_memory, kind) ? StoreContract::Survives::process : StoreContract::Survives::power_cut;
    contract.shared =
        among(in_memory, kind) || among(on_disk, kind) ? StoreContract::Shared::host : StoreContract::Shared::hosts;
    contract.links = links_in(folder);
    contract.fences = true;
    return contract;
}

}  // namespace posix_store

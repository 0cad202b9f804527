#include "run/checkpoint/save/shared_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "base/env.h"
#include "run/control/address.h"

namespace orrery {
namespace {

/// A file that is deleted with this object. Its name must be new, because network file systems cache missing names.
struct Sign {
    std::string path;

    void put(const std::string& at) {
        system_env()->replace_file(at, "");
        path = at;
    }
    ~Sign() {
        std::error_code ignored;
        if (!path.empty()) std::filesystem::remove(path, ignored);
    }
};

}  // namespace

void require_shared(Session& session, const std::string& folder) {
    if (!session.rendezvous()) return;
    Sign sign;
    std::string name;
    if (session.job().rank == 0) {
        name = ".shared-" + make_secret().substr(0, 16);
        sign.put(folder + "/" + name);
    }
    name = session.exchange("shared folder", name)[0];
    const auto env = system_env();
    const auto until = env->now() + std::min(session.timeout(), std::chrono::milliseconds(3000));
    bool seen = env->exists(folder + "/" + name);
    for (; !seen && env->now() < until; seen = env->exists(folder + "/" + name))
        env->sleep(std::chrono::milliseconds(20));
    const auto blind = session.exchange("folder seen", seen ? "" : host_name(), WaitLimit::files);
    const auto first = std::find_if(blind.begin(), blind.end(), [](const std::string& host) { return !host.empty(); });
    if (first == blind.end()) return;
    try {  // waits until all ranks have the result; throws if a rank has already exited
        session.exchange("folder told", "", WaitLimit::files);
    } catch (const Error&) {
    }
    throw Error(
        fmt::format("run.folder {}: rank {} on host {} does not see what rank 0 on its host writes there\n"
                    "  every node needs the same folder: a shared file system, and the same path",
                    folder, first - blind.begin(), *first));
}

}  // namespace orrery

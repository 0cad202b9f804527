#include "leftovers.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#include "file_system.h"
#include "generations.h"
#include "orrery/error.h"
#include "places.h"
#include "step_folder.h"

namespace posix_store {

namespace {

using orrery::Error;
using orrery::Fault;

constexpr std::string_view removed = ".removed";

std::string numbered(int64_t step, int number) {
    return step_name(step) + std::string(removed) + (number == 0 ? "" : "-" + std::to_string(number));
}

/// Whether a folder without a marker is the rest of a removal. Since the marker is deleted last, only files that
/// appeared meanwhile can be left: a pin, a mark, or a .nfs file of a file that is still open.
bool rest_of_removal(const Folder& folder) {
    const std::vector<std::string> files = folder.names();
    return std::all_of(files.begin(), files.end(), [&](const std::string& file) {
        bool known = file == removed_manifest;
        for (const std::string& note : {mark_name, pin_name})
            known = known || file == note || file == "." + note + ".new";
        return (known || file.starts_with(".nfs")) && folder.kind(file) != 'd';
    });
}

bool is_empty(const Folder& root, const std::string& name) {
    const Folder folder = root.kind(name) == 'd' ? root.folder(name) : Folder();
    return folder && folder.kind(manifest_name) == ' ' && folder.names().empty();
}

}  // namespace

std::string kept_for(const Folder& folder, const std::string& name) {
    const bool removed = removed_of(name) >= 0 || folder.size(removed_manifest) >= 0;
    if (folder.names().empty() || (removed && rest_of_removal(folder))) return "";
    return not_ours(folder);
}

int64_t removed_of(const std::string& name) {
    const size_t cut = name.rfind(removed);
    if (cut == std::string::npos) return -1;
    const int64_t step = step_of(name.substr(0, cut), "");
    const std::string rest = name.substr(cut + removed.size());
    if (rest.empty()) return step;
    const bool digits = rest.size() > 1 && rest.size() < 7 && rest[0] == '-' && rest[1] != '0' &&
                        std::all_of(rest.begin() + 1, rest.end(), [](char c) { return c >= '0' && c <= '9'; });
    return digits ? step : -1;
}

bool removed_in_place(const Folder& root, const std::string& name) {
    if (!name.starts_with("step-") || root.kind(name) != 'd') return false;
    const Folder folder = root.folder(name);
    return folder && folder.kind(manifest_name) == ' ' && folder.size(removed_manifest) >= 0;
}

std::string removed_name(const Folder& root, int64_t step) {
    constexpr int most = 10000;
    for (int number = 0; number < most; ++number) {
        const std::string name = numbered(step, number);
        if (root.kind(name) == 'd') drop(root, name);
        if (root.kind(name) == ' ') return name;
    }
    fail("remove step " + std::to_string(step) + " in", root.path(), EEXIST);
}

void erase(const Folder& root, const std::string& name) {
    const Folder folder = root.folder(name);
    if (!folder) return;
    if (const std::string why = kept_for(folder, name); !why.empty())
        throw Error(folder.path() + " " + why + ", so it is left alone\n  it was not made by orrery; move it away",
                    Fault::failed);
    const std::vector<std::string> files = folder.names();
    // After a power cut, a folder removed in place must look neither like a step nor like a foreign folder.
    const bool in_place = std::find(files.begin(), files.end(), removed_manifest) != files.end();
    if (in_place) folder.sync();
    for (const std::string& file : files) {
        if (file != marker && file != removed_manifest) folder.remove_file(file);
    }
    if (in_place) folder.sync();
    folder.remove_file(marker);
    if (in_place) {
        folder.sync();  // a folder with only the marker would look foreign
        folder.remove_file(removed_manifest);
    }
    root.remove_folder(name);
}

void drop(const Folder& root, const std::string& name) {
    try {
        erase(root, name);
    } catch (const Error&) {
        // The folder only costs space, and clean() tries again.
    }
}

void clean(const Folder& root, int64_t before, int64_t generation) {
    for (const std::string& name : root.names()) {
        const Partial unfinished = partial_of(name);
        const bool stale = unfinished.step >= 0 && unfinished.step < before && unfinished.generation <= generation;
        try {
            if (stale || removed_of(name) >= 0 || removed_in_place(root, name)) drop(root, name);
            if (name.starts_with(link_trial) && root.size(name) == 0) root.remove_file(name);
            // An empty folder is the rest of a removal in place.
            if (place_of(name).step >= 0 && is_empty(root, name)) root.remove_folder(name);
        } catch (const Error&) {
            // Continue with the other entries.
        }
    }
}

int64_t count_removed(const Folder& root) {
    const std::vector<std::string> names = root.names();
    return std::count_if(names.begin(), names.end(), [&](const std::string& name) {
        if ((removed_of(name) < 0 && !removed_in_place(root, name)) || root.kind(name) != 'd') return false;
        const Folder folder = root.folder(name);
        return folder && kept_for(folder, name).empty();
    });
}

int64_t leftover_bytes(const std::string& place) {
    int64_t bytes = 0;
    try {
        const Folder root = Folder::find(place);
        if (!root) return 0;
        for (const std::string& name : root.names()) {
            const bool goes = removed_of(name) >= 0 || partial_of(name).step >= 0 || removed_in_place(root, name);
            if (!goes || root.kind(name) != 'd') continue;
            const Folder folder = root.folder(name);
            if (!folder || !kept_for(folder, name).empty()) continue;
            for (const std::string& file : folder.names()) bytes += folder.held_alone(file);
        }
    } catch (const Error&) {
        // A place that cannot be read is reported by the first read of it.
    }
    return bytes;
}

}  // namespace posix_store

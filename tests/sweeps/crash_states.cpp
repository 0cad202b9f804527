#include "crash_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>

#include "orrery/error.h"

namespace orrery::sweeps {

std::vector<Call> read_record(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    std::vector<Call> calls;
    for (std::string line; std::getline(in, line);) {
        std::istringstream words(line);
        std::vector<std::string> parts;
        for (std::string word; words >> word;) parts.push_back(word);
        const bool known = parts.size() >= 3;
        if (!known) throw Error(file + ": no record of calls: " + line);
        Call call{parts[0], parts[1], parts.size() > 3 ? parts[2] : "", "", 0};
        if (call.what == "write") call.offset = std::stoll(parts[2]);
        call.data.resize(std::stoul(parts.back()));
        in.read(call.data.data(), static_cast<std::streamsize>(call.data.size()));
        calls.push_back(std::move(call));
    }
    if (calls.empty()) throw Error(file + ": nothing was recorded");
    return calls;
}

Disk::Disk(std::string root) : root_(std::move(root)), objects_(1) { objects_[0].folder = true; }

/// The folder that a path lies in, and its name there.
std::pair<int, std::string> Disk::split(const std::string& path) const {
    const size_t cut = path.find_last_of('/');
    return {find(path.substr(0, cut)), path.substr(cut + 1)};
}

int Disk::find(const std::string& path) const {
    if (path == root_) return 0;
    if (!path.starts_with(root_ + "/")) throw Error(path + " is not below " + root_);
    int at = 0;
    std::istringstream parts(path.substr(root_.size() + 1));
    for (std::string name; std::getline(parts, name, '/');) {
        const auto& names = objects_[static_cast<size_t>(at)].names;
        const auto found = names.find(name);
        if (found == names.end()) throw Error(path + " was not made while it was recorded");
        at = found->second;
    }
    return at;
}

void Disk::add(Change change) { pending_.push_back(std::move(change)); }

/// What is known to have reached the disk: a file's contents, or a folder's names.
void Disk::settle(int object, bool folder) {
    const auto settles = [&](const Change& change) {
        return folder ? change.kind != Change::Kind::data && change.folder == object
                      : change.kind == Change::Kind::data && change.object == object;
    };
    for (const Change& change : pending_)
        if (settles(change)) durable_.push_back(change);
    std::erase_if(pending_, settles);
}

void Disk::apply(const Call& call) {
    if (call.what == "note") return;
    if (call.what == "fsync") {
        const int object = find(call.path);
        return settle(object, objects_[static_cast<size_t>(object)].folder);
    }
    if (call.what == "write" || call.what == "truncate") {
        const int object = find(call.path);
        return add({Change::Kind::data, 0, object, "", "", call.what == "write" ? call.offset : -1, call.data});
    }
    const auto [folder, name] = split(call.path);
    auto& names = objects_[static_cast<size_t>(folder)].names;
    if (call.what == "create" || call.what == "mkdir") {
        const int made = static_cast<int>(objects_.size());
        names[name] = made;
        objects_.push_back({call.what == "mkdir", {}});
        return add({Change::Kind::name, folder, made, "", name, 0, ""});
    }
    if (call.what == "unlink") {
        const int object = names.at(name);
        names.erase(name);
        return add({Change::Kind::unname, folder, object, name, "", 0, ""});
    }
    const auto [target, other] = split(call.other);
    if (call.what == "link") {
        const int object = names.at(name);
        objects_[static_cast<size_t>(target)].names[other] = object;
        return add({Change::Kind::name, target, object, "", other, 0, ""});
    }
    if (call.what != "rename" || target != folder) throw Error("no record of calls: " + call.what + " " + call.path);
    const int object = names.at(name);
    names.erase(name);
    names[other] = object;
    add({Change::Kind::rename, folder, object, name, other, 0, ""});
}

Tree Disk::after(const std::vector<bool>& kept, int harm) const {
    std::vector<std::map<std::string, int>> names(objects_.size());
    std::vector<std::string> contents(objects_.size());
    std::map<int, size_t> last;  // of the pending writes that were kept, by file
    for (size_t i = 0; i < pending_.size(); ++i)
        if (kept[i] && pending_[i].kind == Change::Kind::data) last[pending_[i].object] = i;
    const auto make = [&](const Change& change, int how) {
        auto& in = names[static_cast<size_t>(change.folder)];
        switch (change.kind) {
            case Change::Kind::unname:
                if (const auto at = in.find(change.from); at != in.end() && at->second == change.object) in.erase(at);
                break;
            case Change::Kind::rename:
                if (const auto at = in.find(change.from); at != in.end() && at->second == change.object) in.erase(at);
                [[fallthrough]];
            case Change::Kind::name: in[change.to] = change.object; break;
            case Change::Kind::data: {
                std::string& file = contents[static_cast<size_t>(change.object)];
                if (change.offset < 0) return file.clear();
                std::string bytes = change.bytes;
                if (how == 1) bytes.resize(bytes.size() / 2);
                if (how == 2)
                    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2), bytes.end(), '\0');
                const auto begin = static_cast<size_t>(change.offset);
                if (file.size() < begin + bytes.size()) file.resize(begin + bytes.size());
                file.replace(begin, bytes.size(), bytes);
            }
        }
    };
    for (const Change& change : durable_) make(change, 0);
    for (size_t i = 0; i < pending_.size(); ++i)
        if (kept[i]) make(pending_[i], last.contains(pending_[i].object) && last[pending_[i].object] == i ? harm : 0);
    Tree tree;
    const std::function<void(int, const std::string&)> walk = [&](int folder, const std::string& place) {
        for (const auto& [name, object] : names[static_cast<size_t>(folder)]) {
            const std::string path = place + name;
            if (objects_[static_cast<size_t>(object)].folder) {
                tree[path + "/"] = "";
                walk(object, path + "/");
            } else {
                tree[path] = contents[static_cast<size_t>(object)];
            }
        }
    };
    walk(0, "");
    return tree;
}

}  // namespace orrery::sweeps

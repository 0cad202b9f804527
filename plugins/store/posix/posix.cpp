// Checkpoints as folders of files:
//   PLACE/step-00000300.partial/{.orrery-checkpoint, KEY...}    being written, invisible
//   PLACE/step-00000300/{.orrery-checkpoint, KEY..., manifest.json}
//   PLACE/step-00000300/suspect.txt                              the mark beside it
//   PLACE/step-00000300.removed/                                 being removed, invisible
//   PLACE/step-00000300.aside-1                                  was in the way of a step; kept, invisible
// A step becomes visible by one rename after everything in it is durable. Only folders with the marker are deleted.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <utility>

#include "folder.h"
#include "orrery/plugin.h"

namespace {

using orrery::Error;
using orrery::Fault;
using posix_store::Folder;

const std::string marker = ".orrery-checkpoint", manifest_name = "manifest.json";
const std::string mark_name = "suspect.txt";
const std::string partial = ".partial", removed = ".removed", aside = ".aside-";
constexpr int64_t longest_manifest = int64_t{1} << 30;

std::string step_name(int64_t step) {
    char text[40];
    std::snprintf(text, sizeof text, "step-%08lld", static_cast<long long>(step));
    return text;
}

/// The number in "step-00000300" + suffix, -1 when the name is anything else.
int64_t step_of(const std::string& name, std::string_view suffix) {
    if (!name.starts_with("step-") || !name.ends_with(suffix)) return -1;
    int64_t step = -1;
    const char* first = name.data() + 5;
    const char* last = name.data() + name.size() - suffix.size();
    const auto [end, problem] = std::from_chars(first, std::max(first, last), step);
    return problem == std::errc() && end == last && step_name(step) + std::string(suffix) == name ? step : -1;
}

class Posix final : public orrery::CheckpointStore {
public:
    explicit Posix(std::string place) : place_(std::move(place)) {}

    void put(int64_t step, std::string_view key, std::span<const std::byte> bytes) override {
        put_parts(step, key, {&bytes, 1});
    }

    void put_parts(int64_t step, std::string_view key, std::span<const std::span<const std::byte>> parts) override {
        check_key(key);
        open_partial(step).write(std::string(key), parts);
    }

    void flush(int64_t step) override {
        const Folder root = Folder::make(place_);
        if (const Folder open = root.folder(step_name(step) + partial)) open.sync();
        root.sync();
    }

    void commit(int64_t step, std::string_view manifest) override {
        const Folder open = open_partial(step), root = Folder::make(place_);
        open.remove_file(manifest_name);  // of a commit that failed before its rename
        const auto text = std::as_bytes(std::span(manifest.data(), manifest.size()));
        open.write(manifest_name, {&text, 1});
        open.sync();
        if (!root.rename(step_name(step) + partial, step_name(step)))
            throw Error(place_ + ": step " + std::to_string(step) + " is committed already", Fault::failed);
        root.sync();
        clean(root, step);
    }

    void discard(int64_t step) override {
        if (const Folder root = Folder::find(place_)) erase_or_move(root, step_name(step) + partial);
    }

    std::vector<int64_t> steps() override {
        std::vector<int64_t> steps;
        const Folder root = Folder::find(place_);
        if (!root) return steps;
        for (const std::string& name : root.names()) {
            const int64_t step = step_of(name, "");
            if (step < 0 || root.kind(name) != 'd') continue;
            const Folder folder = root.folder(name);
            if (folder && manifest_problem(folder).empty()) steps.push_back(step);
        }
        std::sort(steps.rbegin(), steps.rend());
        return steps;
    }

    std::string manifest(int64_t step) override {
        const Folder folder = committed(step);
        const int64_t bytes = folder.size(manifest_name);
        if (bytes < 0) posix_store::fail("read", folder.path() + "/" + manifest_name, ENOENT);
        if (const std::string why = manifest_problem(folder); !why.empty())
            throw Error(folder.path() + " " + why, Fault::failed);
        std::string text(static_cast<size_t>(bytes), '\0');
        folder.read(manifest_name, 0, std::as_writable_bytes(std::span(text)));
        return text;
    }

    int64_t size(int64_t step, std::string_view key) override {
        check_key(key);
        const Folder root = Folder::find(place_);
        const Folder folder = root ? root.folder(step_name(step)) : Folder();
        return folder ? folder.size(std::string(key)) : -1;
    }

    void get(int64_t step, std::string_view key, int64_t offset, std::span<std::byte> bytes) override {
        check_key(key);
        if (offset < 0) throw Error(place_ + ": " + std::string(key) + ": negative offset", Fault::failed);
        committed(step).read(std::string(key), offset, bytes);
    }

    void remove(int64_t step) override {
        const Folder folder = committed(step), root = Folder::find(place_);
        need_ours(folder);
        remove_whole(root, step_name(step), step);
    }

    std::vector<orrery::Stray> strays() override {
        std::vector<orrery::Stray> strays;
        const Folder root = Folder::find(place_);
        if (!root) return strays;
        for (const std::string& name : root.names()) {
            if (!name.starts_with("step-")) continue;
            const int64_t step = step_of(name, "");
            const std::string what = step >= 0 ? stray(root, name) : is_own(name) ? "" : "is not the name of a step";
            if (!what.empty()) strays.push_back({step, name + " " + what});
        }
        return strays;
    }

    std::string set_aside(int64_t step) override {
        const Folder root = Folder::find(place_);
        const std::string name = step_name(step);
        if (root && root.kind(name) != ' ') {
            const bool ours = is_copy_of_ours(root, name);
            const std::string kept = move_aside(root, name);
            told_.push_back(kept + (ours ? drop_older(root, name, kept) : ""));
        }
        std::string told;
        for (const std::string& one : std::exchange(told_, {})) told += (told.empty() ? "" : ", ") + one;
        return told;
    }

    void mark(int64_t step, std::string_view text) override {
        const Folder folder = committed(step);
        if (folder.size(mark_name) >= 0) return;
        const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
        folder.write(mark_name, {&bytes, 1});
        folder.sync();
    }

    std::string mark_of(int64_t step) override {
        constexpr int64_t longest = 1000;  // anybody may have written it
        const Folder folder = committed(step);
        const int64_t bytes = std::min(longest, folder.size(mark_name));
        if (bytes < 0) return "";
        std::string text(static_cast<size_t>(bytes), '\0');
        folder.read(mark_name, 0, std::as_writable_bytes(std::span(text)));
        return text.empty() ? mark_name + " is empty" : text;
    }

    std::string place() const override { return place_; }

private:
    void check_key(std::string_view key) const {
        const bool plain = std::all_of(key.begin(), key.end(), [](unsigned char c) {
            return std::isalnum(c) || c == '.' || c == '-' || c == '_';
        });
        if (!plain || key.empty() || key.size() > 200 || key[0] == '.' || key == manifest_name || key == mark_name)
            throw Error(place_ + ": \"" + std::string(key) + "\" cannot be the name of an object\n  " +
                            "use letters, digits, '.', '-' and '_'; not manifest.json or suspect.txt",
                        Fault::failed);
    }

    /// Why a folder is not deleted, "" when it may be: it has the marker, and nothing in it is a folder.
    static std::string not_ours(const Folder& folder) {
        if (folder.size(marker) < 0) return "has no file " + marker;
        for (const std::string& name : folder.names())
            if (folder.kind(name) == 'd') return "holds the folder " + name;
        return "";
    }

    void need_ours(const Folder& folder) const {
        if (const std::string why = not_ours(folder); !why.empty())
            throw Error(folder.path() + " " + why + ", so it is left alone\n  it was not made by orrery; move it away",
                        Fault::failed);
    }

    /// Why a folder is no committed step, "" when it is one.
    static std::string manifest_problem(const Folder& folder) {
        const int64_t bytes = folder.size(manifest_name);
        if (bytes < 0) return "has no " + manifest_name;
        if (bytes <= longest_manifest) return "";
        return "has a " + manifest_name + " of " + std::to_string(bytes) + " bytes, more than one ever has";
    }

    /// What is wrong with what stands in a step's place, "" when nothing is.
    static std::string stray(const Folder& root, const std::string& name) {
        const char kind = root.kind(name);
        if (kind == 'l') return "is a symbolic link, which is not followed";
        if (kind != 'd') return "is no folder";
        const Folder folder = root.folder(name);
        if (!folder) return "";  // removed by another process
        if (const std::string why = manifest_problem(folder); !why.empty()) return why;
        const std::string why = not_ours(folder);
        return why.empty() ? "" : why + ", so it is read but never removed";
    }

    /// Names of steps that are being written, being removed or were set aside.
    static bool is_own(const std::string& name) {
        return step_of(name, partial) >= 0 || step_of(name, removed) >= 0 || name.find(aside) != std::string::npos;
    }

    std::string move_aside(const Folder& root, const std::string& name) const {
        constexpr int most = 10000;
        for (int number = 1; number <= most; ++number) {
            const std::string to = name + aside + std::to_string(number);
            if (root.kind(to) != ' ' || !root.rename(name, to)) continue;
            root.sync();
            return root.path() + "/" + to;
        }
        posix_store::fail("set aside", root.path() + "/" + name, EEXIST);
    }

    /// A committed step, marked or not, or one that was: not what others put there or took a part of.
    static bool is_copy_of_ours(const Folder& root, const std::string& name) {
        const Folder folder = root.kind(name) == 'd' ? root.folder(name) : Folder();
        return folder && not_ours(folder).empty() && manifest_problem(folder).empty();
    }

    /// Of a step's own copies only the newest stays: a run that diverges and is started again makes one each time.
    /// Returns what to say of it.
    std::string drop_older(const Folder& root, const std::string& name, const std::string& kept) {
        std::string said;
        for (const std::string& other : root.names()) {
            if (!other.starts_with(name + aside) || kept == root.path() + "/" + other) continue;
            if (!is_copy_of_ours(root, other)) continue;
            remove_whole(root, other, step_of(name, ""));
            said += " (the older " + other + " is removed)";
        }
        return said;
    }

    /// Removes one of our folders under another name, so that no half of it is ever seen.
    void remove_whole(const Folder& root, const std::string& name, int64_t step) {
        const std::string to = step_name(step) + removed;
        erase_or_move(root, to);  // of a removal that was cut off
        if (!root.rename(name, to)) posix_store::fail("rename", root.path() + "/" + name, EEXIST);
        root.sync();
        erase(root, to);
    }

    /// Deletes what is ours; keeps anything else, under another name, which the next set_aside tells.
    void erase_or_move(const Folder& root, const std::string& name) {
        const char kind = root.kind(name);
        if (kind == ' ') return;
        const Folder folder = kind == 'd' ? root.folder(name) : Folder();
        if (folder && (folder.names().empty() || not_ours(folder).empty()))
            erase(root, name);
        else
            told_.push_back(move_aside(root, name));
    }

    /// The folder of an uncommitted step, made by whoever of the ranks comes first.
    Folder open_partial(int64_t step) const {
        const Folder root = Folder::make(place_);
        const std::string name = step_name(step) + partial;
        root.make_folder(name);
        Folder open = root.folder(name);
        if (!open) posix_store::fail("open", root.path() + "/" + name, ENOENT);
        // Another rank may be between making the folder and marking it: then it is still empty.
        if (open.size(marker) < 0 && !open.names().empty()) need_ours(open);
        open.touch(marker);
        return open;
    }

    Folder committed(int64_t step) const {
        const Folder root = Folder::find(place_);
        Folder folder = root ? root.folder(step_name(step)) : Folder();
        if (!folder) throw Error(place_ + ": step " + std::to_string(step) + " is not committed", Fault::failed);
        return folder;
    }

    /// Deletes a folder that carries the marker, which goes last, or that is empty. Nothing in it can be a folder.
    void erase(const Folder& root, const std::string& name) const {
        const Folder folder = root.folder(name);
        if (!folder) return;
        const std::vector<std::string> files = folder.names();
        if (!files.empty()) need_ours(folder);
        for (const std::string& file : files) {
            if (file != marker) folder.remove_file(file);
        }
        folder.remove_file(marker);
        root.remove_folder(name);
    }

    /// Drops what an earlier process left behind: steps before this one that it did not finish to write or remove.
    void clean(const Folder& root, int64_t before) const {
        for (const std::string& name : root.names()) {
            const int64_t unfinished = step_of(name, partial);
            const bool stale = unfinished >= 0 && unfinished < before;
            if (!stale && step_of(name, removed) < 0) continue;
            try {
                erase(root, name);
            } catch (const Error&) {
                // The step is committed; leftovers cost space only and are tried again next time.
            }
        }
    }

    std::string place_;
    std::vector<std::string> told_;  ///< what was moved and is not told yet
};

void add(orrery::Registry& registry) {
    registry.add_store("posix", [](orrery::Config&, const std::string& place) {
        if (place.empty()) throw Error("a posix store needs a folder for its checkpoints");
        return std::make_unique<Posix>(place);
    });
}

}  // namespace

ORRERY_PLUGIN("store.posix", "0.1", add);

// Stores checkpoints as folders of files:
//   PLACE/step-00000300.partial/{.orrery-checkpoint, KEY...}    being written, invisible
//   PLACE/step-00000300.g3.partial/                              the same, by generation 3 of the job
//   PLACE/step-00000300/{.orrery-checkpoint, KEY..., manifest.json}    a committed step
//   PLACE/step-00000300/suspect.txt, pinned.txt                  its mark and pin
//   PLACE/generation-00000003                                    the newest claimed generation
//   PLACE/step-00000300.removed/                                 being removed, invisible
//   PLACE/step-00000300.aside-1                                  was in a step's place; invisible
//   PLACE/step-00000300.2/                                       the step, if the first name is taken for good
// A step becomes visible by one rename after everything in it is durable. Only folders with the marker are deleted.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "file_system.h"
#include "folder.h"
#include "generations.h"
#include "leftovers.h"
#include "orrery/plugin.h"
#include "places.h"
#include "step_folder.h"

namespace {

using orrery::Error;
using orrery::Fault;
using orrery::StepNote;
using posix_store::Committed;
using posix_store::find_committed;
using posix_store::Folder;
using posix_store::manifest_name;
using posix_store::manifest_problem;
using posix_store::mark_name;
using posix_store::marker;
using posix_store::not_ours;
using posix_store::partial_of;
using posix_store::pin_name;
using posix_store::Place;
using posix_store::place_name;
using posix_store::place_of;
using posix_store::removed_manifest;
using posix_store::step_name;
using posix_store::step_of;

const std::string aside = ".aside-";

class Posix final : public orrery::CheckpointStore {
public:
    explicit Posix(std::string place) : place_(std::move(place)) {}

    orrery::StoreContract contract() const override {
        const std::lock_guard lock(contract_mutex_);
        if (!contract_) contract_ = posix_store::contract_at(place_);
        return *contract_;
    }

    void put(int64_t step, std::string_view key, std::span<const std::byte> bytes) override {
        put_parts(step, key, {&bytes, 1});
    }

    void put_parts(int64_t step, std::string_view key, std::span<const std::span<const std::byte>> parts) override {
        check_key(key);
        fenced([&] { open_partial(step).write(std::string(key), parts); });
    }

    void link(int64_t step, std::string_view key, int64_t from, std::string_view from_key) override {
        check_key(key), check_key(from_key);
        const Folder source = committed(from);
        if (source.size(std::string(from_key)) < 0)
            throw Error(source.path() + " has no object \"" + std::string(from_key) + "\"", Fault::failed);
        fenced([&] {
            // Copy if the file system has no hard links, or allows no more of this file.
            if (source.link(std::string(from_key), open_partial(step), std::string(key))) return;
            CheckpointStore::link(step, key, from, from_key);
            need_equal(source, std::string(from_key), open_partial(step), std::string(key));
        });
    }

    void flush(int64_t step) override {
        fenced([&] {
            const Folder root = writable();
            if (const Folder open = root.folder(open_name(step))) open.sync();
            root.sync();
        });
    }

    void commit(int64_t step, std::string_view manifest) override {
        fenced([&] { publish(step, manifest); });
        try {
            posix_store::clean(Folder::make(place_), step, acts_for_);
        } catch (const Error&) {
            // The step is committed. What is left only costs space, and the next commit tries again.
        }
    }

    void discard(int64_t step) override {
        const Folder root = Folder::find(place_);
        if (!root) return;
        need_newest(root, acts_for_);
        erase_or_move(root, open_name(step));
    }

    std::vector<int64_t> steps() override {
        std::vector<int64_t> steps;
        const Folder root = Folder::find(place_);
        if (!root) return {};
        for (const auto& [step, numbers] : posix_store::places_in(root.names()))
            if (find_committed(root, step, numbers).folder) steps.push_back(step);
        return {steps.rbegin(), steps.rend()};
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
        const Folder folder = visible(step);
        return folder ? folder.size(std::string(key)) : -1;
    }

    void get(int64_t step, std::string_view key, int64_t offset, std::span<std::byte> bytes) override {
        check_key(key);
        if (offset < 0) throw Error(place_ + ": " + std::string(key) + ": negative offset", Fault::failed);
        committed(step).read(std::string(key), offset, bytes);
    }

    void remove(int64_t step) override {
        const Folder folder = committed(step), root = writable();
        need_ours(folder);
        need_unpinned(folder, step);
        const int number = std::max(1, find_committed(root, step).number);
        const std::string name = place_name(step, number);
        if (number > 1) hide_below(root, step, number);
        remove_whole(root, name, step, [&](const std::function<bool()>& take_back) {
            // A pin set from here on fails, because the step is gone.
            if (folder.size(pin_name) < 0) return;
            if (!take_back())
                throw Error(root.path() + "/" + name + " is pinned, but its name was taken by another copy meanwhile",
                            Fault::failed);
            need_unpinned(folder, step);
        });
        if (const Folder older = number > 1 ? find_committed(root, step).folder : Folder())
            told_.push_back(older.path() + " (an older copy of step " + std::to_string(step) +
                            ", visible again: it can be neither moved nor changed)");
    }

    int64_t finish_removals(bool only_look) override {
        const Folder root = Folder::find(place_);
        if (!root) return 0;
        const int64_t found = posix_store::count_removed(root);
        if (only_look) return found;
        need_newest(root, acts_for_);
        posix_store::clean(root, 0, 0);
        return found - posix_store::count_removed(root);
    }

    std::vector<orrery::Stray> strays() override {
        std::vector<orrery::Stray> strays;
        const Folder root = Folder::find(place_);
        if (!root) return strays;
        const std::vector<std::string> names = root.names();
        const auto places = posix_store::places_in(names);
        for (const std::string& name : names) {
            if (!name.starts_with("step-")) continue;
            const Place place = place_of(name);
            const std::string own = own_state(name);
            try {
                if (orrery::Stray stray = place.step >= 0 ? stray_at(root, name, place, places.at(place.step))
                                                          : stray_of(root, name, own);
                    !stray.what.empty())
                    strays.push_back({stray.step, name + " " + stray.what});
            } catch (const Error& failure) {
                if (root.kind(name) == ' ') continue;  // renamed or removed by another job meanwhile
                if (place.step >= 0) throw;
                strays.push_back({-1, name + (own.empty() ? "" : " " + own) + ": " + failure.what()});
            }
        }
        return strays;
    }

    std::string set_aside(int64_t step) override {
        const Folder root = Folder::find(place_);
        if (root) need_newest(root, acts_for_);
        std::vector<int> standing = root ? posix_store::places_of(root, step) : std::vector<int>();
        while (!standing.empty() && make_way(root, place_name(step, standing.back()))) standing.pop_back();
        places_[step] = standing.empty() ? 1 : standing.back() + 1;
        std::string told;
        for (const std::string& one : std::exchange(told_, {})) told += (told.empty() ? "" : ", ") + one;
        return told;
    }

    std::string note(int64_t step, StepNote which) override {
        constexpr int64_t longest = 1000;  // bytes; any program may have written the file
        const std::string& name = name_of(which);
        const Folder folder = committed(step);
        const int64_t bytes = std::min(longest, folder.size(name));
        if (bytes < 0) return "";
        std::string text(static_cast<size_t>(bytes), '\0');
        folder.read(name, 0, std::as_writable_bytes(std::span(text)));
        return text.empty() ? name + " is empty" : text;
    }

    void set_note(int64_t step, StepNote which, std::string_view text) override {
        const Folder folder = committed(step), root = writable();
        if (text.empty()) {
            folder.remove_file(name_of(which));
            return folder.sync();
        }
        if (note(step, which) == text) return;  // writable() has checked the generation
        folder.replace(name_of(which), text);
        if (which != StepNote::pinned) return;
        // A removal that checked for pins before this one was set has renamed the folder by now.
        const Folder now = find_committed(root, step).folder;
        if (!now || !now.same(folder))
            throw Error(place_ + ": step " + std::to_string(step) + " was removed while it was pinned", Fault::failed);
    }

    bool claim(int64_t generation) override {
        const Folder root = Folder::make(place_);
        if (!posix_store::take_generation(root, generation)) return false;
        // The generation is durable before the partial folders of older ones are moved away. So an older generation's
        // commit that checked before that finds no folder to rename, and one that checks later is refused.
        for (const std::string& name : root.names()) {
            const posix_store::Partial found = partial_of(name);
            if (found.step < 0 || found.generation == 0 || found.generation >= generation) continue;
            if (root.kind(name) != 'd') continue;
            const std::string to = posix_store::removed_name(root, found.step);
            const int code = root.try_rename(name, to);
            if (code == EEXIST) continue;
            if (code != 0 && !refused_to_all(root, name, generation, code))
                throw Error(root.path() + "/" + name + ": an older generation of the job writes it, and it cannot be " +
                                "renamed: " + std::generic_category().message(code) +
                                "\n  the older generation could still " +
                                "commit it: stop its processes and remove the folder, or start again as the owner of "
                                "the folder",
                            Fault::failed);
            try {
                if (code == 0 || code == EXDEV) erase_or_move(root, code == 0 ? to : name);
            } catch (const Error&) {
                // No generation can write to it or commit it any more. The next commit tries again.
            }
        }
        root.sync();
        return true;
    }

    int64_t generation() override {
        const Folder root = Folder::find(place_);
        return root ? posix_store::newest_generation(root) : 0;
    }

    void act_for(int64_t generation) override { acts_for_ = generation; }

    int64_t free_bytes() override {
        const int64_t free = posix_store::free_bytes(place_);
        return free < 0 ? free : std::max(free, free + posix_store::leftover_bytes(place_));
    }

    std::string place() const override { return place_; }
    bool is_folder() const override { return true; }

private:
    static const std::string& name_of(StepNote note) { return note == StepNote::suspect ? mark_name : pin_name; }
    std::string open_name(int64_t step) const { return posix_store::partial_name(step, acts_for_); }

    /// Opens PLACE for a change. Throws unless this object's generation is the newest.
    Folder writable() const {
        // Only the last folder of the path may be missing, because a network file system may cache the missing name.
        if (acts_for_ > 0 && !Folder::find(std::filesystem::path(place_ + "/").parent_path().parent_path().string()))
            posix_store::throw_gone(place_, acts_for_);
        Folder root = Folder::make(place_);
        need_newest(root, acts_for_);
        return root;
    }

    /// Runs `work`. If it fails because a newer generation moved the folder away, throws that reason instead.
    template <class Work>
    void fenced(Work&& work) const {
        try {
            work();
        } catch (const Error&) {
            writable();
            throw;
        }
    }

    void publish(int64_t step, std::string_view manifest) {
        const Folder open = open_partial(step), root = writable();
        open.remove_file(manifest_name);  // left by a commit that failed before its rename
        const auto text = std::as_bytes(std::span(manifest.data(), manifest.size()));
        open.write(manifest_name, {&text, 1});
        open.sync();
        // A newer generation claimed from here on moves the folder away, so that the rename fails.
        need_newest(root, acts_for_);
        const auto found = places_.find(step);
        const int number = found == places_.end() ? posix_store::free_place(root, step) : found->second;
        const std::string name = place_name(step, number);
        if (find_committed(root, step).number > number || !root.rename(open_name(step), name))
            throw Error(place_ + ": step " + std::to_string(step) + " is committed already", Fault::failed);
        need_same(root, open, name, step);
        root.sync();
    }

    /// Checks after the rename that it moved the right folder: a rank of a superseded generation may have created the
    /// partial folder again.
    void need_same(const Folder& root, const Folder& open, const std::string& name, int64_t step) {
        const Folder now = root.folder(name);
        if (now && now.same(open)) return;
        if (now) erase_or_move(root, name);
        need_newest(root, acts_for_);
        throw Error(place_ + ": step " + std::to_string(step) + " was moved or removed while it was being committed",
                    Fault::failed);
    }

    /// Compares a copy that replaces a link with its source. Saves do not read linked objects back, so it is done here.
    static void need_equal(const Folder& from, const std::string& name, const Folder& to, const std::string& copy) {
        constexpr int64_t most = int64_t{8} << 20;
        const int64_t bytes = from.size(name);
        bool equal = to.size(copy) == bytes;
        std::vector<std::byte> one, other;
        for (int64_t at = 0; equal && at < bytes; at += most) {
            one.resize(static_cast<size_t>(std::min(most, bytes - at)));
            other.resize(one.size());
            from.read(name, at, one);
            to.read(copy, at, other);
            equal = one == other;
        }
        if (!equal)
            throw Error(to.path() + "/" + copy + " is a copy of " + from.path() + "/" + name +
                            ", but differs from it when read back",
                        Fault::failed);
    }

    void check_key(std::string_view key) const {
        if (!posix_store::is_key(key))
            throw Error(place_ + ": \"" + std::string(key) + "\" cannot be the name of an object\n  " +
                            "use letters, digits, '.', '-' and '_'; not manifest.json, suspect.txt or pinned.txt",
                        Fault::failed);
    }

    void need_ours(const Folder& folder) const {
        if (const std::string why = not_ours(folder); !why.empty())
            throw Error(folder.path() + " " + why + ", so it is left alone\n  it was not made by orrery; move it away",
                        Fault::failed);
    }

    /// The state that a name shows: being written, being removed or set aside; "" for any other name.
    static std::string own_state(const std::string& name) {
        if (name.find(aside) != std::string::npos) return "was set aside";
        if (partial_of(name).step >= 0) return "is being written, or was left unfinished";
        return posix_store::removed_of(name) >= 0 ? "is being removed, or was left so" : "";
    }

    static orrery::Stray stray_of(const Folder& root, const std::string& name, const std::string& own) {
        return {-1, own.empty() ? "is not the name of a step" : posix_store::leftover(root, name, own)};
    }

    /// Describes an entry with a step's name that is not the step, or was changed from outside.
    static orrery::Stray stray_at(const Folder& root, const std::string& name, const Place& place,
                                  const std::vector<int>& places) {
        if (posix_store::removed_in_place(root, name))
            return {-1, posix_store::leftover(root, name, "is being removed, or was left so")};
        const int number = find_committed(root, place.step, places).number;
        const Folder folder = root.kind(name) == 'd' ? root.folder(name) : Folder();
        if (number > place.number || (folder && posix_store::was_set_aside(folder)))
            return {-1, posix_store::leftover(root, name, "cannot be renamed, and was set aside where it is")};
        return {place.step, posix_store::stray(root, name)};
    }

    /// Sets the entry in a step's place aside. Returns false if it cannot be renamed; it is then set aside in place.
    bool make_way(const Folder& root, const std::string& name) {
        if (posix_store::removed_in_place(root, name)) posix_store::drop(root, name);
        const Folder folder = root.kind(name) == 'd' ? root.folder(name) : Folder();
        const bool again = folder && posix_store::was_set_aside(folder);
        if (root.kind(name) == ' ') return true;
        const bool ours = is_copy_of_ours(root, name), pinned = is_pinned(root, name);
        int refused = 0;
        const std::string moved = move_aside(root, name, &refused);
        if (refused != 0 && again) return false;  // was reported when it was set aside
        const std::string kept = refused == 0 ? moved : posix_store::set_aside_in_place(root, name, refused);
        told_.push_back(kept + (pinned ? " (pinned)" : "") + (ours ? drop_older(root, name, moved) : ""));
        return refused == 0;
    }

    /// Renames an entry to NAME.aside-K. Returns its new path. If the rename can never work: sets `refused` to the
    /// error code and returns "", or throws if `refused` is nullptr.
    std::string move_aside(const Folder& root, const std::string& name, int* refused = nullptr) const {
        constexpr int most = 10000;
        for (int number = 1; number <= most; ++number) {
            const std::string to = name + aside + std::to_string(number);
            if (root.kind(to) != ' ') continue;
            const int code = root.try_rename(name, to);
            if (code == EEXIST) continue;
            if (refused && posix_store::refuses_for_good(code)) return *refused = code, "";
            if (code != 0) posix_store::fail("rename to " + to, root.path() + "/" + name, code);
            root.sync();
            return root.path() + "/" + to;
        }
        posix_store::fail("set aside", root.path() + "/" + name, EEXIST);
    }

    /// Whether an entry is a complete step that Orrery wrote, marked or not.
    static bool is_copy_of_ours(const Folder& root, const std::string& name) {
        const Folder folder = root.kind(name) == 'd' ? root.folder(name) : Folder();
        return folder && not_ours(folder).empty() && manifest_problem(folder).empty();
    }

    static bool is_pinned(const Folder& root, const std::string& name) {
        const Folder folder = root.kind(name) == 'd' ? root.folder(name) : Folder();
        return folder && folder.kind(pin_name) != ' ';
    }

    /// Removes older copies of a step that was set aside, except pinned ones: a run that diverges at the same step in
    /// each start would leave one each time. Returns a message.
    std::string drop_older(const Folder& root, const std::string& name, const std::string& kept) {
        std::string said;
        for (const std::string& other : root.names()) {
            if (!other.starts_with(name + aside) || kept == root.path() + "/" + other) continue;
            try {
                if (!is_copy_of_ours(root, other) || is_pinned(root, other)) continue;
                remove_whole(root, other, place_of(name).step);
                said += " (the older " + other + " is removed)";
            } catch (const Error& failure) {
                said += " (the older " + other + " stays: " + failure.what() + ")";
            }
        }
        return said;
    }

    void need_unpinned(const Folder& folder, int64_t step) const {
        if (folder.size(pin_name) >= 0)
            throw Error(place_ + ": step " + std::to_string(step) + " is pinned, so it stays", Fault::failed);
    }

    using Look = std::function<void(const std::function<bool()>& take_back)>;

    /// Renames a folder and then deletes it, so that no half of it is ever visible. Calls `look` in between, which may
    /// undo the rename with take_back(); that returns false if the name is taken.
    void remove_whole(const Folder& root, const std::string& name, int64_t step, const Look& look = {}) {
        const std::string to = posix_store::removed_name(root, step);
        const int code = root.try_rename(name, to);
        if (code == EXDEV) return remove_in_place(root, name, look);
        if (code != 0) posix_store::fail("rename to " + to, root.path() + "/" + name, code);
        root.sync();
        if (look) look([&] { return rename_durably(root, to, name); });
        posix_store::drop(root, to);
    }

    /// Removes a folder in a lower layer of an overlay, where only files can be renamed: renames its manifest first.
    static void remove_in_place(const Folder& root, const std::string& name, const Look& look) {
        const Folder folder = root.folder(name);
        if (!folder) posix_store::fail("remove", root.path() + "/" + name, ENOENT);
        folder.remove_file(removed_manifest);  // left by a removal after which a manifest was put back
        if (!rename_durably(folder, manifest_name, removed_manifest))
            posix_store::fail("remove", root.path() + "/" + name, EEXIST);
        if (look) look([&] { return rename_durably(folder, removed_manifest, manifest_name); });
        posix_store::drop(root, name);
    }

    /// Before the folder at place `number` is removed: renames the manifests of the places that it hides, as far as
    /// possible, so that none of them becomes the step.
    static void hide_below(const Folder& root, int64_t step, int number) {
        for (const int below : posix_store::places_of(root, step)) {
            const std::string name = place_name(step, below);
            const Folder folder = below < number && root.kind(name) == 'd' ? root.folder(name) : Folder();
            if (folder && manifest_problem(folder).empty()) posix_store::rename_manifest(folder);
        }
    }

    static bool rename_durably(const Folder& folder, const std::string& from, const std::string& to) {
        if (!folder.rename(from, to)) return false;
        folder.sync();
        return true;
    }

    /// Deletes a folder of ours. Anything else is renamed, and the next set_aside reports the new name.
    void erase_or_move(const Folder& root, const std::string& name) {
        const char kind = root.kind(name);
        if (kind == ' ') return;
        const Folder folder = kind == 'd' ? root.folder(name) : Folder();
        if (!folder || !posix_store::kept_for(folder, name).empty()) return told_.push_back(move_aside(root, name));
        try {
            posix_store::erase(root, name);
        } catch (const Error&) {
            // If a file cannot be deleted the folder is renamed; the next commits try again.
            const int64_t step = partial_of(name).step;
            if (step < 0 || root.try_rename(name, posix_store::removed_name(root, step)) != 0) throw;
        }
    }

    /// Opens the folder of an uncommitted step. The first rank creates it.
    Folder open_partial(int64_t step) const {
        const Folder root = writable();
        const std::string name = open_name(step);
        root.make_folder(name);
        Folder open = root.folder(name);
        if (!open) posix_store::fail("open", root.path() + "/" + name, ENOENT);
        // An empty folder without a marker was created by another rank that is about to add the marker.
        if (open.size(marker) < 0 && !open.names().empty()) need_ours(open);
        open.touch(marker);
        return open;
    }

    /// The folder of a committed step, or else the folder that has its name.
    Folder visible(int64_t step) const {
        const Folder root = Folder::find(place_);
        Committed found = root ? find_committed(root, step) : Committed();
        return root && !found.folder ? root.folder(step_name(step)) : std::move(found.folder);
    }

    Folder committed(int64_t step) const {
        Folder folder = visible(step);
        if (!folder || folder.kind(manifest_name) == ' ')
            throw Error(place_ + ": step " + std::to_string(step) + " is not committed", Fault::failed);
        return folder;
    }

    std::string place_;
    int64_t acts_for_ = 0;           ///< generation of the job; 0: none
    std::map<int64_t, int> places_;  ///< place number by step, for steps after set_aside
    mutable std::mutex contract_mutex_;
    mutable std::optional<orrery::StoreContract> contract_;  ///< nullopt until contract() was called
    std::vector<std::string> told_;                          ///< moved entries for the next set_aside to report
};

void add(orrery::Registry& registry) {
    registry.add_store("posix", [](orrery::Config&, const std::string& place) {
        if (place.empty()) throw Error("a posix store needs a folder for its checkpoints");
        return std::make_unique<Posix>(place);
    });
}

}  // namespace

ORRERY_PLUGIN("store.posix", "0.1", add);

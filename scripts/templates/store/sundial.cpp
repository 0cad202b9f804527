// The store sundial: named byte objects per step, as files of a folder. Replace the files by what you have; the rules
// of orrery/checkpoint.h are what the core relies on: a step is invisible until commit, put never overwrites.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "orrery/plugin.h"

namespace {

namespace fs = std::filesystem;

class Sundial final : public orrery::CheckpointStore {
public:
    explicit Sundial(std::string place) : place_(std::move(place)) {}

    // Say only what the store keeps: the suite of stores, and the core, hold it to that. link, claim and act_for have
    // defaults that copy and grant everything, which is what links = false and fences = false stand for.
    orrery::StoreContract contract() const override {
        orrery::StoreContract contract;
        contract.survives = orrery::StoreContract::Survives::power_cut;
        contract.shared = orrery::StoreContract::Shared::host;
        return contract;
    }

    void put(int64_t step, std::string_view key, std::span<const std::byte> bytes) override {
        fs::create_directories(open_folder(step));
        write(open_folder(step) / key, bytes);
    }

    void flush(int64_t step) override { sync(open_folder(step)); }  // the files were synchronised by put

    void commit(int64_t step, std::string_view manifest) override {
        if (fs::exists(folder(step))) fail(folder(step), "is committed already");
        write(open_folder(step) / "manifest", std::as_bytes(std::span(manifest)));
        sync(open_folder(step));
        fs::rename(open_folder(step), folder(step));
        sync(place_);
    }

    void discard(int64_t step) override { fs::remove_all(open_folder(step)); }

    std::vector<int64_t> steps() override {
        std::vector<int64_t> steps;
        if (!fs::exists(place_)) return steps;
        for (const auto& entry : fs::directory_iterator(place_)) {
            const std::string name = entry.path().filename().string();
            if (name.find_first_not_of("0123456789") == std::string::npos) steps.push_back(std::stoll(name));
        }
        std::sort(steps.rbegin(), steps.rend());
        return steps;
    }

    std::string manifest(int64_t step) override {
        std::ifstream file(folder(step) / "manifest", std::ios::binary);
        if (!file) fail(folder(step), "is not committed");
        std::stringstream text;
        text << file.rdbuf();
        return text.str();
    }

    int64_t size(int64_t step, std::string_view key) override {
        std::error_code none;
        const auto bytes = fs::file_size(folder(step) / key, none);
        return none ? -1 : static_cast<int64_t>(bytes);
    }

    void get(int64_t step, std::string_view key, int64_t offset, std::span<std::byte> bytes) override {
        std::ifstream file(folder(step) / key, std::ios::binary);
        file.seekg(offset);
        file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        if (!file)
            fail(folder(step) / key, "has no " + std::to_string(bytes.size()) + " bytes at " + std::to_string(offset));
    }

    void remove(int64_t step) override {
        if (!fs::exists(folder(step))) fail(folder(step), "is not committed");
        const fs::path gone = folder(step).string() + ".removed";
        fs::rename(folder(step), gone);  // first invisible, then gone
        fs::remove_all(gone);
    }

    std::string set_aside(int64_t step) override {
        if (!fs::exists(folder(step))) return "";
        for (int number = 1;; ++number) {
            const fs::path to = folder(step).string() + ".aside-" + std::to_string(number);
            if (fs::exists(to)) continue;
            fs::rename(folder(step), to);
            sync(place_);
            return to.string();
        }
    }

    std::string note(int64_t step, orrery::StepNote which) override {
        std::ifstream file(note_file(step, which), std::ios::binary);
        std::stringstream text;
        text << file.rdbuf();
        return text.str();
    }

    void set_note(int64_t step, orrery::StepNote which, std::string_view text) override {
        if (!fs::exists(folder(step))) fail(folder(step), "is not committed");
        const fs::path file = note_file(step, which), fresh = file.string() + ".new";
        fs::remove(text.empty() ? file : fresh);
        if (!text.empty()) {
            write(fresh, std::as_bytes(std::span(text)));
            fs::rename(fresh, file);
        }
        sync(folder(step));
    }

    std::string place() const override { return place_.string(); }
    bool is_folder() const override { return true; }

private:
    fs::path folder(int64_t step) const { return place_ / std::to_string(step); }
    fs::path open_folder(int64_t step) const { return folder(step).string() + ".open"; }

    fs::path note_file(int64_t step, orrery::StepNote which) const {  // no key begins with a dot
        return folder(step) / (which == orrery::StepNote::suspect ? ".mark" : ".pin");
    }

    [[noreturn]] static void fail(const fs::path& path, const std::string& why) {
        throw orrery::Error("store sundial: " + path.string() + " " + why, orrery::Fault::failed);
    }

    /// A new file, on the disk when this returns. Throws when there is one already.
    static void write(const fs::path& path, std::span<const std::byte> bytes) {
        const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (file < 0) fail(path, std::string("cannot be made: ") + std::strerror(errno));
        bool good = true;
        for (size_t done = 0; good && done < bytes.size();) {
            const ssize_t n = ::write(file, bytes.data() + done, bytes.size() - done);
            good = n > 0 || (n < 0 && errno == EINTR);
            if (n > 0) done += static_cast<size_t>(n);
        }
        good = good && ::fsync(file) == 0;
        const int error = errno;
        ::close(file);
        if (!good) fail(path, std::string("cannot be written: ") + std::strerror(error));
    }

    /// A folder's entries survive a power cut when this returns.
    static void sync(const fs::path& path) {
        if (!fs::exists(path)) return;
        const int opened = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (opened < 0 || ::fsync(opened) != 0)
            fail(path, std::string("cannot be synchronised: ") + std::strerror(errno));
        ::close(opened);
    }

    fs::path place_;
};

void add(orrery::Registry& registry) {
    // What a factory does not read of [store.sundial] is an error: config.text("key", "default") reads one.
    registry.add_store("sundial",
                       [](orrery::Config&, const std::string& place) { return std::make_unique<Sundial>(place); });
}

}  // namespace

ORRERY_PLUGIN("store.sundial", "0.1", add);

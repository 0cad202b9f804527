// Implements DataFile of orrery/data.h, which detects that a training's data file has changed.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/regular_file.h"
#include "run/data/stored_arrays.h"

namespace orrery {

struct DataFile::Opened {
    std::string path;
    Origin asked;
    RegularFile file;
    struct stat known;  ///< stat of the open file at the last check
    struct stat named;  ///< stat of the path at the last check: another file may have taken it
    std::string digest;

    std::string digest_of(const RegularFile& other) const {
        const int64_t all = file.bytes();
        const bool whole = all <= scan_limit;
        const int64_t most = whole ? 1 << 20 : 64 << 10;
        const int64_t pieces = whole ? (all + most - 1) / most : 1024;
        std::vector<std::byte> bytes(static_cast<size_t>(most));
        uint32_t crc = 0;
        for (int64_t i = 0; i < pieces; ++i) {
            const int64_t from = whole ? i * most : (all - most) / (pieces - 1) * i;
            const auto size = static_cast<size_t>(std::min(most, all - from));
            crc = crc32c(std::span(bytes).first(other.read(from, bytes.data(), size)), crc);
        }
        return fmt::format("{:08x}", crc);
    }

    std::string name_changed() {
        struct stat there {};
        const bool gone = ::stat(path.c_str(), &there) != 0;
        const auto same = [&](const struct stat& a) { return a.st_ino == there.st_ino && a.st_dev == there.st_dev; };
        if (same(known) || (same(named) && there.st_mtime == named.st_mtime)) return "";
        named = there;
        if (!gone) {
            const RegularFile other(path);
            if (other.problem().empty() && other.bytes() == file.bytes() && digest_of(other) == digest) return "";
        }
        return fmt::format(
            "data file {} {}: the run still reads the file opened at the start, but a restart would refuse this "
            "one; restore the original before this run ends",
            path, gone ? "was removed" : "was replaced by a file with other contents");
    }

    [[noreturn]] void changed(const std::string& what) const {
        throw Error(asked,
                    fmt::format("data file {} {} since the run began; checkpoints refer to the old contents\n"
                                "  restore it and start again to resume from the last checkpoint, or train on the new "
                                "file in another run.folder",
                                path, what),
                    Fault::failed);
    }
};

DataFile::DataFile(std::string path, std::string_view what, const Origin& asked)
    : opened_(new Opened{path, asked, RegularFile(path), {}, {}, ""}) {
    const RegularFile& file = opened_->file;
    if (!file.problem().empty())
        throw Error(asked, fmt::format("data file {} {}\n  set data.path to {}", path, file.problem(), what));
    opened_->known = opened_->named = file.info();
}

DataFile::~DataFile() = default;

const std::string& DataFile::path() const { return opened_->path; }
int64_t DataFile::bytes() const { return opened_->file.bytes(); }

void DataFile::read(int64_t sample, int64_t begin, void* to, int64_t bytes) const {
    const auto got = static_cast<int64_t>(opened_->file.read(begin, to, static_cast<size_t>(bytes)));
    if (got == bytes) return;
    if (sample < 0)
        throw Error(opened_->asked,
                    fmt::format("data file {} was truncated while it was read: it ends at byte {}, and had "
                                "{} bytes when it was opened\n  start again once it is complete",
                                path(), begin + got, this->bytes()),
                    Fault::failed);
    throw Error(opened_->asked,
                fmt::format("data file {} was truncated: sample {} is bytes {} to {}, and it had {} when the run "
                            "began\n  restore it and start again to resume from the last checkpoint",
                            path(), sample, begin, begin + bytes - 1, this->bytes()),
                Fault::failed);
}

std::vector<StoredArray> DataFile::arrays() const {
    const bool npy = path().ends_with(".npy");
    try {
        return stored_arrays(*this);
    } catch (const Error& error) {
        throw Error(opened_->asked,
                    fmt::format("data file {} cannot be read as {}: {}\n  write it with {}", path(),
                                npy ? "NumPy's .npy" : "safetensors", error.what(),
                                npy ? "numpy.save" : "safetensors.numpy.save_file, or name a .npy"),
                    error.fault());
    }
}

const std::string& DataFile::digest() {
    if (opened_->digest.empty()) opened_->digest = opened_->digest_of(opened_->file);
    return opened_->digest;
}

std::string DataFile::require_unchanged() {
    const struct stat now = opened_->file.now();
    struct stat& known = opened_->known;
    if (now.st_size != known.st_size)
        opened_->changed(fmt::format("has {} bytes, not the {}", now.st_size, known.st_size));
    const bool touched = now.st_mtim.tv_sec != known.st_mtim.tv_sec || now.st_mtim.tv_nsec != known.st_mtim.tv_nsec;
    if (touched && bytes() > scan_limit) opened_->changed("was written to");
    if (touched && opened_->digest_of(opened_->file) != digest()) opened_->changed("has other contents");
    known = now;
    return opened_->name_changed();
}

}  // namespace orrery

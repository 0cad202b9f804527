#pragma once
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace orrery::sweeps {

/// A call as the recorder left it: "create PATH", "mkdir PATH", "write PATH OFFSET" with data, "truncate PATH", "fsync
/// PATH", "rename FROM TO", "link FROM TO", "unlink PATH", "note TEXT".
struct Call {
    std::string what, path, other, data;
    int64_t offset = 0;
};

/// Throws Error where the file is no record.
std::vector<Call> read_record(const std::string& file);

/// What a disk may hold after the power was cut: by path below the root, a file's contents; a folder has none and ends
/// with a slash.
using Tree = std::map<std::string, std::string>;

/// All calls up to a moment, and which of them have surely reached the disk: what was written to a file before its
/// fsync, what was done to a folder's names before the folder's. Of the others any may have: names of a folder in any
/// combination, pieces of a file in any, as zeros, or cut short. This is more than a journal allows, and is what POSIX
/// promises; a file system that orders its metadata has a part of these states.
class Disk {
public:
    explicit Disk(std::string root);
    void apply(const Call& call);
    /// Calls that may be lost now.
    size_t pending() const { return pending_.size(); }
    /// What is found when `kept[i]` of the pending calls has reached the disk. `harm`: 0 whole writes, 1 the last
    /// kept write of each file is cut in half, 2 its second half is zeros.
    Tree after(const std::vector<bool>& kept, int harm) const;

private:
    struct Change {
        enum class Kind : uint8_t { name, unname, rename, data } kind = Kind::name;
        int folder = 0, object = 0;  ///< data: the file
        std::string from, to;        ///< names in the folder
        int64_t offset = 0;
        std::string bytes;
    };
    struct Object {
        bool folder = false;
        std::map<std::string, int> names;  ///< as they are for processes
    };

    std::pair<int, std::string> split(const std::string& path) const;
    int find(const std::string& path) const;
    void add(Change change);
    void settle(int object, bool folder);

    std::string root_;
    std::vector<Object> objects_;  ///< 0: the root
    std::vector<Change> durable_, pending_;
};

}  // namespace orrery::sweeps

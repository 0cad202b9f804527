#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/hash.h"

namespace orrery::test {

/// What one record of an event file says.
struct EventRecord {
    double time = 0;
    int64_t step = 0;
    std::string version;                                ///< of the first one
    bool starts = false;                                ///< a SessionLog START
    std::vector<std::pair<std::string, float>> values;  ///< by tag
};

/// A reader of its own, by the format's definition: fields of any order, unknown ones skipped.
class EventReader {
public:
    /// Ends at a record that is cut, as TensorBoard's do; throws std::runtime_error at a wrong checksum or field.
    static std::vector<EventRecord> file(const std::string& path) {
        const std::string all = system_env()->read_file(path);
        std::vector<EventRecord> records;
        for (std::string_view rest = all; rest.size() >= 12;) {
            const auto size = number<uint64_t>(rest.substr(0, 8));
            require(number<uint32_t>(rest.substr(8, 4)) == masked(rest.substr(0, 8)), "checksum of a length");
            if (rest.size() < 16 || rest.size() - 16 < size) break;
            const std::string_view data = rest.substr(12, size);
            require(number<uint32_t>(rest.substr(12 + size, 4)) == masked(data), "checksum of a record");
            records.push_back(event(data));
            rest.remove_prefix(16 + size);
        }
        return records;
    }

    /// Scalars by tag, and under it each step with all its values: files in the order of their names, of which a start
    /// takes back what the ones before say of its step and later.
    using Scalars = std::map<std::string, std::map<int64_t, std::vector<float>>>;
    static Scalars folder(const std::string& path) {
        Scalars scalars;
        for (const std::string& name : system_env()->list(path))
            for (const EventRecord& record : file(path + "/" + name)) {
                if (record.starts)
                    for (auto& [tag, steps] : scalars) steps.erase(steps.lower_bound(record.step), steps.end());
                for (const auto& [tag, value] : record.values) scalars[tag][record.step].push_back(value);
            }
        return scalars;
    }

private:
    static void require(bool holds, const char* what) {
        if (!holds) throw std::runtime_error(what);
    }
    template <class Number>
    static Number number(std::string_view bytes) {
        require(bytes.size() >= sizeof(Number), "a cut number");
        Number value;
        std::memcpy(&value, bytes.data(), sizeof value);
        return value;
    }
    static uint32_t masked(std::string_view bytes) {
        const uint32_t crc = crc32c_portable(bytes_of(bytes));
        return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
    }
    static uint64_t varint(std::string_view& from) {
        uint64_t value = 0;
        for (int shift = 0;; shift += 7) {
            require(!from.empty() && shift < 64, "a cut varint");
            const auto byte = static_cast<unsigned char>(from.front());
            from.remove_prefix(1);
            value |= static_cast<uint64_t>(byte & 127) << shift;
            if (byte < 128) return value;
        }
    }
    /// Calls see(number, contents) for each field; a varint's contents are its value in `whole`.
    template <class See>
    static void fields(std::string_view from, See see) {
        while (!from.empty()) {
            const uint64_t key = varint(from);
            uint64_t whole = 0;
            size_t size = 0;
            switch (key & 7) {
                case 0: whole = varint(from); break;
                case 1: size = 8; break;
                case 2: size = varint(from); break;
                case 5: size = 4; break;
                default: require(false, "a wire type");
            }
            require(from.size() >= size, "a cut field");
            see(key >> 3, from.substr(0, size), whole);
            from.remove_prefix(size);
        }
    }
    static EventRecord event(std::string_view data) {
        EventRecord made;
        fields(data, [&](uint64_t field, std::string_view bytes, uint64_t whole) {
            if (field == 1) made.time = number<double>(bytes);
            if (field == 2) made.step = static_cast<int64_t>(whole);
            if (field == 3) made.version = bytes;
            if (field == 7)
                fields(bytes, [&](uint64_t f, std::string_view, uint64_t w) { made.starts |= f == 1 && w == 1; });
            if (field != 5) return;
            fields(bytes, [&](uint64_t f, std::string_view value, uint64_t) {
                require(f == 1, "a field of a summary");
                std::optional<float> number_of;
                std::string tag;
                fields(value, [&](uint64_t part, std::string_view contents, uint64_t) {
                    if (part == 1) tag = contents;
                    if (part == 2) number_of = number<float>(contents);
                });
                require(number_of && !tag.empty(), "a value without tag or number");
                made.values.emplace_back(tag, *number_of);
            });
        });
        return made;
    }
};

}  // namespace orrery::test

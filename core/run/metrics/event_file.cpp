#include "run/metrics/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <filesystem>

#include "base/env.h"
#include "base/hash.h"
#include "orrery/error.h"
#include "run/control/address.h"

namespace orrery {
namespace {

constexpr std::string_view prefix = "events.out.tfevents.";

/// Appends a number in little-endian order, as the format requires.
template <class Number>
void put(std::string& to, Number number) {
    for (size_t i = 0; i < sizeof number; ++i) to.push_back(static_cast<char>(number >> (8 * i) & 0xff));
}

// Key of a protobuf field: its number and wire type in one byte, which is enough for numbers below 16.
constexpr char wire_varint = 0, wire_8 = 1, wire_bytes = 2, wire_4 = 5;
constexpr char field(int number, char wire) { return static_cast<char>(number << 3 | wire); }

void put_varint(std::string& to, uint64_t number) {
    for (; number >= 128; number >>= 7) to.push_back(static_cast<char>(number | 128));
    to.push_back(static_cast<char>(number));
}

void put_bytes(std::string& to, int number, std::string_view bytes) {
    to.push_back(field(number, wire_bytes));
    put_varint(to, bytes.size());
    to.append(bytes);
}

/// Masks a checksum before it is stored, so that checksums of data that contains checksums stay useful.
uint32_t masked(std::string_view bytes) { return std::rotr(crc32c(bytes_of(bytes)), 15) + 0xa282ead8u; }

/// Returns a file name that sorts after existing ones, even if the clock was set back: readers sort files by name.
std::string name_behind(const std::string& folder, double time) {
    auto second = static_cast<int64_t>(time);
    for (const std::string& name : system_env()->list(folder)) {
        int64_t other = 0;
        if (!name.starts_with(prefix)) continue;
        std::from_chars(name.data() + prefix.size(), name.data() + name.size(), other);
        second = std::max(second, other + 1);
    }
    return fmt::format("{}/{}{:010}.{}.{}.0", folder, prefix, second, host_name(), ::getpid());
}

}  // namespace

EventFile::EventFile(std::string folder, double time) : folder_(std::move(folder)) { create(time); }

void EventFile::create(double time) {
    system_env()->make_folders(folder_);
    file_.emplace(name_behind(folder_, time));
    time_ = time;
    step_ = 0;
    try {
        write(
            "\x1a\x0d"
            "brain.Event:2");  // field 3 of Event: file_version
    } catch (const Error&) {
        file_.reset();  // a file without its first record is not readable
        throw;
    }
}

void EventFile::start(double time, int64_t first_step) {
    time_ = time;
    step_ = first_step;
    write("\x3a\x02\x08\x01");  // field 7 of Event: session_log { status = START }, discards this and later steps
}

void EventFile::begin(double time, int64_t step) {
    if (!file_ || file_->removed()) create(time);
    time_ = time;
    step_ = step;
    values_.clear();
}

void EventFile::add(std::string_view tag, double value) {  // field 1 of Summary: value { tag = 1, simple_value = 2 }
    const size_t tag_bytes = 1 + (std::bit_width(tag.size() | 1) + 6) / 7 + tag.size();
    values_.push_back(field(1, wire_bytes));
    put_varint(values_, tag_bytes + 5);
    put_bytes(values_, 1, tag);
    values_.push_back(field(2, wire_4));
    put(values_, std::bit_cast<uint32_t>(static_cast<float>(value)));
}

void EventFile::end() {
    event_.clear();
    put_bytes(event_, 5, values_);  // field 5 of Event: summary
    std::swap(event_, values_);
    write(values_);
}

/// Writes a record: the event's wall_time (field 1) and step (2), then `field_bytes`.
void EventFile::write(std::string_view field_bytes) {
    event_.clear();
    event_.push_back(field(1, wire_8));
    put(event_, std::bit_cast<uint64_t>(time_));
    if (step_ != 0) {
        event_.push_back(field(2, wire_varint));
        put_varint(event_, static_cast<uint64_t>(step_));
    }
    event_.append(field_bytes);
    record_.clear();
    put(record_, static_cast<uint64_t>(event_.size()));
    put(record_, masked(record_));
    record_.append(event_);
    put(record_, masked(event_));
    file_->write(record_);
}

}  // namespace orrery

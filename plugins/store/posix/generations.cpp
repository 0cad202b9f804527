#include "generations.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "orrery/error.h"

namespace posix_store {

namespace {

constexpr std::string_view partial = ".partial", prefix = "generation-";

std::string numbered(const char* format, int64_t number) {
    char text[48];
    std::snprintf(text, sizeof text, format, static_cast<long long>(number));
    return text;
}

/// Parses a number of at least 0; -1 for any other text.
int64_t number_of(std::string_view text) {
    int64_t number = -1;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    return problem == std::errc() && end == text.data() + text.size() ? number : -1;
}

std::string file_of(int64_t generation) { return numbered("generation-%08lld", generation); }

int64_t generation_of(const std::string& name) {
    if (!name.starts_with(prefix)) return -1;
    const int64_t generation = number_of(std::string_view(name).substr(prefix.size()));
    return generation > 0 && file_of(generation) == name ? generation : -1;
}

}  // namespace

std::string step_name(int64_t step) { return numbered("step-%08lld", step); }

int64_t step_of(const std::string& name, std::string_view suffix) {
    if (!name.starts_with("step-") || !name.ends_with(suffix) || name.size() < 5 + suffix.size()) return -1;
    const int64_t step = number_of(std::string_view(name).substr(5, name.size() - 5 - suffix.size()));
    return step >= 0 && step_name(step) + std::string(suffix) == name ? step : -1;
}

std::string partial_name(int64_t step, int64_t generation) {
    return step_name(step) + (generation > 0 ? numbered(".g%lld", generation) : "") + std::string(partial);
}

Partial partial_of(const std::string& name) {
    if (const int64_t step = step_of(name, partial); step >= 0) return {step, 0};
    const size_t dot = name.find(".g");
    if (dot == std::string::npos || !name.ends_with(partial) || name.size() < dot + 2 + partial.size()) return {};
    const int64_t step = step_of(name.substr(0, dot), "");
    const int64_t generation =
        number_of(std::string_view(name).substr(dot + 2, name.size() - dot - 2 - partial.size()));
    return step >= 0 && generation > 0 && partial_name(step, generation) == name ? Partial{step, generation}
                                                                                 : Partial{};
}

int64_t newest_generation(const Folder& root) {
    int64_t newest = 0;
    for (const std::string& name : root.names()) newest = std::max(newest, generation_of(name));
    return newest;
}

bool take_generation(const Folder& root, int64_t generation) {
    if (generation < 1) throw orrery::Error("generations of a job are counted from 1", orrery::Fault::failed);
    if (newest_generation(root) >= generation || !root.make_file(file_of(generation))) return false;
    root.sync();
    // Another process may have claimed a newer one and deleted older files since the first check.
    if (newest_generation(root) > generation) return false;
    for (const std::string& name : root.names()) try {
            if (const int64_t older = generation_of(name); older > 0 && older < generation) root.remove_file(name);
        } catch (const orrery::Error&) {
            // An older file has no effect once a newer one exists.
        }
    return true;
}

bool refused_to_all(const Folder& root, const std::string& name, int64_t generation, int code) {
    if (code != EPERM && code != EACCES) return code == EXDEV || code == EROFS;
    // Permissions do not stop root or a folder's owner, so that for them the folder must be immutable. The owner of a
    // file that this process created tells as which user a file server knows it.
    const int64_t us = root.owner(file_of(generation));
    return us == 0 || (us > 0 && us == root.owner(name));
}

void throw_gone(const std::string& place, int64_t generation) {
    throw orrery::Error(place + " has no generation " + std::to_string(generation) +
                            " of the job any more: it was removed, moved away or unmounted while the job ran\n  put it "
                            "back, and start again",
                        orrery::Fault::failed);
}

void need_newest(const Folder& root, int64_t generation) {
    if (generation == 0) return;
    constexpr int looks = 3;  // a listing may miss both files if a claim replaces one meanwhile
    int64_t newest = 0;
    for (int look = 0; look < looks && newest < generation; ++look) newest = newest_generation(root);
    if (newest > generation)
        throw orrery::Error(root.path() + " belongs to generation " + std::to_string(newest) +
                                " of the job; this process is of the older generation " + std::to_string(generation) +
                                " and must not write any more",
                            orrery::Fault::failed);
    // Also look the file up by name, because a network file system may list cached names.
    if (newest < generation && root.size(file_of(generation)) < 0) throw_gone(root.path(), generation);
}

}  // namespace posix_store

#include "places.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "generations.h"
#include "leftovers.h"
#include "orrery/error.h"
#include "step_folder.h"

namespace posix_store {

std::string place_name(int64_t step, int number) {
    return step_name(step) + (number == 1 ? "" : "." + std::to_string(number));
}

Place place_of(const std::string& name) {
    if (const int64_t step = step_of(name, ""); step >= 0) return {step, 1};
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) return {};
    const std::string digits = name.substr(dot + 1);
    const bool number = !digits.empty() && digits.size() < 7 &&
                        std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
    const Place place{step_of(name.substr(0, dot), ""), number ? std::stoi(digits) : 0};
    return place.step >= 0 && place.number > 1 && place_name(place.step, place.number) == name ? place : Place{};
}

std::map<int64_t, std::vector<int>> places_in(const std::vector<std::string>& names) {
    std::map<int64_t, std::vector<int>> places;
    for (const std::string& name : names)
        if (const Place place = place_of(name); place.step >= 0) places[place.step].push_back(place.number);
    for (auto& [step, numbers] : places) std::sort(numbers.begin(), numbers.end());
    return places;
}

std::vector<int> places_of(const Folder& root, int64_t step) { return places_in(root.names())[step]; }

Committed find_committed(const Folder& root, int64_t step, const std::vector<int>& places) {
    for (auto number = places.rbegin(); number != places.rend(); ++number) {
        const std::string name = place_name(step, *number);
        Folder folder = root.kind(name) == 'd' ? root.folder(name) : Folder();
        if (folder && manifest_problem(folder).empty()) return {*number, std::move(folder)};
    }
    return {};
}

Committed find_committed(const Folder& root, int64_t step) { return find_committed(root, step, places_of(root, step)); }

int free_place(const Folder& root, int64_t step) {
    for (const int number : places_of(root, step))
        if (const std::string name = place_name(step, number); removed_in_place(root, name)) drop(root, name);
    const std::vector<int> places = places_of(root, step);
    if (places.empty() || find_committed(root, step, places).number > 0) return 1;
    const std::string last = place_name(step, places.back());
    const Folder folder = root.kind(last) == 'd' ? root.folder(last) : Folder();
    return removed_in_place(root, last) || (folder && was_set_aside(folder)) ? places.back() + 1 : 1;
}

bool was_set_aside(const Folder& folder) {
    if (folder.kind(manifest_name) != ' ') return false;
    const std::vector<std::string> names = folder.names();
    return std::any_of(names.begin(), names.end(), [](const auto& name) { return name.starts_with(aside_manifest); });
}

std::string rename_manifest(const Folder& folder) {
    try {
        for (int number = 1;; ++number) {
            const std::string to = aside_manifest + std::to_string(number);
            if (!folder.rename(manifest_name, to)) continue;
            folder.sync();
            return to;
        }
    } catch (const orrery::Error&) {
        return "";
    }
}

std::string set_aside_in_place(const Folder& root, const std::string& name, int code) {
    const std::string said =
        root.path() + "/" + name + " (it cannot be renamed: " + std::generic_category().message(code);
    const Folder folder = root.kind(name) == 'd' ? root.folder(name) : Folder();
    if (!folder || folder.kind(manifest_name) == ' ') return said + ")";
    const std::string to = rename_manifest(folder);
    if (!to.empty()) return said + "; its manifest is " + to + " now)";
    return said + "; it is left as it is, and a later copy of the step has precedence)";
}

}  // namespace posix_store

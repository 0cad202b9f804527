#include "compile/capacity.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {

std::string load_name(std::string_view scope, int number) {
    return fmt::format("{}{}load{}", scope, scope.empty() ? "" : ".", number > 1 ? fmt::format("{}", number) : "");
}

std::optional<std::string_view> load_scope(std::string_view name) {
    constexpr std::string_view last = "load";
    if (name.ends_with(above_ending)) name.remove_suffix(above_ending.size());
    name = name.substr(0, name.find_last_not_of("0123456789") + 1);
    if (name == last) return "";
    if (!name.ends_with(".load")) return std::nullopt;
    return name.substr(0, name.size() - last.size() - 1);
}

void CapacityChoice::resume(const Saved& saved) {
    again_ = saved.again;
    if (!any()) return;
    const auto found = std::lower_bound(capacities_.begin(), capacities_.end(), saved.capacity);
    at_ = std::min<size_t>(found - capacities_.begin(), capacities_.size() - 1);
    unneeded_ = now() == saved.capacity ? saved.unneeded : 0;
}

bool CapacityChoice::grow() {
    if (at_ + 1 >= capacities_.size()) return false;
    ++at_;
    ++again_;
    unneeded_ = 0;
    return true;
}

void CapacityChoice::fitted(bool unneeded) {
    unneeded_ = unneeded && at_ > 0 ? unneeded_ + 1 : 0;
    if (unneeded_ < unneeded_steps) return;
    --at_;
    unneeded_ = 0;
}

}  // namespace orrery

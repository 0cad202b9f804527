#include "base/json.h"

#include <set>
#include <vector>

#include "base/text.h"

namespace orrery {

Json parse_json(std::string_view text, const Origin& where) {
    constexpr size_t deepest = 64;
    std::vector<std::set<std::string>> open;  // keys seen in each open object or array
    const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
        using Event = Json::parse_event_t;
        if (event == Event::object_start || event == Event::array_start) {
            open.emplace_back();
            if (open.size() > deepest) throw Error(where, "json is nested deeper than 64 levels");
        } else if (event == Event::object_end || event == Event::array_end) {
            open.pop_back();
        } else if (event == Event::key) {
            const auto key = parsed.get<std::string>();
            if (!open.back().insert(key).second) throw Error(where, "json has the key " + quote(key) + " twice");
        }
        return true;
    };
    try {
        return Json::parse(text.begin(), text.end(), watch);
    } catch (const Json::exception& problem) {
        // "[json.exception.parse_error.101] parse error at line 1, column 2: ..." without the library's tag
        std::string reason = problem.what();
        if (const size_t end = reason.find("] "); end != std::string::npos) reason.erase(0, end + 2);
        throw Error(where, "not valid json: " + reason);
    }
}

}  // namespace orrery

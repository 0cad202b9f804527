#include "orrery/error.h"

#include <fmt/format.h>

namespace orrery {

std::string Origin::text() const {
    std::string place = file;
    if (line > 0) place += fmt::format(":{}", line);
    if (column > 0) place += fmt::format(":{}", column);
    if (who.empty()) return place;
    return place.empty() ? who : who + ", " + place;
}

namespace {
std::string at(const Origin& where, const std::string& text) {
    const std::string place = where.text();
    return place.empty() ? text : place + ": " + text;
}
}  // namespace

Error::Error(const std::string& text, Fault fault) : std::runtime_error(text), fault_(fault) {}
Error::Error(const Origin& where, const std::string& text, Fault fault)
    : std::runtime_error(at(where, text)), fault_(fault) {}
Error::~Error() = default;

}  // namespace orrery

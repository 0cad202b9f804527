#include "ir/line.h"

#include <fmt/format.h>

#include <cctype>

#include "ir/parse.h"

namespace orrery {

void Line::fail(const std::string& expected) const {
    const std::string_view found = text_.substr(std::min(at_, text_.size()));
    throw Error(*place_, fmt::format("expected {}, found {}", expected,
                                     found.empty() ? "the end of the line" : fmt::format("\"{}\"", found)));
}

void Line::blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
}

bool Line::done() {
    blanks();
    return at_ == text_.size();
}

bool Line::sees(std::string_view token) {
    blanks();
    return text_.substr(at_).starts_with(token);
}

bool Line::take(std::string_view token) {
    if (!sees(token)) return false;
    at_ += token.size();
    return true;
}

void Line::expect(std::string_view token) {
    if (!take(token)) fail(fmt::format("\"{}\"", token));
}

std::string_view Line::bare() {
    blanks();
    const size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
                                  std::string_view("_.-/+").find(text_[at_]) != std::string_view::npos)) {
        ++at_;
    }
    return text_.substr(start, at_ - start);
}

std::string Line::word() {
    if (sees("\"")) return quoted();
    const std::string_view found = bare();
    if (found.empty()) fail("a word");
    return std::string(found);
}

std::string Line::quoted() {
    expect("\"");
    std::string result;
    while (at_ < text_.size() && text_[at_] != '"') {
        if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
            ++at_;
            result += text_[at_] == 'n' ? '\n' : text_[at_];
        } else {
            result += text_[at_];
        }
        ++at_;
    }
    if (at_ == text_.size()) fail("a closing quote");
    ++at_;
    return result;
}

ValueId Line::value() {
    expect("%");
    const auto id = number<ValueId>("a value such as %3");
    if (id < 0) fail("a value number of 0 or more");
    return id;
}

std::string_view Line::rest() {
    blanks();
    const std::string_view found = text_.substr(at_);
    at_ = text_.size();
    return found;
}

Origin Line::origin() {
    if (sees("\"")) {
        Origin found;
        found.who = quoted();
        found.file = quoted();
        found.line = number<int>("a line number");
        found.column = number<int>("a column number");
        return found;
    }
    const std::string_view all = text_.substr(at_);
    if (all.starts_with("by ") || all.starts_with("at %")) return {};
    const size_t end = std::min({all.find(" by "), all.find(" at %"), all.find(';'), all.size()});
    at_ += end;
    return parse_origin(all.substr(0, end));
}

}  // namespace orrery

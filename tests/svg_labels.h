#pragma once
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::test {

/// A text of an SVG and the box that it fills, in pixels. A letter counts as 0.6 of the font's size wide, which is more
/// than a sans-serif font needs on average.
struct Label {
    std::string words;
    double left = 0, right = 0, top = 0, bottom = 0;
};

/// Returns the value after `name` in a text, as far as `end`: "12" for ("font-size:", "px").
inline std::string value_after(std::string_view text, std::string_view name, std::string_view end) {
    const size_t at = text.find(name);
    if (at == std::string_view::npos) return "";
    const size_t from = at + name.size();
    return std::string(text.substr(from, text.find(end, from) - from));
}

/// Returns all texts of a drawing. Font sizes and anchors are those of the classes in its style sheet.
inline std::vector<Label> labels_of(const std::string& svg) {
    std::map<std::string, std::string> rules;
    const std::string sheet = value_after(svg, "<style>\n", "</style>");
    for (size_t at = sheet.find('.'); at != std::string::npos; at = sheet.find("\n.", at)) {
        at = sheet.find_first_not_of("\n.", at);
        const size_t open = sheet.find('{', at);
        std::string names = sheet.substr(at, open - at);
        for (size_t comma; (comma = names.find(",.")) != std::string::npos; names = names.substr(comma + 2))
            rules[names.substr(0, comma)] = sheet.substr(open, sheet.find('}', open) - open);
        rules[names] = sheet.substr(open, sheet.find('}', open) - open);
    }
    std::vector<Label> labels;
    for (size_t at = svg.find("<text "); at != std::string::npos; at = svg.find("<text ", at + 1)) {
        const std::string tag = svg.substr(at, svg.find('>', at) - at);
        std::string words = value_after(std::string_view(svg).substr(at), ">", "</text>");
        for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;"})
            for (size_t found; (found = words.find(entity)) != std::string::npos;)
                words.replace(found, std::string(entity).size(), "x");
        double size = 12;
        std::string anchor = "start", looks = value_after(tag, "class=\"", "\"") + " ";
        for (size_t space; (space = looks.find(' ')) != std::string::npos; looks = looks.substr(space + 1)) {
            const std::string& rule = rules[looks.substr(0, space)];
            if (const std::string px = value_after(rule, "font-size:", "px"); !px.empty()) size = std::stod(px);
            if (rule.find("text-anchor:end") != std::string::npos) anchor = "end";
            if (rule.find("text-anchor:middle") != std::string::npos) anchor = "middle";
        }
        const double x = std::stod(value_after(tag, " x=\"", "\"")), y = std::stod(value_after(tag, " y=\"", "\""));
        const auto letters = static_cast<double>(
            std::count_if(words.begin(), words.end(), [](unsigned char c) { return (c & 0xc0) != 0x80; }));
        const double width = letters * size * 0.6;
        const double left = anchor == "start" ? x : anchor == "end" ? x - width : x - width / 2;
        labels.push_back({words, left, left + width, y - 0.75 * size, y + 0.2 * size});
    }
    return labels;
}

/// Checks that no label covers a part of another one, and that all are on the page.
inline void check_labels(const std::string& svg) {
    std::vector<Label> labels = labels_of(svg);
    REQUIRE_FALSE(labels.empty());
    const double width = std::stod(value_after(svg, " width=\"", "\"")),
                 height = std::stod(value_after(svg, " height=\"", "\""));
    std::sort(labels.begin(), labels.end(), [](const Label& a, const Label& b) { return a.top < b.top; });
    constexpr double touch = 0.25;
    for (size_t i = 0; i < labels.size(); ++i) {
        const Label& a = labels[i];
        if (a.left < 0 || a.right > width || a.top < 0 || a.bottom > height)
            FAIL_CHECK("\"" << a.words << "\" leaves the page: " << a.left << " to " << a.right << " of " << width);
        for (size_t k = i + 1; k < labels.size() && labels[k].top + touch < a.bottom; ++k)
            if (labels[k].left + touch < a.right && a.left + touch < labels[k].right)
                FAIL_CHECK("\"" << a.words << "\" and \"" << labels[k].words << "\" overlap at y = " << a.top);
    }
}

}  // namespace orrery::test

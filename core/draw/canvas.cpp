#include "draw/canvas.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"

namespace orrery::drawing {
namespace {

std::string escaped(std::string_view words) {
    std::string out;
    for (char c : words) switch (c) {
            case '&': out += "&amp;"; break;
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '"': out += "&quot;"; break;
            default: out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
        }
    return out;
}

}  // namespace

std::string number(double amount) {
    const double rounded = std::round(amount * 100) / 100;
    std::string text = fmt::format("{:.2f}", rounded == 0 ? 0.0 : rounded);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text;
}

std::string point(double x, double y) { return number(x) + "," + number(y) + " "; }

double text_width(std::string_view words, double size) {
    double letters = 0;
    for (unsigned char c : words) letters += (c & 0xc0) != 0x80;  // only first bytes of UTF-8 characters count
    return letters * size * 0.6;
}

std::vector<std::string> lines_of(std::string_view words, double size, double width) {
    std::vector<std::string> lines;
    for (const std::string& word : split(std::string(words), ' ')) {
        if (!lines.empty() && text_width(lines.back() + " " + word, size) <= width)
            lines.back() += " " + word;
        else
            lines.push_back(word);
    }
    return lines;
}

void Canvas::box(double x, double y, double width, double height, std::string_view look, std::string_view title,
                 double round) {
    body_ += fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", look, number(x), number(y),
                         number(width), number(height));
    if (round > 0) body_ += fmt::format(" rx=\"{}\"", number(round));
    body_ += title.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escaped(title));
}

void Canvas::line(double x1, double y1, double x2, double y2, std::string_view look) {
    body_ += fmt::format("<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", look, number(x1), number(y1),
                         number(x2), number(y2));
}

void Canvas::path(std::string_view steps, std::string_view look) {
    body_ += fmt::format("<path class=\"{}\" d=\"{}\"/>\n", look, steps);
}

void Canvas::dot(double x, double y, double radius, std::string_view look) {
    body_ += fmt::format("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"{}\"/>\n", look, number(x), number(y),
                         number(radius));
}

void Canvas::text(double x, double y, std::string_view words, std::string_view look) {
    body_ +=
        fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\">{}</text>\n", look, number(x), number(y), escaped(words));
}

std::string Canvas::finish(double width, double height, std::string_view title, std::string_view style,
                           std::string_view definitions) const {
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\">\n"
        "<title>{2}</title>\n<style>\n{3}</style>\n<defs>\n{4}</defs>\n",
        number(width), number(height), escaped(title), style, definitions);
    out += fmt::format("<rect class=\"paper\" width=\"{}\" height=\"{}\"/>\n", number(width), number(height));
    return out + body_ + "</svg>\n";
}

}  // namespace orrery::drawing

#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace orrery::drawing {

/// Writes an SVG element by element. Lengths are pixels from the top left corner. Numbers have at most two decimals, so
/// that a drawing is the same text on every host.
class Canvas {
public:
    /// Draws a rectangle. `look`: its class in the style sheet. `title`: text of the tooltip; "": no tooltip.
    void box(double x, double y, double width, double height, std::string_view look, std::string_view title = "",
             double round = 0);
    void line(double x1, double y1, double x2, double y2, std::string_view look);
    /// Draws a path. `steps`: SVG path commands, with points made by point().
    void path(std::string_view steps, std::string_view look);
    void dot(double x, double y, double radius, std::string_view look);
    /// Draws a text. `look`: its class in the style sheet, which also sets the anchor: start, middle or end.
    void text(double x, double y, std::string_view words, std::string_view look);
    void heading(double x, double y, std::string_view words) { text(x, y, words, "heading"); }

    /// Returns the finished SVG. `style`: CSS. `definitions`: SVG patterns.
    std::string finish(double width, double height, std::string_view title, std::string_view style,
                       std::string_view definitions) const;

private:
    std::string body_;
};

/// Formats a number with at most two decimals, without trailing zeros: "12.5".
std::string number(double amount);
/// Formats a point of an SVG path: "x,y ".
std::string point(double x, double y);
/// Returns a width in pixels that a text in a sans-serif font of this size does not exceed.
double text_width(std::string_view words, double size);
/// Breaks a text at spaces into lines that are at most `width` pixels wide, as far as its words are.
std::vector<std::string> lines_of(std::string_view words, double size, double width);

}  // namespace orrery::drawing

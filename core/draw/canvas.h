#pragma once
#include <string>
#include <string_view>

namespace orrery::drawing {

/// Writes an SVG element by element. Lengths are pixels from the top left corner; numbers are printed with at most two
/// decimals, so that a drawing is the same text everywhere.
class Canvas {
public:
    /// `look`: a class of the style sheet; `title`: shown when the pointer rests on it, "" for none.
    void box(double x, double y, double width, double height, std::string_view look, std::string_view title = "",
             double round = 0);
    void line(double x1, double y1, double x2, double y2, std::string_view look);
    /// `steps`: "x,y" pairs as made by `point`.
    void path(std::string_view steps, std::string_view look);
    void dot(double x, double y, double radius, std::string_view look);
    /// `look` also says how the text is anchored: start, middle or end.
    void text(double x, double y, std::string_view words, std::string_view look);
    void heading(double x, double y, std::string_view words) { text(x, y, words, "heading"); }

    /// The whole drawing. `style`: CSS; `definitions`: patterns.
    std::string finish(double width, double height, std::string_view title, std::string_view style,
                       std::string_view definitions) const;

private:
    std::string body_;
};

/// "12.5": at most two decimals, no zeros behind.
std::string number(double amount);
/// "x,y "
std::string point(double x, double y);
/// Room that a text needs in a sans-serif font of this size; generous.
double text_width(std::string_view words, double size);

}  // namespace orrery::drawing

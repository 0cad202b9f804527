#include "mutate.h"

#include <algorithm>
#include <cctype>

namespace orrery::fuzz {
namespace {

constexpr size_t longest = 1 << 16;
constexpr const char* numbers[] = {"0",
                                   "-1",
                                   "1",
                                   "255",
                                   "4294967296",
                                   "9223372036854775807",
                                   "9223372036854775808",
                                   "18446744073709551616",
                                   "1152921504606846976",
                                   "1e308",
                                   "1e999",
                                   "-9223372036854775808"};
constexpr const char* pieces[] = {"\"",   "{",        "}",    "[",  "]",  ",",        ":",    "\\", "\n",
                                  "\xff", "\xc3\x28", "null", "{}", "[]", "[[[[[[[[", "\"\"", "=",  "."};

using Random = std::mt19937_64;

size_t below(Random& random, size_t end) { return end == 0 ? 0 : static_cast<size_t>(random() % end); }

/// Puts another number in the place of one.
void renumber(std::string& text, Random& random) {
    std::vector<size_t> begins;
    const auto digit = [&](size_t i) { return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])); };
    for (size_t i = 0; i < text.size(); ++i)
        if (digit(i) && (i == 0 || !digit(i - 1))) begins.push_back(i);
    if (begins.empty()) return;
    const size_t begin = begins[below(random, begins.size())];
    size_t end = begin;
    while (digit(end)) ++end;
    text.replace(begin, end - begin, numbers[below(random, std::size(numbers))]);
}

}  // namespace

void Mutator::change(std::string& text, Random& random) const {
    const std::string& other = seeds_[below(random, seeds_.size())];
    const size_t at = below(random, text.size()), count = below(random, std::min<size_t>(text.size() - at, 64) + 1);
    switch (below(random, 10)) {
        case 0:
            if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << below(random, 8)));
            break;
        case 1:
            if (!text.empty()) text[at] = static_cast<char>(random());
            break;
        case 2: text.erase(at, count); break;
        case 3: text.insert(at, text.substr(at, count)); break;
        case 4: text.insert(at, pieces[below(random, std::size(pieces))]); break;
        case 5: {
            const size_t from = below(random, other.size());
            text.replace(at, count, other.substr(from, below(random, 64)));
            break;
        }
        case 6: text.resize(at); break;
        case 7:
            if (!words_.empty()) text.insert(at, words_[below(random, words_.size())]);
            break;
        default: renumber(text, random);
    }
    if (text.size() > longest) text.resize(longest);
}

std::string Mutator::input(uint64_t number) const {
    if (number < seeds_.size()) return seeds_[number];
    Random random(number);
    std::string text = seeds_[below(random, seeds_.size())];
    for (size_t changes = 1 + below(random, 6); changes > 0; --changes) change(text, random);
    return text;
}

}  // namespace orrery::fuzz

// Words of our own that stand for words of the field only become fewer in comments, messages and manuals. words.txt has
// their number by folder; ORRERY_BLESS=1 build/tests/policy_tests "[words]" writes it, and refuses to raise a number.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "folders.h"
#include "source.h"

using policy::Source;

namespace {

/// Phrases counted under one word, and what to write instead. "at most", "there is no", "is no longer" and "stands for"
/// are plain English.
struct HouseWord {
    std::string word;
    std::vector<std::string> phrases;
    std::string instead;
    std::set<std::string> not_after = {}, not_before = {};
};

const std::vector<HouseWord> house_words = {
    {"alike", {"alike"}, "the same"},
    {"anew", {"anew"}, "again, from scratch"},
    {"at hand", {"at hand"}, "current, local"},
    {"behind", {"behind"}, "after"},
    {"beside", {"beside"}, "asynchronously, alongside"},
    {"board", {"board"}, "progress table"},
    {"elsewhere", {"elsewhere"}, "on another host, not supported"},
    {"ends with", {"ends with", "ended with", "end with"}, "exits with"},
    {"goes on", {"goes on", "go on", "went on", "going on"}, "resumes, continues"},
    {"hold up", {"hold up", "holds up"}, "block"},
    {"house", {"house"}, "tree, project"},
    {"is no", {"is no", "are no", "was no", "were no"}, "is not a", {"there"}, {"longer", "more"}},
    {"kept", {"kept"}, "saved, cached, retained"},
    {"lies", {"lies", "lie"}, "is, is stored"},
    {"look at", {"look at", "looks at", "looked at", "looking at"}, "check, inspect"},
    {"manners", {"manners"}, "software profile"},
    {"mend", {"mend", "mends", "mended"}, "fix"},
    {"mistake", {"mistake", "mistakes"}, "bug, error"},
    {"most", {"most", "least"}, "max, min", {"at"}},
    {"nobody", {"nobody", "in vain"}, "no rank, a join that times out"},
    {"notice", {"notice", "notices"}, "user message"},
    {"products", {"products"}, "matrix products, GEMMs", {"matrix"}},
    {"room", {"room", "rooms"}, "space, folder"},
    {"sound", {"sound"}, "valid"},
    {"standing", {"standing"}, "hang report"},
    {"stands", {"stands", "stand"}, "is, is stored", {}, {"for"}},
    {"strangers", {"strangers"}, "unauthenticated connections"},
    {"told", {"told", "said"}, "reported, sent, printed"},
    {"way of", {"way of"}, "path of"},
    {"who", {"who", "whose", "whoever", "whom"}, "it, its: processes and ranks are things"},
    {"without a word", {"without a word"}, "silently"},
};

/// The comments and string literals of code, of a manual everything.
std::string prose_of(const Source& source) {
    std::string prose;
    const bool manual = source.is(".md"), lua = source.is(".lua");
    for (const std::string& line : source.lines) {
        for (size_t i = 0; i < line.size(); ++i) {
            if (manual || line.compare(i, 2, lua ? "--" : "//") == 0) {
                prose += line.substr(manual ? i : i + 2);
                break;
            }
            const char quote = line[i];
            if (!lua && quote == '\'') {  // a character; other ones separate digits
                const size_t end = i + (i + 1 < line.size() && line[i + 1] == '\\' ? 3 : 2);
                if (end < line.size() && line[end] == '\'') i = end;
            } else if (quote == '"' || (lua && quote == '\'')) {
                size_t end = i + 1;
                while (end < line.size() && line[end] != quote) end += line[end] == '\\' ? 2 : 1;
                prose += line.substr(i + 1, end - i - 1) + '\n';
                i = end;
            }
        }
        prose += '\n';
    }
    return prose;
}

/// The words in lower case. A flag of the command line is one word with its dashes: users have its name.
std::vector<std::string> words_of(const std::string& prose) {
    std::vector<std::string> words{""};
    for (size_t i = 0; i < prose.size(); ++i) {
        const unsigned char c = static_cast<unsigned char>(prose[i]);
        const bool flag = words.back().starts_with("-") || (words.back().empty() && prose.compare(i, 2, "--") == 0);
        if (std::isalpha(c) != 0 || c == '_' || (c == '-' && flag))
            words.back() += static_cast<char>(std::tolower(c));
        else if (!words.back().empty())
            words.emplace_back();
    }
    return words;
}

using Counts = std::map<std::string, int>;  ///< by word

void count_in(const std::string& prose, Counts& counts) {
    struct Phrase {
        std::vector<std::string> words;
        const HouseWord* of;
    };
    static const std::multimap<std::string, Phrase> phrases = [] {  // by first word
        std::multimap<std::string, Phrase> all;
        for (const HouseWord& house : house_words)
            for (const std::string& phrase : house.phrases) {
                std::vector<std::string> words = words_of(phrase);
                const std::string first = words[0];
                all.emplace(first, Phrase{std::move(words), &house});
            }
        return all;
    }();
    const std::vector<std::string> words = words_of(prose);
    for (size_t i = 0; i < words.size(); ++i) {
        const auto [begin, end] = phrases.equal_range(words[i]);
        for (auto found = begin; found != end; ++found) {
            const auto& [phrase, house] = found->second;
            const size_t next = i + phrase.size();
            if (next > words.size() || !std::equal(phrase.begin(), phrase.end(), words.data() + i)) continue;
            if (i > 0 && house->not_after.count(words[i - 1]) != 0) continue;
            if (next < words.size() && house->not_before.count(words[next]) != 0) continue;
            ++counts[house->word];
        }
    }
}

/// "core/run" and "plugins/device", else the folder at the top; "" where nothing is counted.
std::string folder_of(const Source& source) {
    static const std::set<std::string> tops{"core", "plugins", "kernels", "scripts", "configs", "bench"};
    const size_t slash = source.path.find('/');
    const std::string top = source.path.substr(0, slash);
    if (source.path == "scripts/orrery/meta.lua") return "";  // generated
    if (slash == std::string::npos) return source.is(".md") ? "README.md" : "";
    if (top == "tests") return source.is(".md") ? top : "";
    bool counts = false;
    for (const char* extension : {".h", ".cpp", ".cu", ".cuh", ".lua", ".md"}) counts = counts || source.is(extension);
    if (!counts || tops.count(top) == 0) return "";
    const size_t second = source.path.find('/', slash + 1);
    return second != std::string::npos && (top == "core" || top == "plugins") ? source.path.substr(0, second) : top;
}

using Table = std::map<std::string, Counts>;  ///< by folder

Table table_of_tree() {
    Table table;
    for (const Source& source : policy::sources())
        if (const std::string folder = folder_of(source); !folder.empty()) count_in(prose_of(source), table[folder]);
    return table;
}

/// "core/run: behind 12, beside 3", a line a folder, and all of them in the last line.
std::string text_of(const Table& table) {
    std::string text;
    Counts all;
    const auto row = [&](const std::string& name, const Counts& counts) {
        text += name + ":";
        for (const auto& [word, count] : counts)
            text += (text.back() == ':' ? " " : ", ") + word + " " + std::to_string(count);
        text += "\n";
    };
    for (const auto& [folder, counts] : table) {
        row(folder, counts);
        for (const auto& [word, count] : counts) all[word] += count;
    }
    row("all", all);
    return text;
}

Table table_of_text(std::istream& text) {
    Table table;
    for (std::string line, entry; std::getline(text, line);) {
        Counts& counts = table[line.substr(0, line.find(':'))];
        std::istringstream entries(line.substr(line.find(':') + 1));
        while (std::getline(entries, entry, ',')) {
            const size_t space = entry.rfind(' ');
            counts[entry.substr(1, space - 1)] = std::stoi(entry.substr(space));
        }
    }
    return table;
}

}  // namespace

// By folder only for reading: a file that moves takes its words along.
TEST_CASE("house words only become fewer", "[words]") {
    const std::string path = in_source("tests/policy/words.txt");
    std::ifstream file(path);
    const bool first = !file;
    Table before = table_of_text(file), now = table_of_tree();
    std::string more;
    for (const HouseWord& house : house_words) {
        int count = 0;
        std::string where;
        for (const auto& [folder, counts] : now) {
            const int here = counts.count(house.word) != 0 ? counts.at(house.word) : 0,
                      was = before[folder][house.word];
            count += here;
            if (here > was) where += " " + folder + " " + std::to_string(here) + " (" + std::to_string(was) + ")";
        }
        if (count > before["all"][house.word] && !first)
            more += "\n\"" + house.word + "\", say: " + house.instead + "\n  more than words.txt has:" + where;
    }
    if (!more.empty()) FAIL("words of our own in comments, messages or manuals have become more" << more);
    if (std::getenv("ORRERY_BLESS")) std::ofstream(path) << text_of(now);
    CHECK((!first || std::getenv("ORRERY_BLESS")));
}

TEST_CASE("house words are found in comments, messages and manuals", "[words]") {
    const auto found = [](const std::string& path, const std::vector<std::string>& lines) {
        Table table;
        count_in(prose_of({path, lines}), table["x"]);
        return text_of(table).substr(2, text_of(table).find('\n') - 2);
    };
    CHECK(found("a.h", {"int behind;  // beside it goes", "// on; Nobody is told"}) ==
          " beside 1, goes on 1, nobody 1, told 1");
    CHECK(found("a.cpp", {R"(char c = '"'; f("it is no \"room\"", anew);  // 1)"}) == " is no 1, room 1");
    CHECK(found("a.cpp", {"// at most 3; there is no file; it is no longer one; a letter stands for it"}) == "");
    CHECK(found("a.lua", {"local who = 'alike' -- at hand"}) == " alike 1, at hand 1");
    CHECK(found("a.md", {"Most of the", "ranks lie behind."}) == " behind 1, lies 1, most 1");
    CHECK(found("a.md", {"`--most-cp 8`, --least, or kept--most"}) == " kept 1, most 1");
    CHECK(found("a.lua", {"f() --most of it"}) == " most 1");
    std::istringstream text("core/run: at hand 12, beside 3\nbench:\n");
    const Table table = table_of_text(text);
    CHECK(table.at("core/run") == Counts{{"at hand", 12}, {"beside", 3}});
    CHECK(text_of(table).starts_with("bench:\ncore/run: at hand 12, beside 3\nall: "));
}

// Names that manuals put in backticks: each word is one of the code or of a path, each Class::member is in a file that
// defines the class, files and folders are there.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cctype>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <unordered_set>

#include "source.h"

using policy::Source;

namespace {

using Words = std::unordered_set<std::string_view>;

bool letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool starts_word(char c) { return letter(c) && std::isdigit(static_cast<unsigned char>(c)) == 0; }

/// The words [A-Za-z_][A-Za-z_0-9]* of a text.
std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> words;
    for (size_t i = 0; i < text.size();) {
        const size_t from = i;
        while (i < text.size() && letter(text[i])) ++i;
        if (i == from)
            ++i;
        else if (starts_word(text[from]))
            words.push_back(text.substr(from, i - from));
    }
    return words;
}

/// The characters that begin a comment in this file, "" where all is code.
std::string_view comment_of(const Source& source) {
    for (const char* extension : {".h", ".cpp", ".cu", ".cuh", ".in"})
        if (source.is(extension)) return "//";
    if (source.is(".lua")) return "--";
    for (const char* extension : {".py", ".sh", ".txt", ".cmake", ".toml"})
        if (source.is(extension)) return "#";
    return "";
}

/// The line without its comment; a comment of Lua with ---@ declares, and stays.
std::string_view code_of(std::string_view line, std::string_view comment) {
    if (comment.empty() || (comment == "--" && line.find("---@") != std::string_view::npos)) return line;
    bool quoted = false;
    for (size_t i = 0; i < line.size(); ++i) {
        if (line[i] == '\\')
            ++i;
        else if (line[i] == '"')
            quoted = !quoted;
        else if (!quoted && line.compare(i, comment.size(), comment) == 0 &&
                 (comment != "#" || i == 0 || line[i - 1] == ' '))
            return line.substr(0, i);
    }
    return line;
}

/// Names of the classes, enums and namespaces that a line of C++ defines: "enum class Fault {", "struct A : B {".
std::vector<std::string_view> defined_in(std::string_view code) {
    std::vector<std::string_view> names;
    const std::vector<std::string_view> words = words_of(code);
    const auto opens = std::find_if(words.begin(), words.end(), [](std::string_view word) {
        return word == "class" || word == "struct" || word == "enum" || word == "union" || word == "namespace";
    });
    if (opens == words.end() || (code.ends_with(';') && code.find('{') == std::string_view::npos)) return names;
    for (auto word = opens + 1; word != words.end(); ++word) names.push_back(*word);
    return names;
}

/// The names that the tree has. `sources` must outlive it.
class Tree {
public:
    explicit Tree(const std::vector<Source>& sources) {
        for (const Source& source : sources) add(source);
    }

    bool word(std::string_view name) const { return words_.count(name) != 0; }
    bool begins_word(std::string_view name) const {
        return std::any_of(words_.begin(), words_.end(), [&](std::string_view word) { return word.starts_with(name); });
    }
    bool call(std::string_view name) const { return called_.count(name) != 0; }
    /// A file, its name without an extension, a folder, or the end of the path of one; or a path that the code quotes.
    bool path(const std::string& name) const { return paths_.count(name) != 0 || quoted_.count(name) != 0; }
    bool member(std::string_view of, std::string_view name) const {
        const auto range = defined_.equal_range(of);
        return std::any_of(range.first, range.second,
                           [&](const auto& definition) { return definition.second->count(name) != 0; });
    }
    /// Whether a file whose path ends with this has the word; true where there is no such file.
    bool in_file(const std::string& file, std::string_view name) const {
        const auto range = files_.equal_range(file.substr(file.rfind('/') + 1));
        bool none = true;
        for (auto at = range.first; at != range.second; ++at) {
            if (!at->second.first->path.ends_with(file)) continue;
            if (at->second.second->count(name) != 0) return true;
            none = false;
        }
        return none;
    }

private:
    void add(const Source& source) {
        add_path(source.path);
        if (source.is(".md") || source.is("/manual_names.cpp")) return;
        const std::string_view comment = comment_of(source);
        Words& here = *all_.emplace_back(std::make_unique<Words>());
        for (const std::string& line : source.lines) {
            const std::string_view code = code_of(line, comment);
            for (const std::string_view word : words_of(code)) {
                here.insert(word);
                const size_t end = static_cast<size_t>(word.data() - line.data()) + word.size();
                if (end < line.size() && std::string_view("(<{").find(line[end]) != std::string_view::npos)
                    called_.insert(word);
            }
            add_quoted(code);
            if (comment == "//")
                for (const std::string_view name : defined_in(code)) defined_.emplace(name, &here);
        }
        words_.insert(here.begin(), here.end());
        files_.emplace(source.path.substr(source.path.rfind('/') + 1), std::make_pair(&source, &here));
    }
    /// Paths of what the program writes, and keys with a slash.
    void add_quoted(std::string_view code) {
        for (size_t at = code.find('"'); at != std::string_view::npos;) {
            const size_t end = code.find('"', at + 1);
            if (end == std::string_view::npos) return;
            std::string_view text = code.substr(at + 1, end - at - 1);
            if (text.starts_with('/')) text.remove_prefix(1);
            if (text.ends_with('/')) text.remove_suffix(1);
            if (text.find(' ') == std::string_view::npos) quoted_.emplace(text);
            at = code.find('"', end + 1);
        }
    }
    void add_path(std::string_view path) {
        for (const std::string_view word : words_of(path)) words_.insert(word);
        const size_t dot = path.find('.', path.rfind('/') + 1);
        add_ends(path);
        if (dot != std::string_view::npos) add_ends(path.substr(0, dot));
        for (size_t end = path.rfind('/'); end != std::string_view::npos && end > 0; end = path.rfind('/', end - 1))
            add_ends(path.substr(0, end));
    }
    void add_ends(std::string_view path) {
        if (!paths_.emplace(path).second) return;
        for (size_t at = path.find('/'); at != std::string_view::npos; at = path.find('/', at + 1))
            paths_.emplace(path.substr(at + 1));
    }

    std::vector<std::unique_ptr<Words>> all_;
    Words words_, called_;
    std::multimap<std::string_view, const Words*> defined_;
    std::multimap<std::string, std::pair<const Source*, const Words*>, std::less<>> files_;
    std::unordered_set<std::string> paths_, quoted_;
};

/// Names that are not the tree's, by whose they are.
const std::map<std::string, std::set<std::string_view>> of_others = {
    {"lm-evaluation-harness", {"loglikelihood", "ConfigurableTask", "process_results"}},
    {"TransformerEngine", {"Float8CurrentScaling"}},
    {"CUDA", {"cuGraphUpload"}},
    {"torchtitan", {"tps", "tflops", "mfu"}},
    {"wandb", {"wandb"}},
    {"a unit", {"tok"}},
    {"composed by CMake", {"standin_plants"}},
    {"files and results of a user, in examples",
     {"a.lua", "rows.lua", "halves.lua", "fsdp.lua", "last.md", "eval_accuracy", "sundial_more", "op/mine", "var"}},
};

bool others(std::string_view name) {
    return std::any_of(of_others.begin(), of_others.end(),
                       [&](const auto& owner) { return owner.second.count(name) != 0; });
}

/// "KIND", "add_FAMILY", "rank-RRRRR": a part of it stands for any name. So do the variables of other projects; ours
/// are names like all.
bool placeholder(std::string_view word) {
    if (word.starts_with("ORRERY_")) return false;
    size_t capitals = 0;
    for (const char c : word) {
        capitals = std::isupper(static_cast<unsigned char>(c)) != 0 ? capitals + 1 : 0;
        if (capitals == 3) return true;
    }
    return false;
}

std::string text_of(std::string_view text) { return std::string(text); }

void check_words(const Tree& tree, std::string_view span, std::vector<std::string>& problems) {
    for (const std::string_view word : words_of(span)) {
        const size_t end = static_cast<size_t>(word.data() - span.data()) + word.size();
        const char next = end < span.size() ? span[end] : ' ';
        if (word.size() < 3 || placeholder(word) || others(word)) continue;
        if (next == '*' ? !tree.begins_word(word) : !tree.word(word))
            problems.push_back("no name " + text_of(word));
        else if (next == '(' && !tree.call(word))
            problems.push_back("no function " + text_of(word));
    }
}

void check_members(const Tree& tree, std::string_view span, std::vector<std::string>& problems) {
    for (size_t at = span.find("::"); at != std::string_view::npos; at = span.find("::", at + 2)) {
        const auto before = words_of(span.substr(0, at)), after = words_of(span.substr(at + 2));
        if (before.empty() || after.empty() || before.back() == "std") continue;
        if (!tree.member(before.back(), after.front()))
            problems.push_back("no member " + text_of(before.back()) + "::" + text_of(after.front()));
    }
}

bool has_extension(std::string_view name) {
    for (const char* extension : {".h", ".cpp", ".cu", ".cuh", ".lua", ".md", ".sh", ".py", ".cmake", ".toml"})
        if (name.ends_with(extension)) return true;
    return false;
}

/// Folders that are made: by a build, an installation, a run.
bool is_made(std::string_view path) {
    for (const char* top : {"build/", "lib/", "share/", "runs/", "orrery/plugins/"})
        if (path.starts_with(top)) return true;
    return false;
}

/// A span that is a path as a whole: `plan/walk.h`, `rule.h`, `run/train/metrics`.
void check_path(const Tree& tree, std::string_view span, std::vector<std::string>& problems) {
    const auto of_path = [](char c) { return letter(c) || c == '/' || c == '.' || c == '-'; };
    const auto of_folder = [](char c) { return std::islower(static_cast<unsigned char>(c)) || c == '/' || c == '_'; };
    if (span.empty() || !starts_word(span.front()) || !std::all_of(span.begin(), span.end(), of_path)) return;
    const bool folder = std::all_of(span.begin(), span.end(), of_folder) && span.find('/') != std::string_view::npos;
    if (!(folder || has_extension(span)) || placeholder(span) || others(span) || is_made(span)) return;
    if (span.ends_with('/')) span.remove_suffix(1);
    const std::string_view first = span.substr(0, span.find('/'));
    if (!tree.path(text_of(span)) && !others(first)) problems.push_back("no file or folder " + text_of(span));
}

/// "`place` (`lower.cpp`": the file that follows has the function.
void check_pair(const Tree& tree, std::string_view span, std::string_view file, std::vector<std::string>& problems) {
    const std::vector<std::string_view> words = words_of(span.substr(0, span.find('(')));
    if (words.empty() || span.find_first_of(" .=/-") != std::string_view::npos || !has_extension(file)) return;
    if (!tree.in_file(text_of(file), words.back()))
        problems.push_back("no " + text_of(words.back()) + " in " + text_of(file));
}

/// Names in backticks of a line that are not the tree's.
std::vector<std::string> problems_of(const Tree& tree, std::string_view line) {
    std::vector<std::string> problems;
    std::string_view before;
    size_t before_end = 0;
    for (size_t at = line.find('`'); at != std::string_view::npos;) {
        const size_t end = line.find('`', at + 1);
        if (end == std::string_view::npos) break;
        const std::string_view span = line.substr(at + 1, end - at - 1);
        check_words(tree, span, problems);
        check_members(tree, span, problems);
        check_path(tree, span, problems);
        if (!before.empty() && line.substr(before_end, at - before_end) == " (")
            check_pair(tree, before, span, problems);
        before = span, before_end = end + 1;
        at = line.find('`', end + 1);
    }
    return problems;
}

bool is_manual(const Source& source) {
    return source.path == "README.md" || source.is("/README.md") || (source.in("scripts/manual") && source.is(".md"));
}

}  // namespace

TEST_CASE("names in manuals are names of the tree") {
    const Tree tree(policy::sources());
    for (const Source& manual : policy::sources()) {
        if (!is_manual(manual)) continue;
        bool fenced = false;
        for (size_t i = 0; i < manual.lines.size(); ++i) {
            if (manual.lines[i].starts_with("```")) fenced = !fenced;
            if (fenced) continue;
            for (const std::string& problem : problems_of(tree, manual.lines[i]))
                FAIL_CHECK(manual.path << ":" << i + 1 << ": " << problem);
        }
    }
}

TEST_CASE("the rule about names in manuals refuses what it must") {
    const std::vector<Source> sources = {
        {"core/plan/lower.h", {"class ORRERY_API Persistent final : public Arena {", "    int64_t bytes() const;"}},
        {"core/plan/lower.cpp", {"// place_input was here", "void place_block(int x) {}"}},
        {"core/include/orrery/infer.h", {"enum class Fault { usage, peer };", "struct Other;"}},
        {"core/run/metrics/metrics.cpp", {"write(\"lr # not a comment\");", "constexpr int checkpoints = 1;"}},
        {"core/run/steps.py", {"build = 1  # train_together"}}};
    const Tree tree(sources);
    const auto count = [&](const std::string& line) { return problems_of(tree, line).size(); };
    for (const char* line : {"`place_input`", "`Persistent::most`", "`Persistent::place_block`", "`train_together`",
                             "`Other::usage`", "`run/train/metrics`", "`rule.h`", "`orrery/rule.h`", "`ThreadLocal`",
                             "`checkpoints()`", "`bytes` (`plan/lower.cpp`)", "`places_*`", "`ORRERY_NONE`"})
        if (count(line) == 0) FAIL_CHECK(line);
    for (const char* line : {"`place_block`", "`Persistent::bytes()`", "`Fault::peer`", "`run/metrics`", "`infer.h`",
                             "`orrery/infer.h`", "`place_block(x)` (`plan/lower.cpp`)", "`place_*`", "`NAME.cpp`",
                             "`add_FAMILY`", "`lr`", "`metrics`", "`core/run/`", "`build/steps.py`", "place_input"})
        if (count(line) != 0) FAIL_CHECK(line << ": " << problems_of(tree, line).front());
}

#include "published/keep.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <type_traits>

#include "base/env.h"
#include "base/hash.h"
#include "orrery/error.h"

namespace orrery::published {
namespace {

/// Changes with the form of what is kept.
constexpr std::string_view form = "published graph 11";

/// Writes or reads values one after the other: the same calls for both.
struct Writer {
    std::string bytes;
    template <class T>
    requires std::is_trivially_copyable_v<T>
    void operator()(T& value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); }
};

struct Reader {
    std::string bytes;
    size_t at = 0;
    template <class T>
    requires std::is_trivially_copyable_v<T>
    void operator()(T& value) {
        if (at + sizeof value > bytes.size()) throw Error("a kept graph is cut short", Fault::failed);
        std::memcpy(&value, bytes.data() + at, sizeof value);
        at += sizeof value;
    }
};

template <class Way, class T>
void pass(Way& way, T& value) requires std::is_arithmetic_v<T> || std::is_enum_v<T> {
    way(value);
}

template <class Way, class T>
void pass_list(Way& way, T& list) {
    size_t count = list.size();
    way(count);
    list.resize(count);
    for (auto& one : list) pass(way, one);
}

template <class Way>
void pass(Way& way, std::string& text) {
    pass_list(way, text);
}
template <class Way>
void pass(Way& way, std::vector<int64_t>& list) {
    pass_list(way, list);
}
template <class Way>
void pass(Way& way, std::vector<int>& list) {
    pass_list(way, list);
}
template <class Way>
void pass(Way& way, std::pair<int, float>& amount) {
    way(amount.first);
    way(amount.second);
}
template <class Way>
void pass(Way& way, std::vector<std::pair<int, float>>& list) {
    pass_list(way, list);
}
template <class Way>
void pass(Way& way, Dag::Node& node) {
    way(node.duration), way(node.first), way(node.last);
}

template <class Way>
void pass(Way& way, Priced& one) {
    way(one.kind), way(one.opcode), way(one.axis), way(one.bytes), way(one.from), way(one.to);
    way(one.work);
    pass(way, one.text), pass(way, one.alike);
}
template <class Way>
void pass(Way& way, Kept& kept) {
    pass_list(way, kept.graph.prices);
    pass_list(way, kept.graph.dag.durations);
    pass_list(way, kept.graph.dag.nodes);
    pass_list(way, kept.graph.dag.before);
    way(kept.peak_bytes);
}

std::string path_of(const std::string& folder, const std::string& key) {
    return folder + "/" + sha256(std::string(form) + key).substr(0, 24) + ".graph";
}

}  // namespace

std::string text_of_scripts(const std::string& folder) {
    std::set<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
        if (entry.path().extension() == ".lua") files.insert(entry.path().lexically_relative(folder));
    const auto env = system_env();
    std::string text;
    for (const std::string& file : files) {
        const std::string code = env->read_file(folder + "/" + file);
        text += file + " " + std::to_string(code.size()) + "\n" + code;
    }
    return text;
}

std::optional<Kept> kept_graph(const std::string& folder, const std::string& key) {
    std::ifstream file(path_of(folder, key), std::ios::binary);
    if (!file) return std::nullopt;
    Reader reader{std::string(std::istreambuf_iterator<char>(file), {})};
    Kept kept;
    pass(reader, kept);
    return kept;
}

void keep_graph(const std::string& folder, const std::string& key, const Kept& kept) {
    Kept copy = kept;
    Writer writer;
    pass(writer, copy);
    const auto env = system_env();
    env->make_folders(folder);
    env->replace_file(path_of(folder, key), writer.bytes);
}

}  // namespace orrery::published

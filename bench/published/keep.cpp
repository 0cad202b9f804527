#include "published/keep.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <type_traits>

#include "base/hash.h"
#include "orrery/error.h"

namespace orrery::published {
namespace {

/// Changes with the form of what is kept.
constexpr std::string_view form = "published graph 6";

/// Writes or reads values one after the other: the same calls for both.
struct Writer {
    std::string bytes;
    template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
    void operator()(T& value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); }
};

struct Reader {
    std::string bytes;
    size_t at = 0;
    template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
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
void pass(Way& way, TensorType& type) {
    way(type.dtype);
    pass_list(way, type.shape);
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
void pass(Way& way, Graph::Node& node) {
    way(node.duration), way(node.first), way(node.last);
}

/// Of attributes those that prices depend on.
template <class Way>
void pass(Way& way, KernelSpec& spec) {
    pass(way, spec.op);
    bool trans_a = spec.attributes.flag("trans_a"), trans_b = spec.attributes.flag("trans_b");
    bool causal = spec.attributes.flag("causal");
    int64_t window = spec.op.starts_with("attention") ? spec.attributes.integer("window") : 0;
    way(trans_a), way(trans_b), way(causal), way(window);
    spec.attributes = {};
    if (trans_a) spec.attributes.set("trans_a", true);
    if (trans_b) spec.attributes.set("trans_b", true);
    if (causal) spec.attributes.set("causal", true);
    if (window) spec.attributes.set("window", window);
    pass_list(way, spec.inputs);
    pass_list(way, spec.outputs);
}
template <class Way>
void pass(Way& way, Priced& one) {
    way(one.kind), way(one.opcode), way(one.axis), way(one.bytes), way(one.from), way(one.to), way(one.of);
    pass(way, one.spec), pass(way, one.alike), pass(way, one.products);
}
template <class Way>
void pass(Way& way, Graph& graph) {
    pass_list(way, graph.prices);
    pass_list(way, graph.durations);
    pass_list(way, graph.nodes);
    pass_list(way, graph.before);
    way(graph.peak_bytes), way(graph.launches);
}

std::string path_of(const std::string& folder, const std::string& key) {
    return folder + "/" + sha256(std::string(form) + key).substr(0, 24) + ".graph";
}

}  // namespace

std::optional<Graph> kept_graph(const std::string& folder, const std::string& key) {
    std::ifstream file(path_of(folder, key), std::ios::binary);
    if (!file) return std::nullopt;
    Reader reader{std::string(std::istreambuf_iterator<char>(file), {})};
    Graph graph;
    pass(reader, graph);
    return graph;
}

void keep_graph(const std::string& folder, const std::string& key, const Graph& graph) {
    Graph copy = graph;
    Writer writer;
    pass(writer, copy);
    std::filesystem::create_directories(folder);
    std::ofstream file(path_of(folder, key), std::ios::binary);
    file.write(writer.bytes.data(), static_cast<std::streamsize>(writer.bytes.size()));
    if (!file) throw Error("cannot write a graph to " + folder);
}

}  // namespace orrery::published

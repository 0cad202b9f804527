// The list of all built-in ops. Add new families of ops here.
#include <fmt/format.h>

#include <unordered_map>

#include "base/suggest.h"
#include "ir/op.h"
#include "ir/plugin_ops.h"

namespace orrery {

namespace ops {
std::vector<OpDef> elementwise_ops();
std::vector<OpDef> matmul_ops();
std::vector<OpDef> grouped_matmul_ops();
std::vector<OpDef> code_ops();
std::vector<OpDef> f8_ops();
std::vector<OpDef> reduce_ops();
std::vector<OpDef> norm_ops();
std::vector<OpDef> embedding_ops();
std::vector<OpDef> index_ops();
std::vector<OpDef> dispatch_ops();
std::vector<OpDef> attention_ops();
std::vector<OpDef> cross_entropy_ops();
std::vector<OpDef> merge_ops();
std::vector<OpDef> linear_cross_entropy_ops();
std::vector<OpDef> random_ops();
std::vector<OpDef> shape_ops();
std::vector<OpDef> adamw_ops();
std::vector<OpDef> collective_ops();
}  // namespace ops

namespace {

std::vector<OpDef> make_table() {
    std::vector<OpDef> table;
    for (auto family : {
             ops::random_ops,
             ops::elementwise_ops,
             ops::matmul_ops,
             ops::grouped_matmul_ops,
             ops::code_ops,
             ops::f8_ops,
             ops::reduce_ops,
             ops::norm_ops,
             ops::embedding_ops,
             ops::index_ops,
             ops::dispatch_ops,
             ops::attention_ops,
             ops::cross_entropy_ops,
             ops::merge_ops,
             ops::linear_cross_entropy_ops,
             ops::shape_ops,
             ops::adamw_ops,
             ops::collective_ops,
         }) {
        for (OpDef& def : family()) table.push_back(std::move(def));
    }
    return table;
}

const std::vector<OpDef>& table() {
    static const std::vector<OpDef> ops = make_table();
    return ops;
}

}  // namespace

const std::vector<const OpDef*>& own_ops() {
    static const std::vector<const OpDef*> list = [] {
        std::vector<const OpDef*> pointers;
        for (const OpDef& def : table()) pointers.push_back(&def);
        return pointers;
    }();
    return list;
}

const OpDef* find_op_def(std::string_view kind) {
    static const std::unordered_map<std::string_view, const OpDef*> by_name = [] {
        std::unordered_map<std::string_view, const OpDef*> map;
        for (const OpDef* def : own_ops()) map.emplace(def->name, def);
        return map;
    }();
    const auto place = by_name.find(kind);
    if (place != by_name.end()) return place->second;
    const PluginOp* brought = find_plugin_op(kind);
    return brought ? brought->def.get() : nullptr;
}

std::vector<const OpDef*> all_ops() {
    std::vector<const OpDef*> all = own_ops();
    for (const PluginOp* brought : plugin_ops()) all.push_back(brought->def.get());
    return all;
}

const OpDef& op_def(std::string_view kind, const Origin& asked) {
    if (const OpDef* def = find_op_def(kind)) return *def;
    std::vector<std::string> names;
    for (const OpDef* def : all_ops()) names.emplace_back(def->name);
    const std::string guess = did_you_mean(kind, names);
    throw Error(asked, fmt::format("unknown op \"{}\"; {}core/ir/README.md lists all ops", kind,
                                   guess.empty() ? "" : guess + ' '));
}

const OpDef& op_def(std::string_view kind) {
    const OpDef* def = find_op_def(kind);
    return def ? *def : op_def(kind, Origin{});
}

}  // namespace orrery

#pragma once
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// Appends values and ops to a program. Every call checks types, shapes and dim names, and throws Error at `origin`,
/// naming the operands with their shapes and origins. Other code may append to the program between calls, but its names
/// are not compared with new ones.
class Builder {
public:
    using DimNames = std::vector<std::string>;

    explicit Builder(Program& program);

    ValueId input(std::string_view name, TensorType type, DimNames dims, const Origin& origin);
    /// Adds a param. `init`: how it is initialized, {kind = normal|uniform|zeros|ones, scale}; ones are times scale.
    ValueId param(std::string_view name, TensorType type, DimNames dims, Attributes init, const Origin& origin);
    /// Adds a state (of an optimizer) for a param; if `param` is none, for all params. Its type is free. With the shape
    /// of the param, it takes the dim names of the param; otherwise its dims have no names.
    ValueId state(ValueId param, std::string_view name, TensorType type, Attributes init, const Origin& origin = {});

    /// Appends an op and returns its outputs. `names[i]`: names for unnamed dims of output i; dims that inference names
    /// must agree. In a reshape they replace inferred names, and so declare a split, merge or renaming.
    std::vector<ValueId> add(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes,
                             const Origin& origin, const std::vector<DimNames>& names = {});
    /// Appends an op and returns only its first output.
    ValueId one(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes, const Origin& origin,
                const std::vector<DimNames>& names = {});

    /// Names a temporary value. Throws Error if another value has that name.
    void name(ValueId value, std::string_view name, const Origin& origin);
    void update(ValueId target, ValueId value, const Origin& origin);
    void result(std::string_view name, ValueId value, const Origin& origin);

    void push_scope(std::string_view scope);  ///< after "layers" and "0", new ops have the scope "layers.0"
    void pop_scope();
    const std::string& scope() const { return scope_; }
    void set_scope(std::string scope) { scope_ = std::move(scope); }
    void set_phase(Phase phase) { phase_ = phase; }
    Phase phase() const { return phase_; }
    /// Sets the forward op that newly appended backward ops belong to.
    void set_forward(OpId forward) { forward_ = forward; }

private:
    ValueId source(Value value);
    void claim(std::string_view name, ValueId value, const Origin& origin);

    Program& program_;
    std::unordered_map<std::string, ValueId> names_;
    std::vector<size_t> scopes_;  ///< length of `scope_` before each push_scope, for pop_scope
    std::string scope_;
    Phase phase_ = Phase::forward;
    OpId forward_ = none;
};

/// Repairs Value::op, Value::output and Op::forward after ops were reordered. `moved`: new op index by old index.
void relink(Program& program, const std::vector<OpId>& moved);

}  // namespace orrery

#pragma once
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// Appends to a program. Every call checks types, shapes and dim names and throws Error at `origin`, with the operands'
/// names, shapes and origins. Keeps no reference to values: other code may append to the program between calls, but
/// names given behind its back are not checked for repetition.
class Builder {
public:
    using DimNames = std::vector<std::string>;

    explicit Builder(Program& program);

    ValueId input(std::string_view name, TensorType type, DimNames dims, const Origin& origin);
    /// `init`: {kind = normal|uniform|zeros|ones, scale}; ones times scale.
    ValueId param(std::string_view name, TensorType type, DimNames dims, Attributes init, const Origin& origin);
    /// State of a param (none: of the optimizer as a whole), of any type; named dims are the param's where the shapes
    /// agree.
    ValueId state(ValueId param, std::string_view name, TensorType type, Attributes init, const Origin& origin = {});

    /// Appends an op and returns its outputs. `names[i]` gives dim names to output i: they fill unnamed dims and must
    /// agree with named ones, except for reshape, where they declare the split, merge or renaming.
    std::vector<ValueId> add(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes,
                             const Origin& origin, const std::vector<DimNames>& names = {});
    /// The only output of an op.
    ValueId one(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes, const Origin& origin,
                const std::vector<DimNames>& names = {});

    /// Gives a temporary a name; throws when another value has it.
    void name(ValueId value, std::string_view name, const Origin& origin);
    void update(ValueId target, ValueId value, const Origin& origin);
    void result(std::string_view name, ValueId value, const Origin& origin);

    void push_scope(std::string_view scope);  ///< "layers", then "0": ops are in "layers.0"
    void pop_scope();
    const std::string& scope() const { return scope_; }
    void set_scope(std::string scope) { scope_ = std::move(scope); }
    void set_phase(Phase phase) { phase_ = phase; }
    Phase phase() const { return phase_; }
    /// Backward ops: the forward op they belong to.
    void set_forward(OpId forward) { forward_ = forward; }

private:
    ValueId source(Value value);
    void claim(std::string_view name, ValueId value, const Origin& origin);

    Program& program_;
    std::unordered_map<std::string, ValueId> names_;
    std::vector<size_t> scopes_;  ///< lengths of the enclosing scopes' text
    std::string scope_;
    Phase phase_ = Phase::forward;
    OpId forward_ = none;
};

/// Ops have new places: values find their makers again, and backward ops their forward ops. `moved`: by old place the
/// new one.
void relink(Program& program, const std::vector<OpId>& moved);

}  // namespace orrery

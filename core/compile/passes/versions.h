#pragma once
#include <deque>
#include <string>
#include <vector>

#include "compile/passes/propagate.h"
#include "layout/marks.h"
#include "layout/reshard.h"

namespace orrery {

/// The position of an op after propagation. Ops of the program keep theirs; inserted ones come before or after one.
struct Place {
    int op = 0;
    bool behind = false;
    auto operator<=>(const Place&) const = default;
};

/// A request to redistribute a value.
struct Reader {
    int index = 0;      ///< annotated op: the reader, or the producer for a constraint of its output
    std::string cause;  ///< "for matmul %7", "store of up.w", "result loss_sum"
    std::string why;    ///< reason for the requested layout, for errors
    Origin origin;
    bool asked = false;  ///< whether a mark, an update or a result requires the layout
};

/// The versions of each value during propagation: the layouts in which the value exists, and the ops that made them.
class Versions {
public:
    Versions(const Program& annotated, const Mesh& mesh, const PropagateOptions& options);

    struct Held {
        std::vector<ValueId> versions;  ///< ids of the versions: as computed, then as redistributed
        std::vector<int> fragments;     ///< by version: the fragment in which it exists; -1: during the whole step
        Layout preferred;               ///< layout in which ops should read the value
        std::vector<Target> uses;       ///< marks because of which `preferred` differs from the stored layout
        bool pinned = false;            ///< whether a strategy marked how the value is stored or used
        int source = -1;  ///< index in entries_ of the op that makes a constant or random value in any layout; -1: none
        bool placed = false;  ///< whether the value was read, so that its layout is final
    };
    Held& held(ValueId value) { return held_[value]; }
    const Held& held(ValueId value) const { return held_[value]; }
    /// True if a version of a value exists in the fragment.
    bool usable(const Held& held, size_t version, int fragment) const {
        return held.fragments[version] < 0 || held.fragments[version] == fragment;
    }
    /// A number for the fragment of an op: its phase and stage.
    static int fragment_of(const Op& op) { return (op.stage + 1) * 3 + static_cast<int>(op.phase); }

    /// Returns a version of the value in layout `needed`. Inserts collectives if none exists.
    ValueId reshard_to(ValueId value, const Layout& needed, const Reader& reader);
    /// Adds an op of the annotated program. Its outputs must have layouts.
    void emit(Op op, int index);
    /// Records that the last added op computes the value, without inputs.
    void mark_source(ValueId value) { held(value).source = std::ssize(entries_) - 1; }
    ValueId add_value(Value value);

    /// True if a version is complete only after the loop over micro-batches.
    bool late(ValueId version) const { return late_[version]; }
    void set_late(ValueId version) { late_[version] = true; }
    /// True if reading the version in layout `needed` must wait for the end of the loop over micro-batches.
    bool leaves_loop(ValueId version, const Layout& needed) const;

    /// The origin of a value's placement on an axis: the mark or op that caused it.
    Origin cause(ValueId value, AxisId axis) const;
    void set_cause(ValueId value, AxisId axis, const Origin& origin);
    void copy_causes(ValueId from, ValueId to);

    /// Returns the program with all ops in their final order.
    Program finish();

    Program program;
    Resharder resharder;

private:
    struct Entry {
        Place place;
        Op op;
        int index;  ///< index of the op in the annotated program; -1: an inserted op
    };
    ValueId place_source(ValueId value, const Layout& needed, const Reader& reader);
    ValueId follow(ValueId value, ValueId from, const ReshardPath& path, const Reader& reader);
    Op step_op(const ReshardStep& step, const Reader& reader, int like) const;
    void enforce_budget(ValueId value, const Layout& needed, const ReshardPath& path, const Reader& reader) const;
    [[noreturn]] void fail(ValueId value, const Layout& needed, const Reader& reader) const;
    std::string causes_text(ValueId value, const Layout& layout) const;
    void forget_partial(ValueId value, const Layout& reduced);
    void resize();

    const Program& annotated_;
    const Mesh& mesh_;
    const PropagateOptions& options_;
    std::vector<Held> held_;
    std::vector<bool> late_;
    std::vector<Place> places_;             ///< by value: position of the op that computes it
    std::vector<std::vector<int>> causes_;  ///< by value and axis: index in origins_; -1: none
    std::vector<Origin> origins_;
    std::vector<Entry> entries_;
};

}  // namespace orrery

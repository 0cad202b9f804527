#pragma once
#include <deque>
#include <string>
#include <vector>

#include "compile/passes/propagate.h"
#include "layout/marks.h"
#include "layout/reshard.h"

namespace orrery {

/// The position of an op after propagation: that of an annotated op, or before or after one if inserted.
struct Place {
    int op = 0;
    bool behind = false;
    auto operator<=>(const Place&) const = default;
};

/// A request for a value in some layout: which op needs it, and why.
struct Reader {
    int index = 0;      ///< annotated op that reads the value, or that makes it if its output must have the layout
    std::string cause;  ///< "for matmul %7", "store of up.w", "result loss_sum"
    std::string why;    ///< reason for the requested layout, for errors
    Origin origin;
    bool asked = false;  ///< a mark, an update or a result requires the layout
    bool part = false;   ///< the decomposition of the op requires the layout
};

/// The versions of each value during propagation: one per layout in which the value exists, with the op that makes it.
class Versions {
public:
    Versions(const Program& annotated, const Mesh& mesh, const PropagateOptions& options);

    struct Held {
        std::vector<ValueId> versions;  ///< ids of its versions: as computed, then each redistribution
        std::vector<int> fragments;     ///< by version: phase and stage in which it exists; -1: all
        Layout preferred;               ///< layout in which ops should read the value
        std::vector<Target> uses;       ///< marks that make `preferred` differ from the stored layout
        bool pinned = false;            ///< a strategy marked how the value is stored or used
        int source = -1;  ///< for a constant or random value, made in any layout: index in entries_ of its op; else -1
        bool placed = false;  ///< the value was read, so that its layout is final
    };
    Held& held(ValueId value) { return held_[value]; }
    const Held& held(ValueId value) const { return held_[value]; }
    bool usable(const Held& held, size_t version, int fragment) const {
        return held.fragments[version] < 0 || held.fragments[version] == fragment;
    }
    /// A number for phase and stage of an op.
    static int fragment_of(const Op& op) { return (op.stage + 1) * 3 + static_cast<int>(op.phase); }

    /// Returns the version of a value in layout `needed`. If there is none, inserts collectives that make it.
    ValueId reshard_to(ValueId value, const Layout& needed, const Reader& reader);
    /// Adds an op of the annotated program. Its outputs must have layouts. `index`: its index there.
    void emit(Op op, int index);
    /// Records that the last added op makes the value without inputs, and so can make it in any layout.
    void mark_source(ValueId value) { held(value).source = std::ssize(entries_) - 1; }
    ValueId add_value(Value value);

    /// Whether a version is complete only after the loop over micro-batches.
    bool late(ValueId version) const { return late_[version]; }
    void set_late(ValueId version) { late_[version] = true; }
    /// Whether a reader of the version in layout `needed` must wait for the end of the loop over micro-batches.
    bool leaves_loop(ValueId version, const Layout& needed) const;

    /// The mark or op because of which a value has its placement on an axis.
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
    std::string keep_of(ValueId value, AxisId axis) const;
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
    std::vector<Place> places_;
    std::vector<std::vector<int>> causes_;  ///< by value and axis: index in origins_; -1: none
    std::vector<Origin> origins_;
    std::vector<Entry> entries_;
};

}  // namespace orrery

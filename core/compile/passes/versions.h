#pragma once
#include <deque>
#include <string>
#include <vector>

#include "compile/passes/propagate.h"
#include "layout/marks.h"
#include "layout/reshard.h"

namespace orrery {

/// Place in the final order: ops keep theirs; inserted ones come before an op or right behind it.
struct Place {
    int op = 0;
    bool behind = false;
    auto operator<=>(const Place&) const = default;
};

/// Who wants a value redistributed.
struct Reader {
    int index = 0;      ///< the op that reads, in the annotated program; for a constraint the op that made the value
    std::string cause;  ///< "for matmul %7", "store of up.w", "result loss_sum"
    std::string why;    ///< for errors: what made this layout necessary
    Origin origin;
    bool asked = false;  ///< a mark, an update or a result asks for this very layout
};

/// The layouts in which each value exists, and the ops that made them: the book-keeping of propagation.
class Versions {
public:
    Versions(const Program& annotated, const Mesh& mesh, const PropagateOptions& options);

    struct Held {
        std::vector<ValueId> versions;  ///< as made, as redistributed
        std::vector<int> fragments;     ///< of each version: the fragment it lives in, -1 for the whole step
        Layout preferred;               ///< how ops would like to read it
        std::vector<Target> uses;       ///< the marks behind a preferred that differs from the layout at rest
        bool pinned = false;            ///< a strategy said how it is read
        int source = -1;                ///< constant or random: the entry that makes it, in any layout at no cost
        bool placed = false;            ///< somebody has read it, so its layout stands
    };
    Held& held(ValueId value) { return held_[value]; }
    const Held& held(ValueId value) const { return held_[value]; }
    /// A version usable in this fragment.
    bool usable(const Held& held, size_t version, int fragment) const {
        return held.fragments[version] < 0 || held.fragments[version] == fragment;
    }
    /// Ops of one phase and stage are one fragment (of each micro-batch).
    static int fragment_of(const Op& op) { return (op.stage + 1) * 3 + static_cast<int>(op.phase); }

    /// The value redistributed as needed: an existing version, or a new one whose ops are inserted.
    ValueId reshard_to(ValueId value, const Layout& needed, const Reader& reader);
    /// Adds an op that computes; its outputs' layouts are set.
    void emit(Op op, int index);
    /// Says that the last op emitted makes this value from nothing.
    void mark_source(ValueId value) { held(value).source = std::ssize(entries_) - 1; }
    ValueId add_value(Value value);

    /// Whether this version is known only after the loop over micro-batches.
    bool late(ValueId version) const { return late_[version]; }
    void set_late(ValueId version) { late_[version] = true; }
    /// Whether reading this version like this means waiting for the loop's end.
    bool leaves_loop(ValueId version, const Layout& needed) const;

    /// Who caused what a value does on an axis.
    Origin cause(ValueId value, AxisId axis) const;
    void set_cause(ValueId value, AxisId axis, const Origin& origin);
    void copy_causes(ValueId from, ValueId to);

    /// The program with all ops in their final order.
    Program finish();

    Program program;
    Resharder resharder;

private:
    struct Entry {
        Place place;
        Op op;
        int index;  ///< in the annotated program, -1 for inserted ops
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
    std::vector<Place> places_;             ///< where a value is ready
    std::vector<std::vector<int>> causes_;  ///< per value and axis: index into origins_, -1
    std::vector<Origin> origins_;
    std::vector<Entry> entries_;
};

}  // namespace orrery

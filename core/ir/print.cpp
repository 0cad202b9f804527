#include "ir/print.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/describe.h"
#include "ir/edges.h"
#include "ir/parse.h"
#include "orrery/codec.h"

namespace orrery {

std::string print(const Origin& origin) {
    std::string text = origin.text();
    const bool edges =
        text.starts_with("by ") || text.starts_with("at %") || text.starts_with(' ') || text.ends_with(' ');
    const bool plain = !edges && text.find_first_of("\"\n;") == std::string::npos &&
                       text.find(" by ") == std::string::npos && text.find(" at %") == std::string::npos &&
                       parse_origin(text) == origin;
    if (plain) return text;
    auto in_quotes = [](std::string_view s) {
        std::string q = quoted(std::string(s) + ' ');  // the added blank makes quoted() use quotes
        q.erase(q.size() - 2, 1);
        return q;
    };
    return fmt::format("{} {} {} {}", in_quotes(origin.who), in_quotes(origin.file), origin.line, origin.column);
}

namespace {

class Printer {
public:
    Printer(const Program& program, const Mesh* mesh) : program_(program), mesh_(mesh) {}

    std::string run() {
        text_ = "program " + word(program_.name);
        if (mesh_) text_ += "  mesh " + mesh_->text();
        text_ += '\n';
        for (size_t i = 0; i < program_.values.size(); ++i) {
            if (program_.values[i].role != Role::temporary) source(i);
        }
        for (const Op& op : program_.ops) {
            heading(op);
            line(op);
        }
        flush();
        remarks();
        return std::move(text_);
    }

private:
    // A name as programs print it; an empty one as two quotes.
    static std::string maybe(ValueId id) { return id == none ? "-" : fmt::format("%{}", id); }
    static std::string word(const std::string& name) { return name.empty() ? "\"\"" : quoted(name); }

    void columns(std::string left, std::string call, std::string rest) {
        rows_.push_back({std::move(left), std::move(call), std::move(rest)});
    }

    // Prints rows of a section in aligned columns. Rows much longer than the others do not widen the columns.
    void flush() {
        size_t left = 0;
        size_t call = 0;
        for (const Row& row : rows_) {
            if (row.left.size() <= 32) left = std::max(left, row.left.size());
            if (row.call.size() <= 44) call = std::max(call, row.call.size());
        }
        for (const Row& row : rows_) {
            text_ += fmt::format("  {:<{}} = {:<{}}  {}\n", row.left, left, row.call, call, row.rest);
        }
        rows_.clear();
    }

    std::string left_of(ValueId id) const {
        const std::string& name = program_.value(id).name;
        return name.empty() ? fmt::format("%{}", id) : fmt::format("%{} {}", id, quoted(name));
    }

    std::string layout_of(ValueId id) const {
        const Value& value = program_.value(id);
        if (!mesh_ || value.layout.splits().size() != value.type.shape.size()) return "";
        return value.layout.text(*mesh_);
    }

    static std::string comment(const Origin& origin, const std::string& more) {
        const std::string place = print(origin);
        if (place.empty() && more.empty()) return "";
        return "  #" + (place.empty() ? "" : ' ' + place) + more;
    }

    void source(ValueId id) {
        const Value& value = program_.value(id);
        std::string call = value.role == Role::input ? "input" : value.role == Role::param ? "param" : "state";
        if (value.role == Role::state && value.of != none) call += fmt::format(" %{}", value.of);
        if (!value.init.items().empty()) call += ' ' + text_of(value.init);
        std::string rest = text_of(value.type, value.dims);
        if (const std::string layout = layout_of(id); !layout.empty()) rest += "  " + layout;
        if (value.stage != none) rest += fmt::format("  stage {}", value.stage);
        std::string more;
        for (const Origin& cause : value.causes) more += " by " + print(cause);
        columns(left_of(id), call, rest + comment(value.origin, more));
    }

    void heading(const Op& op) {
        if (headed_ && op.phase == phase_ && op.scope == scope_) return;
        flush();
        headed_ = true;
        phase_ = op.phase;
        scope_ = op.scope;
        text_ += name_of(phase_);
        if (!scope_.empty()) text_ += ' ' + quoted(scope_);
        text_ += '\n';
    }

    void line(const Op& op) {
        std::string left;
        std::string types;
        std::string layouts;
        std::string more;
        bool laid_out = false;
        for (ValueId id : op.outputs) {
            const Value& value = program_.value(id);
            const std::string separator = left.empty() ? "" : ", ";
            const std::string layout = layout_of(id);
            laid_out = laid_out || !layout.empty();
            left += separator + left_of(id);
            types += separator + text_of(value.type, value.dims);
            layouts += separator + (layout.empty() ? "-" : layout);
            if (value.origin != op.origin) more += fmt::format(" at %{} {}", id, print(value.origin));
        }
        for (ValueId id : op.outputs) {
            const std::string which = op.outputs.size() > 1 ? fmt::format("%{} ", id) : "";
            for (const Origin& cause : program_.value(id).causes) more += " by " + which + print(cause);
        }
        std::string call = quoted(op.kind);
        for (ValueId id : op.inputs) call += fmt::format(" %{}", id);
        const Attribute* cause = op.attributes.find("cause");
        const auto* why = cause ? std::get_if<std::string>(cause) : nullptr;
        const bool in_comment = why && !why->empty() && why->front() != ' ' && why->find('\n') == std::string::npos;
        const std::string attributes = text_of(op.attributes, in_comment ? "cause" : "");
        if (!attributes.empty()) call += ' ' + attributes;
        if (in_comment) more += "; " + *why;
        if (laid_out) types += "  " + layouts;
        if (op.forward != none) types += fmt::format("  of %{}", program_.op(op.forward).outputs[0]);
        if (!op.outputs.empty() && program_.value(op.outputs[0]).of != none)
            types += fmt::format("  moved %{}", program_.value(op.outputs[0]).of);
        if (op.stage != none) types += fmt::format("  stage {}", op.stage);
        columns(left, call, types + comment(op.origin, more));
    }

    void note(const std::string& text, const Origin& origin = {}) {
        remarks_ += "  " + text + comment(origin, "") + '\n';
    }

    void mark(const Mark& mark) {
        note(fmt::format("{} %{} {} {}{}{}", mark.what == Mark::What::store ? "store" : "use", mark.value,
                         word(mark.axis), mark.placement.text(),
                         mark.keep == Keep::fragment ? " fragment"
                         : mark.keep == Keep::part   ? " part"
                                                     : "",
                         mark.optional ? " optional" : ""),
             mark.origin);
    }

    void edge(const EdgeMark& mark, const EdgeOption& option) {
        std::string text = fmt::format("{} {}", mark.option, word(mark.axis));
        if (mark.phase && mark.phase != option.phase) text += fmt::format(" {}", orrery::name_of(*mark.phase));
        if (const auto* number = std::get_if<int64_t>(&mark.value)) text += fmt::format(" {}", *number);
        if (const auto* name = std::get_if<std::string>(&mark.value)) text += ' ' + word(*name);
        if (const auto* list = std::get_if<std::vector<int64_t>>(&mark.value))
            for (const int64_t number : *list) text += fmt::format(" {}", number);
        note(text);
    }

    void remarks() {
        if (program_.microbatches() != 1) note(fmt::format("microbatches {}", program_.microbatches()));
        for (const auto& own : program_.codecs)
            if (!own->text.empty()) note(fmt::format("declares {}{}", word(own->name), own->near ? " near" : ""));
        for (const EdgeOption& option : edge_options())
            for (const EdgeMark& m : program_.edges())
                if (m.option == option.name) edge(m, option);
        for (const Mark& m : program_.marks()) mark(m);
        for (const Mark& m : program_.ignored()) mark(m);
        for (const ScopeMark& m : program_.scope_marks()) {
            if (m.stage != none) note(fmt::format("stage {} {}", word(m.scope), m.stage), m.origin);
            std::string kinds;
            for (const std::string& kind : m.kinds) kinds += ' ' + word(kind);
            if (m.recompute) note("recompute " + word(m.scope) + kinds, m.origin);
        }
        for (const Remark& n : program_.remarks())
            note(fmt::format("note {} {}", maybe(n.value), word(n.text)), n.origin);
        for (const auto& [param, grad] : program_.grads()) note(fmt::format("grad %{} %{}", param, grad));
        for (const Update& u : program_.updates) note(fmt::format("update %{} %{}", u.target, u.value));
        for (const Result& r : program_.results) note(fmt::format("result {} %{}", word(r.name), r.value));
        for (const CodedMessage& c : program_.coded)
            note(fmt::format("coded %{} %{} %{} {} {} {} {} {}", c.result, c.plain, c.encoded, maybe(c.decoded),
                             maybe(c.sum), maybe(c.sum_decoded), word(c.codec), word(c.axis)));
        if (!remarks_.empty()) text_ += "notes\n" + remarks_;
    }

    struct Row {
        std::string left, call, rest;
    };

    const Program& program_;
    const Mesh* mesh_;
    std::string text_;
    std::vector<Row> rows_;
    std::string remarks_;
    bool headed_ = false;
    Phase phase_ = Phase::forward;
    std::string scope_;
};

}  // namespace

std::string print(const Program& program, const Mesh* mesh) { return Printer(program, mesh).run(); }

}  // namespace orrery

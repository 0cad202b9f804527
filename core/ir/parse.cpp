#include "ir/parse.h"

#include <fmt/format.h>

#include <charconv>

#include "ir/edges.h"
#include "ir/line.h"
#include "orrery/codec.h"

namespace orrery {

Origin parse_origin(std::string_view text) {
    Origin origin;
    if (const size_t comma = text.find(", "); comma != std::string_view::npos) {
        origin.who = text.substr(0, comma);
        text.remove_prefix(comma + 2);
    } else if (text.find_first_of("./:") == std::string_view::npos) {
        origin.who = text;  // only a name, without file and line
        return origin;
    }
    int numbers[2] = {0, 0};
    int found = 0;
    for (; found < 2; ++found) {
        const size_t colon = text.rfind(':');
        if (colon == std::string_view::npos || colon + 1 == text.size()) break;
        const char* end = text.data() + text.size();
        int value = 0;
        const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, value);
        if (error != std::errc{} || stop != end || value < 1) break;
        numbers[found] = value;
        text = text.substr(0, colon);
    }
    origin.file = text;
    origin.line = found == 2 ? numbers[1] : numbers[0];
    origin.column = found == 2 ? numbers[0] : 0;
    return origin;
}

namespace {

Attribute attribute(Line& line) {
    if (line.sees("\"")) return line.quoted();
    if (line.take("[")) {
        std::vector<int64_t> list;
        while (!line.take("]")) {
            list.push_back(line.integer());
            line.take(",");
        }
        return list;
    }
    const std::string text(line.bare());
    if (text == "true" || text == "false") return text == "true";
    const char* end = text.data() + text.size();
    int64_t whole = 0;
    if (const auto [stop, error] = std::from_chars(text.data(), end, whole); error == std::errc{} && stop == end) {
        return whole;
    }
    double number = 0;
    if (const auto [stop, error] = std::from_chars(text.data(), end, number); error == std::errc{} && stop == end) {
        return number;
    }
    if (text.empty()) line.fail("an attribute's value");
    return text;
}

Attributes attributes(Line& line) {
    Attributes result;
    if (!line.take("{")) return result;
    while (!line.take("}")) {
        const std::string key = line.word();
        line.expect("=");
        result.set(key, attribute(line));
        line.take(",");
    }
    return result;
}

class Parser {
public:
    Parser(std::string_view text, std::string_view file, std::vector<std::shared_ptr<const Codec>> codecs)
        : text_(text), most_values_(text.size()) {
        place_.file = file;
        program_.codecs = std::move(codecs);
    }

    Program run() {
        while (!text_.empty()) {
            const size_t end = std::min(text_.find('\n'), text_.size());
            const std::string_view line = text_.substr(0, end);
            text_.remove_prefix(std::min(end + 1, text_.size()));
            ++place_.line;
            if (line.find_first_not_of(' ') != std::string_view::npos) read(line);
        }
        if (!begun_) throw Error(place_, "expected \"program NAME\", found nothing");
        return std::move(program_);
    }

    const std::optional<Mesh>& mesh() const { return mesh_; }

private:
    void read(std::string_view text) {
        Line line(text, place_);
        if (text.front() != ' ') {
            heading(line);
        } else if (!begun_) {
            line.fail("\"program NAME\" first");
        } else if (in_notes_) {
            note(line);
        } else {
            definition(line);
        }
        if (!line.done()) line.fail("the end of the line");
    }

    void heading(Line& line) {
        const std::string first = line.word();
        if (!begun_ && first == "program") {
            begun_ = true;
            program_.name = line.word();
            if (line.take("mesh")) mesh(line);
        } else if (begun_ && first == "notes") {
            in_notes_ = true;
        } else if (begun_ && (first == "forward" || first == "backward" || first == "update")) {
            phase_ = first == "forward" ? Phase::forward : first == "backward" ? Phase::backward : Phase::update;
            scope_ = line.done() ? "" : line.word();
        } else {
            throw Error(place_,
                        fmt::format("expected program, forward, backward, update or notes, found \"{}\"", first));
        }
    }

    void mesh(Line& line) {
        std::vector<Axis> axes;
        while (!line.done()) {
            Axis axis;
            axis.name = line.word();
            line.expect("=");
            axis.size = line.integer();
            axis.sequential = axis.name == "micro";
            axes.push_back(std::move(axis));
        }
        try {
            mesh_ = Mesh(std::move(axes));
        } catch (const Error& error) {
            throw Error(place_, error.what());
        }
    }

    // The value with this id, created if it is new. Ids have no gaps but may come in any order.
    Value& slot(ValueId id) {
        if (static_cast<size_t>(id) >= program_.values.size()) {
            if (static_cast<size_t>(id) > most_values_) {
                throw Error(place_, fmt::format("%{} is out of range: ids of values must be consecutive", id));
            }
            program_.values.resize(id + 1);
        }
        return program_.value(id);
    }

    void definition(Line& line) {
        std::vector<ValueId> outputs;
        do {
            const ValueId id = line.value();
            slot(id).name = line.sees("=") || line.sees(",") ? "" : line.word();
            outputs.push_back(id);
        } while (line.take(","));
        line.expect("=");
        const std::string kind = line.word();
        if (kind == "input" || kind == "param" || kind == "state") {
            if (outputs.size() != 1) line.fail("one value for " + kind);
            Value& value = slot(outputs[0]);
            value.role = kind == "input" ? Role::input : kind == "param" ? Role::param : Role::state;
            if (value.role == Role::state && line.sees("%")) value.of = line.value();
            value.init = attributes(line);
            tail(line, outputs, nullptr);
        } else {
            Op op;
            op.kind = kind;
            op.outputs = outputs;
            op.phase = phase_;
            op.scope = scope_;
            while (line.sees("%")) op.inputs.push_back(line.value());
            op.attributes = attributes(line);
            const OpId id = program_.ops.size();
            for (size_t i = 0; i < outputs.size(); ++i) {
                slot(outputs[i]).op = id;
                slot(outputs[i]).output = i;
            }
            tail(line, outputs, &op);
            program_.ops.push_back(std::move(op));
        }
    }

    void type(Line& line, Value& value) {
        const std::string name = line.word();
        const auto dtype = parse_dtype(name);
        if (!dtype) line.fail(fmt::format("a type such as f32[8], found \"{}\"", name));
        value.type.dtype = *dtype;
        line.expect("[");
        while (!line.take("]")) {
            std::string dim;
            // a dim is "8", "batch=8" or "\"odd name\"=8"
            Line ahead = line;
            if (ahead.sees("\"") || (!ahead.bare().empty() && ahead.take("="))) {
                dim = line.word();
                line.expect("=");
            }
            value.dims.push_back(std::move(dim));
            value.type.shape.push_back(line.integer());
            line.take(",");
        }
    }

    void layout(Line& line, Value& value) {
        if (line.take("-")) return;
        value.layout = Layout(value.type.shape.size());
        while (true) {
            Line ahead = line;
            const std::string axis = ahead.sees("#") || ahead.sees(",") || ahead.done() ? "" : ahead.word();
            if (axis.empty() || !ahead.take(":")) return;
            const auto id = mesh_ ? mesh_->find(axis) : std::nullopt;
            if (!id) line.fail(fmt::format("an axis of the mesh {}", mesh_ ? mesh_->text() : "(the program has none)"));
            line = ahead;
            value.layout.set(*id, placement(line, value.type.shape.size()));
        }
    }

    static Placement placement(Line& line, size_t rank) {
        if (line.take("R")) return Placement::replicated();
        if (line.take("S(")) {
            const int64_t dim = line.integer();
            if (dim < 0 || dim >= static_cast<int64_t>(rank))
                line.fail(fmt::format("a dim below {}, the number of dims", rank));
            line.expect(")");
            return Placement::split(dim);
        }
        line.expect("P(");
        const std::string name = line.word();
        line.expect(")");
        for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
            if (name_of(op) == name) return Placement::partial(op);
        }
        line.fail("P(sum), P(max) or P(min)");
    }

    // Reads the rest of the line of a value or op: types, layouts, "of", "moved", "stage" and the comment.
    void tail(Line& line, const std::vector<ValueId>& outputs, Op* op) {
        for (size_t i = 0; i < outputs.size(); ++i) {
            if (i > 0) line.expect(",");
            type(line, slot(outputs[i]));
        }
        Line ahead = line;
        const bool laid_out = ahead.take("-") || (!ahead.bare().empty() && ahead.take(":"));
        for (size_t i = 0; laid_out && i < outputs.size(); ++i) {
            if (i > 0) line.expect(",");
            layout(line, slot(outputs[i]));
        }
        if (op && line.take("of ")) {
            const ValueId of = line.value();
            op->forward = slot(of).op;
            if (op->forward == none) line.fail(fmt::format("an earlier op that makes %{}", of));
        }
        if (op && line.take("moved ")) slot(outputs[0]).of = line.value();
        if (line.take("stage ")) (op ? op->stage : slot(outputs[0]).stage) = static_cast<int>(line.integer());
        comment(line, outputs, op);
    }

    void comment(Line& line, const std::vector<ValueId>& outputs, Op* op) {
        if (!line.take("#")) return;
        const Origin origin = line.sees(";") || line.done() ? Origin{} : line.origin();
        for (ValueId id : outputs) slot(id).origin = origin;
        if (op) op->origin = origin;
        while (!line.done()) {
            if (line.take("at %")) {
                const auto id = static_cast<ValueId>(line.integer());
                slot(id).origin = line.sees("by ") ? Origin{} : line.origin();
            } else if (line.take("by ")) {
                const ValueId id = line.sees("%") ? line.value() : outputs[0];
                slot(id).causes.push_back(line.origin());
            } else if (op && line.take("; ")) {
                op->attributes.set("cause", std::string(line.rest()));
            } else {
                line.fail("\"at\", \"by\" or \";\"");
            }
        }
    }

    ValueId known(Line& line) {
        const ValueId id = line.value();
        if (static_cast<size_t>(id) >= program_.values.size())
            line.fail(fmt::format("a known value instead of %{}", id));
        return id;
    }

    ValueId maybe_known(Line& line) { return line.take("-") ? none : known(line); }

    static Origin note_origin(Line& line) { return line.take("#") && !line.done() ? line.origin() : Origin{}; }

    void mark(Line& line, bool store) {
        const ValueId id = known(line);
        const std::string axis = line.word();
        const Placement where = placement(line, program_.value(id).type.shape.size());
        const Keep keep = line.take("fragment") ? Keep::fragment : line.take("part") ? Keep::part : Keep::step;
        const bool optional = line.take("optional");
        const Origin origin = note_origin(line);
        if (store) {
            program_.store(id, axis, where, origin, optional);
        } else {
            program_.use(id, axis, where, origin, keep, optional);
        }
    }

    /// Reads an option of an axis: "bucket dp 1048576" or "bucket dp forward 1048576".
    void edge(Line& line, const EdgeOption& option) {
        const std::string axis = line.word();
        std::optional<Phase> phase;
        for (const Phase one : {Phase::forward, Phase::backward, Phase::update})
            if (option.by_phase && !phase && line.take(name_of(one))) phase = one;
        Attribute value;
        if (option.kind == AttributeDef::Kind::flag) value = true;
        if (option.kind == AttributeDef::Kind::integer) value = line.integer();
        if (option.kind == AttributeDef::Kind::text) value = line.word();
        if (option.kind == AttributeDef::Kind::integers) {
            std::vector<int64_t> numbers;
            while (!line.done() && !line.sees("#")) numbers.push_back(line.integer());
            value = std::move(numbers);
        }
        program_.edge(axis, phase, option.name, std::move(value), place_);
    }

    /// Reads a codec that the script had declared: its name, without its functions.
    void declares(Line& line) {
        Codec own{.name = line.word(), .text = "in a script"};
        own.near = line.take("near");
        const Error lost(place_, fmt::format("codec {}: a printed program has no functions of a script's codecs; use "
                                             "the script itself",
                                             own.name));
        own.encode = [lost](const Coding&, ValueId) -> std::vector<ValueId> { throw lost; };
        own.decode = [lost](const Coding&, const std::vector<ValueId>&, const Shape&) -> ValueId { throw lost; };
        program_.codecs.push_back(std::make_shared<const Codec>(std::move(own)));
    }

    void note(Line& line) {
        const std::string what = line.word();
        if (what == "store" || what == "use") {
            mark(line, what == "store");
        } else if (what == "microbatches") {
            program_.microbatches(line.integer(), place_);
        } else if (what == "declares") {
            declares(line);
        } else if (const EdgeOption* option = find_edge_option(what)) {
            edge(line, *option);
        } else if (what == "stage") {
            const std::string scope = line.word();
            const auto stage = static_cast<int>(line.integer());
            program_.stage(scope, stage, note_origin(line));
        } else if (what == "recompute") {
            const std::string scope = line.word();
            std::vector<std::string> kinds;
            while (!line.done() && !line.sees("#")) kinds.push_back(line.word());
            program_.recompute(scope, note_origin(line), kinds);
        } else if (what == "note") {
            const ValueId id = maybe_known(line);
            const std::string text = line.word();
            program_.note(id, text, note_origin(line));
        } else if (what == "grad" || what == "update") {
            const ValueId target = known(line);
            const ValueId value = known(line);
            if (what == "grad") {
                program_.set_grad(target, value);
            } else {
                program_.updates.push_back({target, value});
            }
        } else if (what == "result") {
            std::string name = line.word();
            program_.results.push_back({std::move(name), known(line)});
        } else if (what == "coded") {
            CodedMessage coded;
            for (ValueId* const id : {&coded.result, &coded.plain, &coded.encoded}) *id = known(line);
            for (ValueId* const id : {&coded.decoded, &coded.sum, &coded.sum_decoded}) *id = maybe_known(line);
            coded.codec = line.word();
            coded.axis = line.word();
            program_.coded.push_back(std::move(coded));
        } else {
            line.fail(fmt::format(
                "store, use, microbatches, declares, bucket, codec, feedback, prefetch, stage, recompute, note, grad, "
                "update, result or coded at the start of the line, found \"{}\"",
                what));
        }
    }

    std::string_view text_;
    size_t most_values_;  ///< upper bound for ids of values, as each value has a line
    Origin place_;
    Program program_;
    std::optional<Mesh> mesh_;
    bool begun_ = false;
    bool in_notes_ = false;
    Phase phase_ = Phase::forward;
    std::string scope_;
};

}  // namespace

Program parse(std::string_view text, std::string_view file, std::optional<Mesh>* mesh,
              std::vector<std::shared_ptr<const Codec>> codecs) {
    Parser parser(text, file, std::move(codecs));
    Program program = parser.run();
    if (mesh) *mesh = parser.mesh();
    return program;
}

}  // namespace orrery

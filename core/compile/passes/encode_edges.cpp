#include "compile/passes/encode_edges.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "compile/islands.h"
#include "compile/passes/code_factors.h"
#include "compile/passes/code_moves.h"
#include "compile/passes/code_sums.h"
#include "ir/build.h"
#include "ir/codecs.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "orrery/mesh.h"
#include "orrery/plan.h"

namespace orrery {

namespace {

using Kind = Placement::Kind;

bool sums_over_ranks(const Op& op) {
    const auto moved = collective_of(op);
    return (moved == Opcode::all_reduce || moved == Opcode::reduce_scatter) &&
           op.attributes.text("op") == name_of(ReduceOp::sum);
}

/// Marks gradients of params, their terms, and values that linear ops computed from these and a scalar.
std::vector<char> find_gradients(const Program& program) {
    std::vector<char> known(program.values.size(), 0);
    for (const auto& [param, grad] : program.grads()) known[grad] = 1;
    const auto carries = [](const Op& op) { return op_def(op.kind).collective && op.inputs.size() == 1; };
    for (size_t i = program.ops.size(); i-- > 0;) {
        const Op& op = program.ops[i];
        if (op.phase == Phase::forward || known[op.outputs[0]] == 0) continue;
        if (!carries(op) && !is_sum(op_def(op.kind)) && op_def(op.kind).moves == Moves::no) continue;
        for (const ValueId input : op.inputs)
            if (program.value(input).op != none && program.op(program.value(input).op).phase != Phase::forward)
                known[input] = 1;
    }
    for (const Op& op : program.ops) {
        const OpDef& def = op_def(op.kind);
        const auto of_gradient = [&](ValueId id) { return known[id] != 0; };
        const bool multiple = std::any_of(def.multiplies.begin(), def.multiplies.end(), [&](int i) {
            return static_cast<size_t>(i) < op.inputs.size() && of_gradient(op.inputs[i]);
        });
        const bool sum = is_sum(def) && std::all_of(op.inputs.begin(), op.inputs.end(), of_gradient);
        if (multiple || sum || (carries(op) && of_gradient(op.inputs[0]))) known[op.outputs[0]] = 1;
    }
    return known;
}

/// Whether the value is a param, maybe in another type or gathered over another axis.
bool is_param(const Program& program, ValueId id) {
    for (OpId maker = program.value(id).op; maker != none; maker = program.value(id).op) {
        const Op& op = program.op(maker);
        if (!op_def(op.kind).casts && collective_of(op) != Opcode::all_gather) return false;
        id = op.inputs[0];
    }
    return program.value(id).role == Role::param;
}

class Encoding {
public:
    Encoding(Program& program, const Mesh& mesh, const Schedule* schedule)
        : program_(program),
          mesh_(mesh),
          schedule_(schedule),
          micro_(mesh.sequential_axis()),
          gradients_(find_gradients(program)),
          coded_(program, mesh),
          factors_(program, mesh),
          moves_(program, mesh) {}

    void run() {
        order_sums();
        find_messages();
        find_stages();
        note_blocks();
        coded_.note_unencoded();
        factors_.note_unencoded();
        moves_.note_unencoded();
        if (messages_.empty() && narrowed_.empty() && passes_.empty()) return coded_.keep_states();
        find_readers();
        std::vector<Op> old = std::move(program_.ops);
        program_.ops.clear();
        std::vector<OpId> moved;
        Phase phase = Phase::forward;
        for (OpId i = 0; i < std::ssize(old); ++i) {
            if (old[i].phase != phase) finish_all();
            phase = old[i].phase;
            for (ValueId& input : old[i].inputs) {
                if (passed_on_.count({i, input}) == 0) bring_back(input);
                pass_on(input);
                if (const auto copy = copies_.find({input, rank_of(old[i].stage)}); copy != copies_.end())
                    input = copy->second;
            }
            const auto message = messages_.find(i);
            const auto narrowed = narrowed_.find(i);
            if (message != messages_.end()) {
                moved.push_back(program_.ops.size());
                if (!message->second->rounds.empty())
                    factors_.send(std::move(old[i]), *message->second);
                else if (sums_over_ranks(old[i]))
                    coded_.send(std::move(old[i]), *message->second);
                else
                    moves_.send(old[i], *message->second);
                continue;
            }
            const ValueId sum = old[i].outputs[0];
            if (narrowed != narrowed_.end()) narrow(old[i], narrowed->second);
            moved.push_back(program_.ops.size());
            program_.ops.push_back(std::move(old[i]));
            if (narrowed != narrowed_.end() && !delayed(sum)) bring_back(sum);
            for (const ValueId made : std::vector(program_.ops[moved.back()].outputs))
                if (!waits(made) && waiting_.count(made) == 0) pass_on(made);
        }
        finish_all();
        while (!waiting_.empty()) bring_back(waiting_.begin()->first);
        relink(program_, moved);
        coded_.keep_states();
        factors_.keep_states();
    }

private:
    bool waits(ValueId sum) const { return coded_.waits(sum) || factors_.waits(sum); }

    void finish_all() {
        coded_.finish_all();
        factors_.finish_all();
    }

    /// Whether the op is a sum of gradients that a codec would decode before it adds.
    bool decodes(const Op& op) const {
        if (!sums_over_ranks(op) || option_of(op) != "codec") return false;
        const Codec& codec = codec_named(program_, program_.codec(op.attributes.text("axis")), op.origin);
        return codec.encodes() && !codec.sums_in;
    }

    /// Of an all_reduce with such a codec and a next one without, over another axis, makes the second the first: then
    /// members encode sums, not terms of another sum.
    void order_sums() {
        std::vector<std::vector<OpId>> readers(program_.values.size());
        for (OpId i = 0; i < std::ssize(program_.ops); ++i)
            for (const ValueId input : program_.ops[i].inputs) readers[input].push_back(i);
        for (const Result& result : program_.results) readers[result.value].push_back(none);
        for (const Update& update : program_.updates) readers[update.value].push_back(none);
        for (Op& op : program_.ops) {
            const ValueId sum = op.outputs[0];
            if (readers[sum].size() != 1 || readers[sum][0] == none || op.attributes.has("dim") || !decodes(op))
                continue;
            Op& next = program_.ops[readers[sum][0]];
            if (collective_of(next) != Opcode::all_reduce || !sums_over_ranks(next) || decodes(next)) continue;
            if (next.phase != op.phase || next.stage != op.stage) continue;
            std::swap(op.attributes, next.attributes);
            Layout& layout = program_.value(sum).layout;
            layout.set(*mesh_.find(op.attributes.text("axis")), Placement::replicated());
            layout.set(*mesh_.find(next.attributes.text("axis")), Placement::partial(ReduceOp::sum));
        }
    }

    void find_messages() {
        for (size_t i = 0; i < program_.ops.size(); ++i) {
            const Op& op = program_.ops[i];
            refuse_roll(op);
            const std::string_view option = option_of(op);
            if (option.empty()) continue;
            const std::string axis = op.attributes.text("axis");
            const Codec& codec = codec_named(program_, program_.codec(axis, option), op.origin);
            if (!codec.encodes() || !shortens(codec, op.inputs[0])) continue;
            if (sums_over_islands(op)) refuse_whole(op, axis, codec);
            if (option != "codec" && moves_.is_plain(op, op.inputs[0], axis, codec)) continue;
            if (sums_over_ranks(op) && codec.sums_in)
                narrowed_[i] = *codec.sums_in;
            else if (!codec.rounds.empty() ? factors_.takes(op, codec)
                     : sums_over_ranks(op) ? coded_.takes(op, codec)
                                           : moves_.takes(op, codec))
                messages_[i] = &codec;
        }
    }

    bool shortens(const Codec& codec, ValueId id) const {
        const DType own = program_.value(id).type.dtype;
        return is_float(own) && size_of(own) > (codec.sums_in ? size_of(*codec.sums_in) : 1);
    }

    bool has_islands(std::string_view axis) const { return program_.edge(axis, Phase::update).flag(islands_option); }

    /// Whether the op adds arrays of islands, not counts, where they meet; an evaluation reads the sums as they are.
    bool sums_over_islands(const Op& op) const {
        if (op.phase != Phase::update || !has_islands(op.attributes.text("axis"))) return false;
        return !program_.value(op.inputs[0]).type.shape.empty();
    }

    /// Notes the codecs with which results depend on how many ranks share an array.
    void note_blocks() {
        std::map<std::string, Origin> blocks;
        for (const auto& [i, codec] : messages_)
            if (codec->block > 1)
                blocks.try_emplace(fmt::format("{} over {}", codec->name, program_.op(i).attributes.text("axis")),
                                   program_.op(i).origin);
        for (const auto& [where, origin] : blocks)
            program_.note(
                none, where + ": blocks are counted in what each rank sends, so results depend on the mesh, as sums do",
                origin);
    }

    /// Throws Error where islands send whole values, and codec or feedback are for what they moved a param by.
    void refuse_whole(const Op& op, const std::string& axis, const Codec& codec) const {
        if (moved_by(program_, op) != none) return;
        const std::string what = fmt::format("params and other whole values over {}", axis);
        const std::string_view or_moves =
            "or send what islands moved a param by and say so, as diloco does (update:moved)";
        require_near(program_, codec, what, fmt::format("\n  {}", or_moves), op.origin);
        if (program_.edge(axis, Phase::backward).flag("feedback"))
            throw Error(op.origin, fmt::format("{} cannot have feedback: what encoding left out of an earlier value is "
                                               "wrong in the next one\n  leave feedback out, {}",
                                               what, or_moves));
    }

    /// Throws Error for a value that rolls from member to member of an axis that has a codec for it.
    void refuse_roll(const Op& op) const {
        if (op_def(op.kind).moves != Moves::rolls) return;
        for (const AxisId id : program_.value(op.inputs[0]).layout.splits()[op.attributes.integer("dim")]) {
            const std::string& axis = mesh_.axis(id).name;
            const std::string codec = program_.codec(axis, has_islands(axis) ? "codec" : "activation_codec");
            if (codec == "none") continue;
            throw Error(op.origin, fmt::format("{} is sent by a roll over {}, which the codec {} does not support\n  "
                                               "use the codec none over {}, or a method "
                                               "without roll (gossip and ring attention have one)",
                                               describe(program_, op.inputs[0]), axis, codec, axis));
        }
    }

    /// The option of the axis that says how the message is encoded; empty: none.
    std::string_view option_of(const Op& op) const {
        const auto moved = collective_of(op);
        if (!moved) return {};
        const bool gathers = moved == Opcode::all_gather;
        if (sums_over_ranks(op) && (gradients_[op.inputs[0]] != 0 || sums_over_islands(op))) return "codec";
        if (gathers && is_param(program_, op.inputs[0])) return "param_codec";
        if (program_.value(op.inputs[0]).type.shape.empty()) return {};
        const bool moves = gathers || moved == Opcode::all_to_all || sums_over_ranks(op);
        if (!moves || op.phase == Phase::update || gradients_[op.inputs[0]] != 0) return {};
        return "activation_codec";
    }

    /// Finds values that pass to other stages as codes, and the stages that decode them: one for each rank of the
    /// pipeline.
    void find_stages() {
        const std::string& axis = program_.pipeline().axis;
        if (!schedule_ || axis.empty()) return;
        const Codec& codec =
            codec_named(program_, program_.codec(axis, "activation_codec"), program_.pipeline().origin);
        if (!codec.encode) return;
        for (int rank = 0; rank < static_cast<int>(schedule_->ranks.size()); ++rank)
            for (const int stage : schedule_->stages_of(rank)) ranks_[stage] = rank;
        std::set<ValueId> left;
        for (const Op& reader : program_.ops)
            for (const ValueId id : reader.inputs) {
                const OpId maker = program_.value(id).op;
                if (maker == none || program_.op(maker).phase == Phase::update || left.count(id) != 0) continue;
                const int to = rank_of(reader.stage), from = rank_of(program_.op(maker).stage);
                const bool complete = program_.value(id).layout.partials().empty();
                if (to == none || from == none || to == from || !complete || gradients_[id] != 0) continue;
                if (!shortens(codec, id)) continue;
                if (passes_.count(id) == 0 && !moves_.takes(program_.op(maker), id, codec, axis))
                    left.insert(id);
                else
                    passes_[id].try_emplace(to, reader.stage), makers_.try_emplace(id, program_.op(maker));
            }
        stages_codec_ = &codec;
    }

    int rank_of(int stage) const {
        const auto rank = ranks_.find(stage);
        return rank == ranks_.end() ? none : rank->second;
    }

    /// Sends a value to the stages that read it.
    void pass_on(ValueId id) {
        const auto passes = passes_.find(id);
        if (passes == passes_.end()) return;
        std::vector<int> stages;
        for (const auto& [rank, stage] : passes->second) stages.push_back(stage);
        const std::vector<ValueId> read =
            moves_.pass_on(makers_.at(id), id, *stages_codec_, stages, program_.pipeline().axis);
        size_t next = 0;
        for (const auto& [rank, stage] : passes->second) copies_[{id, rank}] = read[next++];
        passes_.erase(passes);
    }

    /// Finds ops that read sums in their own type; messages of a sum over another axis read the narrow one.
    void find_readers() {
        read_.assign(program_.values.size(), 0);
        early_.assign(program_.values.size(), 0);
        for (OpId i = 0; i < std::ssize(program_.ops); ++i)
            for (const ValueId input : program_.ops[i].inputs) {
                const auto next = narrowed_.find(i), before = narrowed_.find(program_.value(input).op);
                if (next != narrowed_.end() && before != narrowed_.end() && next->second == before->second) {
                    passed_on_.insert({i, input});
                    continue;
                }
                read_[input] = 1;
                if (program_.ops[i].phase != Phase::update) early_[input] = 1;
            }
        for (const Result& result : program_.results) read_[result.value] = 1;
        for (const Update& update : program_.updates) read_[update.value] = 1;
        for (const auto& [param, grad] : program_.grads()) read_[grad] = 1;
    }

    Placement over_micro(ValueId id) const {
        return micro_ ? program_.value(id).layout.at(*micro_) : Placement::replicated();
    }

    /// Whether only the update reads a sum, so that it is cast back right before its first reader. The sum of a
    /// micro-batch is cast back at once, since it is accumulated in its own type.
    bool delayed(ValueId sum) const { return over_micro(sum).kind != Kind::partial && early_[sum] == 0; }

    ValueId add_value(ValueId like, DType type, Layout layout) {
        Value value;
        value.type = {type, program_.value(like).type.shape};
        value.dims = program_.value(like).dims;
        value.layout = std::move(layout);
        value.causes = program_.value(like).causes;
        value.origin = program_.value(like).origin;
        program_.values.push_back(std::move(value));
        return std::ssize(program_.values) - 1;
    }

    Op cast(const Op& message, ValueId from, ValueId to) const {
        Op op;
        op.kind = "cast";
        op.attributes = {{"dtype", std::string(name_of(program_.value(to).type.dtype))}};
        op.inputs = {from};
        op.outputs = {to};
        op.phase = message.phase;
        op.scope = message.scope;
        op.stage = message.stage;
        op.origin = message.origin;
        return op;
    }

    /// The narrow input of a message: output of another narrow message, or a cast right before this one.
    ValueId term(const Op& message, DType type) {
        const ValueId own = message.inputs[0], sum = message.outputs[0];
        if (const auto sent = narrow_.find(own);
            sent != narrow_.end() && program_.value(sent->second).type.dtype == type)
            return sent->second;
        Layout layout = program_.value(own).layout;
        if (micro_ && over_micro(own).kind == Kind::partial && over_micro(sum).kind == Kind::replicate)
            layout.set(*micro_, Placement::replicated());  // the cast comes after the loop over micro-batches
        const ValueId made = add_value(own, type, std::move(layout));
        program_.ops.push_back(cast(message, own, made));
        return made;
    }

    void narrow(Op& message, DType type) {
        const ValueId sum = message.outputs[0];
        const int64_t item = size_of(program_.value(sum).type.dtype);
        const ValueId sent = add_value(sum, type, program_.value(sum).layout);
        message.inputs[0] = term(message, type);
        message.outputs[0] = sent;
        if (const int64_t bytes = message.attributes.integer("sends"); bytes > 0)
            message.attributes.set("sends", bytes * size_of(type) / item);
        narrow_[sum] = sent;
        if (read_[sum] == 0) {
            program_.value(sum).op = none;
            program_.value(sum).output = 0;
            return;
        }
        Op back = cast(message, sent, sum);
        if (delayed(sum)) back.phase = Phase::update, back.stage = none;
        waiting_.emplace(sum, std::move(back));
    }

    void bring_back(ValueId sum) {
        if (waits(sum)) finish_all();
        const auto back = waiting_.find(sum);
        if (back == waiting_.end()) return;
        program_.ops.push_back(std::move(back->second));
        waiting_.erase(back);
    }

    Program& program_;
    const Mesh& mesh_;
    const Schedule* schedule_;
    const std::optional<AxisId> micro_;
    const std::vector<char> gradients_;
    CodeSums coded_;
    CodeFactors factors_;
    CodeMoves moves_;
    std::map<OpId, const Codec*> messages_;         ///< of codes that are decoded first
    std::map<OpId, DType> narrowed_;                ///< sums in this type
    std::set<std::pair<OpId, ValueId>> passed_on_;  ///< messages that read the narrow sum of another message
    std::vector<char> read_, early_;                ///< by value: whether it is read in its own type; before the update
    std::map<ValueId, ValueId> narrow_;
    std::map<int, int> ranks_;  ///< by stage: place of its rank in the pipeline
    const Codec* stages_codec_ = nullptr;
    std::map<ValueId, std::map<int, int>> passes_;       ///< by value: rank that reads it -> stage of its first reader
    std::map<ValueId, Op> makers_;                       ///< of values in passes_
    std::map<std::pair<ValueId, int>, ValueId> copies_;  ///< by value and rank: what was decoded there
    std::map<ValueId, Op> waiting_;                      ///< by sum: its cast back to its own type, not inserted yet
};

}  // namespace

bool has_codec(const Program& program, const Mesh& mesh) {
    for (const auto& [option, what] : codec_options)
        for (const std::string& axis : program.axes_with(option))
            if (mesh.size(axis) > 1 && program.codec(axis, option) != "none") return true;
    return false;
}

void encode_edges(Program& program, const Mesh& mesh, const Schedule* schedule) {
    Encoding(program, mesh, schedule).run();
}

}  // namespace orrery

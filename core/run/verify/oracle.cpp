#include "run/verify/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>

#include "ir/codecs.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "run/verify/float_distance.h"

namespace orrery {

namespace {
/// Relative error of an op's result in f32: a few roundings. A sum of many terms moves with its terms.
constexpr double rounding = 0x1p-22;
/// Min ratio of a gradient to its noise for its optimizer step to be certain: at 10 the sign is certain.
constexpr double noise_margin = 10;
}  // namespace

struct Oracle::Array {
    explicit Array(int64_t bytes)
        : data(static_cast<std::byte*>(std::aligned_alloc(64, (std::max<int64_t>(bytes, 1) + 63) / 64 * 64))),
          bytes(bytes) {
        if (!data) throw std::bad_alloc();
    }
    ~Array() { std::free(data); }
    Array(const Array&) = delete;

    std::byte* data;
    int64_t bytes;
};

/// One op on whole arrays. Without a kernel, the op's output is its first input. A sum over pipeline stages has a
/// kernel that adds two of its inputs; none in u8, which kernels do not add.
struct Oracle::Work {
    const Op* op = nullptr;
    std::vector<size_t> slots;  ///< indices in values_ of the op's inputs, then of its outputs
    std::vector<TensorType> types;
    std::unique_ptr<Kernel> kernel;
};

Oracle::Oracle(const Program& annotated, const Program& propagated, const Mesh& mesh, Device& device,
               WholeContents contents, int draws)
    : annotated_(annotated),
      propagated_(propagated),
      mesh_(mesh),
      device_(device),
      contents_(std::move(contents)),
      draws_(draws) {
    if (!device.limits().host_visible)
        throw Error("verify compares values in host memory, which this device does not share; use device \"cpu\"");
    collect();
    find_rounded_sums();
    find_compared();
    sources_.resize(slots_);
}

Oracle::~Oracle() {
    if (scratch_.data) device_.release(scratch_);
}

/// Whether propagation changed the kind or the inputs of a traced op.
bool Oracle::rewritten(const Op& op) const {
    const ValueId known = annotated_.values.size();
    if (op.outputs.empty() || op.outputs[0] >= known) return true;
    const Op& before = annotated_.op(annotated_.value(op.outputs[0]).op);
    if (before.kind != op.kind || before.inputs.size() != op.inputs.size()) return true;
    for (size_t i = 0; i < op.inputs.size(); ++i)
        if (original_of(propagated_, op.inputs[i]) != before.inputs[i]) return true;
    return false;
}

/// Gives an extra index in values_ to terms that only rewritten sums read: the traced program may have other terms.
void Oracle::find_regrouped() {
    slots_ = propagated_.values.size();
    slot_.resize(slots_);
    for (size_t i = 0; i < slots_; ++i) slot_[i] = i;
    std::vector<char> stands(slots_, 0), other(slots_, 0);
    const auto mark = [&](std::vector<char>& all, ValueId id) { all[original_of(propagated_, id)] = 1; };
    for (const Result& result : propagated_.results) mark(stands, result.value);
    for (const Update& update : propagated_.updates) mark(stands, update.value);
    for (const Op& op : propagated_.ops) {
        const bool sum = is_sum(op_def(op.kind)) || is_stage_sum(op_def(op.kind));
        if (op_def(op.kind).collective && !sum) continue;
        // A sum of regrouped terms is itself regrouped.
        const bool sums_other = std::any_of(op.inputs.begin(), op.inputs.end(),
                                            [&](ValueId input) { return other[original_of(propagated_, input)] != 0; });
        if (sum && (sums_other || rewritten(op))) {
            mark(other, op.outputs[0]);
        } else {
            for (ValueId input : op.inputs) mark(stands, input);
        }
    }
    for (size_t i = 0; i < annotated_.values.size(); ++i)
        if (other[i] && !stands[i]) slot_[i] = slots_++;
}

/// The message of codes that the op ends; nullptr: none.
const CodedMessage* Oracle::message_of(const Op& op) const {
    return op.attributes.has("codec") ? coded_message(propagated_, op.outputs[0]) : nullptr;
}

/// Marks values that a message has carried in a narrower dtype, and values made by moving their elements.
void Oracle::find_narrowed() {
    const ValueId known = annotated_.values.size();
    narrowed_.assign(propagated_.values.size(), 0);
    const auto asked = [&](const CodecOption& codec) { return !propagated_.axes_with(codec.option).empty(); };
    if (std::none_of(std::begin(codec_options), std::end(codec_options), asked)) return;
    for (const Op& op : propagated_.ops) {
        const OpDef& def = op_def(op.kind);
        if (op.outputs[0] < known) continue;
        if (const CodedMessage* coded = message_of(op)) {  // has the plain value
            narrowed_[op.outputs[0]] = narrowed_[coded->plain];
            continue;
        }
        const bool narrow =
            std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId id) { return narrowed_[id] != 0; });
        if (def.casts || (narrow && (def.collective || def.moves != Moves::no))) narrowed_[op.outputs[0]] = 1;
    }
}

/// The index in values_ of a traced op's operand. If a gradient was sent in a narrower dtype, the op reads the narrowed
/// gradient instead of the traced one.
size_t Oracle::slot_read(const Op& op, size_t input) {
    const ValueId traced = op.inputs[input];
    const OpId maker = propagated_.value(op.outputs[0]).op;
    if (maker == none || propagated_.op(maker).kind != op.kind ||
        propagated_.op(maker).inputs.size() != op.inputs.size())
        return traced;
    ValueId read = propagated_.op(maker).inputs[input];
    while (propagated_.value(read).op != none) {
        const CodedMessage* coded = message_of(propagated_.op(propagated_.value(read).op));
        if (!coded) break;
        read = coded->plain;
    }
    if (narrowed_[read] == 0 || propagated_.value(read).type != annotated_.value(traced).type) return traced;
    sent_[traced] = slot_[read];
    return slot_[read];
}

/// Sorts works_ so that each value is made before ops read it.
void Oracle::order_works() {
    std::vector<int> maker(slots_, none);
    for (size_t i = 0; i < works_.size(); ++i)
        for (size_t k = works_[i].op->inputs.size(); k < works_[i].slots.size(); ++k) maker[works_[i].slots[k]] = i;
    std::vector<Work> ordered;
    std::vector<char> placed(works_.size(), 0);
    const std::function<void(size_t)> place = [&](size_t i) {
        placed[i] = 1;
        for (size_t k = 0; k < works_[i].op->inputs.size(); ++k)
            if (const int before = maker[works_[i].slots[k]]; before != none && placed[before] == 0) place(before);
        ordered.push_back(std::move(works_[i]));
    };
    for (size_t i = 0; i < works_.size(); ++i)
        if (placed[i] == 0) place(i);
    works_ = std::move(ordered);
}

void Oracle::collect() {
    find_regrouped();
    find_narrowed();
    for (const Op& op : annotated_.ops) add_work(annotated_, op);
    for (const Update& update : annotated_.updates)
        if (const ValueId gradient = annotated_.grad_of(update.target); gradient != none) {
            const auto sent = sent_.find(gradient);
            gradient_of_.emplace(update.value, sent == sent_.end() ? static_cast<size_t>(gradient) : sent->second);
        }
    add_works_of_passes();
    if (!sent_.empty()) order_works();
    int64_t scratch = 0;
    for (const Work& work : works_)
        if (work.kernel) scratch = std::max(scratch, work.kernel->scratch_bytes());
    if (scratch > 0) scratch_ = device_.allocate(scratch, MemoryKind::device);
}

/// Adds works for ops that passes added. Between what is encoded and what is decoded there are none: that is the plain
/// value, of a sum its terms.
void Oracle::add_works_of_passes() {
    const ValueId known = annotated_.values.size();
    const auto anew = [&](ValueId id) { return id >= known || slot_[id] != static_cast<size_t>(id); };
    hidden_.assign(propagated_.values.size(), 0);
    std::set<ValueId> encoded;
    for (const CodedMessage& coded : propagated_.coded) encoded.insert(coded.encoded);
    for (const Op& op : propagated_.ops) {
        if (!std::all_of(op.outputs.begin(), op.outputs.end(), anew)) continue;
        const bool terms = op_def(op.kind).alias && op_def(op.kind).collective;
        const bool codes = std::any_of(op.inputs.begin(), op.inputs.end(),
                                       [&](ValueId input) { return hidden_[input] != 0 || encoded.count(input) != 0; });
        if (const CodedMessage* coded = codes ? coded_message(propagated_, op.outputs[0]) : nullptr) {
            slot_[coded->result] = slot_[coded->plain];
        } else if (terms || codes) {
            for (const ValueId output : op.outputs) hidden_[output] = 1;
        } else {
            add_work(propagated_, op);
        }
    }
}

void Oracle::add_work(const Program& program, const Op& op) {
    Work work;
    work.op = &op;
    KernelSpec spec{op.kind, op.attributes, {}, {}};
    for (const char* note : {"cause", "keep", "sends", "axis", "codec"}) spec.attributes.erase(note);
    for (ValueId id : op.inputs) spec.inputs.push_back(program.value(id).type);
    for (ValueId id : op.outputs) spec.outputs.push_back(program.value(id).type);
    const bool traced = &program == &annotated_;
    for (size_t i = 0; i < op.inputs.size(); ++i) work.slots.push_back(traced ? slot_read(op, i) : slot_[op.inputs[i]]);
    for (ValueId id : op.outputs) work.slots.push_back(traced ? static_cast<size_t>(id) : slot_[id]);
    work.types = spec.inputs;
    work.types.insert(work.types.end(), spec.outputs.begin(), spec.outputs.end());
    const OpDef& def = op_def(op.kind);
    try {
        if (is_stage_sum(def) && spec.outputs[0].dtype != DType::u8)
            work.kernel = device_.prepare(
                {std::string(op_combining(ReduceOp::sum)), {}, {spec.outputs[0], spec.outputs[0]}, spec.outputs});
        else if (!def.alias && !def.collective)
            work.kernel = device_.prepare(spec);
    } catch (const Error& error) {
        throw Error(describe(program, op) + ", on one device: " + error.what(), error.fault());
    }
    works_.push_back(std::move(work));
}

/// Marks values that are rounded to 16 bits on each rank before they are summed over ranks. Results of ops that read
/// such a value are marked, too, if propagation added the value.
void Oracle::find_rounded_sums() {
    const auto rounded = [&](ValueId id) {
        const Value& value = propagated_.value(id);
        return size_of(value.type.dtype) == 2 &&
               std::any_of(value.layout.partials().begin(), value.layout.partials().end(), [&](const auto& partial) {
                   return !mesh_.axis(partial.axis).sequential && mesh_.size(partial.axis) > 1;
               });
    };
    rounded_.assign(propagated_.values.size(), 0);
    for (size_t i = 0; i < rounded_.size(); ++i) rounded_[i] = rounded(i);
    for (const Op& op : propagated_.ops)
        for (ValueId input : op.inputs) {
            const ValueId term = original_of(propagated_, input);
            if (term < std::ssize(annotated_.values) || !rounded_[term]) continue;
            for (ValueId output : op.outputs) rounded_[output] = 1;
        }
}

void Oracle::find_compared() {
    for (const Op& op : propagated_.ops)
        for (const ValueId input : op.inputs)
            if (op_def(op.kind).choice && is_float(propagated_.value(input).type.dtype)) compared_.push_back(input);
}

double Oracle::noise_of(ValueId id) const {
    const DType dtype = propagated_.value(id).type.dtype;
    return rounded_[id] && size_of(dtype) == 2 ? epsilon_of(dtype) : rounding;
}

void Oracle::add_up(const Work& work, Arrays& values) {
    const Op& op = *work.op;
    const TensorType& type = work.types.back();
    auto sum = std::make_shared<Array>(type.bytes());
    std::memcpy(sum->data, values[work.slots[0]]->data, type.bytes());
    for (size_t i = 1; i < op.inputs.size(); ++i) {
        const auto& next = values[work.slots[i]];
        if (!work.kernel) {
            for (int64_t k = 0; k < type.bytes(); ++k)
                sum->data[k] =
                    static_cast<std::byte>(std::to_integer<int>(sum->data[k]) + std::to_integer<int>(next->data[k]));
            continue;
        }
        const Tensor operands[] = {{sum->data, type.dtype, type.shape},
                                   {next->data, type.dtype, type.shape},
                                   {sum->data, type.dtype, type.shape}};
        device_.launch(0, *work.kernel, operands, scratch_.data);
        device_.synchronize(0);
    }
    values[work.slots.back()] = std::move(sum);
}

void Oracle::run(const Work& work, Arrays& values, uint64_t seed) {
    const Op& op = *work.op;
    if (is_stage_sum(op_def(op.kind))) return add_up(work, values);
    if (!work.kernel) {
        values[work.slots.back()] = values[work.slots[0]];
        return;
    }
    std::vector<Tensor> operands;
    for (size_t i = 0; i < work.types.size(); ++i) {
        auto& block = values[work.slots[i]];
        if (i >= op.inputs.size()) block = std::make_shared<Array>(work.types[i].bytes());
        operands.push_back({block->data, work.types[i].dtype, work.types[i].shape});
    }
    device_.launch(0, *work.kernel, operands, scratch_.data);
    device_.synchronize(0);
    if (seed == 0) return;
    for (size_t i = 0; i < op.outputs.size(); ++i) {
        const Tensor& made = operands[op.inputs.size() + i];
        const ValueId id = op.outputs[i];
        if (const auto& choice = op_def(op.kind).choice; choice && choice->output == static_cast<int>(i))
            std::memcpy(made.data, values_[work.slots[op.inputs.size() + i]]->data, made.bytes());
        jitter(made.dtype, made.data, made.count(), noise_of(id), seed + 0x9e37u * static_cast<uint64_t>(id + 1));
    }
}

Oracle::Arrays Oracle::evaluate(const Arrays& sources, uint64_t seed) {
    Arrays values = sources;
    for (const Work& work : works_) run(work, values, seed);
    return values;
}

void Oracle::take_sources(int64_t step) {
    const size_t known = annotated_.values.size();
    for (size_t i = 0; i < propagated_.values.size(); ++i) {
        const bool added = i >= known;  // inputs that propagation added are the ranks' status word
        const Value& value = propagated_.values[i];
        if (value.role == Role::temporary || (added && value.role != Role::input)) continue;
        const std::vector<std::byte> whole = contents_(value, step);
        if (std::ssize(whole) != value.type.bytes())
            throw Error(value.origin, "the contents of " + describe(propagated_, i) + " have " +
                                          std::to_string(whole.size()) + " bytes");
        sources_[i] = std::make_shared<Array>(value.type.bytes());
        std::memcpy(sources_[i]->data, whole.data(), whole.size());
    }
}

Oracle::Arrays Oracle::moved_sources(uint64_t seed) const {
    Arrays sources = sources_;
    for (size_t i = 0; i < annotated_.values.size(); ++i) {
        if (annotated_.values[i].role != Role::param) continue;
        const TensorType& type = annotated_.values[i].type;
        sources[i] = std::make_shared<Array>(type.bytes());
        std::memcpy(sources[i]->data, sources_[i]->data, type.bytes());
        jitter(type.dtype, sources[i]->data, type.count(), rounding, seed + 1 + i);
    }
    return sources;
}

void Oracle::step(int64_t step) {
    step_ = step;
    take_sources(step);
    values_ = evaluate(sources_, 0);
    squares_.assign(slots_, 0);
    each_.clear();
    for (const auto& [updated, gradient] : gradient_of_)
        for (size_t slot : {updated, gradient}) each_[slot].assign(propagated_.values[gradient].type.count(), 0.0f);
    for (const ValueId id : compared_) each_[slot_[id]].assign(propagated_.value(id).type.count(), 0.0f);
    drawn_ = 0;
    draw(draws_);
}

void Oracle::draw(int draws) {
    for (; drawn_ < draws; ++drawn_) {
        const uint64_t seed = (static_cast<uint64_t>(step_) << 32) + (static_cast<uint64_t>(drawn_ + 1) << 20);
        measure(evaluate(moved_sources(seed), seed));
    }
    leave_out();
}

void Oracle::measure(const Arrays& values) {
    std::vector<char> known(slots_, 0);
    for (size_t i = 0; i < propagated_.values.size(); ++i) {
        const size_t slot = slot_[i];
        if (known[slot] || !values[slot] || values[slot] == values_[slot]) continue;
        known[slot] = 1;
        const TensorType& type = propagated_.values[i].type;
        const void* moved = values[slot]->data;
        const double far = difference(type.dtype, moved, values_[slot]->data, type.count()).distance;
        squares_[slot] += far * far;
        const auto each = each_.find(slot);
        if (each == each_.end() || far == 0) continue;
        for (int64_t k = 0; k < type.count(); ++k) {
            const double d = number_at(type.dtype, moved, k) - number_at(type.dtype, values_[slot]->data, k);
            each->second[k] += static_cast<float>(d * d);
        }
    }
}

/// Returns 1 for each element of a gradient that is below its noise. An element's noise is estimated from a few draws,
/// with the mean noise of the whole gradient as a floor.
std::vector<float> Oracle::below_noise(size_t gradient) const {
    const TensorType& type = propagated_.values[gradient].type;
    const size_t count = type.count();
    const std::vector<float>& each = each_.at(gradient);
    const double typical = squares_[gradient] / static_cast<double>(std::max<size_t>(count, 1));
    std::vector<float> weak(count, 0);
    for (size_t k = 0; k < count; ++k) {
        const double g = number_at(type.dtype, values_[gradient]->data, static_cast<int64_t>(k));
        const double noise = std::max(typical, static_cast<double>(each[k])) / drawn_;
        if (g * g <= noise_margin * noise_margin * noise) weak[k] = 1;
    }
    return weak;
}

void Oracle::leave_out() {
    weak_.clear();
    uncertain_.assign(slots_, 0);
    for (const Work& work : works_) {
        const std::ptrdiff_t inputs = work.op->inputs.size();
        const auto updated = std::find_if(work.slots.begin() + inputs, work.slots.end(),
                                          [&](size_t slot) { return gradient_of_.count(slot) != 0; });
        if (updated == work.slots.end())
            carry(work);
        else
            weak_[*updated] = below_noise(gradient_of_.at(*updated));
    }
    left_out_.clear();
    for (const auto& [slot, weak] : weak_) {
        std::vector<char>& left = left_out_[slot];
        squares_[slot] = 0;
        for (size_t k = 0; k < weak.size(); ++k) {
            left.push_back(weak[k] > 0);
            if (weak[k] == 0) squares_[slot] += static_cast<double>(each_[slot][k]);
        }
    }
}

/// Moves the marks of a param's left-out elements along with the param where it is packed, sent and unpacked.
void Oracle::carry(const Work& work) {
    const Op& op = *work.op;
    const auto inputs = work.slots.begin() + op.inputs.size();
    const auto weak = [&](size_t slot) { return weak_.count(slot) != 0; };
    const auto uncertain = [&](size_t slot) { return uncertain_[slot] != 0; };
    const bool known = std::none_of(work.slots.begin(), inputs, uncertain);
    if (known && std::none_of(work.slots.begin(), inputs, weak)) return;
    const OpDef& def = op_def(op.kind);
    const bool moves = def.moves != Moves::no;
    const bool alike = !work.kernel || def.casts;
    if (!known || op.outputs.size() != 1 || !(alike || (moves && work.types.back().dtype == DType::f32))) {
        for (auto slot = inputs; slot != work.slots.end(); ++slot) uncertain_[*slot] = 1;
        return;
    }
    for (size_t i = 0; !alike && i < op.inputs.size(); ++i) {  // packed with the param: their mean noise
        const int64_t count = std::max<int64_t>(work.types[i].count(), 1);
        const double typical = squares_[work.slots[i]] / static_cast<double>(count);
        each_.try_emplace(work.slots[i], count, static_cast<float>(typical));
    }
    std::vector<float> marks = alike ? weak_[work.slots[0]] : carried(work, weak_);
    each_[work.slots.back()] = alike ? each_[work.slots[0]] : carried(work, each_);
    weak_[work.slots.back()] = std::move(marks);
}

/// Runs the op on `from`, one number for each element of its inputs, and returns the numbers of its output's elements.
std::vector<float> Oracle::carried(const Work& work, const std::map<size_t, std::vector<float>>& from) {
    Arrays blocks(slots_);
    for (size_t i = 0; i < work.op->inputs.size(); ++i) {
        auto& block = blocks[work.slots[i]] = std::make_shared<Array>(work.types[i].bytes());
        std::memset(block->data, 0, block->bytes);
        const auto found = from.find(work.slots[i]);
        if (found != from.end()) std::memcpy(block->data, found->second.data(), block->bytes);
    }
    run(work, blocks, 0);
    std::vector<float> made(work.types.back().count());
    std::memcpy(made.data(), blocks[work.slots.back()]->data, made.size() * sizeof(float));
    return made;
}

const std::byte* Oracle::whole(ValueId value) const {
    const auto& block = values_[slot_[value]];
    return block ? block->data : nullptr;
}

bool Oracle::uncertain(ValueId value) const { return hidden_[value] != 0 || uncertain_[slot_[value]] != 0; }

const char* Oracle::left_out(ValueId value) const {
    const auto found = left_out_.find(slot_[value]);
    return found == left_out_.end() ? nullptr : found->second.data();
}

double Oracle::moved(ValueId value) const { return std::sqrt(squares_[slot_[value]] / drawn_); }

double Oracle::moved(ValueId value, int64_t element) const {
    const auto each = each_.find(slot_[value]);
    if (each == each_.end()) return 0;
    const auto size = [&](int64_t k) {
        return std::abs(number_at(propagated_.value(value).type.dtype, values_[slot_[value]]->data, k));
    };
    double squares = 0, count = 0;
    for (int64_t k = 0; k < std::ssize(each->second); ++k)
        if (size(k) <= size(element)) squares += static_cast<double>(each->second[k]), ++count;
    return std::sqrt(std::max(squares / count, static_cast<double>(each->second[element])) / drawn_);
}

}  // namespace orrery

// Pipeline parallelism: the ranks of an axis run stages of the model, micro-batches pass through them. This file only
// assigns layers to stages; the schedule is a Lua function, and lowering makes the messages.
#include <algorithm>
#include <limits>

#include "orrery/plugin.h"
#include "orrery/strategy.h"

namespace orrery {

namespace {

/// Assigns consecutive layers to stages by cost. Ops before the first layer belong to the first stage, ops after the
/// last layer to the last one. 5 layers in 3 stages, where the head costs as much as two layers:
///
///     h.0 h.1 | h.2 h.3 | h.4 head    costs 2, 2, 3
///
/// Two dynamic programs over (stages so far, layers so far): the first finds the smallest possible cost of the most
/// expensive stage, here 3. Several assignments may have it (3, 1, 3), so the second picks the one with the smallest
/// sum of squares, which also balances the other stages.
class Cut {
public:
    Cut(const std::vector<Layer>& row, int stages, bool ends) : stages_(static_cast<size_t>(stages)), ends_(ends) {
        for (size_t i = 1; i + 1 < row.size(); ++i) sums_.push_back(sums_.back() + row[i].flops);
        const double mean = layers() == 0 ? 0 : sums_.back() / static_cast<double>(layers());
        before_ = ends ? mean : row.front().flops;
        behind_ = ends ? mean : row.back().flops;
    }

    size_t layers() const { return sums_.size() - 1; }
    /// A stage with the embedding or the head as a layer of its own may have no other layers.
    size_t least() const { return ends_ ? stages_ - 2 : stages_; }

    /// Number of layers of each stage.
    std::vector<int64_t> balanced() const { return least_squares(least_largest() * (1 + 1e-9)); }

private:
    bool may_be_empty(size_t stage) const { return ends_ && (stage == 0 || stage + 1 == stages_); }

    double cost(size_t stage, size_t from, size_t to) const {
        double sum = sums_[to] - sums_[from];
        if (stage == 0) sum = sum + before_;
        if (stage + 1 == stages_) sum = sum + behind_;
        return sum;
    }

    /// Exclusive end of the places where a stage may begin: it has at least one layer, or none when it may be empty.
    size_t last_start(size_t stage, size_t to) const { return may_be_empty(stage) ? to + 1 : to; }

    /// The smallest possible cost of the most expensive stage. The more layers the stages so far have, the larger is
    /// their maximum and the cheaper is the next stage: the best split is where the two cross, which a bisection finds.
    double least_largest() const {
        const size_t n = layers();
        std::vector<double> known(n + 1, never);  // by layers in stages so far: the smallest maximum cost
        size_t feasible = may_be_empty(0) ? 0 : 1;
        for (size_t to = feasible; to <= n; ++to) known[to] = cost(0, 0, to);
        for (size_t stage = 1; stage < stages_; ++stage) {
            std::vector<double> next(n + 1, never);
            for (size_t to = 0; to <= n; ++to) {
                size_t low = feasible, high = std::max(low, last_start(stage, to));
                const size_t end = high;
                while (low < high) {
                    const size_t middle = (low + high) / 2;
                    if (known[middle] < cost(stage, middle, to))
                        low = middle + 1;
                    else
                        high = middle;
                }
                if (low < end) next[to] = known[low];
                if (low > feasible) next[to] = std::min(next[to], cost(stage, low - 1, to));
            }
            known = next;
            feasible += !may_be_empty(stage);
        }
        return known[n];
    }

    /// Number of layers of each stage: the smallest sum of squares when no stage costs more than `bound`. Dynamic
    /// programming over (stages so far, layers so far); a stage has no more layers than the bound allows.
    std::vector<int64_t> least_squares(double bound) const {
        const size_t n = layers();
        std::vector<double> known(n + 1, never);
        known[0] = 0;
        std::vector<std::vector<size_t>> from(stages_, std::vector<size_t>(n + 1, 0));
        for (size_t stage = 0; stage < stages_; ++stage) {
            std::vector<double> next(n + 1, never);
            size_t first = 0;
            for (size_t to = 0; to <= n; ++to) {
                while (first < to && cost(stage, first, to) > bound) ++first;
                for (size_t at = first; at < last_start(stage, to); ++at) {
                    const double own = cost(stage, at, to);
                    if (known[at] == never || own > bound) continue;
                    const double total = known[at] + own * own;
                    if (total >= next[to]) continue;
                    next[to] = total;
                    from[stage][to] = at;
                }
            }
            known = next;
        }
        std::vector<int64_t> counts(stages_, 0);
        for (size_t stage = stages_, to = n; stage-- > 0;) {
            counts[stage] = static_cast<int64_t>(to - from[stage][to]);
            to = from[stage][to];
        }
        return counts;
    }

    static constexpr double never = std::numeric_limits<double>::infinity();
    size_t stages_;
    bool ends_;
    double before_ = 0, behind_ = 0;
    std::vector<double> sums_{0};  ///< prefix sums over the layers
};

class PipelineStrategy : public Strategy {
public:
    PipelineStrategy(Config& options, Origin origin) : origin_(std::move(origin)) {
        if (origin_.who.empty()) origin_.who = "pipeline";
        const int64_t chunks = options.integer("chunks", 0);
        microbatches_ = options.integer("microbatches", 0);
        ends_ = options.flag("ends", false);
        read_layers(options);
        if (chunks < 0 || chunks > 1024 || microbatches_ < 0)
            throw Error(origin_, "pipeline: chunks is " + std::to_string(chunks) + " and microbatches " +
                                     std::to_string(microbatches_) + "; give 1 or more chunks, and 0 or more " +
                                     "micro-batches (0: those of the configuration)");
        pipeline_ = {options.text("axis", "pp"), options.text("schedule", "1f1b"), static_cast<int>(chunks), origin_};
    }

    Pipeline* pipeline() override { return &pipeline_; }

    void annotate(Program& program, const Mesh& mesh) override {
        const int64_t ranks = mesh.size(pipeline_.axis);
        if (ranks == 1) return;
        pipeline_.chunks = std::max(1, pipeline_.chunks);  // 0: the schedule has not asked for more than one
        if (microbatches_ > 0) program.microbatches(microbatches_, origin_);
        program.pipeline(pipeline_);
        const std::vector<Layer> row = layers(program);
        const std::vector<int64_t>& counts = counts_of(row, static_cast<int>(ranks) * pipeline_.chunks);
        size_t layer = 1;
        for (size_t stage = 0; stage < counts.size(); ++stage)
            for (int64_t i = 0; i < counts[stage]; ++i)
                program.stage(row[layer++].scope, static_cast<int>(stage), origin_);
    }

private:
    void read_layers(Config& options) {
        ConfigValue* value = options.find("layers");
        if (!value) return;
        value->used = true;
        const auto* list = std::get_if<ConfigValue::List>(&value->data);
        const auto* table = std::get_if<std::shared_ptr<Config>>(&value->data);  // {} is an empty table
        if (!list && !(table && (*table)->items().empty()))
            throw Error(value->origin, "pipeline: layers lists how many layers each stage has, { 3, 4, 4, 3 }");
        for (size_t i = 0; list && i < list->size(); ++i) {
            const auto* count = std::get_if<int64_t>(&(*list)[i].data);
            if (!count) throw Error(value->origin, "pipeline: layers contains something other than an integer");
            layers_.push_back(*count);
        }
    }

    /// The counts of the program before, of as many layers and stages: where training has layers, evaluation reads
    /// them, although it may have less after the last one.
    const std::vector<int64_t>& counts_of(const std::vector<Layer>& row, int stages) {
        if (known_layers_ != row.size() || counts_.size() != static_cast<size_t>(stages)) {
            counts_ = count_layers(row, stages);
            known_layers_ = row.size();
        }
        return counts_;
    }

    std::vector<int64_t> count_layers(const std::vector<Layer>& row, int stages) const {
        const Cut cut(row, stages, ends_);
        const std::string have = "the model has " + std::to_string(cut.layers()) + " layers";
        if (!layers_.empty()) {
            int64_t sum = 0;
            for (int64_t count : layers_) sum += count;
            if (layers_.size() != static_cast<size_t>(stages) || sum != static_cast<int64_t>(cut.layers()) ||
                std::any_of(layers_.begin(), layers_.end(), [](int64_t count) { return count < 0; }))
                throw Error(origin_, "pipeline: layers lists " + std::to_string(layers_.size()) + " stages of " +
                                         std::to_string(sum) + " layers in all; " + have + ", the pipeline " +
                                         std::to_string(stages) + " stages\n  list one number for each stage that " +
                                         "add up to the model's layers, or leave layers out");
            return layers_;
        }
        if (cut.layers() < std::max<size_t>(cut.least(), 1))
            throw Error(origin_, "pipeline: " + have + ", too few for " + std::to_string(stages) +
                                     " stages (schedule " + pipeline_.schedule + ", " +
                                     std::to_string(stages / pipeline_.chunks) + " ranks on " + pipeline_.axis + ", " +
                                     std::to_string(pipeline_.chunks) + (pipeline_.chunks == 1 ? " chunk" : " chunks") +
                                     " each); use fewer ranks on " + pipeline_.axis +
                                     (pipeline_.chunks > 1 ? ", fewer chunks or schedule 1f1b" : " or more layers"));
        return cut.balanced();
    }

    Pipeline pipeline_;
    int64_t microbatches_ = 0;
    bool ends_ = false;
    std::vector<int64_t> layers_;
    std::vector<int64_t> counts_;
    size_t known_layers_ = 0;
    Origin origin_;
};

void add(Registry& registry) {
    registry.add_strategy("pipeline", [](Config& options, const Origin& origin) {
        return std::make_unique<PipelineStrategy>(options, origin);
    });
}

}  // namespace

}  // namespace orrery

ORRERY_PLUGIN("strategy.pipeline", "0.1", orrery::add);

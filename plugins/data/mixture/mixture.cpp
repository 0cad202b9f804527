// Samples of several sources with equal arrays, by weight.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "orrery/data.h"
#include "orrery/plugin.h"
#include "shares.h"

namespace {

using orrery::DataArray;
using orrery::DataOrder;
using orrery::DataPart;
using orrery::DataSource;
using orrery::Error;
using orrery::Origin;
using orrery::Split;

std::string text(int64_t number) { return std::to_string(number); }

std::string rounded(const char* format, double number) {
    char out[64];
    std::snprintf(out, sizeof out, format, number);
    return out;
}

uint64_t mix(uint64_t x) {  // murmur3's finalizer
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
    return x ^ (x >> 33);
}

/// `tokens` i32[seq 64], `targets` i32[seq 64]
std::string text_of(const std::vector<DataArray>& arrays) {
    std::string all;
    for (const DataArray& array : arrays) {
        std::string dims;
        for (const auto& [name, size] : array.dims) dims += (dims.empty() ? "" : ",") + name + " " + text(size);
        all +=
            (all.empty() ? "" : ", ") + array.name + " " + std::string(orrery::name_of(array.dtype)) + "[" + dims + "]";
    }
    return all.empty() ? "nothing" : all;
}

/// Samples of all sources are numbered in one row, source by source. Messages number sources from 1.
struct Part {
    std::shared_ptr<DataSource> source;
    double weight;
    int64_t count = 0;  ///< in shares::window samples
    int64_t first = 0;  ///< index of its first sample in the row
};

class Order final : public DataOrder {
public:
    /// `seed`: each source has an order and draws of its own, even when two have the same file.
    static uint64_t seed_of(uint64_t seed, size_t i) { return seed + 0x9e3779b97f4a7c15u * (i + 1); }

    Order(const std::vector<Part>& parts, double held_out, uint64_t seed, const Origin& asked)
        : parts_(parts), sequence_(counts(parts), static_cast<int64_t>(mix(seed) % shares::window)) {
        for (size_t i = 0; i < parts.size(); ++i) {
            orders_.push_back(parts[i].count > 0 ? parts[i].source->order(held_out, seed_of(seed, i), asked) : nullptr);
            if (!orders_[i]) continue;
            train_ += orders_[i]->samples(Split::train);
            // Held-out data is read once, in the same shares, until the first source is used up.
            const int64_t end = sequence_.index_of(orders_[i]->samples(Split::validation), i);
            validation_ = validation_ < 0 ? end : std::min(validation_, end);
        }
    }

    int64_t samples(Split split) const override { return split == Split::train ? train_ : validation_; }

    int64_t position(Split split, int64_t index) const override {
        if (split == Split::validation) index %= validation_;
        const size_t i = sequence_.source(index);
        return parts_[i].first + orders_[i]->position(split, sequence_.before(index, i));
    }

    orrery::DataSample draw(Split split, int64_t index, uint64_t seed) const override {
        if (split == Split::validation) index %= validation_;
        const size_t i = sequence_.source(index);
        orrery::DataSample sample = orders_[i]->draw(split, sequence_.before(index, i), seed_of(seed, i));
        sample.number += parts_[i].first;
        return sample;
    }

    std::string told(int64_t drawn) const override {
        std::string all = "a mixture of " + text(static_cast<int64_t>(parts_.size())) + " sources, in every " +
                          text(shares::window) + " samples:";
        for (size_t i = 0; i < parts_.size(); ++i) {
            all += "\n  " + text(parts_[i].count) + " (" +
                   rounded("%.2f", 100.0 * static_cast<double>(parts_[i].count) / shares::window) + " %) of " +
                   parts_[i].source->place();
            if (!orders_[i]) continue;
            const auto has = orders_[i]->samples(Split::train);
            const int64_t draws = sequence_.before(drawn, i);
            all += ": this run draws " + text(draws) + " of its " + text(has) + ", each " +
                   rounded("%.2f", static_cast<double>(draws) / static_cast<double>(has)) + " times";
            if (const std::string more = orders_[i]->told(draws); !more.empty()) all += "\n  " + more;
        }
        return all;
    }

private:
    static std::vector<int64_t> counts(const std::vector<Part>& parts) {
        std::vector<int64_t> all;
        for (const Part& part : parts) all.push_back(part.count);
        return all;
    }

    std::vector<Part> parts_;
    shares::Sequence sequence_;
    std::vector<std::unique_ptr<DataOrder>> orders_;  ///< null for a source without samples
    int64_t train_ = 0, validation_ = -1;
};

class Mixture final : public DataSource {
public:
    explicit Mixture(Origin asked) : asked_(std::move(asked)) {}

    bool over(std::vector<DataPart> parts) override {
        if (parts.empty())
            throw Error(asked_,
                        "o.data.mixture: it has no sources\n  give them with their weights: o.data.mixture { { web, "
                        "0.7 }, { books, 0.3 } }");
        std::vector<double> weights;
        double total = 0;
        for (size_t i = 0; i < parts.size(); ++i) {
            const double weight = parts[i].weight;
            if (!(weight >= 0) || !std::isfinite(weight))
                throw Error(parts[i].asked, place_of(i) + " has the weight " + rounded("%g", weight) +
                                                "\n  give it a number that is not negative");
            if (parts[i].source->arrays() != parts[0].source->arrays())
                throw Error(parts[i].asked, place_of(i) + ", " + parts[i].source->place() + ", offers " +
                                                text_of(parts[i].source->arrays()) + "; source 1, " +
                                                parts[0].source->place() + ", offers " +
                                                text_of(parts[0].source->arrays()) +
                                                "\n  mix sources with equal arrays: names, types and dims");
            weights.push_back(weight);
            total += weight;
        }
        if (!(total > 0) || !std::isfinite(total))
            throw Error(parts[0].asked, "o.data.mixture: the weights of its " +
                                            text(static_cast<int64_t>(parts.size())) + " sources sum to " +
                                            rounded("%g", total) + "\n  give at least one of them a weight above 0");
        int64_t too_small = -1;
        const std::vector<int64_t> counts = shares::counts_of(weights, too_small);
        if (too_small >= 0) {
            const auto at = static_cast<size_t>(too_small);
            throw Error(parts[at].asked, place_of(at) + " has the weight " + rounded("%g", weights[at]) + " of " +
                                             rounded("%g", total) + ", less than one sample in " +
                                             text(shares::window) + "\n  give it more, or leave it out: weight 0");
        }
        for (size_t i = 0; i < parts.size(); ++i)
            parts_.push_back({std::move(parts[i].source), weights[i], counts[i], 0});
        return true;
    }

    const std::vector<DataArray>& arrays() const override { return parts_.front().source->arrays(); }

    int64_t vocabulary() const override {
        const int64_t first = parts_.front().source->vocabulary();
        for (size_t i = 1; i < parts_.size(); ++i)
            if (const int64_t other = parts_[i].source->vocabulary(); other != first)
                throw Error(asked_, "o.data.mixture: source 1, " + parts_.front().source->place() + ", has " +
                                        text(first) + " ids, source " + text(static_cast<int64_t>(i) + 1) + ", " +
                                        parts_[i].source->place() + ", " + text(other) +
                                        "\n  tokenize all of them with one tokenizer");
        return first;
    }

    bool complete() const override {
        return std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.source->complete(); });
    }

    void open(int64_t ids) override {
        samples_ = 0;
        digest_.clear();
        for (Part& part : parts_) {
            part.source->open(ids);
            part.first = samples_;
            samples_ += part.source->samples();
            digest_ += (digest_.empty() ? "" : "+") + part.source->digest();
        }
    }

    int64_t samples() const override { return samples_; }
    const std::string& digest() const override { return digest_; }

    std::unique_ptr<DataOrder> order(double held_out, uint64_t seed, const Origin& asked) const override {
        return std::make_unique<Order>(parts_, held_out, seed, asked);
    }

    std::vector<std::pair<std::string, int64_t>> identity() const override {
        std::vector<std::pair<std::string, int64_t>> all;
        for (size_t i = 0; i < parts_.size(); ++i) {
            const std::string source = "source_" + text(static_cast<int64_t>(i) + 1) + ".";
            all.emplace_back(source + "of_4096", parts_[i].count);
            for (const auto& [name, number] : parts_[i].source->identity()) all.emplace_back(source + name, number);
        }
        return all;
    }

    void read(size_t array, const orrery::DataSample& sample, const orrery::Shape& offset,
              const orrery::Tensor& block) const override {
        const Part& part = of(sample.number);
        part.source->read(array, in(part, sample), offset, block);
    }

    std::string where(const orrery::DataSample& sample) const override {
        const Part& part = of(sample.number);
        return part.source->where(in(part, sample));
    }

    int64_t pairs(const orrery::DataSample& sample) const override {
        const Part& part = of(sample.number);
        return part.source->pairs(in(part, sample));
    }

    std::string require_unchanged() override {
        std::string all;
        for (const Part& part : parts_)
            if (const std::string one = part.source->require_unchanged(); !one.empty())
                all += (all.empty() ? "" : "\n") + one;
        return all;
    }

    std::string place() const override {
        std::string all;
        for (const Part& part : parts_) all += (all.empty() ? "mixture of " : ", ") + part.source->place();
        return all;
    }

private:
    static std::string place_of(size_t i) { return "o.data.mixture: source " + text(static_cast<int64_t>(i) + 1); }

    const Part& of(int64_t sample) const {
        size_t i = parts_.size() - 1;
        while (i > 0 && sample < parts_[i].first) --i;
        return parts_[i];
    }

    static orrery::DataSample in(const Part& part, orrery::DataSample sample) {
        sample.number -= part.first;
        return sample;
    }

    Origin asked_;
    std::vector<Part> parts_;
    int64_t samples_ = 0;
    std::string digest_;
};

void add(orrery::Registry& registry) {
    registry.add_data("mixture", [](orrery::Config&, const Origin& asked) { return std::make_unique<Mixture>(asked); });
}

}  // namespace

ORRERY_PLUGIN("data.mixture", "0.1", add);

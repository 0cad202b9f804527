#include "sim/local/local_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/text.h"
#include "orrery/error.h"

namespace orrery {
namespace {

bool by_flops(Work work) {
    return work == Work::product || work == Work::weight_product || work == Work::attention ||
           work == Work::attention_gradient;
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

std::string counted(const std::map<std::string, int>& by_op) {
    std::vector<std::string> words;
    for (const auto& [op, count] : by_op) words.push_back(count > 1 ? fmt::format("{} {}", op, count) : op);
    return join_few(words, 4);
}

int sum_of(const std::map<std::string, int>& by_op) {
    int sum = 0;
    for (const auto& [op, count] : by_op) sum += count;
    return sum;
}

}  // namespace

double amount_of(const KernelWork& work) {
    switch (work.work) {
        case Work::product:
        case Work::weight_product: return 2 * work.batch * work.m * work.n * work.k;
        case Work::attention: return 4 * work.batch * work.heads * work.seen * work.head;
        case Work::attention_gradient: return 10 * work.batch * work.heads * work.seen * work.head;
        default: return work.bytes;
    }
}

LocalKernels::LocalKernels(const CostTable& plain, int threads, int64_t ranks, double processors)
    : threads_(std::max(1, threads)),
      at_once_(std::max(1.0, std::floor(processors / threads_))),
      beside_(static_cast<int>(std::min(static_cast<double>(ranks), at_once_)) - 1) {
    find_crowding(plain);
    for (const KernelCost& row : plain.kernels) {
        if (!(row.time.seconds > 0)) continue;
        const KernelWork work = work_of(row.spec);
        const Row one{work, std::max(1.0, amount_of(work)), alone(row, work.work), std::max(1, row.threads),
                      row.beside};
        exact_[spec_text(row.spec)].push_back(one);
        by_op_[row.spec.op].push_back(one);
    }
    if (by_op_.empty())
        throw Error(
            "the table has no kernels to go by\n  measure them: orrery calibrate, or a run whose kernels the host can "
            "time");
    for (auto& [op, rows] : by_op_)
        std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.amount < b.amount; });
    find_rates();
}

void LocalKernels::find_crowding(const CostTable& plain) {
    if (at_once_ < 2) return;
    const int all = static_cast<int>(at_once_) - 1;
    std::map<std::string, std::pair<double, double>> times;  // without others, with all
    std::map<std::string, Work> works;
    for (const KernelCost& row : plain.kernels) {
        if (row.threads != threads_ || (row.beside != 0 && row.beside != all)) continue;
        const std::string text = spec_text(row.spec);
        (row.beside == 0 ? times[text].first : times[text].second) = row.time.seconds;
        works[text] = work_of(row.spec).work;
    }
    std::map<Work, std::vector<double>> ratios;
    for (const auto& [text, both] : times)
        if (both.first > 0 && both.second > 0) ratios[works[text]].push_back(both.second / both.first);
    for (auto& [work, list] : ratios) crowding_[work] = std::clamp(median(std::move(list)), 1.0, at_once_);
}

double LocalKernels::crowding(Work work) const {
    const auto found = crowding_.find(work);
    return found == crowding_.end() ? 1 : found->second;
}

double LocalKernels::alone(const KernelCost& row, Work work) const {
    if (at_once_ < 2 || row.beside <= 0) return row.time.seconds;
    const double part = std::min(1.0, static_cast<double>(row.beside) / (at_once_ - 1));
    return row.time.seconds / (1 + (crowding(work) - 1) * part);
}

void LocalKernels::find_rates() {
    std::vector<double> streams;
    for (const auto& [op, rows] : by_op_)
        for (const Row& row : rows) {
            const double rate = row.amount / row.alone_s * threads_ / row.threads;
            if (by_flops(row.work.work))
                flops_per_s_ = std::max(flops_per_s_, rate);
            else if (row.work.bytes >= 65536)
                streams.push_back(rate);
        }
    if (!streams.empty()) bytes_per_s_ = median(std::move(streams));
}

const LocalPrice& LocalKernels::price(const KernelSpec& spec) {
    const auto [place, fresh] = known_.try_emplace(spec_text(spec));
    if (!fresh) return place->second;
    place->second = find(spec);
    if (place->second.from == LocalPrice::From::scaled) ++scaled_[spec.op];
    if (place->second.from == LocalPrice::From::rates) ++rated_[spec.op];
    return place->second;
}

LocalPrice LocalKernels::find(const KernelSpec& spec) const {
    const KernelWork work = work_of(spec);
    LocalPrice price;
    price.crowding = crowding(work.work);
    if (const auto found = exact_.find(spec_text(spec)); found != exact_.end()) {
        const Row* best = nullptr;  // as many threads; then with as many others at work
        for (const Row& row : found->second) {
            const auto worth = [&](const Row& r) {
                return std::pair(r.threads == threads_, -std::abs(r.beside - beside_));
            };
            if (!best || worth(row) > worth(*best)) best = &row;
        }
        price.alone_s = best->alone_s * best->threads / threads_;
        if (best->threads != threads_) price.from = LocalPrice::From::scaled;
        return price;
    }
    const auto op = by_op_.find(spec.op);
    price.from = op == by_op_.end() ? LocalPrice::From::rates : LocalPrice::From::scaled;
    price.alone_s = op == by_op_.end() ? by_rates(spec, work) : scaled(op->second, work);
    return price;
}

/// `rows` by their amounts, ascending.
double LocalKernels::scaled(const std::vector<Row>& rows, const KernelWork& work) const {
    const double amount = std::max(1.0, amount_of(work));
    const auto alike = [&](const Row& row) {
        return (row.work.type == work.type ? 2 : 0) + (row.threads == threads_ ? 1 : 0);
    };
    int most = 0;
    for (const Row& row : rows) most = std::max(most, alike(row));
    const Row *below = nullptr, *above = nullptr;
    for (const Row& row : rows) {
        if (alike(row) != most) continue;
        if (row.amount <= amount) below = &row;
        if (row.amount >= amount && !above) above = &row;
    }
    const auto seconds = [&](const Row& row) { return row.alone_s * row.threads / threads_; };
    if (!below) return seconds(*above) * amount / above->amount;
    if (!above) return seconds(*below) * amount / below->amount;
    if (above->amount == below->amount) return seconds(*below);
    const double part = std::log(amount / below->amount) / std::log(above->amount / below->amount);
    return seconds(*below) * std::pow(seconds(*above) / seconds(*below), part);
}

double LocalKernels::by_rates(const KernelSpec& spec, const KernelWork& work) const {
    const double rate = by_flops(work.work) ? flops_per_s_ : bytes_per_s_;
    if (rate <= 0)
        throw Error(
            fmt::format("the table has no row of {}, and none that tells how fast the machine {}\n  measure "
                        "more: orrery calibrate",
                        spec.op, by_flops(work.work) ? "multiplies" : "moves bytes"));
    return amount_of(work) / rate;
}

double LocalKernels::copy_s(double bytes) { return bytes_per_s_ > 0 ? 2 * bytes / bytes_per_s_ : 0; }

std::string LocalKernels::sources() const {
    const int scaled = sum_of(scaled_), rated = sum_of(rated_), all = static_cast<int>(known_.size());
    std::string text = fmt::format("{} of {} as measured", all - scaled - rated, plural(all, "kernel"));
    if (scaled > 0) text += fmt::format("; {} scaled by their work from other shapes ({})", scaled, counted(scaled_));
    if (rated > 0)
        text += fmt::format("; {} by the machine's rates, as no row has the op ({})", rated, counted(rated_));
    return text;
}

}  // namespace orrery

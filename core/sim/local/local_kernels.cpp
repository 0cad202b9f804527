#include "sim/local/local_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/text.h"
#include "orrery/error.h"

namespace orrery {
namespace {

std::string_view name_of(Work work) {
    switch (work) {
        case Work::bytes: return "moving bytes";
        case Work::once: return "moving bytes once";
        case Work::rows: return "looking rows up";
        case Work::product: return "products";
        case Work::weight_product: return "products of weights' gradients";
        case Work::attention: return "attention";
        case Work::attention_gradient: return "attention's gradient";
        case Work::tiled_loss: return "losses in tiles";
    }
    return "?";
}

/// Returns the kind of work within which times of different ops scale: gradients of weights and losses in tiles belong
/// to matmuls.
Work kind_of(Work work) {
    return work == Work::weight_product || work == Work::tiled_loss ? Work::product : work;
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
        case Work::weight_product:
        case Work::tiled_loss: return 2 * work.batch * work.m * work.n * work.k;
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
        Row one = row_of(row.spec);
        one.alone_s = alone(row, one.work.work);
        one.threads = std::max(1, row.threads);
        one.beside = row.beside;
        by_kind_[kind_of(one.work.work)].push_back(one);
        exact_[spec_text(row.spec)].push_back(one);
        by_op_[row.spec.op].push_back(one);
    }
    if (by_op_.empty())
        throw Error(
            "the table of measured costs has no kernels\n  measure them: orrery calibrate, or a run whose kernels the "
            "host can time");
    find_rates();
}

void LocalKernels::find_crowding(const CostTable& plain) {
    if (at_once_ < 2) return;
    const int all = static_cast<int>(at_once_) - 1;
    std::map<std::string, std::pair<double, double>> times;
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
    std::vector<double> streams, small;  // small: rates of launches so small that launch cost dominates
    for (const auto& [op, rows] : by_op_)
        for (const Row& row : rows) {
            const double rate = row.amount / row.alone_s * threads_ / row.threads;
            if (multiplies(row.work.work))
                flops_per_s_ = std::max(flops_per_s_, rate);
            else
                (row.work.bytes >= 65536 ? streams : small).push_back(rate);
        }
    if (streams.empty()) streams = std::move(small);
    if (!streams.empty()) bytes_per_s_ = median(std::move(streams));
}

bool LocalKernels::knows(const KernelSpec& spec) const {
    const auto rows = by_op_.find(spec.op);
    const auto same = [type = work_of(spec).type](const Row& row) { return row.work.type == type; };
    return rows != by_op_.end() && std::ranges::any_of(rows->second, same);
}

const LocalPrice& LocalKernels::price(const KernelSpec& spec) {
    const auto [place, fresh] = known_.try_emplace(spec_text(spec));
    if (!fresh) return place->second;
    place->second = find(spec);
    ++from_[place->second.from][spec.op];
    return place->second;
}

LocalPrice LocalKernels::find(const KernelSpec& spec) const {
    const Row asked = row_of(spec);
    LocalPrice price;
    price.crowding = crowding(asked.work.work);
    if (const auto found = exact_.find(spec_text(spec)); found != exact_.end()) {
        const Row& nearest =
            *std::ranges::min_element(found->second, {}, [&](const Row& row) { return distance(row, asked); });
        price.alone_s = nearest.alone_s * nearest.threads / threads_;
        if (nearest.threads != threads_) price.from = LocalPrice::From::scaled;
        return price;
    }
    const auto op = by_op_.find(spec.op);
    const auto kind = by_kind_.find(kind_of(asked.work.work));
    if (op != by_op_.end()) {
        price.from = LocalPrice::From::scaled;
        price.alone_s = scaled(op->second, asked);
    } else if (kind != by_kind_.end()) {
        price.from = LocalPrice::From::kind;
        price.alone_s = scaled(kind->second, asked);
    } else {
        price.from = LocalPrice::From::rates;
        price.alone_s = by_rates(spec, asked);
    }
    return price;
}

LocalKernels::Row LocalKernels::row_of(const KernelSpec& spec) {
    Row row;
    for (const auto& [key, value] : spec.attributes.items()) row.attributes += key + " ";
    row.attributes += spec.attributes.flag("trans_a") ? "a" : "";
    row.attributes += spec.attributes.flag("trans_b") ? "b" : "";
    row.work = work_of(spec);
    row.amount = std::max(1.0, amount_of(row.work));
    return row;
}

/// Returns the distance of two launches' shapes in logarithms of sizes. Another dtype counts more than any shape;
/// another number of active ranks counts less than any shape.
double LocalKernels::distance(const Row& row, const Row& asked) const {
    const auto apart = [](double a, double b) { return std::abs(std::log(std::max(a, 1.0) / std::max(b, 1.0))); };
    const KernelWork &a = row.work, &b = asked.work;
    double far = multiplies(b.work) ? apart(a.batch, b.batch) + apart(a.m, b.m) + apart(a.n, b.n) + apart(a.k, b.k) +
                                          apart(a.heads, b.heads) + apart(a.rows, b.rows) + apart(a.head, b.head)
                                    : apart(a.bytes, b.bytes);
    if (a.type != b.type) far += 100;
    if (row.attributes != asked.attributes) far += 0.5;
    if (row.threads != threads_) far += 10;
    return far + 1e-3 * std::abs(row.beside - beside_);
}

double LocalKernels::scaled(const std::vector<Row>& rows, const Row& asked) const {
    const Row& nearest = *std::ranges::min_element(rows, {}, [&](const Row& row) { return distance(row, asked); });
    return nearest.alone_s * nearest.threads / threads_ * asked.amount / nearest.amount;
}

double LocalKernels::by_rates(const KernelSpec& spec, const Row& asked) const {
    const bool flops = multiplies(asked.work.work);
    const double rate = flops ? flops_per_s_ : bytes_per_s_;
    if (rate <= 0)
        throw Error(fmt::format(
            "the table of measured costs has no row of {}, and no other row from which to estimate how fast "
            "the machine {}\n  measure more: orrery calibrate",
            spec.op, flops ? "multiplies" : "moves bytes"));
    return asked.amount / rate;
}

double LocalKernels::copy_s(double bytes) {
    if (bytes_per_s_ > 0) return 2 * bytes / bytes_per_s_;
    copies_are_free_ = copies_are_free_ || bytes > 0;
    return 0;
}

std::string LocalKernels::crowding_text() const {
    std::string text;
    for (const auto& [work, times] : crowding_)
        text += fmt::format("{}{} {:.2f}", text.empty() ? "" : ", ", name_of(work), times);
    return text.empty() ? "" : "where all processors do the same it takes so many times as long: " + text;
}

std::string LocalKernels::sources() const {
    const auto all = static_cast<int64_t>(known_.size());
    std::string text;
    int64_t others = 0;
    const auto tell = [&](LocalPrice::From from, const char* how) {
        const auto found = from_.find(from);
        if (found == from_.end()) return;
        others += sum_of(found->second);
        text += fmt::format("; {} {} ({})", sum_of(found->second), how, counted(found->second));
    };
    tell(LocalPrice::From::scaled, "scaled by their work from other shapes");
    tell(LocalPrice::From::kind, "from other ops of their kind, as no row has the op");
    tell(LocalPrice::From::rates, "by the machine's rates, as no row is of their kind");
    if (copies_are_free_) text += "; copies in memory as if they took no time, as no row moves bytes";
    return fmt::format("{} of {} as measured{}", all - others, plural(all, "kernel"), text);
}

}  // namespace orrery

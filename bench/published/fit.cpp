#include "published/fit.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "published/accelerators.h"
#include "published/score.h"

namespace orrery::published {
namespace {

using Matrix = std::vector<std::vector<double>>;

/// Errors below this are noise of the measurement: rows of equal columns differ by as much.
constexpr double noise = 0.02;
/// How strongly a constant is held to where it would be without a fit, as a share of a family's weight: it decides
/// where no row says anything.
constexpr double hold = 0.002;

/// By sample: equal for all families, and families of few rows together one.
std::vector<double> weights_of(const std::vector<Sample>& samples) {
    std::map<std::string, double> rows;
    for (const Sample& sample : samples) rows[sample.family] += 1;
    double pooled = 0;
    for (const auto& [family, count] : rows)
        if (count < least_family) pooled += count;
    std::vector<double> weights;
    for (const Sample& sample : samples) {
        const double count = rows[sample.family];
        weights.push_back(1 / (count < least_family ? pooled : count));
    }
    return weights;
}

/// Solves a x = b by elimination with pivots; a is symmetric and positive.
std::vector<double> solve(Matrix a, std::vector<double> b) {
    const size_t n = b.size();
    for (size_t i = 0; i < n; ++i) {
        size_t pivot = i;
        for (size_t r = i + 1; r < n; ++r)
            if (std::abs(a[r][i]) > std::abs(a[pivot][i])) pivot = r;
        std::swap(a[i], a[pivot]);
        std::swap(b[i], b[pivot]);
        for (size_t r = i + 1; r < n; ++r) {
            const double factor = a[r][i] / a[i][i];
            for (size_t c = i; c < n; ++c) a[r][c] -= factor * a[i][c];
            b[r] -= factor * b[i];
        }
    }
    for (size_t i = n; i-- > 0;) {
        for (size_t c = i + 1; c < n; ++c) b[i] -= a[i][c] * b[c];
        b[i] /= a[i][i];
    }
    return b;
}

/// d log(step) / d log(constant) of one sample, by its critical path.
std::vector<double> slopes(const Prepared& prepared, const Constants& constants) {
    std::vector<double> paid, slope(constants.all().size(), 0);
    const double step = step_seconds(prepared, constants, &paid) / prepared.job.batches;
    const std::vector<double> base = price(prepared, constants);
    for (size_t c = 0; c < slope.size(); ++c) {
        if (!concerns(prepared, constants.all()[c])) continue;
        Constants moved = constants;
        const double by = 0.005;
        moved.set(c, constants.all()[c].value * (1 + by));
        const std::vector<double> then = price(prepared, moved);
        for (size_t p = 0; p < base.size(); ++p) slope[c] += paid[p] * (then[p] - base[p]);
        slope[c] /= step * std::log1p(by);
    }
    return slope;
}

Constants moved_by(const Constants& constants, const std::vector<double>& by) {
    Constants moved = constants;
    for (size_t c = 0; c < by.size(); ++c) {
        const Constant& one = constants.all()[c];
        const double least = std::max(one.least, one.most * 1e-3);  // logarithms: never quite 0
        moved.set(c,
                  std::clamp(std::max(one.value, least) * std::exp(std::clamp(by[c], -0.7, 0.7)), one.least, one.most));
    }
    return moved;
}

}  // namespace

double misfit(const std::vector<Sample>& samples, const Constants& constants) {
    const std::vector<double> weights = weights_of(samples);
    double sum = 0, all = 0;
    for (size_t s = 0; s < samples.size(); ++s) {
        sum += weights[s] * std::abs(std::log(predict(*samples[s].jobs, constants).step_s / samples[s].step_s));
        all += weights[s];
    }
    return sum / all;
}

Constants fit_memory(const std::vector<Sample>& samples, const Constants& start) {
    std::vector<Sample> with;
    for (const Sample& sample : samples)
        if (sample.peak_gib > 0) with.push_back(sample);
    struct Known {
        int64_t bytes = 0;
        SoftwareDefaults::Peak counts;
        double device_gib = 0, gib = 0;
    };
    std::vector<Known> known;
    for (const Sample& sample : with) {
        const Prediction now = predict(*sample.jobs, start);
        const Prepared& chosen = (*sample.jobs)[static_cast<size_t>(now.chosen)];
        known.push_back({chosen.peak_bytes, chosen.job.words.software.peak,
                         accelerator_facts(accelerator_of(chosen.job.row.gpu)).memory_gib, sample.peak_gib});
    }
    size_t allocator = 0;
    for (size_t c = 0; c < start.all().size(); ++c)
        if (start.all()[c].name == "memory.allocator") allocator = c;
    Constants best = start;
    double least = INFINITY;
    const Constant& by = start.all()[allocator];
    for (int step = 0; step <= 100 && !known.empty(); ++step) {
        Constants tried = start;
        tried.set(allocator, by.least + (by.most - by.least) * step / 100);
        double sum = 0;
        for (const Known& one : known)
            sum += std::abs(published_gib(one.bytes, one.counts, one.device_gib, tried) / one.gib - 1);
        if (sum >= least) continue;
        least = sum;
        best = tried;
    }
    return best;
}

Constants fit(const std::vector<Sample>& samples, const Constants& start, int turns) {
    const std::vector<double> weights = weights_of(samples);
    Constants best = start;
    double least = misfit(samples, best), damping = 0.02;
    const size_t n = start.all().size();
    for (int turn = 0; turn < turns && damping < 100; ++turn) {
        Matrix normal(n, std::vector<double>(n, 0));
        std::vector<double> right(n, 0);
        for (size_t s = 0; s < samples.size(); ++s) {
            const Prediction now = predict(*samples[s].jobs, best);
            const Prepared& chosen = (*samples[s].jobs)[static_cast<size_t>(now.chosen)];
            const double residual = std::log(samples[s].step_s / now.step_s);
            const double weight = weights[s] / std::max(std::abs(residual), noise);
            const std::vector<double> slope = slopes(chosen, best);
            for (size_t a = 0; a < n; ++a) {
                if (slope[a] == 0) continue;
                right[a] += weight * slope[a] * residual;
                for (size_t b = 0; b < n; ++b) normal[a][b] += weight * slope[a] * slope[b];
            }
        }
        for (size_t c = 0; c < n; ++c) {
            const Constant& one = best.all()[c];
            if (normal[c][c] == 0) {  // no sample depends on it
                normal[c][c] = 1;
                continue;
            }
            normal[c][c] += hold;
            right[c] += hold * std::log(std::max(one.unfitted, 1e-9) / std::max(one.value, 1e-9));
        }
        bool better = false;
        while (!better && damping < 100) {
            Matrix damped = normal;
            for (size_t c = 0; c < n; ++c) damped[c][c] *= 1 + damping;
            const Constants next = moved_by(best, solve(std::move(damped), right));
            const double then = misfit(samples, next);
            better = then < least * (1 - 1e-5);
            damping = better ? std::max(damping / 3, 1e-4) : damping * 4;
            if (better) best = next, least = then;
        }
    }
    return best;
}

}  // namespace orrery::published

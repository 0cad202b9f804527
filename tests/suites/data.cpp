// The promises of every DataSource: what it offers, its order, and each block that it reads.
#include "orrery/data.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <optional>
#include <set>
#include <thread>

#include "run/data/data.h"
#include "run/verify/source_check.h"
#include "suites/chosen.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

/// The share that is held out, where there are enough samples for that.
double held_out_of(int64_t samples) { return samples >= 200 ? 0.1 : 0; }

/// A part of a source that draws from others.
class Part final : public DataSource {
public:
    explicit Part(int first) : first_(first), digest_("part " + std::to_string(first)) {}
    const std::vector<DataArray>& arrays() const override { return arrays_; }
    void open(int64_t) override {}
    int64_t samples() const override { return 300; }
    const std::string& digest() const override { return digest_; }
    std::string place() const override { return digest_; }
    void read(size_t, const DataSample& sample, const Shape& offset, const Tensor& block) const override {
        for (int64_t i = 0; i < block.count(); ++i)
            static_cast<float*>(block.data)[i] = static_cast<float>(first_ + 8 * sample.number + offset[0] + i);
    }

private:
    int first_;
    std::string digest_;
    std::vector<DataArray> arrays_ = {{"x", DType::f32, {{"features", 8}}}};
};

std::string chosen_name() { return GENERATE(from_range(suites::usable("data"))); }

/// A source of its own, as a script makes it. One that draws from others is over two parts.
std::shared_ptr<DataSource> made(const std::string& name) {
    Config options = suites::settings("data", name);
    std::shared_ptr<DataSource> source = suites::loaded("data", name).data(name, {})(options, {"", "suite", 1});
    options.reject_unused();
    source->over({{std::make_shared<Part>(0), 1, {}}, {std::make_shared<Part>(5000), 3, {}}});
    return source;
}

std::shared_ptr<DataSource> opened(const std::string& name) {
    auto source = made(name);
    source->open(0);
    return source;
}

DataSpec spec_of(const std::string& name) {
    DataSpec spec;
    spec.source = made(name);
    spec.plugin = "data/" + name;
    spec.validation = held_out_of(opened(name)->samples());
    spec.seed = 7;
    return spec;
}

std::vector<char> bytes_of(const DataSource& source, size_t array, const DataSample& sample) {
    const DataArray& one = source.arrays()[array];
    const Shape shape = one.shape();
    Tensor tensor{nullptr, one.dtype, shape};
    std::vector<char> bytes(static_cast<size_t>(tensor.bytes()));
    tensor.data = bytes.data();
    source.read(array, sample, Shape(shape.size(), 0), tensor);
    return bytes;
}

std::vector<int64_t> positions(const DataOrder& order, Split split, int64_t first, int64_t count) {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < count; ++i) all.push_back(order.position(split, first + i));
    return all;
}

/// Nothing where it has no ids, or does not know how many.
std::optional<int64_t> ids_of(const DataSource& source) {
    try {
        return source.vocabulary();
    } catch (const Error&) {
        return {};
    }
}

/// Enough of an epoch for a test.
int64_t looked_at(int64_t samples) { return std::min<int64_t>(samples, 20'000); }

}  // namespace

TEST_CASE("a source offers the same arrays, by names of their own, before it is opened and after") {
    const std::string name = chosen_name();
    INFO(name);
    const auto source = made(name);
    const std::vector<DataArray> offered = source->arrays();
    REQUIRE_FALSE(offered.empty());
    std::set<std::string> names;
    for (const DataArray& array : offered) {
        INFO(array.name);
        CHECK_FALSE(array.name.empty());
        CHECK(names.insert(array.name).second);
        std::set<std::string> dims{"batch"};  // the core's
        for (const auto& [dim, size] : array.dims) {
            CHECK(size >= 1);
            CHECK((dim.empty() || dims.insert(dim).second));
        }
    }
    REQUIRE(source->complete());
    CHECK_FALSE(source->place().empty());
    source->open(0);
    CHECK(source->arrays() == offered);
    CHECK(made(name)->arrays() == offered);
    CHECK(ids_of(*source).value_or(1) >= 1);
}

TEST_CASE("a source is told apart by its contents alone") {
    const std::string name = chosen_name();
    INFO(name);
    const auto one = opened(name), other = opened(name);
    CHECK(one->samples() >= 1);
    CHECK_FALSE(one->digest().empty());
    CHECK(one->digest() == other->digest());
    CHECK(one->samples() == other->samples());
    CHECK(one->identity() == other->identity());
    std::set<std::string> numbers;
    for (const auto& [number, value] : one->identity()) CHECK(numbers.insert(number).second);
    CHECK(one->require_unchanged().empty());
    CHECK_FALSE(one->where({}).empty());
    CHECK(one->where({one->samples() - 1}) == other->where({one->samples() - 1}));
    const std::string digest = one->digest();
    one->open(0);  // again
    CHECK(one->digest() == digest);
    CHECK(one->samples() == other->samples());
    CHECK(bytes_of(*one, 0, {0, 0, 7}) == bytes_of(*other, 0, {0, 0, 7}));
}

TEST_CASE("an order is a function of the index, and what is held out is never trained on") {
    const std::string name = chosen_name();
    INFO(name);
    const auto one = opened(name), other = opened(name);
    const double held_out = held_out_of(one->samples());
    const auto order = one->order(held_out, 7, {}), same = other->order(held_out, 7, {});
    std::set<int64_t> trained;
    for (const Split split : {Split::train, Split::validation}) {
        const int64_t samples = order->samples(split), count = looked_at(samples);
        INFO((split == Split::train ? "train" : "validation") << ", " << samples << " samples");
        if (split == Split::validation && held_out == 0) break;
        REQUIRE(samples >= 1);
        CHECK(same->samples(split) == samples);
        const std::vector<int64_t> begun = positions(*order, split, 0, count);
        CHECK(std::all_of(begun.begin(), begun.end(), [&](int64_t at) { return at >= 0 && at < one->samples(); }));
        // Resumed anywhere: as a whole and from its middle, also beyond the first epoch.
        CHECK(positions(*same, split, count / 2, count - count / 2) ==
              std::vector<int64_t>(begun.begin() + count / 2, begun.end()));
        CHECK(positions(*order, split, 0, count) == begun);
        CHECK(positions(*same, split, 3 * samples + 1, 50) == positions(*order, split, 3 * samples + 1, 50));
        if (split == Split::train)
            trained.insert(begun.begin(), begun.end());
        else
            CHECK(std::none_of(begun.begin(), begun.end(), [&](int64_t at) { return trained.contains(at); }));
    }
    const int64_t samples = order->samples(Split::train);
    if (samples > 20) {
        // Another seed gives other samples, or other contents of them.
        const auto drawn = [&](const DataOrder& asked, uint64_t seed) {
            std::vector<std::pair<int64_t, std::vector<char>>> all;
            for (int64_t i = 0; i < 20; ++i) {
                DataSample sample = asked.draw(Split::train, i, seed);
                sample.held_out = held_out;
                all.emplace_back(asked.position(Split::train, i), bytes_of(*one, 0, sample));
            }
            return all;
        };
        CHECK(drawn(*order, 7) == drawn(*same, 7));
        CHECK(drawn(*order, 7) != drawn(*one->order(held_out, 8, {}), 8));
    }
}

TEST_CASE("an epoch draws each sample that is not held out once, in another order than the next one") {
    const std::string name = chosen_name();
    INFO(name);
    const auto source = opened(name);
    const double held_out = held_out_of(source->samples());
    const auto order = source->order(held_out, 7, {});
    const int64_t train = order->samples(Split::train), held = order->samples(Split::validation);
    // An order of its own need not be a permutation: a mixture draws by weights.
    const auto permuted = permuted_order(*source, held_out, 7, {});
    if (train != looked_at(train) || train != permuted->samples(Split::train) ||
        positions(*order, Split::train, 0, train) != positions(*permuted, Split::train, 0, train))
        return;
    std::set<int64_t> all;
    for (const int64_t at : positions(*order, Split::train, 0, train)) CHECK(all.insert(at).second);
    for (const int64_t at : positions(*order, Split::validation, 0, held)) CHECK(all.insert(at).second);
    CHECK(static_cast<int64_t>(all.size()) == source->samples());
    const std::vector<int64_t> second = positions(*order, Split::train, train, train);
    CHECK(static_cast<int64_t>(std::set<int64_t>(second.begin(), second.end()).size()) == train);
    if (train > 20) CHECK(second != positions(*order, Split::train, 0, train));
}

TEST_CASE("every block is that part of its sample, all of it and nothing else") {
    const std::string name = chosen_name();
    INFO(name);
    const Dataset data(spec_of(name));
    SourceCheck check(data);
    check.cuts(Split::train, 9);
    if (data.samples(Split::validation) > 0) check.cuts(Split::validation, 3);
    CHECK(check.blocks() > 0);
}

TEST_CASE("reads give the same bytes to every rank, from several threads and in any order") {
    const std::string name = chosen_name();
    INFO(name);
    const auto one = opened(name), other = opened(name);
    const int64_t count = std::min<int64_t>(one->samples(), 40);
    const auto all = [&](const DataSource& source, bool backwards) {
        std::vector<std::vector<char>> read(static_cast<size_t>(count) * source.arrays().size());
        for (int64_t i = 0; i < count; ++i) {
            const int64_t sample = backwards ? count - 1 - i : i;
            for (size_t array = 0; array < source.arrays().size(); ++array)
                read[static_cast<size_t>(sample) * source.arrays().size() + array] =
                    bytes_of(source, array, {sample, 1000 + sample, 7});
        }
        return read;
    };
    const auto expected = all(*one, false);
    CHECK(all(*other, true) == expected);
    std::atomic<int> wrong{0};
    std::vector<std::string> problems(4);
    std::vector<std::thread> readers;
    for (size_t i = 0; i < problems.size(); ++i)
        readers.emplace_back([&, i] {
            try {
                wrong += all(i < 2 ? *one : *other, i % 2 == 1) != expected;
            } catch (const std::exception& problem) {
                problems[i] = problem.what();
            }
        });
    for (std::thread& reader : readers) reader.join();
    CHECK(wrong == 0);
    CHECK(problems == std::vector<std::string>(4));
}

TEST_CASE("ids are those of the vocabulary") {
    const std::string name = chosen_name();
    INFO(name);
    const auto source = opened(name);
    const std::optional<int64_t> ids = ids_of(*source);
    if (!ids) return;
    for (size_t array = 0; array < source->arrays().size(); ++array) {
        if (source->arrays()[array].dtype != DType::i32) continue;
        int64_t beyond = 0;
        for (int64_t sample = 0; sample < std::min<int64_t>(source->samples(), 200); ++sample) {
            const std::vector<char> bytes = bytes_of(*source, array, {sample, sample, 7});
            for (size_t at = 0; at < bytes.size(); at += sizeof(int32_t)) {
                int32_t id = 0;
                std::memcpy(&id, bytes.data() + at, sizeof id);
                beyond += id >= *ids || id < -1;  // -1: what no loss is taken of
            }
        }
        INFO(source->arrays()[array].name << ", " << *ids << " ids");
        CHECK(beyond == 0);
    }
}

TEST_CASE("a file that is not there is an error that names it") {
    const std::string name = chosen_name();
    INFO(name);
    if (made(name)->path().empty()) return;
    const suites::Scratch nowhere;
    const std::string path = (nowhere.path / "no.such_file").string();
    Config options = suites::settings("data", name);
    options.set("path", {path, {"", "suite", 2}});
    CHECK_THROWS_WITH(
        [&] {
            const auto source = suites::loaded("data", name).data(name, {})(options, {"", "suite", 1});
            source->open(0);
        }(),
        Contains(path));
}

// What every kept job compiles to, against tests/plans/digests.txt: a change that means to leave all plans as they are
// is held to that, and another shows in review which it changed. ORRERY_BLESS=1 writes the file.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/hash.h"
#include "compile/compile.h"
#include "folders.h"
#include "ir/print.h"
#include "jobs.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "orrery/registry.h"
#include "plan/print.h"
#include "plugin/loader.h"

using namespace orrery;
using namespace orrery::plans;

namespace {

const Registry& registry() {
    static const Registry all = [] {
        Registry r;
        const Loader loader({in_build("plugins")});
        loader.load("device", "cpu", r, {});
        for (const char* name : {"threads", "shm", "gloo", "ucx"}) loader.load("transport", name, r, {});
        return r;
    }();
    return all;
}

/// "grouped" stands for nccl, which is not built everywhere.
TransportContract contract_of(const std::string& transport) {
    if (transport != "grouped") {
        Config none;
        return registry().transport(transport, {})(none)->contract();
    }
    TransportContract contract;
    contract.send = TransportContract::Send::grouped;
    contract.queued = true;
    contract.checks_tags = false;
    return contract;
}

std::string read(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("no " + path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

/// The reference kernels on one thread: what they need as scratch is the same on every processor.
Device& reference_device() {
    static Config config = [] {
        Config c;
        c.set("reference", {true, {}, true});
        c.set("threads", {int64_t{1}, {}, true});
        return c;
    }();
    static const std::unique_ptr<Device> device = registry().device("cpu", {})(config);
    return *device;
}

Compiled compiled(const Job& job) {
    FakeHost host(job.config.empty() ? job.toml : read(in_source("configs/" + job.config)));
    host.strategies = built_strategy;
    run_script(in_source(job.script), host);
    if (!host.experiment) throw std::runtime_error(job.script + " compiled nothing");
    CompileOptions options;
    for (const Axis& axis : host.experiment->mesh.axes())
        if (!axis.sequential && axis.size > 1) {
            options.contracts[axis.name] = contract_of(job.transport);
            options.transports[axis.name] = job.transport;
        }
    options.workspace = [](const KernelSpec& spec) { return reference_device().prepare(spec)->scratch_bytes(); };
    options.runs = [](const KernelSpec& spec) { return reference_device().why_not(spec).empty(); };
    options.look = test::check_passes();
    return compile_training(*host.experiment, options);
}

/// The propagated program without what only explains it: notes, and the script lines behind #.
std::string bare(const Plan& plan) {
    std::istringstream text(print(plan.program, &plan.mesh));
    std::string kept;
    for (std::string line; std::getline(text, line) && line != "notes";)
        kept += line.substr(0, line.find("  # ")) + "\n";
    return kept;
}

std::string digests_of(const Job& job) {
    std::string text = job.name + "\n";
    const auto line = [&](const std::string& what, const std::string& digest) {
        text += fmt::format("  {} {}\n", digest.substr(0, 16), what);
    };
    try {
        const Compiled all = compiled(job);
        int number = 0;
        for (const Plan* plan : all.plans()) {
            line(fmt::format("plan {}: propagated program", number), sha256(bare(*plan)));
            for (const auto& [part, digest] : fingerprints(*plan))
                if (part.rfind("class", 0) == 0) line(fmt::format("plan {}: {}", number, part), digest);
            line(fmt::format("plan {}: whole", number++), plan->fingerprint);
        }
    } catch (const Error&) {
        text += "  refused\n";
    }
    return text;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

}  // namespace

TEST_CASE("the plans of all kept jobs are those of digests.txt", "[plans]") {
    const std::string path = in_source("tests/plans/digests.txt");
    std::string text;
    int count = 0, refused = 0;
    for (const Job& job : jobs()) {
        const std::string made = digests_of(job);
        text += made;
        ++count;
        refused += made.find("  refused\n") != std::string::npos;
    }
    fmt::print("  {} jobs, {} of them refused\n", count, refused);
    CHECK(count >= 100);
    CHECK(refused * 10 < count);
    if (std::getenv("ORRERY_BLESS")) {
        std::ofstream(path) << text;
        return;
    }
    const std::vector<std::string> have = lines_of(text), want = lines_of(read(path));
    std::string job;
    for (size_t i = 0; i < std::max(have.size(), want.size()); ++i) {
        const std::string a = i < want.size() ? want[i] : "(end)", b = i < have.size() ? have[i] : "(end)";
        if (a.rfind("  ", 0) != 0) job = a;
        INFO(path << ":" << i + 1 << ": " << job);
        CHECK(b == a);
    }
}

TEST_CASE("a job compiled twice has the same digests, another model others", "[plans]") {
    const std::vector<Job> all = jobs();
    CHECK(digests_of(all[0]) == digests_of(all[0]));
    Job other = all[0];
    other.toml += "embed = 64\n";
    CHECK(digests_of(other) != digests_of(all[0]));
}

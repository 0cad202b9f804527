#include "cli/products/products.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/products/child.h"
#include "config/load.h"
#include "config/toml_text.h"
#include "plugin/loader.h"
#include "run/products/measure.h"
#include "run/products/product_cache.h"

namespace orrery {
namespace {

constexpr auto trial_limit = std::chrono::seconds(60);
constexpr const char* all_right = "right";  ///< what an untimed trial says
constexpr int no_candidate = 3;             ///< its exit code when the device lacks the kind, or results are wrong

/// What this program said, or how else it ended.
std::string why_not(const ChildEnd& end) {
    constexpr std::string_view prefix = "orrery: ";
    const std::string_view said = trim(end.errors);
    if (end.code != 0 && said.starts_with(prefix)) return std::string(said.substr(prefix.size()));
    const std::string how = end.why_not();
    return how.empty() ? "" : "its trial " + how;
}

/// A trial's process, but for what is tried.
struct TrialProcess {
    std::string device, plugins;
    int64_t rank_threads = 1;

    TriedProducts operator()(const std::string& name, DType dtype, bool timed) const {
        std::vector<std::string> arguments = {"/proc/self/exe", "products",
                                              "--device",       device,
                                              "--try",          name,
                                              "--types",        std::string(name_of(dtype)),
                                              "--threads",      std::to_string(rank_threads)};
        if (!plugins.empty()) arguments.insert(arguments.end(), {"--set", plugins});
        if (!timed) arguments.emplace_back("--untimed");
        const ChildEnd end = run_child(arguments, trial_limit);
        // What a signal from elsewhere, a lack of threads or of memory ended says nothing of the kind.
        if (const std::string why = why_not(end); !why.empty())
            return {name, why, 0, 0, !end.faulted() && end.code != no_candidate};
        if (!timed && trim(end.output) == all_right) return {name};
        try {
            const std::vector<TriedProducts> tried = parse_tried(end.output);
            if (tried.size() == 1 && tried[0].name == name && tried[0].rate > 0) return tried[0];
            return {name, "its trial told of something else", 0, 0, true};
        } catch (const Error& error) {
            return {name, fmt::format("its trial's result cannot be read: {}", error.what()), 0, 0, true};
        }
    }
};

std::unique_ptr<Device> open_device(const ProductsCommand& command, Config& config, Registry& registry) {
    const Loader loader(and_plugin_folders(config.table("plugins").texts("path")));
    check_backends(config, loader.names());
    loader.load("device", command.device, registry, {});
    if (const std::string why = loader.cannot_run("device", command.device); !why.empty())
        throw Error(fmt::format("products: device {} cannot run here: {}", command.device, why));
    Config& options = config.table("device").table(command.device);
    const Origin flag{"", "--threads", 0, 0};
    if (command.rank_threads > 0) options.set("threads", {command.rank_threads, flag, true});
    auto device = registry.device(command.device, {})(options);
    options.reject_unused();
    return device;
}

/// The process of one trial: exit code `no_candidate` and the reason, or its rates as JSON.
int try_kind(const ProductsCommand& command, Device& device) {
    const std::optional<DType> dtype = parse_dtype(command.types);
    if (!dtype) throw Error(fmt::format("--types {}: --try takes one type", command.types));
    try {
        device.use_products(command.only);
        const TriedProducts tried = measure_products(device, command.only, *dtype, !command.untimed);
        std::printf("%s\n", command.untimed ? all_right : text_of({tried}).c_str());
    } catch (const Error& error) {
        std::fprintf(stderr, "orrery: %s\n", error.what());
        return no_candidate;
    }
    return 0;
}

std::string cell(const TriedProducts& tried) {
    return fmt::format("{:.1f} ({:.1f})", tried.rate / 1e9, tried.best / 1e9);
}

}  // namespace

ProductSearch product_search(const Settings& settings, Config& config, const Job& job) {
    std::string folders;
    for (const std::string& folder : config.table("plugins").texts("path"))
        folders += (folders.empty() ? "" : ",") + toml_string(folder);
    const std::string plugins = folders.empty() ? "" : "plugins.path=[" + folders + "]";
    return {TrialProcess{settings.device, plugins, threads_of(settings, job)}, cache_folder()};
}

int products_command(const ProductsCommand& command) {
    Config config = load_config("", command.sets);
    Registry registry;
    const std::unique_ptr<Device> device = open_device(command, config, registry);
    if (!command.only.empty()) return try_kind(command, *device);
    const ProductKinds kinds = device->products();
    if (kinds.names.empty()) throw Error(fmt::format("products: device {} has one kind", command.device));
    for (const std::string& line : split(trim(kinds.machine), '\n')) fmt::print("# {}\n", line);
    fmt::print("# GFLOP/s over three large shapes, and of the fastest of them\n");
    Settings settings;
    settings.device = command.device;
    settings.threads_per_rank = command.rank_threads;
    const ProductSearch search = product_search(settings, config, Job{});
    for (const std::string& type : split(command.types, ',')) {
        const std::optional<DType> dtype = parse_dtype(type);
        if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16)
            throw Error(fmt::format("--types {}: expected f32, bf16 or f16", type));
        for (const std::string& name : kinds.names) {
            const TriedProducts tried = search.trial(name, *dtype, true);
            const std::string found = tried.why_not.empty() ? cell(tried) : "no candidate: " + tried.why_not;
            fmt::print("{:<5} {:<8} {}\n", type, name, found);
            std::fflush(stdout);
        }
    }
    return 0;
}

}  // namespace orrery

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/process.h"
#include "base/processors.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/products/measure.h"
#include "config/load.h"
#include "plugin/loader.h"

namespace orrery {
namespace {

constexpr auto trial_limit = std::chrono::seconds(60);
constexpr double worth_setting = 1.05;  ///< min speed-up over the default for which another setting is advised

std::unique_ptr<Device> open_device(const ProductsCommand& command) {
    Config config = load_config("", command.sets);
    Registry registry;
    const Loader loader(and_plugin_folders(config.table("plugins").texts("path")));
    check_backends(config, loader.names());
    loader.load("device", command.device, registry, {});
    if (const std::string why = loader.cannot_run("device", command.device); !why.empty())
        throw Error(fmt::format("products: device {} cannot run on this host: {}", command.device, why));
    Config& options = config.table("device").table(command.device);
    if (command.rank_threads > 0) options.set("threads", {command.rank_threads, Origin{"", "--threads", 0, 0}, true});
    if (!options.has("threads")) options.set("threads", {usable_processors(), {}, true});
    auto device = registry.device(command.device, {})(options);
    options.reject_unused();
    return device;
}

DType type_of(const std::string& name) {
    const std::optional<DType> dtype = parse_dtype(name);
    if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16)
        throw Error(fmt::format("--types {}: expected f32, bf16 or f16", name));
    return *dtype;
}

struct Tried {
    ProductRates rates;
    std::string why_not;  ///< why the implementation is not used; "": its results are correct and its rates valid
};

/// Measures an implementation in a separate process: it may crash although the processor claims to support it.
Tried try_kind(const ProductsCommand& command, const std::string& kind, const std::string& type) {
    std::vector<std::string> arguments = {"/proc/self/exe",
                                          "products",
                                          "--device",
                                          command.device,
                                          "--try",
                                          "--types",
                                          type,
                                          "--threads",
                                          std::to_string(command.rank_threads)};
    for (const std::string& set : command.sets) arguments.insert(arguments.end(), {"--set", set});
    arguments.insert(arguments.end(), {"--set", fmt::format("device.{}.products={}", command.device, kind)});
    const ChildEnd end = run_child(arguments, trial_limit);
    Tried tried;
    constexpr std::string_view prefix = "orrery: ";
    const std::string_view said = trim(end.errors);
    if (end.code != 0 && said.starts_with(prefix))
        tried.why_not = said.substr(prefix.size());
    else if (const std::string how = end.why_not(); !how.empty())
        tried.why_not = "its trial " + how;
    else if (std::sscanf(end.output.c_str(), "%lf %lf", &tried.rates.all, &tried.rates.fastest) != 2)
        tried.why_not = "its trial printed no rates";
    return tried;
}

/// Prints a row for each implementation. Returns the fastest, "native for bf16 (1.42 times onednn)"; "": the default.
std::string compare_kinds(const ProductsCommand& command, const std::vector<std::string>& kinds,
                          const std::string& type) {
    const std::string& usual = kinds.front();
    std::string best;
    double usual_rate = 0, best_rate = 0;
    for (const std::string& kind : kinds) {
        const auto [rates, why_not] = try_kind(command, kind, type);
        fmt::print("{:<5} {:<8} {}\n", type, kind,
                   why_not.empty() ? fmt::format("{:.1f} ({:.1f})", rates.all / 1e9, rates.fastest / 1e9)
                                   : "not usable: " + why_not);
        std::fflush(stdout);
        if (kind == usual) usual_rate = rates.all;
        if (rates.all > best_rate) best_rate = rates.all, best = kind;
    }
    if (best.empty())
        throw Error(fmt::format("products: no matrix-product library of device {} can compute {} on this host; the "
                                "rows above say why\n  choose other --types or another --device",
                                command.device, type),
                    Fault::failed);
    if (best_rate <= worth_setting * usual_rate) return "";
    const std::string times = usual_rate > 0 ? fmt::format(" ({:.2f} times {})", best_rate / usual_rate, usual) : "";
    return fmt::format("{} for {}{}", best, type, times);
}

std::string advice_of(const ProductsCommand& command, const std::vector<std::string>& faster,
                      const std::string& usual) {
    if (faster.empty())
        return fmt::format("{}, the default library, is within 5 % of the fastest; no setting needed", usual);
    return fmt::format("set device.{}.products={}", command.device, join(faster, ", or "));
}

}  // namespace

int products_command(const ProductsCommand& command) {
    const std::unique_ptr<Device> device = open_device(command);
    if (command.tried) {
        const DType dtype = type_of(command.types);
        check_products(*device, dtype);
        const ProductRates rates = measure_products(*device, dtype);
        fmt::print("{} {}\n", rates.all, rates.fastest);
        return 0;
    }
    const std::vector<std::string> kinds = device->products().names;
    if (kinds.empty())
        throw Error(fmt::format(
            "products: device {} has only one matrix-product library, so there is nothing to compare", command.device));
    for (const std::string& line : split(trim(device->machine()), '\n')) fmt::print("# {}\n", line);
    fmt::print("# GFLOP/s over three large shapes (and of the fastest shape)\n");
    std::vector<std::string> faster;
    for (const std::string& type : split(command.types, ',')) {
        type_of(type);
        if (std::string one = compare_kinds(command, kinds, type); !one.empty()) faster.push_back(std::move(one));
    }
    fmt::print("{}\n", advice_of(command, faster, kinds.front()));
    return 0;
}

}  // namespace orrery

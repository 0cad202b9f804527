#include "plugin/loader.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#define BOOST_DLL_USE_STD_FS
#include <boost/dll/shared_library.hpp>

#include "base/foreign/plugin_call.h"
#include "base/signals.h"
#include "base/suggest.h"
#include "base/text.h"
#include "ir/codecs.h"
#include "ir/op.h"
#include "ir/plugin_ops.h"
#include "orrery/plugin.h"
#include "plugin/code_digest.h"
#include "plugin/facts.h"
#include "plugin/library_file.h"
#include "plugin/named.h"

namespace orrery {

namespace {

namespace fs = std::filesystem;
namespace dll = boost::dll;

constexpr std::string_view prefix = "liborrery_", suffix = ".so", absent_suffix = ".why", section_prefix = ".orrery.";
constexpr std::string_view kinds[] = {"codec", "data",       "device", "engine",   "launcher",
                                      "op",    "rendezvous", "store",  "strategy", "transport"};

struct Found {
    std::string kind, name;
    fs::path path;
    bool absent = false;  ///< the build left the plugin out; its .why file has the reason
};

/// Returns a path for messages: relative to the current folder if the file is inside it.
std::string shown(const fs::path& path) {
    std::error_code problem;
    const fs::path here = fs::current_path(problem);
    const fs::path near = problem ? path : path.lexically_relative(here);
    return near.empty() || *near.begin() == ".." ? path.string() : near.string();
}

std::string built_line(std::string_view abi) { return "\n  built for  " + describe_abi(abi); }

std::string rebuild_line(const Found& file) {
    return "\n  rebuild it with: cmake --build build --target " + file.kind + "_" + file.name;
}

std::string register_line(const Found& file) {
    if (file.kind == "op")
        return "\n  give ORRERY_PLUGIN a function that calls add_op for " + file.name +
               ", for ops that its gradient needs, and add_kernel for their kernels";
    return "\n  give ORRERY_PLUGIN a function that calls add_" + file.kind + "(\"" + file.name + "\", ...) once";
}

std::string owner_problem(const fs::path& path) {
    struct stat info {
    }, core{};
    if (::stat(path.c_str(), &info) != 0) return std::string("cannot be read: ") + std::strerror(errno);
    if (info.st_mode & S_IWOTH)
        return "it is world-writable (mode " + std::string(S_ISDIR(info.st_mode) ? "of its folder" : "of the file") +
               ")\n  fix it with: chmod o-w " + shown(path);
    // The owner of liborrery.so is trusted already, since that user could replace the library.
    const fs::path self = this_code().path;
    const bool have_core = ::stat(self.c_str(), &core) == 0;
    if (info.st_uid == 0 || info.st_uid == ::geteuid() || (have_core && info.st_uid == core.st_uid)) return "";
    return "it belongs to user " + std::to_string(info.st_uid) + "\n  it must belong to you or to root: chown it";
}

LibraryFile library_of(const Found& file) {
    try {
        return LibraryFile(file.path);
    } catch (const Error& problem) {
        throw Error(problem.what() + rebuild_line(file));
    }
}

/// Checks the ABI, which is the name of an ELF section, so that no code of an outdated plugin runs.
void check_abi(const Found& file, const LibraryFile& library) {
    const auto mark = library.section_that_begins(section_prefix);
    if (!mark)
        throw Error("it is not an orrery plugin: it has no section " + std::string(section_prefix) +
                    "*\n  build it with orrery_plugin() of the CMake package, and use ORRERY_PLUGIN in its source");
    const std::string abi = mark->substr(section_prefix.size());
    if (abi != this_abi())
        throw Error("it was built for another version of orrery" + built_line(abi) + "\n  this is    " +
                    describe_abi(this_abi()) + rebuild_line(file));
}

// keeps a library loaded after its shared_library is destroyed (RTLD_NODELETE)
constexpr auto open_for_good =
    static_cast<dll::load_mode::type>(dll::load_mode::rtld_now | dll::load_mode::rtld_local | RTLD_NODELETE);

/// Opens a plugin's file, never to close it, and returns the PluginInfo in this file, not one of another library.
const PluginInfo& open(const Found& file) {
    const SignalsKept kept;
    dll::shared_library library;
    std::error_code problem;
    ::dlerror();
    library.load(file.path, problem, open_for_good);
    if (problem) {
        const char* said = ::dlerror();  // the text of dlerror(), since the text of `problem` is misleading
        const std::string reason = said ? said : problem.message();
        const bool symbol = reason.find("undefined symbol") != std::string::npos;
        throw Error(reason + (symbol ? rebuild_line(file)
                                     : "\n  install the library that it names, or add its folder with ldconfig"));
    }
    if (!library.has("orrery_plugin"))
        throw Error("it does not export the symbol orrery_plugin\n  its source needs ORRERY_PLUGIN(\"" + file.kind +
                    "." + file.name + "\", version, add)");
    const auto& info = library.get<const PluginInfo>("orrery_plugin");
    if (const fs::path home = code_at(&info).path; home != fs::canonical(file.path))
        throw Error("its symbol orrery_plugin comes from " + shown(home) +
                    ", a library that it links\n  a plugin must not link another; its own source needs ORRERY_PLUGIN");
    return info;
}

void check_info(const Found& file, const PluginInfo& info) {
    if (info.size != sizeof(PluginInfo) || info.abi != this_abi())
        throw Error("its PluginInfo was made by hand or for another version of orrery" + rebuild_line(file));
    if (info.name != file.kind + "." + file.name)
        throw Error("it calls itself " + quote(info.name) + ", its file name says \"" + file.kind + "." + file.name +
                    "\"\n  give both the same name: orrery_plugin(" + file.kind + " " + file.name +
                    " ...) and ORRERY_PLUGIN");
    if (!info.add_to)
        throw Error("it registers nothing: the function given to ORRERY_PLUGIN is null" + register_line(file));
}

/// Calls the plugin's register function with an empty registry, so that a failure leaves no entries in the session's.
Registry registered(const Found& file, const PluginInfo& info) {
    Registry alone;
    const auto failed = [](const std::string& why) {
        return Error("it failed while registering: " + why +
                     "\n  fix the function given to ORRERY_PLUGIN, or remove the file from the folder");
    };
    try {
        info.add_to(alone);
    } catch (const std::exception& problem) {
        throw failed(problem.what());
    } catch (...) {
        throw failed("it threw something other than a std::exception");
    }
    const std::vector<std::string> names = alone.names();
    const bool only_ops = names.size() == alone.ops().size();
    if (file.kind == "op" && !names.empty() && only_ops) {
        if (const std::string problem = problem_of_ops(file.name, alone); !problem.empty())
            throw Error(problem + register_line(file));
        return alone;
    }
    if (!alone.kernels().empty()) throw Error("it registers kernels, but only a plugin of kind op may");
    if (names != std::vector<std::string>{file.kind + "/" + file.name})
        throw Error("it registers " + (names.empty() ? "nothing" : join(names, ", ")) + ", expected " + file.kind +
                    "/" + file.name + " alone" + register_line(file));
    if (file.kind == "codec")
        if (const std::string problem = problem_of(alone.codec(file.name, {})); !problem.empty()) throw Error(problem);
    return alone;
}

struct Loaded {
    Registry registry;
    std::string version;
    std::string cannot_run;
    std::string digest;
};

std::string first_line(const fs::path& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

std::string absent_line(const Found& file) { return "not included in this build: " + first_line(file.path); }

/// Reads the facts of a plugin without running its code. Throws Error for another ABI, and for a transport without the
/// fact `devices`, by which transports are chosen.
PluginFacts facts_of(const Found& file) {
    if (file.absent) throw Error(absent_line(file));
    if (const std::string problem = owner_problem(file.path); !problem.empty()) throw Error(problem);
    if (const std::string problem = owner_problem(file.path.parent_path()); !problem.empty()) throw Error(problem);
    const LibraryFile library = library_of(file);
    check_abi(file, library);
    PluginFacts facts(file.kind, facts_text(library));
    if (file.kind == "transport") facts.of_transport();
    return facts;
}

/// Opens a plugin's file, after all checks that only read the file. `facts`: those in the file.
Loaded load_file(const Found& file, const PluginFacts& facts, const std::shared_ptr<OpenCalls>& calls) {
    const PluginInfo& info = open(file);
    check_info(file, info);
    const std::string full = file.kind + "/" + file.name;
    Registry alone = named(full, registered(file, info), facts, calls);
    const auto cannot_run = [&] { return info.cannot_run ? info.cannot_run() : ""; };
    return {std::move(alone), info.version, call_plugin(full, "cannot_run", cannot_run), code_at(&info).digest};
}

/// Returns the files liborrery_KIND_NAME.so or .why by kind and name; earlier folders hide names of later ones.
std::vector<Found> files_in(const std::vector<std::string>& folders) {
    std::vector<Found> files;
    for (const std::string& folder : folders) {
        std::error_code problem;
        for (const auto& entry : fs::directory_iterator(folder, problem)) {
            const std::string file = entry.path().filename();
            const bool absent = file.ends_with(absent_suffix);
            if (!file.starts_with(prefix) || (!absent && !file.ends_with(suffix))) continue;
            const size_t tail = (absent ? absent_suffix : suffix).size();
            const std::string name = file.substr(prefix.size(), file.size() - prefix.size() - tail);
            const size_t cut = name.find('_');
            if (cut == std::string::npos) continue;
            Found found{name.substr(0, cut), name.substr(cut + 1), fs::absolute(entry.path()), absent};
            const bool known = std::find(std::begin(kinds), std::end(kinds), found.kind) != std::end(kinds);
            const bool hidden = std::any_of(files.begin(), files.end(), [&](const Found& other) {
                return other.kind == found.kind && other.name == found.name;
            });
            if (known && !hidden) files.push_back(std::move(found));
        }
    }
    std::sort(files.begin(), files.end(),
              [](const Found& a, const Found& b) { return std::tie(a.kind, a.name) < std::tie(b.kind, b.name); });
    return files;
}

void move_into(Registry& to, const Found& file, const Loaded& loaded) {
    const Registry& from = loaded.registry;
    if (file.kind == "device") to.add_device(file.name, from.device(file.name, {}));
    if (file.kind == "transport") to.add_transport(file.name, from.transport(file.name, {}));
    if (file.kind == "strategy") to.add_strategy(file.name, from.strategy(file.name, {}));
    if (file.kind == "store") to.add_store(file.name, from.store(file.name, {}));
    if (file.kind == "rendezvous") to.add_rendezvous(file.name, from.rendezvous(file.name, {}));
    if (file.kind == "launcher") to.add_launcher(file.name, from.launcher(file.name, {}));
    if (file.kind == "engine") to.add_engine(file.name, from.engine(file.name, {}));
    if (file.kind == "data") to.add_data(file.name, from.data(file.name, {}));
    if (file.kind == "codec") {
        Codec codec = from.codec(file.name, {});
        codec.plugin = "codec/" + file.name;
        codec.version = loaded.version;
        to.add_codec(file.name, std::move(codec));
    }
    if (file.kind != "op") return;
    // The ops come first, because adding them may throw: the registry then has nothing of the plugin yet.
    add_plugin_ops("op/" + file.name, loaded.version, from);
    for (const auto& op : from.ops()) to.add_op(*op);
    for (const Registry::AddedKernel& kernel : from.kernels())
        to.add_kernel(kernel.op, kernel.device_kind, kernel.make);
}

/// Returns the file of a plugin. Throws Error at `asked`, with the names of available plugins, when there is none.
Found find_file(const std::vector<std::string>& folders, std::string_view kind, std::string_view name,
                const Origin& asked) {
    std::vector<std::string> others, places;
    for (Found& file : files_in(folders)) {
        if (file.kind != kind) continue;
        if (file.name == name) return std::move(file);
        others.push_back(file.name);
    }
    for (const std::string& folder : folders) places.push_back(shown(folder));
    const std::string where = places.empty() ? "no folder of plugins" : join(places, ", ");
    throw Error(asked,
                "no " + std::string(kind) + " " + quote(name) +
                    (others.empty() ? "\n  found none in " + where : choices("found in " + where, name, others)));
}

template <class Read>
auto in_file(const Found& file, const Origin& asked, const char* what, const Read& read) {
    try {
        return read();
    } catch (const Error& problem) {
        throw Error(asked, "cannot " + std::string(what) + " " + shown(file.path) + "\n  " + problem.what(),
                    problem.fault());
    }
}

}  // namespace

void Loader::load(std::string_view kind, std::string_view name, Registry& registry, const Origin& asked) const {
    const std::string full = std::string(kind) + "/" + std::string(name);
    const std::vector<std::string> loaded = registry.names();
    if (std::find(loaded.begin(), loaded.end(), full) != loaded.end()) return;
    const Found file = find_file(folders_, kind, name, asked);
    in_file(file, asked, "load", [&] {
        const Loaded made = load_file(file, facts_of(file), calls_);
        move_into(registry, file, made);
        loaded_.push_back({full, file.path.string(), made.version, "", made.cannot_run, made.digest, ""});
    });
}

PluginFacts Loader::facts(std::string_view kind, std::string_view name, const Origin& asked) const {
    const Found file = find_file(folders_, kind, name, asked);
    return in_file(file, asked, "read the facts of", [&] { return facts_of(file); });
}

std::vector<std::shared_ptr<const Codec>> Loader::codecs(Registry& registry) const {
    std::vector<std::shared_ptr<const Codec>> all;
    for (const std::string& name : present("codec")) {
        const auto load_it = [this, &registry, name](const Origin& asked) -> const Codec& {
            load("codec", name, registry, asked);
            return registry.codec(name, asked);
        };
        all.push_back(std::make_shared<const Codec>(Codec{.name = name, .load = load_it}));
    }
    return all;
}

std::string Loader::plugin_of(std::string_view op) const {
    const std::vector<std::string> known = names();
    std::string plugin(op);
    while (std::ranges::find(known, "op/" + plugin) == known.end()) {
        const size_t cut = plugin.find_last_of('_');
        if (cut == std::string::npos) return "";
        plugin.resize(cut);
    }
    return plugin;
}

void Loader::load_op(std::string_view op, Registry& registry, const Origin& asked) const {
    const std::string plugin = plugin_of(op);
    if (plugin.empty()) return load("op", op, registry, asked);  // throws an Error with the available plugins
    load("op", plugin, registry, asked);
    if (!find_plugin_op(op))
        throw Error(asked, "no op " + quote(op) + "\n  the plugin op/" + plugin + " does not define it");
}

void Loader::load_ops(const Program& program, Registry& registry) const {
    for (const Op& op : program.ops)
        if (!find_op_def(op.kind) && !plugin_of(op.kind).empty()) load_op(op.kind, registry, op.origin);
}

std::string Loader::cannot_run(std::string_view kind, std::string_view name) const {
    for (const Found& file : files_in(folders_))
        if (file.kind == kind && file.name == name) return load_file(file, facts_of(file), calls_).cannot_run;
    return "";
}

std::function<std::string(Config&)> Loader::device_address(std::string_view name) const {
    for (const Found& file : files_in(folders_)) {
        if (file.kind != "device" || file.name != name) continue;
        load_file(file, facts_of(file), calls_);
        const dll::shared_library library(file.path, open_for_good);
        if (!library.has("orrery_device_address")) return nullptr;
        auto* const address = &library.get<std::string(Config&)>("orrery_device_address");
        return [=, full = "device/" + file.name](Config& options) {
            return call_plugin(full, "orrery_device_address", [&] { return address(options); });
        };
    }
    return nullptr;
}

std::vector<std::string> Loader::names() const {
    std::vector<std::string> names;
    for (const Found& file : files_in(folders_)) names.push_back(file.kind + "/" + file.name);
    return names;
}

std::vector<std::string> Loader::present(std::string_view kind) const {
    std::vector<std::string> names;
    for (const Found& file : files_in(folders_))
        if (file.kind == kind && !file.absent) names.push_back(file.name);
    return names;
}

std::vector<PluginReport> Loader::files() const {
    std::vector<PluginReport> reports;
    for (const Found& file : files_in(folders_))
        if (!file.absent)
            reports.push_back({file.kind + "/" + file.name, file.path, "", "", "", code_digest_of(file.path), ""});
    return reports;
}

std::vector<PluginReport> Loader::list() const {
    std::vector<PluginReport> reports;
    for (const Found& file : files_in(folders_)) {
        PluginReport report{file.kind + "/" + file.name, file.path, "", "", "", "", ""};
        try {
            const PluginFacts facts = facts_of(file);
            report.facts = facts.text();
            const Loaded loaded = load_file(file, facts, calls_);
            report.version = loaded.version;
            report.cannot_run = loaded.cannot_run;
            report.digest = loaded.digest;
        } catch (const Error& problem) {
            report.reason = problem.what();
        }
        reports.push_back(std::move(report));
    }
    return reports;
}

std::vector<std::string> plugin_folders() {
    const fs::path beside = fs::path(this_code().path).parent_path();
    std::vector<std::string> folders;
    for (const fs::path& folder : {beside / "plugins", beside / "orrery" / "plugins"}) {
        if (fs::is_directory(folder)) folders.push_back(folder);
    }
    return folders;
}

std::vector<std::string> and_plugin_folders(std::vector<std::string> folders) {
    for (std::string& folder : plugin_folders()) folders.push_back(std::move(folder));
    return folders;
}

std::string describe_abi(std::string_view abi) {
    std::vector<std::string> parts = split(abi, '-');
    if (parts.size() < 5) return "orrery " + std::string(abi);
    std::string text = "orrery " + parts[0] + ", " + (parts[1] == "gnu" ? "gcc" : parts[1]) + " " + parts[2];
    if (parts[3] != "cxx11") text += ", " + parts[3] + " strings";
    for (size_t i = 4; i < parts.size(); ++i) text += ", " + parts[i];
    return text;
}

std::string_view this_abi() { return ORRERY_ABI; }

}  // namespace orrery

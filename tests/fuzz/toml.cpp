// Configurations: config/load, bounds, schema and render.
#include "config/load.h"

#include "file.h"
#include "orrery/error.h"
#include "target.h"

namespace orrery::fuzz {
namespace {

void same(const Config& config) {
    const auto tables = {"run",    "mesh",      "train",       "data",    "device", "checkpoint", "metrics",
                         "sample", "transport", "collectives", "plugins", "lua",    "script",     "store"};
    for (const std::string_view table : tables)
        require(changes(config, parse_config(render(config), "rendered.toml"), {table}, 3).empty(),
                "what is rendered reads back");
}

/// Runs `part`; an Error is as good as an end.
template <class Part>
void attempt(Part part) {
    try {
        part();
    } catch (const Error&) {
    }
}

void run(std::string_view input) {
    attempt([&] {
        const Config config = parse_config(input, "input.toml");
        same(config);
        attempt([&] { changes(config, parse_config("", ""), {"run", "script", "train"}, 2); });
        check_backends(config, {"device/cpu", "transport/shm", "transport/gloo", "store/posix"});
    });
    attempt([&] { parse_toml(input, "cluster.toml"); });
    const std::string set(input.substr(0, input.find('\n')));
    attempt([&] { same(parse_config("", "", {&set, 1})); });
    if (input.size() % 16 != 0) return;
    const InputFile file(input);
    attempt([&] { load_config(file.path()); });
    attempt([&] { load_toml(file.path()); });
}

std::vector<std::string> seeds() {
    return {"",
            "[run]\ndevice = \"cpu\"\nseed = 5\n[mesh]\ndp = 2\ntp = 2\n",
            "[train]\nsteps = 100\nsequences_per_step = 8\nprecision = 'bf16'\n[data]\nmix = [\"0.7 a.bin\", "
            "\"0.3 b.bin\"]\nvalidation = 0.05\n",
            "[checkpoint]\nkeep = 3\nkeep_best = 1\nfinal = true\n[script]\nlr = 1e-3\nmodel = \"gpt\"\nbetas = [0.9, "
            "0.95]\n",
            "[transport.axis]\ntp = \"shm\"\n[transport.gloo]\ninterface = \"lo\"\n[store.posix]\n[device.cpu]\n",
            "[script]\na = { b = { c = [1, [2, [3]]] } }\ntext = \"\"\"\nmany\nlines\\u00e9\n\"\"\"\n",
            "# comment\n[script]\n\"quoted key\" = 0x1f\nday = 1979-05-27T07:32:00Z\ninf = inf\nbig = "
            "9223372036854775807\n",
            "[script.a]\nb = 1\n[script.a.c]\nd = [{ e = 1 }, { f = 'x' }]\ng = -2.5e-3\n[mesh]\ndp = 2\n"
            "[transport.axis]\ndp = \"gloo\"\npp = \"ucx\"\n",
            "[transport.axis.dp]\n",
            "[checkpoint]\nkeep = 1\n",
            "[checkpoint.keep]\nx = 1\n",
            "[[script.list]]\na = 1\n[[script.list]]\nb = 2\n",
            "run = 3\n",
            "[run]\nstore = \"tape\"\n",
            "[sample]\n[plugins]\npath = [\"a\", 3]\n",
            "train.steps=5",
            "script.name=[1,2,3]",
            "mesh.tp=4"};
}

}  // namespace

Target toml_target() { return {"toml", run, seeds}; }

}  // namespace orrery::fuzz

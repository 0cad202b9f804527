#include <catch2/catch.hpp>

#include "config/bounds.h"
#include "config/load.h"
#include "config/schema.h"

using namespace orrery;

namespace {

std::string message(const std::string& toml, const std::vector<std::string>& sets = {}) {
    try {
        parse_config(toml, "a.toml", sets);
    } catch (const Error& error) {
        CHECK(error.fault() == Fault::usage);
        return error.what();
    }
    return "no error";
}

bool has(const std::string& text, const std::string& part) {
    INFO(text);
    const bool found = text.find(part) != std::string::npos;
    CHECK(found);
    return found;
}

}  // namespace

TEST_CASE("a configuration is defaults under the file under --set") {
    const std::vector<std::string> sets = {"mesh.tp=4", "run.seed=9", "run.seed=10"};
    Config c = parse_config("[mesh]\ndp = 2\ntp = 2\n[run]\ndevice = \"cuda\"\n", "a.toml", sets);
    CHECK(c.table("mesh").keys() == std::vector<std::string>{"dp", "tp"});
    CHECK(c.table("mesh").integer("tp", 0) == 4);
    CHECK(c.table("run").integer("seed", 0) == 10);
    CHECK(c.table("run").text("device", "") == "cuda");
    CHECK(c.table("run").text("store", "") == "posix");
    CHECK(c.table("mesh").where("dp").text() == "a.toml:2:6");
    CHECK(c.table("mesh").where("tp").text() == "--set mesh.tp=4");
    CHECK(c.table("run").where("store").text() == "default");
}

TEST_CASE("the mesh keeps the order of the file, not of the alphabet") {
    Config c = parse_config("[mesh]\npp = 2\ndp = 3\ntp = 1\ncp = 5\n", "a.toml");
    CHECK(c.table("mesh").keys() == std::vector<std::string>{"pp", "dp", "tp", "cp"});
}

TEST_CASE("changes of a table name its keys, with both values") {
    const Config before =
        parse_config("[train]\nsteps = 100\n[script]\nlr = 1\nfloor = 0.1\nmodel = \"gpt\"\n", "a.toml");
    const Config same =
        parse_config("[script]\nmodel = \"gpt\"\nfloor = 1e-1\nlr = 1.0\n[train]\nsteps = 100\n", "b.toml");
    CHECK(changes(before, same, {"train", "script"}, 5) == "");
    const Config now = parse_config("[train]\nsteps = 586\n[script]\nlr = 1\nmodel = \"llama\"\nheads = 6\n", "c.toml");
    CHECK(changes(before, now, {"train"}, 5) == "train.steps 100 -> 586");
    CHECK(changes(before, now, {"train", "script"}, 4) ==
          "train.steps 100 -> 586, script.model \"gpt\" -> \"llama\", script.heads left out -> 6, "
          "script.floor 0.1 -> left out");
    CHECK(changes(before, now, {"script"}, 1) == "script.model \"gpt\" -> \"llama\" and 2 more");
    CHECK(changes(parse_config("", "d.toml"), now, {"mesh"}, 5) == "");
}

TEST_CASE("unknown keys and tables name place and neighbour") {
    CHECK(has(message("[run]\ndevce = \"cpu\"\n"), "a.toml:2:1: unknown key \"devce\" in [run]"));
    CHECK(has(message("[run]\ndevce = \"cpu\"\n"), "did you mean \"device\"?"));
    CHECK(has(message("\n[rum]\ndevice = \"cpu\"\n"), "a.toml:2:2: unknown table \"rum\""));
    CHECK(has(message("\n[rum]\n"), "did you mean \"run\"?"));
    CHECK(has(message("device = \"cpu\"\n"), "a.toml:1:1: device is the text \"cpu\", expected a table"));
    CHECK(has(message("device = \"cpu\"\n"), "did you mean device below [run]?"));
    CHECK(has(message("seed = 3\n"), "a.toml:1:1: unknown key \"seed\""));
    CHECK(has(message("seed = 3\n"), "did you mean seed below [run]?"));
    CHECK(has(message("[run.device]\nx = 1\n"), "expected a text"));
    CHECK(has(message("run = 3\n"), "expected a table"));
    CHECK(has(message("", {"run.sed=3"}), "--set run.sed=3: unknown key \"sed\" in [run]"));
}

TEST_CASE("wrong types say what was found and expected") {
    CHECK(has(message("[run]\nseed = \"1\"\n"), "a.toml:2:8: run.seed is the text \"1\", expected an integer"));
    CHECK(has(message("[run]\nseed = \"1\"\n"), "write it without the quotes"));
    CHECK(has(message("[run]\ndevice = 3\n"), "run.device is the integer 3, expected a text"));
    CHECK(has(message("[mesh]\ndp = 0\n"), "a.toml:2:6: mesh.dp is 0, expected at least 1"));
    CHECK(has(message("[mesh]\ndp = 2.5\n"), "expected an integer"));
    CHECK(has(message("[plugins]\npath = [\"a\", 3]\n"), "expected a list of texts"));
    CHECK(has(message("[checkpoint]\nkeep = 1\n"), "expected at least 2"));
    CHECK(has(message("[script]\nday = 2020-01-01\n"), "a date or time"));
    CHECK(has(message("[run\n"), "a.toml:1:"));
}

TEST_CASE("what no key begins with is the user's mistake, with its place") {
    CHECK(has(message("[!]\n"), "a.toml:1:2: bad TOML"));
    CHECK(has(message("[run]\nseed = 1\n[[.a]]\n"), "a.toml:3:3: bad TOML"));
    CHECK(has(message(std::string("[\0]\n", 4)), "a.toml:1:2: bad TOML"));
    // Beyond ASCII: in quotes and comments alone.
    CHECK(has(
        message("[script]\ngr\xc3\xb6\xc3\x9f"
                "e = 1\n"),
        "a.toml:2:3: bad TOML: non-ASCII character \"\xc3\xb6\" outside of quotes and comments\n  put it in quotes"));
    CHECK(has(message("[script]\na =\xc2\xa0"
                      "1\n"),
              "a.toml:2:4: bad TOML"));
    CHECK(has(message("", {"script.\xd1\x9a=1"}),
              "bad TOML: non-ASCII character \"\xd1\x9a\" outside of quotes and comments"));
    CHECK(has(message("", {"script.a=[\xd1\x9a]"}),
              "bad TOML: non-ASCII character \"\xd1\x9a\" outside of quotes and comments"));
    Config c = parse_config(
        "\xef\xbb\xbf# gr\xc3\xb6\xc3\x9f"
        "e\n[script]\n\"\xc3\xb6\" = 'gr\xc3\xb6\xc3\x9f"
        "e'\n",
        "a.toml",
        std::vector<std::string>{"script.name=gr\xc3\xb6\xc3\x9f"
                                 "e"});
    CHECK(c.table("script").text("\xc3\xb6", "") ==
          "gr\xc3\xb6\xc3\x9f"
          "e");
    CHECK(c.table("script").text("name", "") ==
          "gr\xc3\xb6\xc3\x9f"
          "e");
}

TEST_CASE("--set takes TOML values and bare words") {
    const std::vector<std::string> sets = {
        "transport.gloo.interface=veth0", "data.path=/a b/1.txt", "run.folder=2024", "script.decay=1e-2",
        "plugins.path=[\"x\",\"y\"]",     "run.pin_ranks=false"};
    Config c = parse_config("", "a.toml", sets);
    CHECK(c.table("transport").table("gloo").text("interface", "") == "veth0");
    CHECK(c.table("data").text("path", "") == "/a b/1.txt");
    CHECK(c.table("run").text("folder", "") == "2024");
    CHECK(c.table("script").number("decay", 0) == 0.01);
    CHECK(c.table("plugins").texts("path") == std::vector<std::string>{"x", "y"});
    CHECK_FALSE(c.table("run").flag("pin_ranks", true));
    CHECK(has(message("", {"run.resume=false"}), "it can be: auto, never, required"));
    const std::vector<std::string> empty = {
        "data.path=", "checkpoint.load= ", "script.name=", "transport.gloo.interface="};
    Config none = parse_config("[data]\npath = \"x\"\n", "a.toml", empty);
    CHECK(none.table("data").text("path", "x") == "");
    CHECK(none.table("checkpoint").text("load", "x") == "");
    CHECK(none.table("script").text("name", "x") == "");
    CHECK(none.table("transport").table("gloo").text("interface", "x") == "");
    CHECK(has(message("", {"train.steps="}), "--set train.steps=: missing value after the \"=\", expected an integer"));
    CHECK(has(message("", {"plugins.path="}), "an empty list is written []"));
    CHECK(has(message("", {"train.precision="}), "train.precision is \"\""));
    for (const char* number : {"nan", "inf", "-inf"})
        CHECK(has(message("", {std::string("script.lr=") + number}), "expected a finite number"));
    CHECK(has(message("[data]\nvalidation = nan\n"), "a.toml:2:14: data.validation is nan, expected at least 0"));
    CHECK(has(message("", {"mesh.tp"}), "expected table.key=value"));
    CHECK(has(message("", {"seed=3"}), "expected table.key=value"));
    CHECK(has(message("", {"plugins.path=[1"}), "--set plugins.path=[1: bad TOML value"));
}

TEST_CASE("the rendered configuration loads back equal and names its sources") {
    const std::vector<std::string> sets = {"script.name=\"a\\\"b\\n\"", "train.precision=bf16"};
    const std::string toml =
        "[mesh]\npp = 2\ndp = 2\n[transport.axis]\npp = \"ucx\"\n[transport.gloo]\nx = 1.0\n"
        "deep = { a = [1, 2], b = \"c\" }\n[data]\nvalidation = 1e-7\n";
    const Config c = parse_config(toml, "a.toml", sets);
    const std::string text = render(c);
    CHECK(has(text, "[transport.gloo]\nx = 1.0"));
    CHECK(has(text, "# a.toml:2:6\n"));
    CHECK(has(text, "# --set train.precision=bf16\n"));
    CHECK(has(text, "# default\n"));
    const Config again = parse_config(text, "b.toml");
    const auto values = [](std::string rendered) {
        std::string out;
        for (size_t at = 0; at < rendered.size();) {
            const size_t end = rendered.find('\n', at);
            const std::string line = rendered.substr(at, end - at);
            out += line.substr(0, line.find(" # ")) + "\n";
            at = end + 1;
        }
        while (out.find(" \n") != std::string::npos) out.erase(out.find(" \n"), 1);
        return out;
    };
    CHECK(values(render(again)) == values(text));
}

TEST_CASE("hostile TOML is refused before it is parsed") {
    std::string key = "a";
    for (int i = 0; i < 200000; ++i) key += ".a";
    CHECK(has(message(key + " = 1\n"), "key or value too long"));
    CHECK(has(message("x = { " + key + " = 1 }\n"), "key or value too long"));
    CHECK(has(message("[" + key + "]\n"), "key or value too long"));
    std::string quoted = "\"a\"";
    for (int i = 0; i < 100000; ++i) quoted += ".\"a\"";
    CHECK(has(message(quoted + " = 1\n"), "key or value too long"));
    CHECK(has(message("x = " + std::string(300000, '[')), "a.toml:1:"));
    CHECK(has(message(std::string(max_toml_bytes + 1, ' ')), "configuration too large: 1048577 bytes"));
    CHECK(has(message("x = \"\"\"" + std::string(1000, '.')), "a.toml:1:"));
    CHECK(message("# " + std::string(5000, '.') + "\n[data]\npath = \"" + std::string(5000, '.') + "\"\n") ==
          "no error");
}

TEST_CASE("a missing file and a folder are named") {
    CHECK_THROWS_WITH(load_config("/nowhere/x.toml"),
                      Catch::Contains("/nowhere/x.toml: cannot be opened: No such file"));
    CHECK_THROWS_WITH(load_config("/tmp"), Catch::Contains("is a folder, expected a file"));
}

TEST_CASE("backends are checked against the plugins that were found") {
    const std::vector<std::string> names = {"device/cpu",     "rendezvous/tcp", "store/posix",
                                            "transport/gloo", "transport/shm",  "transport/nccl"};
    CHECK_NOTHROW(check_backends(parse_config("[mesh]\ndp=2\n[transport.axis]\ndp=\"gloo\"\n", "a.toml"), names));
    const auto text = [&](const std::string& toml) {
        try {
            check_backends(parse_config(toml, "a.toml"), names);
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string("no error");
    };
    CHECK(has(text("[run]\ntransport = \"ncll\"\n"), "a.toml:2:13: no transport \"ncll\""));
    CHECK(has(text("[run]\ntransport = \"ncll\"\n"), "did you mean \"nccl\"?"));
    CHECK(has(text("[transport.glo]\nx = 1\n"), "a.toml:1:1: no transport \"glo\""));
    CHECK(has(text("[mesh]\ndp=2\n[transport.axis.dp]\n"), "transport.axis.dp is a table, expected a text"));
    CHECK(has(text("[mesh]\ndp=2\n[transport.axis]\npp=\"gloo\"\n"), "axis \"pp\" is missing in [mesh]"));
}

TEST_CASE("a key of the command in an open table is checked, its neighbours are not") {
    CHECK(message("[script]\ntimeout_s = 5\nanything = \"x\"\n") == "no error");
    CHECK(has(message("[script]\ntimeout_s = \"x\"\n"), "a.toml:2:13: script.timeout_s is the text \"x\""));
    CHECK(has(message("[script]\ntimeout_s = 0\n"), "script.timeout_s is 0, expected at least 0.1"));
    CHECK(message("[transport.gloo]\ntimeout_s = \"x\"\n") == "no error");
}

TEST_CASE("every schema entry has help and its table is known") {
    for (const SchemaKey& key : schema()) {
        CHECK(is_known_table(key.table));
        CHECK_FALSE(key.help.empty());
    }
}

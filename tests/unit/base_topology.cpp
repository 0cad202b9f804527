#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/processors.h"
#include "base/topology.h"
#include "orrery/error.h"

using namespace orrery;

namespace {

using Places = std::vector<std::vector<int>>;
constexpr const char* two_sockets = "pack:2 core:16 pu:2";

std::vector<int> range(int from, int to) {
    std::vector<int> all(static_cast<size_t>(to - from));
    std::iota(all.begin(), all.end(), from);
    return all;
}

std::vector<int> joined(std::vector<int> a, const std::vector<int>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

/// No processor twice, and at least `threads` for each rank.
void check_own(const Places& places, size_t ranks, size_t threads) {
    std::set<int> all;
    REQUIRE(places.size() == ranks);
    for (const auto& place : places) {
        CHECK(place.size() >= threads);
        CHECK(std::ranges::is_sorted(place));
        for (const int processor : place) CHECK(all.insert(processor).second);
    }
}

/// hwloc's XML of sockets whose cores have `threads` threads each. `devices` of a socket: lines of its PCI devices.
struct Socket {
    std::vector<int> threads;
    std::string devices;
};

class Xml {
public:
    std::string operator()(const std::vector<Socket>& sockets, const std::string& kinds = "") {
        int all = 0;
        for (const Socket& socket : sockets) all = std::accumulate(socket.threads.begin(), socket.threads.end(), all);
        std::string text =
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
            "<topology version=\"2.0\">\n" +
            object("Machine", 0, 0, all) + object("NUMANode", 0, 0, all, " local_memory=\"1024\"", true);
        int next = 0, core = 0;
        for (size_t s = 0; s < sockets.size(); ++s) {
            const auto& threads = sockets[s].threads;
            text += object("Package", static_cast<int>(s), next, std::accumulate(threads.begin(), threads.end(), next));
            for (const int count : threads) {
                text += object("Core", core++, next, next + count);
                for (int i = 0; i < count; ++i, ++next) text += object("PU", next, next, next + 1, "", true);
                text += "</object>\n";
            }
            if (!sockets[s].devices.empty())
                text += fmt::format(
                    "<object type=\"Bridge\" gp_index=\"{}\" bridge_type=\"0-1\" depth=\"0\" "
                    "bridge_pci=\"0000:[{:02x}-{:02x}]\">\n{}</object>\n",
                    ++index_, s * 16, s * 16 + 15, sockets[s].devices);
            text += "</object>\n";
        }
        return text + "</object>\n" + kinds + "</topology>\n";
    }
    std::string gpu(const std::string& address) {
        return fmt::format(
            "<object type=\"PCIDev\" gp_index=\"{}\" pci_busid=\"{}\" pci_type=\"0302 [10de:2330] "
            "[10de:0000] a1\" pci_link_speed=\"0.000000\"/>\n",
            ++index_, address);
    }
    std::string card(const std::string& address, const std::string& name) {
        const int device = ++index_, card = ++index_;
        return fmt::format(
            "<object type=\"PCIDev\" gp_index=\"{}\" pci_busid=\"{}\" pci_type=\"0207 [15b3:101b] "
            "[15b3:0000] 00\" pci_link_speed=\"0.000000\">\n<object type=\"OSDev\" gp_index=\"{}\" "
            "name=\"{}\" osdev_type=\"3\"/>\n</object>\n",
            device, address, card, name);
    }
    static std::string mask(int from, int to) {
        return fmt::format("0x{:08x}", ((uint64_t{1} << to) - 1) & ~((uint64_t{1} << from) - 1));
    }

private:
    std::string object(const std::string& type, int number, int from, int to, const std::string& more = "",
                       bool alone = false) {
        const std::string set = mask(from, to);
        const std::string allowed =
            type == "Machine" ? fmt::format(" allowed_cpuset=\"{}\" allowed_nodeset=\"0x1\"", set) : "";
        return fmt::format(
            "<object type=\"{}\" os_index=\"{}\" cpuset=\"{}\" complete_cpuset=\"{}\" nodeset=\"0x1\" "
            "complete_nodeset=\"0x1\"{} gp_index=\"{}\"{}{}>\n",
            type, number, set, set, allowed, ++index_, more, alone ? "/" : "");
    }
    int index_ = 0;
};

}  // namespace

TEST_CASE("two ranks get a socket each, four half of one, as many as cores a core", "[topology]") {
    const Topology host(two_sockets);
    CHECK(host.sockets() == 2);
    CHECK(host.cores() == 32);
    CHECK(host.places(1, 64) == Places{range(0, 64)});
    CHECK(host.places(2, 32) == Places{range(0, 32), range(32, 64)});
    CHECK(host.places(2, 1) == Places{range(0, 32), range(32, 64)});
    CHECK(host.places(4, 16) == Places{range(0, 16), range(16, 32), range(32, 48), range(48, 64)});
    const Places cores = host.places(32, 2);
    REQUIRE(cores.size() == 32);
    for (int i = 0; i < 32; ++i) CHECK(cores[static_cast<size_t>(i)] == range(2 * i, 2 * i + 2));
    CHECK(host.places(2, 33).empty());
    CHECK(host.places(65, 1).empty());
}

TEST_CASE("cores come before their second threads", "[topology]") {
    const Topology host(two_sockets);
    for (const int ranks : {3, 5, 24, 33, 40, 63, 64}) {
        CAPTURE(ranks);
        const Places places = host.places(ranks, 1);
        check_own(places, static_cast<size_t>(ranks), 1);
        std::set<int> cores;
        for (const auto& place : places)
            for (const int processor : place) cores.insert(processor / 2);
        CHECK(cores.size() == 32);
    }
    // Three ranks of 21 threads cannot have whole sockets.
    check_own(host.places(3, 21), 3, 21);
}

TEST_CASE("processors are numbered as the kernel does", "[topology]") {
    // Second threads have numbers from 32 on, as on many hosts of two sockets.
    const Topology host("pack:2 core:16 pu:2(indexes=2*32:32*1)");
    CHECK(host.places(2, 32) == Places{joined(range(0, 16), range(32, 48)), joined(range(16, 32), range(48, 64))});
    CHECK(host.places(32, 2).front() == std::vector<int>{0, 32});
}

TEST_CASE("what is not allowed is given to no rank", "[topology]") {
    const std::vector<int> one_socket = range(0, 32), few = {0, 1, 2, 3, 40, 41, 42, 43};
    CHECK(Topology(two_sockets, one_socket).places(2, 16) == Places{range(0, 16), range(16, 32)});
    CHECK(Topology(two_sockets, one_socket).sockets() == 1);
    CHECK(Topology(two_sockets, few).places(2, 4) == Places{{0, 1, 2, 3}, {40, 41, 42, 43}});
    CHECK(Topology(two_sockets, few).places(4, 2) == Places{{0, 1}, {2, 3}, {40, 41}, {42, 43}});
    CHECK(Topology(two_sockets, few).cores() == 4);
    // Halves that are not of one socket, where each rank needs as many processors.
    CHECK(Topology(two_sockets, {0, 2, 4, 40}).places(2, 2) == Places{{0, 2}, {4, 40}});
    check_own(Topology(two_sockets, {0, 2, 4, 40}).places(2, 1), 2, 1);
}

TEST_CASE("fast and efficient cores are shared out by themselves", "[topology]") {
    Xml xml;
    const std::string kinds = fmt::format(
        "<cpukind cpuset=\"{}\" forced_efficiency=\"1\"/>\n"
        "<cpukind cpuset=\"{}\" forced_efficiency=\"0\"/>\n",
        Xml::mask(0, 8), Xml::mask(8, 16));
    const Topology host(xml({{{2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1}, ""}}, kinds));
    CHECK(host.cores() == 12);
    CHECK(host.places(2, 8) == Places{joined(range(0, 4), range(8, 12)), joined(range(4, 8), range(12, 16))});
    // More ranks than fast processors: all are needed, and no rank is left without.
    check_own(host.places(16, 1), 16, 1);
}

TEST_CASE("ranks are near their devices, if each has enough processors there", "[topology]") {
    Xml xml;
    const std::string near_second = "0000:10:00.0", also_second = "0000:11:00.0", near_first = "0000:00:01.0";
    const Topology host(
        xml({{{2, 2, 2, 2}, xml.gpu(near_first)}, {{2, 2, 2, 2}, xml.gpu(near_second) + xml.gpu(also_second)}}));
    CHECK(host.places(2, 8) == Places{range(0, 8), range(8, 16)});
    CHECK(host.places(2, 8, {near_second, near_first}) == Places{range(8, 16), range(0, 8)});
    CHECK(host.places(2, 4, {near_second, also_second}) == Places{range(8, 12), range(12, 16)});
    CHECK(host.places(2, 8, {near_second, also_second}) == Places{range(0, 8), range(8, 16)});
    CHECK(host.places(3, 2, {near_second, near_first, also_second}) ==
          Places{range(8, 12), range(0, 8), range(12, 16)});
    CHECK(host.places(2, 8, {"0000:77:00.0", near_first}) == Places{range(0, 8), range(8, 16)});
    CHECK(host.places(2, 8, {"", near_first}) == Places{range(0, 8), range(8, 16)});
}

TEST_CASE("ranks without devices are near network cards where that costs no processor", "[topology]") {
    Xml xml;
    const std::string first = xml.card("0000:00:01.0", "mlx5_1"), second = xml.card("0000:10:00.0", "mlx5_0");
    const auto sockets = [&](const std::string& a, const std::string& b) {
        return xml({{{2, 2, 2, 2}, a}, {{2, 2, 2, 2}, b}});
    };
    const Places apart = {range(0, 8), range(8, 16)};
    CHECK(Topology(sockets("", second)).places(2, 1) == apart);
    CHECK(Topology(sockets(first, second)).places(2, 1) == apart);
    CHECK(Topology(sockets(first, second)).places(4, 4) ==
          Places{range(0, 4), range(4, 8), range(8, 12), range(12, 16)});
}

TEST_CASE("this host's processors are all known", "[topology]") {
    const std::vector<int> allowed = allowed_processors();
    const Topology host(allowed);
    CHECK(host.sockets() >= 1);
    CHECK(host.cores() >= 1);
    CHECK(host.cores() <= std::ssize(allowed));
    for (size_t ranks = 1; ranks <= std::min<size_t>(8, allowed.size()); ++ranks)
        check_own(host.places(static_cast<int64_t>(ranks), static_cast<int64_t>(allowed.size() / ranks)), ranks,
                  allowed.size() / ranks);
    // A processor that the host does not have: ranks get neighbours.
    CHECK(Topology(std::vector<int>{0, 1, 4000, 4001}).places(2, 2) == Places{{0, 1}, {4000, 4001}});
    CHECK_THROWS_WITH(Topology("pack:2 nonsense:3"), "hwloc refuses \"pack:2 nonsense:3\"");
}

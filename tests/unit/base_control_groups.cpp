#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/control_groups.h"

using namespace orrery;
namespace fs = std::filesystem;

namespace {

/// A folder with the files of /proc and /sys that a process in control groups sees.
class Tree {
public:
    Tree() { fs::create_directories(root() + "/proc/self"); }
    ~Tree() { fs::remove_all(root()); }
    Tree(const Tree&) = delete;

    std::string root() const {
        return fmt::format("{}/orrery_groups_{}", fs::temp_directory_path().string(), ::getpid());
    }
    void write(const std::string& file, const std::string& text) {
        fs::create_directories(fs::path(root() + file).parent_path());
        std::ofstream(root() + file) << text << "\n";
    }
    void groups(const std::string& lines) { write("/proc/self/cgroup", lines); }
    /// `shown`: the group that the mount shows as its root.
    void mount(const std::string& place, const std::string& controllers, const std::string& shown = "/") {
        const bool unified = controllers.empty();
        mounts_ += fmt::format("31 23 0:28 {} {} rw,nosuid shared:9 - {} cgroup rw{}{}\n", shown, place,
                               unified ? "cgroup2" : "cgroup", unified ? "" : ",", controllers);
        write("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/vda rw\n" + mounts_);
        fs::create_directories(root() + unescaped(place));
    }
    ControlGroups read() const { return ControlGroups(root()); }

private:
    static std::string unescaped(std::string place) {
        if (const size_t at = place.find("\\040"); at != std::string::npos) place.replace(at, 4, " ");
        return place;
    }
    std::string mounts_;
};

void check_quota(const Tree& tree, double processors, const std::string& file) {
    const auto quota = tree.read().processors();
    REQUIRE(quota);
    CHECK(quota->amount == processors);
    CHECK(quota->file == file);
}

void check_memory(const Tree& tree, double bytes, const std::string& file) {
    const auto memory = tree.read().memory();
    REQUIRE(memory);
    CHECK(memory->amount == bytes);
    CHECK(memory->file == file);
}

const std::string v2 = "/sys/fs/cgroup", cpu = "/sys/fs/cgroup/cpu,cpuacct", mem = "/sys/fs/cgroup/memory";

}  // namespace

TEST_CASE("limits of cgroup v2, of the own group and those above", "[groups]") {
    Tree tree;
    tree.groups("0::/slice/pod/own");
    tree.mount(v2, "");
    fs::create_directories(tree.root() + v2 + "/slice/pod/own");
    CHECK_FALSE(tree.read().processors());
    CHECK_FALSE(tree.read().memory());
    CHECK(tree.read().unseen().empty());
    tree.write(v2 + "/slice/pod/own/cpu.max", "max 100000");
    tree.write(v2 + "/slice/pod/own/memory.max", "max");
    CHECK_FALSE(tree.read().processors());
    tree.write(v2 + "/slice/pod/cpu.max", "250000 100000");
    check_quota(tree, 2.5, v2 + "/slice/pod/cpu.max");
    tree.write(v2 + "/slice/cpu.max", "400000 100000");
    check_quota(tree, 2.5, v2 + "/slice/pod/cpu.max");
    tree.write(v2 + "/slice/pod/own/cpu.max", "10000 20000");
    check_quota(tree, 0.5, v2 + "/slice/pod/own/cpu.max");
    tree.write(v2 + "/slice/memory.max", "4294967296");
    check_memory(tree, 4294967296.0, v2 + "/slice/memory.max");
    tree.write(v2 + "/slice/pod/own/memory.high", "1073741824");
    check_memory(tree, 1073741824.0, v2 + "/slice/pod/own/memory.high");
    // Groups next to it do not count.
    tree.write(v2 + "/slice/other/cpu.max", "1000 100000");
    check_quota(tree, 0.5, v2 + "/slice/pod/own/cpu.max");
}

TEST_CASE("limits of cgroup v1, of the own group and those above", "[groups]") {
    Tree tree;
    tree.groups("5:memory:/a/b\n4:cpuset:/\n3:cpu,cpuacct:/a\n0::/user");
    tree.mount("/sys/fs/cgroup/cpuset", "cpuset");
    tree.mount(cpu, "cpu,cpuacct");
    tree.mount(mem, "memory");
    tree.write(cpu + "/a/cpu.cfs_quota_us", "-1");
    tree.write(cpu + "/a/cpu.cfs_period_us", "100000");
    fs::create_directories(tree.root() + mem + "/a/b");
    CHECK_FALSE(tree.read().processors());
    tree.write(cpu + "/a/cpu.cfs_quota_us", "150000");
    check_quota(tree, 1.5, cpu + "/a/cpu.cfs_quota_us");
    tree.write(mem + "/a/b/memory.limit_in_bytes", "9223372036854771712");
    CHECK_FALSE(tree.read().memory());
    tree.write(mem + "/a/memory.limit_in_bytes", "536870912");
    check_memory(tree, 536870912, mem + "/a/memory.limit_in_bytes");
}

TEST_CASE("a host with cgroup v1 and v2: controllers count where they are", "[groups]") {
    Tree tree;
    tree.groups("4:memory:/a\n0::/b");
    tree.mount(mem, "memory");
    tree.mount("/sys/fs/cgroup/unified", "");
    tree.write(mem + "/a/memory.limit_in_bytes", "1048576");
    tree.write("/sys/fs/cgroup/unified/b/cpu.max", "300000 100000");
    check_memory(tree, 1048576, mem + "/a/memory.limit_in_bytes");
    check_quota(tree, 3, "/sys/fs/cgroup/unified/b/cpu.max");
}

TEST_CASE("in a namespace of control groups, paths are relative to its root", "[groups]") {
    SECTION("the process is in the root") {
        Tree tree;
        tree.groups("0::/");
        tree.mount(v2, "");
        tree.write(v2 + "/cpu.max", "50000 100000");
        check_quota(tree, 0.5, v2 + "/cpu.max");
    }
    SECTION("the mount shows the container's group of a host without such a namespace") {
        Tree tree;
        tree.groups("3:cpu:/docker/1234/child");
        tree.mount(cpu, "cpu", "/docker/1234");
        tree.write(cpu + "/cpu.cfs_quota_us", "200000");
        tree.write(cpu + "/cpu.cfs_period_us", "100000");
        fs::create_directories(tree.root() + cpu + "/child");
        check_quota(tree, 2, cpu + "/cpu.cfs_quota_us");
    }
    SECTION("the process was moved out of what the mount shows") {
        Tree tree;
        tree.groups("0::/../other");
        tree.mount(v2, "");
        tree.write(v2 + "/cpu.max", "50000 100000");
        tree.write(v2 + "/../other/cpu.max", "70000 100000");
        CHECK_FALSE(tree.read().processors());
        CHECK(tree.read().unseen() == std::vector<std::string>{"cpu /../other", "memory /../other"});
    }
    SECTION("the mount is older than the namespace and shows groups above") {
        Tree tree;
        tree.groups("0::/../other");
        tree.mount(v2, "", "/..");
        tree.write(v2 + "/other/cpu.max", "70000 100000");
        check_quota(tree, 0.7, v2 + "/other/cpu.max");
    }
    SECTION("a name that only begins in the same way is another group") {
        Tree tree;
        tree.groups("0::/docker/12345");
        tree.mount(v2, "", "/docker/1234");
        tree.write(v2 + "/cpu.max", "70000 100000");
        CHECK_FALSE(tree.read().processors());
        CHECK(tree.read().unseen().size() == 2);
    }
}

TEST_CASE("what is not mounted is not known, and said", "[groups]") {
    Tree tree;
    CHECK(tree.read().unseen().empty());  // no /proc, or a kernel without control groups
    tree.groups("5:memory:/a\n3:cpu:/\n0::/");
    CHECK_FALSE(tree.read().processors());
    CHECK(tree.read().unseen() == std::vector<std::string>{"memory /a"});
    tree.groups("nonsense\n:::\n0::/a:b");
    tree.mount("/sys/fs/c\\040group", "");
    tree.write("/sys/fs/c group/a:b/cpu.max", "60000 100000");
    check_quota(tree, 0.6, "/sys/fs/c group/a:b/cpu.max");
    tree.write("/sys/fs/c group/a:b/cpu.max", "60000");
    CHECK_FALSE(tree.read().processors());
}

TEST_CASE("memory that is left does not count file caches as used", "[groups]") {
    Tree tree;
    tree.groups("0::/pod/own");
    tree.mount(v2, "");
    CHECK_FALSE(tree.read().memory_left());
    tree.write(v2 + "/pod/own/memory.max", "1000000");
    tree.write(v2 + "/pod/own/memory.current", "700000");
    tree.write(v2 + "/pod/own/memory.stat", "anon 300000\nfile 400000\nactive_file 100000\ninactive_file 200000");
    REQUIRE(tree.read().memory_left());
    CHECK(tree.read().memory_left()->amount == 600000);
    // The group above has a larger limit, but more of it is used.
    tree.write(v2 + "/pod/memory.max", "2000000");
    tree.write(v2 + "/pod/memory.current", "1900000");
    CHECK(tree.read().memory_left()->amount == 100000);
    CHECK(tree.read().memory_left()->file == v2 + "/pod/memory.max");
    tree.write(v2 + "/pod/memory.current", "2100000");
    CHECK(tree.read().memory_left()->amount == 0);

    // memory.high slows processes down, and ends none.
    tree.write(v2 + "/pod/own/memory.high", "1000");
    tree.write(v2 + "/pod/memory.current", "1000000");
    CHECK(tree.read().memory_left()->amount == 600000);
    CHECK(tree.read().memory()->amount == 1000);
    // Caches of names, and free swap of the group and the host, are left, too.
    tree.write(v2 + "/pod/own/memory.stat", "active_file 100000\ninactive_file 200000\nslab_reclaimable 50000");
    CHECK(tree.read().memory_left()->amount == 650000);
    tree.write("/proc/meminfo", "SwapTotal: 500 kB\nSwapFree:        100 kB");
    tree.write(v2 + "/pod/own/memory.swap.current", "10000");
    tree.write(v2 + "/pod/own/memory.swap.max", "30000");
    CHECK(tree.read().memory_left()->amount == 670000);
    tree.write(v2 + "/pod/own/memory.swap.max", "max");
    CHECK(tree.read().memory_left()->amount == 752400);
    tree.write(v2 + "/pod/own/memory.swap.max", "0");
    CHECK(tree.read().memory_left()->amount == 650000);

    tree.write("/proc/meminfo", "");  // of the same folder
    Tree old;
    old.groups("5:memory:/a");
    old.mount(mem, "memory");
    old.write(mem + "/a/memory.limit_in_bytes", "1000000");
    old.write(mem + "/a/memory.usage_in_bytes", "900000");
    old.write(mem + "/a/memory.stat",
              "active_file 5\ninactive_file 5\ntotal_active_file 100000\ntotal_inactive_file 1000");
    CHECK(old.read().memory_left()->amount == 201000);
    old.write("/proc/meminfo", "SwapFree: 100 kB");
    CHECK(old.read().memory_left()->amount == 303400);  // swap is not limited
    old.write(mem + "/a/memory.memsw.usage_in_bytes", "920000");
    old.write(mem + "/a/memory.memsw.limit_in_bytes", "1050000");
    CHECK(old.read().memory_left()->amount == 231000);  // 130000 of both, 100000 of them memory
}

TEST_CASE("the cpuset of the own group, or of the nearest one above that has it", "[groups]") {
    Tree tree;
    tree.groups("0::/job/step");
    tree.mount(v2, "");
    fs::create_directories(tree.root() + v2 + "/job/step");
    CHECK(tree.read().cpuset() == 0);
    tree.write(v2 + "/cpuset.cpus.effective", "0-63");
    CHECK(tree.read().cpuset() == 64);
    tree.write(v2 + "/job/cpuset.cpus.effective", "0-3,8,10-11");
    CHECK(tree.read().cpuset() == 7);

    Tree old;
    old.groups("3:cpuset:/job\n2:cpu:/");
    CHECK(old.read().cpuset() == 0);
    CHECK(old.read().unseen().empty());
    old.mount("/sys/fs/cgroup/cpuset", "cpuset");
    old.write("/sys/fs/cgroup/cpuset/job/cpuset.cpus", "5");
    CHECK(old.read().cpuset() == 1);
    old.write("/sys/fs/cgroup/cpuset/job/cpuset.effective_cpus", "4-5");
    CHECK(old.read().cpuset() == 2);
}

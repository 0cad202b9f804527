// Results for a file that somebody named: looked at before the work, written whole.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <thread>

#include "base/env.h"
#include "base/files/result_file.h"
#include "folders.h"
#include "orrery/error.h"

using namespace orrery;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

struct Folder {
    std::string path = in_build("result_file_test");
    Folder() {
        fs::remove_all(path);
        fs::create_directories(path);
    }
    ~Folder() { fs::remove_all(path); }
    std::string file(const std::string& name) const { return path + "/" + name; }
    size_t entries() const { return system_env()->list(path).size(); }
};

std::string contents(const std::string& file) { return system_env()->read_file(file); }

ino_t inode(const std::string& file) {
    struct stat info {};
    REQUIRE(::stat(file.c_str(), &info) == 0);
    return info.st_ino;
}

}  // namespace

TEST_CASE("a result file is looked at before anything is made") {
    const Folder folder;
    CHECK_THROWS_WITH(require_writable("-o", ""), Contains("-o '': expected the name of a file"));
    CHECK_THROWS_WITH(require_writable("-o", folder.path), Contains("is a folder"));
    CHECK_THROWS_WITH(require_writable("-o", folder.path + "/"), Contains("is a folder"));
    CHECK_THROWS_WITH(require_writable("--trace", folder.file("none/x")),
                      Contains("--trace " + folder.file("none/x") + ": there is no folder " + folder.file("none")));
    CHECK_THROWS_WITH(require_writable("-o", folder.file("none/")), Contains("there is no folder"));
    CHECK_NOTHROW(require_writable("-o", folder.file("x")));
    CHECK_NOTHROW(require_writable("-o", "no_such_file_here"));
    CHECK_NOTHROW(require_writable("-o", "/dev/stdout"));
    CHECK_NOTHROW(require_writable("-o", "/dev/full"));
    std::string disk = folder.file("disk");  // of no device: nothing is opened
    if (::mknod(disk.c_str(), S_IFBLK | 0600, makedev(7, 4000)) != 0) {
        disk.clear();
        for (const fs::directory_entry& entry : fs::directory_iterator("/dev"))
            if (entry.is_block_file() && !entry.is_symlink()) disk = entry.path();
    }
    if (disk.empty())
        WARN("not checked: that a disk is refused; /dev has none, and this user must not make one");
    else
        CHECK_THROWS_WITH(require_writable("-o", disk), Contains("is a block device"));
    fs::remove(folder.file("disk"));
    fs::create_symlink("none/x", folder.file("dangling"));
    CHECK_THROWS_WITH(require_writable("-o", folder.file("dangling")), Contains("there is no folder"));
    fs::create_symlink("ring", folder.file("ring"));
    CHECK_THROWS_WITH(require_writable("-o", folder.file("ring")), Contains("symbolic links"));
    CHECK(folder.entries() == 2);
    write_result(folder.file("x"), "one");
    CHECK_THROWS_WITH(require_writable("-o", folder.file("x/y")), Contains("is no folder"));
    CHECK_NOTHROW(require_writable("-o", folder.file("x")));
    CHECK(contents(folder.file("x")) == "one");
}

TEST_CASE("a result replaces a file whole, and leaves it where it cannot") {
    const Folder folder;
    const std::string file = folder.file("x");
    write_result(file, "one");
    REQUIRE(::chmod(file.c_str(), 0600) == 0);
    const ino_t before = inode(file);
    write_result(file, "two");
    CHECK(contents(file) == "two");
    CHECK(inode(file) != before);
    CHECK(fs::status(file).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
    // A file's largest size stands for a full disk.
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
    const rlimit small{8, limit.rlim_max};
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK_THROWS_WITH(write_result(file, std::string(100, 'x')), Contains("cannot write") && Contains("too large"));
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, handler);
    CHECK(contents(file) == "two");
    CHECK(folder.entries() == 1);
}

TEST_CASE("a result goes where links lead, and into pipes and devices as they are") {
    const Folder folder;
    fs::create_directories(folder.file("far"));
    write_result(folder.file("far/x"), "one");
    fs::create_symlink("far/x", folder.file("near"));
    fs::create_symlink(folder.file("near"), folder.file("nearer"));
    write_result(folder.file("nearer"), "two");
    CHECK(fs::is_symlink(folder.file("nearer")));
    CHECK(fs::is_symlink(folder.file("near")));
    CHECK(contents(folder.file("far/x")) == "two");
    fs::create_symlink("far/y", folder.file("fresh"));
    write_result(folder.file("fresh"), "three");
    CHECK(fs::is_symlink(folder.file("fresh")));
    CHECK(contents(folder.file("far/y")) == "three");

    const std::string pipe = folder.file("pipe");
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    require_writable("-o", pipe);
    std::string read;
    std::thread reader([&] { read = contents(pipe); });
    write_result(pipe, "four");
    reader.join();
    CHECK(read == "four");
    CHECK(fs::is_fifo(pipe));
    CHECK_THROWS_WITH(write_result("/dev/full", "x"), Contains("cannot write /dev/full"));
}

TEST_CASE("a result goes into a file that this process has open behind what is there") {
    const Folder folder;
    const std::string file = folder.file("open");
    const int open = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    REQUIRE(open >= 0);
    REQUIRE(::write(open, "said ", 5) == 5);
    for (const char* name : {"/dev/fd/", "/proc/self/fd/"}) {
        require_writable("-o", name + std::to_string(open));
        write_result(name + std::to_string(open), "written ");
    }
    REQUIRE(::write(open, "done", 4) == 4);
    ::close(open);
    CHECK(contents(file) == "said written written done");
}

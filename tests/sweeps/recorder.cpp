// A library to preload: records, or makes fail, the calls that a process makes on files below SWEEP_ROOT.
//   SWEEP_LOG=FILE     appends each call that changed something, in the order of all processes (see crash_states.h)
//   SWEEP_FAULT=N:KIND the N-th call of this process (from 1) is killed, or fails: kill EIO ENOSPC EDQUOT EROFS EINTR
//                      EPERM EACCES EXDEV EBUSY ESTALE short; EINTR and short are no failures of the call, which
//                      must be made again
//   SWEEP_SAID=FILE    the call that was hit is left there: "fsync /place/step-1/a"
//   SWEEP_STEPS_STAY=1 folders of steps cannot be renamed, as those in a lower layer of an overlay
//   SWEEP_NO_FSYNC=1   fsync does nothing and says that it did: a planted bug
// What the process' environment says when it makes its first call on such a file counts.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>

namespace {

template <class Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

using Write = ssize_t(int, const void*, size_t);
using OpenAt = int(int, const char*, int, ...);
using Fsync = int(int);

const char* text_of(const char* name) {
    const char* text = std::getenv(name);
    return text ? text : "";
}

struct Settings {
    std::string root = text_of("SWEEP_ROOT"), said = text_of("SWEEP_SAID"), kind;
    long nth = 0;
    int log = -1;
    bool no_fsync = *text_of("SWEEP_NO_FSYNC") != 0, steps_stay = *text_of("SWEEP_STEPS_STAY") != 0;

    Settings() {
        const std::string fault = text_of("SWEEP_FAULT");
        if (const size_t colon = fault.find(':'); colon != std::string::npos) {
            nth = std::atol(fault.c_str());
            kind = fault.substr(colon + 1);
        }
        if (const char* path = text_of("SWEEP_LOG"); *path)
            log = next<OpenAt>("openat")(AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    }
};

Settings& settings() {
    static Settings made;
    return made;
}

std::string path_of(int file) {
    char target[PATH_MAX];
    const ssize_t bytes = ::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), target, sizeof target);
    return bytes < 0 ? "" : std::string(target, static_cast<size_t>(bytes));
}

std::string path_at(int folder, const char* name) {
    if (*name == '/') return name;
    if (folder != AT_FDCWD) return path_of(folder) + "/" + name;
    char here[PATH_MAX];
    return std::string(::getcwd(here, sizeof here)) + "/" + name;
}

bool watched(const std::string& path) {
    const char* root = std::getenv("SWEEP_ROOT");
    return root && *root && path.starts_with(root);
}

int code_of(std::string_view kind) {
    if (kind == "EIO") return EIO;
    if (kind == "ENOSPC") return ENOSPC;
    if (kind == "EDQUOT") return EDQUOT;
    if (kind == "EROFS") return EROFS;
    if (kind == "EPERM") return EPERM;
    if (kind == "EACCES") return EACCES;
    if (kind == "EXDEV") return EXDEV;
    if (kind == "EBUSY") return EBUSY;
    if (kind == "ESTALE") return ESTALE;
    return EINTR;
}

void write_text(int file, std::string_view text) {
    while (!text.empty()) {
        const ssize_t done = next<Write>("write")(file, text.data(), text.size());
        if (done <= 0) return;
        text.remove_prefix(static_cast<size_t>(done));
    }
}

std::recursive_mutex order;

/// Holds this process' and the other processes' calls back until the one at hand is made and written down.
class Turn {
public:
    Turn() : lock_(order), log_(settings().log) {
        if (log_ >= 0) ::flock(log_, LOCK_EX);
    }
    ~Turn() {
        if (log_ >= 0) ::flock(log_, LOCK_UN);
    }
    void record(const std::string& what, std::string_view data = {}) const {
        if (log_ < 0) return;
        write_text(log_, what + " " + std::to_string(data.size()) + "\n");
        write_text(log_, data);
    }

private:
    std::lock_guard<std::recursive_mutex> lock_;
    int log_;
};

enum class Hit { no, fails, shortened };

/// Whether this call is the one to be hit; errno is set when it fails.
Hit hit(const char* call, const std::string& path, bool can_be_short = false) {
    static long calls = 0;
    const std::lock_guard lock(order);
    const Settings& s = settings();
    if (s.nth == 0 || ++calls != s.nth) return Hit::no;
    const std::string what = std::string(call) + " " + path + "\n";
    const int file = next<OpenAt>("openat")(AT_FDCWD, s.said.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    write_text(file, what);
    ::close(file);
    if (s.kind == "kill") ::raise(SIGKILL);
    if (s.kind == "short") return can_be_short ? Hit::shortened : Hit::no;
    errno = code_of(s.kind);
    return Hit::fails;
}

int open_at(int folder, const char* name, int flags, mode_t mode) {
    const std::string path = path_at(folder, name);
    const auto open = next<OpenAt>("openat");
    if (!watched(path)) return open(folder, name, flags, mode);
    if (hit("openat", path) == Hit::fails) return -1;
    const Turn turn;
    struct stat info {};
    const bool there = ::fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
    const int file = open(folder, name, flags, mode);
    if (file >= 0 && !there) turn.record("create " + path);
    if (file >= 0 && there && (flags & O_TRUNC)) turn.record("truncate " + path);
    return file;
}

}  // namespace

/// What a saver tells of itself: "acknowledged 10".
extern "C" void sweep_note(const char* text) {
    const Turn turn;
    turn.record(std::string("note ") + text);
}

extern "C" int openat(int folder, const char* name, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open_at(folder, name, flags, mode);
}

extern "C" int open(const char* name, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open_at(AT_FDCWD, name, flags, mode);
}

extern "C" ssize_t write(int file, const void* bytes, size_t count) {
    const auto real = next<Write>("write");
    if (file <= 2) return real(file, bytes, count);
    const std::string path = path_of(file);
    if (!watched(path)) return real(file, bytes, count);
    const Hit struck = hit("write", path, true);
    if (struck == Hit::fails) return -1;
    const Turn turn;
    const off_t at = ::lseek(file, 0, SEEK_CUR);
    const ssize_t done = real(file, bytes, struck == Hit::shortened ? (count + 1) / 2 : count);
    if (done > 0)
        turn.record("write " + path + " " + std::to_string(at),
                    {static_cast<const char*>(bytes), static_cast<size_t>(done)});
    return done;
}

extern "C" ssize_t pread(int file, void* bytes, size_t count, off_t at) {
    const auto real = next<ssize_t(int, void*, size_t, off_t)>("pread");
    const std::string path = path_of(file);
    if (!watched(path)) return real(file, bytes, count, at);
    const Hit struck = hit("pread", path, true);
    if (struck == Hit::fails) return -1;
    return real(file, bytes, struck == Hit::shortened ? (count + 1) / 2 : count, at);
}

extern "C" int fsync(int file) {
    const std::string path = path_of(file);
    if (!watched(path)) return next<Fsync>("fsync")(file);
    if (hit("fsync", path) == Hit::fails) return -1;
    if (settings().no_fsync) return 0;
    const Turn turn;
    const int result = next<Fsync>("fsync")(file);
    if (result == 0) turn.record("fsync " + path);
    return result;
}

extern "C" int fdatasync(int file) { return fsync(file); }

extern "C" int mkdirat(int folder, const char* name, mode_t mode) {
    const std::string path = path_at(folder, name);
    const auto real = next<int(int, const char*, mode_t)>("mkdirat");
    if (!watched(path)) return real(folder, name, mode);
    if (hit("mkdirat", path) == Hit::fails) return -1;
    const Turn turn;
    const int result = real(folder, name, mode);
    if (result == 0) turn.record("mkdir " + path);
    return result;
}

extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
    const std::string path = path_at(from_folder, from), target = path_at(to_folder, to);
    const auto real = next<int(int, const char*, int, const char*, unsigned)>("renameat2");
    if (!watched(path)) return real(from_folder, from, to_folder, to, flags);
    if (hit("renameat2", path) == Hit::fails) return -1;
    const std::string name = path.substr(path.rfind('/') + 1);
    if (settings().steps_stay && name.starts_with("step-") && name.find('.') == std::string::npos)
        return errno = EXDEV, -1;
    const Turn turn;
    const int result = real(from_folder, from, to_folder, to, flags);
    if (result == 0) turn.record("rename " + path + " " + target);
    return result;
}

extern "C" int renameat(int from_folder, const char* from, int to_folder, const char* to) {
    return renameat2(from_folder, from, to_folder, to, 0);
}

extern "C" int rename(const char* from, const char* to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

extern "C" int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) {
    const std::string path = path_at(from_folder, from), target = path_at(to_folder, to);
    const auto real = next<int(int, const char*, int, const char*, int)>("linkat");
    if (!watched(path)) return real(from_folder, from, to_folder, to, flags);
    if (hit("linkat", path) == Hit::fails) return -1;
    const Turn turn;
    const int result = real(from_folder, from, to_folder, to, flags);
    if (result == 0) turn.record("link " + path + " " + target);
    return result;
}

extern "C" int unlinkat(int folder, const char* name, int flags) {
    const std::string path = path_at(folder, name);
    const auto real = next<int(int, const char*, int)>("unlinkat");
    if (!watched(path)) return real(folder, name, flags);
    if (hit("unlinkat", path) == Hit::fails) return -1;
    const Turn turn;
    const int result = real(folder, name, flags);
    if (result == 0) turn.record("unlink " + path);
    return result;
}

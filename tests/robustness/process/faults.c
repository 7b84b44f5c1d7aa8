/* System calls that fail on request: preloaded into a server (LD_PRELOAD), built and steered by tests/robustness/process/faults.py.
 *
 * The file named by FAULTS holds one rule, or nothing: KIND PATTERN FIRST TIMES ACTION
 *   KIND     write, sync, truncate, read, open, create, rename, remove or mkdir; "any" for all but read and open
 *   PATTERN  of the path, as fnmatch(3) has it; '*' goes over '/'
 *   FIRST    the rule acts from the FIRST-th call on that it fits, counted from 1
 *   TIMES    on so many calls; 0: on all from there
 *   ACTION   an errno: the call does nothing and fails; SHORT: half is written; KILL: the process ends before it; PASS
 * Each call that the rule fits is told in FAULTS.calls: KIND PATH and "fails" or "passes".
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PASS = 0, SHORT = -1, KILL = -9 };

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static char rule[PATH_MAX + 64];
static int fitting;

static int raw_open(const char *path, int flags) {
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0644);
}

/* Reads the rule anew; a rule that has changed counts from the start. */
static void refresh(const char *control) {
    char now[sizeof rule] = "";
    int file = raw_open(control, O_RDONLY);
    if (file >= 0) {
        if (syscall(SYS_read, file, now, sizeof now - 1) < 0) now[0] = 0;
        syscall(SYS_close, file);
    }
    if (strcmp(now, rule) != 0) {
        strcpy(rule, now);
        fitting = 0;
    }
}

static void tell(const char *control, const char *kind, const char *path, int action) {
    char name[PATH_MAX + 8], line[PATH_MAX + 64];
    snprintf(name, sizeof name, "%s.calls", control);
    int length = snprintf(line, sizeof line, "%s %s %s\n", kind, path, action == PASS ? "passes" : "fails");
    int file = raw_open(name, O_WRONLY | O_CREAT | O_APPEND);
    if (file >= 0) {
        syscall(SYS_write, file, line, (size_t)length);
        syscall(SYS_close, file);
    }
}

static int decide(const char *kind, const char *path) {
    const char *control = getenv("FAULTS");
    char wanted[16], pattern[PATH_MAX];
    int first, times, action, result = PASS;
    if (control == NULL) return PASS;
    pthread_mutex_lock(&one_at_a_time);
    refresh(control);
    if (sscanf(rule, "%15s %4095s %d %d %d", wanted, pattern, &first, &times, &action) == 5
        && (strcmp(wanted, kind) == 0 || (strcmp(wanted, "any") == 0 && strcmp(kind, "open") != 0 && strcmp(kind, "read") != 0))
        && fnmatch(pattern, path, 0) == 0) {
        fitting++;
        if (fitting >= first && (times == 0 || fitting < first + times)) result = action;
        tell(control, kind, path, result);
        if (result == KILL) kill(getpid(), SIGKILL);
    }
    pthread_mutex_unlock(&one_at_a_time);
    return result;
}

static int of_path(const char *kind, const char *path) {
    int saved = errno, action = decide(kind, path);
    errno = action > 0 ? action : saved;
    return action;
}

static int of_file(const char *kind, int descriptor) {
    char link[64], path[PATH_MAX];
    int saved = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (length < 0) return PASS;
    path[length] = 0;
    return of_path(kind, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define SYNC(name) \
    int name(int descriptor) { return of_file("sync", descriptor) > 0 ? -1 : REAL(name)(descriptor); }
SYNC(fsync)
SYNC(fdatasync)

#define PREAD(name, position_type) \
    ssize_t name(int descriptor, void *data, size_t size, position_type position) { \
        return of_file("read", descriptor) > 0 ? -1 : REAL(name)(descriptor, data, size, position); \
    }
PREAD(pread, off_t)
PREAD(pread64, off64_t)

#define PWRITE(name, position_type) \
    ssize_t name(int descriptor, const void *data, size_t size, position_type position) { \
        int action = of_file("write", descriptor); \
        if (action > 0) return -1; \
        return REAL(name)(descriptor, data, action == SHORT && size > 1 ? size / 2 : size, position); \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t write(int descriptor, const void *data, size_t size) {
    int action = of_file("write", descriptor);
    if (action > 0) return -1;
    return REAL(write)(descriptor, data, action == SHORT && size > 1 ? size / 2 : size);
}

#define PWRITEV(name, position_type) \
    ssize_t name(int descriptor, const struct iovec *parts, int count, position_type position) { \
        int action = of_file("write", descriptor); \
        if (action > 0) return -1; \
        return REAL(name)(descriptor, parts, action == SHORT && count > 1 ? count / 2 : count, position); \
    }
PWRITEV(pwritev, off_t)
PWRITEV(pwritev64, off64_t)

#define TRUNCATE(name, size_type) \
    int name(int descriptor, size_type size) { \
        return of_file("truncate", descriptor) > 0 ? -1 : REAL(name)(descriptor, size); \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        mode_t mode = 0; \
        if (flags & O_CREAT) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        int action = of_path(flags & O_CREAT ? "create" : "open", path); \
        return action > 0 ? -1 : REAL(name)(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

int rename(const char *from, const char *to) { return of_path("rename", to) > 0 ? -1 : REAL(rename)(from, to); }
int unlink(const char *path) { return of_path("remove", path) > 0 ? -1 : REAL(unlink)(path); }
int mkdir(const char *path, mode_t mode) { return of_path("mkdir", path) > 0 ? -1 : REAL(mkdir)(path, mode); }

/* File systems that fail, for programs that are started with this preloaded; see shim.py.
 *
 * HARNESS_SHIM holds rules, separated by semicolons: a function, a pattern of names after a colon where only some files
 * are meant, and what it fails with. `flock=ENOLCK;open:window.json=EIO;read:*.gz=ESTALE`. A pattern with a slash is
 * of the whole path, any other one of the last name. `EIO@3` is of the third such call of a process alone, `EIO@3+` of
 * all from the third on. Without the variable nothing fails.
 *
 * HARNESS_SHIM_CLOCK makes the clock that tells the date jump: `-3600@2` sets it back by an hour two seconds after the
 * process first looks at it. No other clock jumps, on any machine.
 *
 * One line a function in the table at the end; functions that take a descriptor are looked up by what it has open.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *name;
    int number;
} ERRORS[] = {
    {"EACCES", EACCES}, {"EDQUOT", EDQUOT}, {"EEXIST", EEXIST}, {"EINTR", EINTR},   {"EINVAL", EINVAL},
    {"EIO", EIO},       {"EMFILE", EMFILE}, {"EMLINK", EMLINK}, {"ENOENT", ENOENT}, {"ENOLCK", ENOLCK},
    {"ENOSPC", ENOSPC}, {"ENOSYS", ENOSYS}, {"EOPNOTSUPP", EOPNOTSUPP},             {"EPERM", EPERM},
    {"EROFS", EROFS},   {"ESTALE", ESTALE}, {"EXDEV", EXDEV},   {"EWOULDBLOCK", EWOULDBLOCK},
};

static unsigned counts[64]; /* Calls that each rule has matched. */

/* Whether a rule that matched is of this call: what stands after the @, if anything does. */
static int is_due(const char *when, unsigned rule) {
    unsigned call = __atomic_add_fetch(&counts[rule % 64], 1, __ATOMIC_RELAXED), first = strtoul(when, (char **)&when, 10);
    return *when == '+' ? call >= first : call == first;
}

static int number_of(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (strlen(ERRORS[i].name) == length && !strncmp(ERRORS[i].name, name, length)) return ERRORS[i].number;
    fprintf(stderr, "HARNESS_SHIM: no error is called %.*s\n", (int)length, name);
    abort();
}

static int matches(const char *pattern, const char *path) {
    const char *last = strrchr(path, '/');
    return !fnmatch(pattern, strchr(pattern, '/') || !last ? path : last + 1, 0);
}

/* What a call of this function on this path fails with; 0 where no rule says that it does. */
static int failure(const char *function, const char *path) {
    const char *rules = getenv("HARNESS_SHIM");
    for (unsigned rule = 0; rules && *rules; rule++) {
        size_t length = strcspn(rules, ";");
        const char *equals = memchr(rules, '=', length);
        if (equals) {
            const char *colon = memchr(rules, ':', equals - rules);
            size_t of_name = (colon ? colon : equals) - rules;
            char pattern[PATH_MAX] = "*";
            if (colon) snprintf(pattern, sizeof pattern, "%.*s", (int)(equals - colon - 1), colon + 1);
            if (strlen(function) == of_name && !strncmp(function, rules, of_name) && matches(pattern, path ? path : "")) {
                const char *at = memchr(equals, '@', rules + length - equals);
                if (!at || is_due(at + 1, rule)) return number_of(equals + 1, (at ? at : rules + length) - equals - 1);
            }
        }
        rules += length + (rules[length] == ';');
    }
    return 0;
}

static int failure_of(const char *function, int descriptor) {
    char link[64], path[PATH_MAX];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    path[length > 0 ? length : 0] = 0;
    return failure(function, path);
}

/* A function of the C library that fails where a rule says so: its type, what it is called in rules and in the library,
 * its parameters and arguments, what tells the file: `failure` by a path, `failure_of` by a descriptor, and what it returns when it fails. */
#define FAILING(type, rule, function, parameters, arguments, which, what, bad)           \
    type function parameters {                                                           \
        int number = which(#rule, what);                                                 \
        if (number) return errno = number, bad;                                          \
        static type(*real) parameters;                                                   \
        if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #function);               \
        return real arguments;                                                           \
    }

/* open and its kind take a mode where they may make the file. */
#define OPENING(function, parameters, arguments)                                         \
    int function parameters {                                                            \
        mode_t mode = 0;                                                                 \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                           \
            va_list rest;                                                                \
            va_start(rest, flags);                                                       \
            mode = va_arg(rest, mode_t);                                                 \
            va_end(rest);                                                                \
        }                                                                                \
        int number = failure("open", path);                                              \
        if (number) return errno = number, -1;                                           \
        static int(*real) parameters;                                                    \
        if (!real) real = (int(*) parameters)dlsym(RTLD_NEXT, #function);                \
        return real arguments;                                                           \
    }

OPENING(open, (const char *path, int flags, ...), (path, flags, mode))
OPENING(open64, (const char *path, int flags, ...), (path, flags, mode))
OPENING(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPENING(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode))

#define PATH_TO const char *path, const char *to
#define STAT struct stat *found
#define STAT64 struct stat64 *found
FAILING(FILE *, open, fopen, (const char *path, const char *how), (path, how), failure, path, NULL)
FAILING(FILE *, open, fopen64, (const char *path, const char *how), (path, how), failure, path, NULL)
FAILING(ssize_t, read, read, (int file, void *into, size_t size), (file, into, size), failure_of, file, -1)
FAILING(ssize_t, write, write, (int file, const void *from, size_t size), (file, from, size), failure_of, file, -1)
FAILING(int, fsync, fsync, (int file), (file), failure_of, file, -1)
FAILING(int, flock, flock, (int file, int how), (file, how), failure_of, file, -1)
FAILING(int, stat, stat, (const char *path, STAT), (path, found), failure, path, -1)
FAILING(int, stat, stat64, (const char *path, STAT64), (path, found), failure, path, -1)
FAILING(int, stat, lstat, (const char *path, STAT), (path, found), failure, path, -1)
FAILING(int, stat, lstat64, (const char *path, STAT64), (path, found), failure, path, -1)
FAILING(int, stat, fstatat, (int at, const char *path, STAT, int how), (at, path, found, how), failure, path, -1)
FAILING(int, stat, fstatat64, (int at, const char *path, STAT64, int how), (at, path, found, how), failure, path, -1)
FAILING(int, fstat, fstat, (int file, STAT), (file, found), failure_of, file, -1)
FAILING(int, fstat, fstat64, (int file, STAT64), (file, found), failure_of, file, -1)
FAILING(DIR *, opendir, opendir, (const char *path), (path), failure, path, NULL)
FAILING(DIR *, opendir, fdopendir, (int file), (file), failure_of, file, NULL)
FAILING(struct dirent *, readdir, readdir, (DIR * folder), (folder), failure_of, dirfd(folder), NULL)
FAILING(struct dirent64 *, readdir, readdir64, (DIR * folder), (folder), failure_of, dirfd(folder), NULL)
FAILING(int, mkdir, mkdir, (const char *path, mode_t mode), (path, mode), failure, path, -1)
FAILING(int, rename, rename, (PATH_TO), (path, to), failure, to, -1)
FAILING(int, link, link, (PATH_TO), (path, to), failure, to, -1)
FAILING(int, unlink, unlink, (const char *path), (path), failure, path, -1)

/* Nanoseconds by which this clock has jumped. */
static long long jump(clockid_t clock) {
    const char *rule = getenv("HARNESS_SHIM_CLOCK");
    if (!rule || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return 0;
    const char *at = strchr(rule, '@');
    if (!at) abort();
    static long long first;
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    long long since = now.tv_sec * 1000000000LL + now.tv_nsec;
    if (!first) first = since;
    return since - first < atof(at + 1) * 1e9 ? 0 : (long long)(atof(rule) * 1e9);
}

int clock_gettime(clockid_t clock, struct timespec *found) {
    int failed = syscall(SYS_clock_gettime, clock, found);
    if (failed) return failed;
    long long ns = found->tv_sec * 1000000000LL + found->tv_nsec + jump(clock);
    found->tv_sec = ns / 1000000000LL;
    found->tv_nsec = ns % 1000000000LL;
    return 0;
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return found ? *found = now.tv_sec : now.tv_sec;
}

int gettimeofday(struct timeval *found, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *found = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

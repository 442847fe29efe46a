/* Preloaded into bella (LD_PRELOAD): counts the operations that change files below TORTURE_DIR and interrupts the one
 * with the number TORTURE_AT, counted from 1.
 *
 * TORTURE_DO   kill: the process is killed before the operation
 *              enospc, eio: the operation fails with this error, and so do all later ones
 *              enospc-once, eio-once: only this one fails
 *              cut: the mapping of a file with that number succeeds, and the file is cut to TORTURE_KEEP bytes
 *              TORTURE_DELAY microseconds later
 * TORTURE_LOG  gets a line per operation: its name and its path
 *
 * With TORTURE_AT=0 nothing is interrupted, and the log tells how many operations there are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long count;

static int is_below(const char *path) {
    const char *folder = getenv("TORTURE_DIR");
    return folder && path && strncmp(path, folder, strlen(folder)) == 0;
}

/* Returns an error number if the operation is to fail, else 0. */
static int interrupted(const char *operation, const char *path) {
    if (!is_below(path)) return 0;
    long now = atomic_fetch_add(&count, 1) + 1;
    const char *log = getenv("TORTURE_LOG");
    if (log) {
        char line[4352];
        int length = snprintf(line, sizeof line, "%s %s\n", operation, path);
        long file = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0644);
        if (file >= 0) {
            syscall(SYS_write, file, line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
            syscall(SYS_close, file);
        }
    }
    const char *at = getenv("TORTURE_AT"), *what = getenv("TORTURE_DO");
    long target = at ? atol(at) : 0;
    if (target == 0 || !what || now < target || strcmp(what, "cut") == 0) return 0;
    if (strcmp(what, "kill") == 0) {
        if (now == target) syscall(SYS_kill, getpid(), SIGKILL);
        return 0;
    }
    if (strstr(what, "-once") && now != target) return 0;
    return strncmp(what, "enospc", 6) == 0 ? ENOSPC : EIO;
}

static atomic_long maps;

static long number(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

/* Waits and cuts a file off. */
static void *cut_later(void *path) {
    usleep((useconds_t)number("TORTURE_DELAY"));
    syscall(SYS_truncate, path, number("TORTURE_KEEP"));
    free(path);
    return NULL;
}

/* Cuts a mapped file off if it is the one that is to be cut, and logs it. */
static void cut(int file) {
    const char *what = getenv("TORTURE_DO");
    if (file < 0 || !what || strcmp(what, "cut") != 0) return;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    if (!is_below(path)) return;
    long now = atomic_fetch_add(&maps, 1) + 1;
    const char *at = getenv("TORTURE_AT"), *log = getenv("TORTURE_LOG");
    FILE *lines = log ? fopen(log, "a") : NULL;
    if (lines) {
        fprintf(lines, "map %s\n", path);
        fclose(lines);
    }
    if (!at || atol(at) != now) return;
    pthread_t thread;
    char *own = strdup(path);
    if (number("TORTURE_DELAY") == 0) cut_later(own);
    else if (pthread_create(&thread, NULL, cut_later, own) == 0) pthread_detach(thread);
}

void *mmap(void *start, size_t length, int protection, int flags, int file, off_t at) {
    void *found = (void *)syscall(SYS_mmap, start, length, protection, flags, file, at);
    if (found != MAP_FAILED) cut(file);
    return found;
}

void *mmap64(void *start, size_t length, int protection, int flags, int file, off64_t at) {
    return mmap(start, length, protection, flags, file, at);
}

static int interrupted_file(const char *operation, int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return interrupted(operation, path);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define STOP(found, failed) do { int error = (found); if (error) { errno = error; return (failed); } } while (0)
#define CHANGES(flags) (((flags) & O_ACCMODE) != O_RDONLY || ((flags) & (O_CREAT | O_TRUNC)))

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        if (CHANGES(flags)) STOP(interrupted("open", path), -1); \
        return NEXT(name)(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        if (CHANGES(flags)) STOP(interrupted("open", path), -1); \
        return NEXT(name)(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int file, const void *bytes, size_t length) {
    STOP(interrupted_file("write", file), -1);
    return NEXT(write)(file, bytes, length);
}

ssize_t writev(int file, const struct iovec *parts, int number) {
    STOP(interrupted_file("write", file), -1);
    return NEXT(writev)(file, parts, number);
}

ssize_t pwrite(int file, const void *bytes, size_t length, off_t at) {
    STOP(interrupted_file("write", file), -1);
    return NEXT(pwrite)(file, bytes, length, at);
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t at) {
    STOP(interrupted_file("write", file), -1);
    return NEXT(pwrite64)(file, bytes, length, at);
}

int ftruncate(int file, off_t length) {
    STOP(interrupted_file("truncate", file), -1);
    return NEXT(ftruncate)(file, length);
}

int ftruncate64(int file, off64_t length) {
    STOP(interrupted_file("truncate", file), -1);
    return NEXT(ftruncate64)(file, length);
}

int fsync(int file) {
    STOP(interrupted_file("sync", file), -1);
    return NEXT(fsync)(file);
}

int fdatasync(int file) {
    STOP(interrupted_file("sync", file), -1);
    return NEXT(fdatasync)(file);
}

int rename(const char *from, const char *to) {
    STOP(interrupted("rename", to), -1);
    return NEXT(rename)(from, to);
}

int unlink(const char *path) {
    STOP(interrupted("unlink", path), -1);
    return NEXT(unlink)(path);
}

int unlinkat(int folder, const char *path, int flags) {
    STOP(interrupted("unlink", path), -1);
    return NEXT(unlinkat)(folder, path, flags);
}

int mkdir(const char *path, mode_t mode) {
    STOP(interrupted("mkdir", path), -1);
    return NEXT(mkdir)(path, mode);
}

int rmdir(const char *path) {
    STOP(interrupted("rmdir", path), -1);
    return NEXT(rmdir)(path);
}

int link(const char *from, const char *to) {
    STOP(interrupted("link", to), -1);
    return NEXT(link)(from, to);
}

int symlink(const char *from, const char *to) {
    STOP(interrupted("link", to), -1);
    return NEXT(symlink)(from, to);
}

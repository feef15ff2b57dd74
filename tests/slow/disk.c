/* Record the calls of a command that change files below one folder; let one fail, or kill the process at it.
 *
 * Loaded by LD_PRELOAD. DISK_FOLDER is the folder (real path), DISK_LOG the file for the records, see tests/slow/disk.py.
 * DISK_FAULT is "kind n errno":
 *   fail              the n-th call fails with errno, once
 *   full              from the n-th call on calls that need space fail; the first such write is cut in half
 *   before, halfway   the process is killed before, or in the middle of (a write), the n-th call
 *
 * The environment is read at each call until it is set: so a process that forks commands can be loaded with the library.
 * SQLite's shared memory files (-shm) do not count. Files are only reached by system calls: libc's wrappers are these.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, WRITE, TRUNCATE, RENAME, UNLINK, MKDIR, SYNC, CLOSE, RMDIR };
enum { CREATED = 1, EMPTIED = 2, FOLDER = 4 };
enum { NONE, FAIL, FULL, BEFORE, HALFWAY };
static const char *KINDS[] = {"", "fail", "full", "before", "halfway"};

struct entry {
    uint32_t number;
    uint8_t call, flags;
    uint16_t path, other, error;
    int32_t fd;
    uint64_t at;
    uint32_t size;
} __attribute__((packed));

#define MAX_FILES 4096
#define PATH 4096

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pid_t recorded;
static char folder[PATH], *paths[MAX_FILES];
static size_t folder_length;
static int records = -1, fault, fault_errno, cut;
static uint32_t fault_at, calls;

/* Whether this process is recorded. A child that has not yet become another program is not. */
static int on(void) {
    if (recorded) return recorded == getpid();
    const char *where = getenv("DISK_FOLDER"), *log = getenv("DISK_LOG"), *what = getenv("DISK_FAULT");
    if (!where || !log) return 0;
    pthread_mutex_lock(&mutex);
    if (!recorded) {
        char kind[16] = "";
        snprintf(folder, sizeof folder, "%s", where);
        folder_length = strlen(folder);
        records = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (what && sscanf(what, "%15s %u %d", kind, &fault_at, &fault_errno) == 3)
            for (int each = FAIL; each <= HALFWAY; each++)
                if (!strcmp(kind, KINDS[each])) fault = each;
        recorded = getpid();
    }
    pthread_mutex_unlock(&mutex);
    return recorded == getpid();
}

/* The absolute path of a file below the folder; NULL of any other file. */
static char *inside(int at, const char *path, char *full) {
    if (!path || !on()) return NULL;
    if (path[0] == '/')
        snprintf(full, PATH, "%s", path);
    else if (at == AT_FDCWD) {
        char here[PATH];
        if (!getcwd(here, sizeof here)) return NULL;
        snprintf(full, PATH, "%.2000s/%.2000s", here, path);
    } else {
        if (at < 0 || at >= MAX_FILES || !paths[at]) return NULL;
        snprintf(full, PATH, "%.2000s/%.2000s", paths[at], path);
    }
    size_t length = strlen(full);
    if (strncmp(full, folder, folder_length) || (full[folder_length] != '/' && full[folder_length])) return NULL;
    return length > 4 && !strcmp(full + length - 4, "-shm") ? NULL : full;
}

static char *path_of(int fd) { return fd >= 0 && fd < MAX_FILES && paths[fd] && on() ? paths[fd] : NULL; }

static void record(uint32_t number, int call, int flags, int fd, uint64_t at, const char *path, const char *other,
                   const void *data, size_t size, int error) {
    struct entry entry = {number, call, flags, strlen(path), other ? strlen(other) : 0, error, fd, at, size};
    struct iovec parts[] = {
        {&entry, sizeof entry}, {(void *)path, entry.path}, {(void *)other, entry.other}, {(void *)data, size}};
    if (syscall(SYS_writev, records, parts, 4) < 0) abort();
}

static void die(int call, const char *path) {
    record(calls, call, 0, -1, 0, path, NULL, NULL, 0, SIGKILL);
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Count a call; returns the error with which it fails, 0 if it does not, -1 if it is a write to be cut in half. */
static int counted(int call, int needs_space, const char *path) {
    if (++calls < fault_at || !fault) return 0;
    int here = calls == fault_at;
    if (here && (fault == BEFORE || (fault == HALFWAY && call != WRITE))) die(call, path);
    if (here && fault == HALFWAY) return -1;
    if (fault >= BEFORE || (fault == FAIL && !here) || (fault == FULL && !needs_space)) return 0;
    if (fault == FULL && call == WRITE && !cut) return cut = 1, -1;
    record(calls, call, 0, -1, 0, path, NULL, NULL, 0, fault_errno);
    return fault_errno;
}

#define FAILED(error) return pthread_mutex_unlock(&mutex), errno = (error), -1
#define RETURN(answer, problem) return pthread_mutex_unlock(&mutex), errno = (problem), answer

static int opened(int at, const char *path, int flags, mode_t mode) {
    char full[PATH];
    if (!inside(at, path, full)) return syscall(SYS_openat, at, path, flags, mode);
    int writes = (flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC), error;
    struct stat before, now;
    pthread_mutex_lock(&mutex);
    int created = flags & O_CREAT && lstat(full, &before);
    if (writes && (error = counted(OPEN, created, full)) > 0) FAILED(error);
    int fd = syscall(SYS_openat, at, path, flags, mode), problem = errno;
    if (fd >= 0 && fd < MAX_FILES) {
        free(paths[fd]);
        paths[fd] = strdup(full);
        int how = (created ? CREATED : 0) | (flags & O_TRUNC ? EMPTIED : 0);
        if (!fstat(fd, &now) && S_ISDIR(now.st_mode)) how |= FOLDER;
        record(writes ? calls : 0, OPEN, how, fd, 0, full, NULL, NULL, 0, 0);
    }
    RETURN(fd, problem);
}

#define OPENS(name, at_parameter, at)                                           \
    int name(at_parameter const char *path, int flags, ...) {                   \
        va_list list;                                                           \
        va_start(list, flags);                                                  \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0; \
        va_end(list);                                                           \
        return opened(at, path, flags, mode);                                   \
    }
#define COMMA ,
OPENS(open, , AT_FDCWD)
OPENS(open64, , AT_FDCWD)
OPENS(openat, int at COMMA, at)
OPENS(openat64, int at COMMA, at)

int close(int fd) {
    char *path = path_of(fd);
    if (!path) return syscall(SYS_close, fd);
    pthread_mutex_lock(&mutex);
    paths[fd] = NULL;
    int writes = (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
    int error = writes ? counted(CLOSE, 0, path) : 0, answer = syscall(SYS_close, fd);
    if (error <= 0) record(writes ? calls : 0, CLOSE, 0, fd, 0, path, NULL, NULL, 0, 0);
    free(path);
    if (error > 0) FAILED(error);
    RETURN(answer, errno);
}

static ssize_t put(int fd, const void *data, size_t size, off_t at) {
    return at < 0 ? syscall(SYS_write, fd, data, size) : syscall(SYS_pwrite64, fd, data, size, at);
}

/* Write at a place, or at the file's position if that is negative. */
static ssize_t written(int fd, const void *data, size_t size, off_t at) {
    char *path = path_of(fd);
    if (!path || !size) return put(fd, data, size, at);
    pthread_mutex_lock(&mutex);
    int error = counted(WRITE, 1, path);
    if (error > 0) FAILED(error);
    struct stat now;
    off_t append = fcntl(fd, F_GETFL) & O_APPEND && !fstat(fd, &now) ? now.st_size : -1;
    uint64_t place = at >= 0 ? at : append >= 0 ? append : lseek(fd, 0, SEEK_CUR);
    ssize_t answer = put(fd, data, error < 0 && size > 1 ? size / 2 : size, at);
    int problem = errno;
    if (answer > 0) record(calls, WRITE, 0, fd, place, path, NULL, data, answer, 0);
    if (error < 0 && fault == HALFWAY) die(WRITE, path);
    if (error < 0) record(calls, WRITE, 0, -1, 0, path, NULL, NULL, 0, fault_errno);
    RETURN(answer, problem);
}

ssize_t write(int fd, const void *data, size_t size) { return written(fd, data, size, -1); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return written(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return written(fd, data, size, at); }
/* One part at a time, which is all that these promise. */
ssize_t writev(int fd, const struct iovec *parts, int count) {
    while (count > 1 && !parts->iov_len) parts++, count--;
    return path_of(fd) ? written(fd, parts->iov_base, parts->iov_len, -1) : syscall(SYS_writev, fd, parts, count);
}
ssize_t sendfile64(int to, int from, off64_t *at, size_t size) {
    static char piece[1 << 16];
    if (!path_of(to)) return syscall(SYS_sendfile, to, from, at, size);
    size_t most = size < sizeof piece ? size : sizeof piece;
    ssize_t got = at ? pread(from, piece, most, *at) : read(from, piece, most);
    ssize_t answer = got > 0 ? written(to, piece, got, -1) : got;
    if (answer > 0 && at) *at += answer;
    return answer;
}
ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t size, unsigned flags) {
    if (path_of(to)) return errno = EOPNOTSUPP, -1;
    return syscall(SYS_copy_file_range, from, from_at, to, to_at, size, flags);
}
int fallocate(int fd, int mode, off_t at, off_t size) {
    return path_of(fd) ? errno = EOPNOTSUPP, -1 : syscall(SYS_fallocate, fd, mode, at, size);
}
int fallocate64(int fd, int mode, off64_t at, off64_t size) { return fallocate(fd, mode, at, size); }
int posix_fallocate(int fd, off_t at, off_t size) { return fallocate(fd, 0, at, size) ? errno : 0; }
int posix_fallocate64(int fd, off64_t at, off64_t size) { return fallocate(fd, 0, at, size) ? errno : 0; }

static int at_file(int call, int fd, off_t at, int number) {
    char *path = path_of(fd);
    if (!path) return syscall(number, fd, at);
    pthread_mutex_lock(&mutex);
    int error = counted(call, 0, path);
    if (error > 0) FAILED(error);
    int answer = syscall(number, fd, at), problem = errno;
    if (!answer) record(calls, call, 0, fd, at, path, NULL, NULL, 0, 0);
    RETURN(answer, problem);
}

int ftruncate(int fd, off_t size) { return at_file(TRUNCATE, fd, size, SYS_ftruncate); }
int ftruncate64(int fd, off64_t size) { return at_file(TRUNCATE, fd, size, SYS_ftruncate); }
int fsync(int fd) { return at_file(SYNC, fd, 0, SYS_fsync); }
int fdatasync(int fd) { return at_file(SYNC, fd, 0, SYS_fdatasync); }

/* A call that changes names; more is its last argument: flags, a mode, or the folder of the other name. */
static int at_name(int call, int at, const char *name, const char *other, int number, long more) {
    char one[PATH], two[PATH], *first = inside(at, name, one), *second = inside(AT_FDCWD, other, two);
    if (!first && !second)
        return other ? syscall(number, at, name, AT_FDCWD, other, 0) : syscall(number, at, name, more);
    if (!first) snprintf(first = one, PATH, "%s", name);
    pthread_mutex_lock(&mutex);
    int error = counted(call, call == MKDIR, second ? second : first);
    if (error > 0) FAILED(error);
    int answer = other ? syscall(number, at, name, AT_FDCWD, other, 0) : syscall(number, at, name, more);
    int problem = errno;
    if (!answer) record(calls, call, 0, -1, 0, first, second, NULL, 0, 0);
    RETURN(answer, problem);
}

int rename(const char *from, const char *to) { return at_name(RENAME, AT_FDCWD, from, to, SYS_renameat2, 0); }
int unlinkat(int at, const char *path, int flags) {
    return at_name(flags & AT_REMOVEDIR ? RMDIR : UNLINK, at, path, NULL, SYS_unlinkat, flags);
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    struct stat found;
    return unlinkat(AT_FDCWD, path, !lstat(path, &found) && S_ISDIR(found.st_mode) ? AT_REMOVEDIR : 0);
}
int mkdir(const char *path, mode_t mode) { return at_name(MKDIR, AT_FDCWD, path, NULL, SYS_mkdirat, mode); }

/* A disk that fails: calls that change files below one folder are numbered, fail, kill, or are written down.
 *
 * Loaded by LD_PRELOAD, it does nothing until the environment says so, which it looks for at each call until then; so
 * a process that forks others can be loaded with it once. DISK_FOLDER is the folder (real path), DISK_LOG the file that
 * all is written down in, see tests/soak/disk.py for how; DISK_FAULT is "kind n errno":
 *   fail      the n-th call fails with errno, once
 *   failing   the n-th call and all after it fail
 *   full      from the n-th call on what needs room fails, and the first of such writes is cut in half
 *   before, halfway, after    the process is killed before, in the middle of (a write), or after the n-th call
 *
 * Files that SQLite maps into memory (-shm) do not count.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, WRITE, TRUNCATE, RENAME, UNLINK, LINK, SYMLINK, MKDIR, SYNC, CLOSE, RMDIR };
enum { CREATED = 1, EMPTIED = 2, FOLDER = 4, WRITING = 8 };
enum { NONE, FAIL, FAILING, FULL, BEFORE, HALFWAY, AFTER };

static const char *KINDS[] = {"", "fail", "failing", "full", "before", "halfway", "after"};

struct entry {
    uint32_t number;
    uint8_t call, flags;
    uint16_t path;
    uint16_t other;
    uint16_t error;
    int32_t fd;
    uint64_t at;
    uint32_t size;
} __attribute__((packed));

#define MOST 4096
#define PATH 4096

static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;
static pid_t armed;
static char folder[PATH];
static size_t folder_length;
static int notes = -1;
static int fault, fault_errno;
static uint32_t fault_at, calls;
static int cut_once;
static char *paths[MOST];

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

static int (*real_open)(const char *, int, ...);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_close)(int);

__attribute__((constructor)) static void begin(void) {
    real_open = real("open");
    real_write = real("write");
    real_pwrite = real("pwrite");
    real_close = real("close");
}

/* Whether this process is one whose disk fails. A child that has not yet become another program is none. */
static int on(void) {
    if (armed) return armed == getpid();
    const char *where = getenv("DISK_FOLDER"), *log = getenv("DISK_LOG"), *what = getenv("DISK_FAULT");
    if (!where || !log) return 0;
    pthread_mutex_lock(&alone);
    if (!armed) {
        char kind[16] = "";
        snprintf(folder, sizeof folder, "%s", where);
        folder_length = strlen(folder);
        notes = real_open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (what && sscanf(what, "%15s %u %d", kind, &fault_at, &fault_errno) == 3)
            for (int each = FAIL; each <= AFTER; each++)
                if (!strcmp(kind, KINDS[each])) fault = each;
        armed = getpid();
    }
    pthread_mutex_unlock(&alone);
    return armed == getpid();
}

/* The absolute path of what lies below the folder and counts; NULL of anything else. */
static char *ours(int at, const char *path, char *whole) {
    if (!path || !on()) return NULL;
    if (path[0] == '/')
        snprintf(whole, PATH, "%s", path);
    else if (at == AT_FDCWD) {
        char here[PATH];
        if (!getcwd(here, sizeof here)) return NULL;
        snprintf(whole, PATH, "%.2000s/%.2000s", here, path);
    } else {
        if (at < 0 || at >= MOST || !paths[at]) return NULL;
        snprintf(whole, PATH, "%.2000s/%.2000s", paths[at], path);
    }
    size_t length = strlen(whole);
    if (strncmp(whole, folder, folder_length) || (whole[folder_length] != '/' && whole[folder_length])) return NULL;
    if (length > 4 && !strcmp(whole + length - 4, "-shm")) return NULL;
    return whole;
}

static char *ours_at(int fd) { return fd >= 0 && fd < MOST && paths[fd] && on() ? paths[fd] : NULL; }

static void note(uint32_t number, int call, int flags, int fd, uint64_t at, const char *path, const char *other,
                 const void *data, size_t size, int error) {
    struct entry entry = {number, call, flags, strlen(path), other ? strlen(other) : 0, error, fd, at, size};
    struct iovec parts[] = {{&entry, sizeof entry}, {(void *)path, entry.path}, {(void *)other, entry.other},
                            {(void *)data, size}};
    static ssize_t (*real_writev)(int, const struct iovec *, int);
    if (!real_writev) real_writev = real("writev");
    if (real_writev(notes, parts, 4) < 0) abort();
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Number a call; returns the error that it is to fail with, 0 if none, -1 if it is a write to be cut in half. */
static int numbered(int call, int takes_room, const char *path) {
    calls++;
    if (!fault || calls < fault_at) return 0;
    if ((fault == BEFORE && calls == fault_at) || (fault == HALFWAY && calls == fault_at && call != WRITE)) {
        note(calls, call, 0, -1, 0, path, NULL, NULL, 0, SIGKILL);
        die();
    }
    if (fault == HALFWAY && calls == fault_at) return -1;
    if ((fault == FAIL && calls > fault_at) || (fault == FULL && !takes_room) || fault >= BEFORE) return 0;
    if (fault == FULL && call == WRITE && !cut_once) {
        cut_once = 1;
        return -1;
    }
    note(calls, call, 0, -1, 0, path, NULL, NULL, 0, fault_errno);
    return fault_errno;
}

static void done(const char *path, int call) {
    if (fault == AFTER && calls == fault_at) {
        note(calls, call, 0, -1, 0, path, NULL, NULL, 0, SIGKILL);
        die();
    }
}

#define FAILED(error) (pthread_mutex_unlock(&alone), errno = (error), -1)

static int opened(int (*call)(int, const char *, int, ...), int at, const char *path, int flags, mode_t mode) {
    char whole[PATH];
    if (!ours(at, path, whole)) return call(at, path, flags, mode);
    int writing = (flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC), error, told;
    struct stat before;
    pthread_mutex_lock(&alone);
    int created = flags & O_CREAT && lstat(whole, &before);
    if (writing && (error = numbered(OPEN, created, whole)) > 0) return FAILED(error);
    uint32_t number = writing ? calls : 0;
    int fd = call(at, path, flags, mode), problem = errno;
    if (fd >= 0 && fd < MOST) {
        struct stat now;
        free(paths[fd]);
        paths[fd] = strdup(whole);
        told = (created ? CREATED : 0) | (flags & O_TRUNC ? EMPTIED : 0) | (writing ? WRITING : 0);
        if (!fstat(fd, &now) && S_ISDIR(now.st_mode)) told |= FOLDER;
        note(number, OPEN, told, fd, 0, whole, NULL, NULL, 0, 0);
    }
    if (writing) done(whole, OPEN);
    pthread_mutex_unlock(&alone);
    errno = problem;
    return fd;
}

static mode_t mode_of(int flags, va_list list) {
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0;
}

#define OPENS(name, at_parameter, at)                            \
    int name(at_parameter const char *path, int flags, ...) {    \
        va_list list;                                            \
        va_start(list, flags);                                   \
        mode_t mode = mode_of(flags, list);                      \
        va_end(list);                                            \
        return opened(REAL(openat), at, path, flags, mode);      \
    }
#define COMMA ,
OPENS(open, , AT_FDCWD)
OPENS(open64, , AT_FDCWD)
OPENS(openat, int at COMMA, at)
OPENS(openat64, int at COMMA, at)

int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

int close(int fd) {
    char *path = ours_at(fd);
    if (!path) return real_close(fd);
    pthread_mutex_lock(&alone);
    paths[fd] = NULL;
    int writing = (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
    int error = writing ? numbered(CLOSE, 0, path) : 0;
    int answer = real_close(fd);
    if (error <= 0) note(writing ? calls : 0, CLOSE, 0, fd, 0, path, NULL, NULL, 0, 0);
    if (writing) done(path, CLOSE);
    free(path);
    if (error > 0) return FAILED(error);
    pthread_mutex_unlock(&alone);
    return answer;
}

static off_t place_of(int fd) {
    if (fcntl(fd, F_GETFL) & O_APPEND) {
        struct stat now;
        return fstat(fd, &now) ? 0 : now.st_size;
    }
    return lseek(fd, 0, SEEK_CUR);
}

/* Write at a place, or where the file stands if that is negative. */
static ssize_t written(int fd, const void *data, size_t size, off_t at) {
    char *path = ours_at(fd);
    if (!path || !size) return at < 0 ? real_write(fd, data, size) : real_pwrite(fd, data, size, at);
    pthread_mutex_lock(&alone);
    int error = numbered(WRITE, 1, path);
    if (error > 0) return FAILED(error);
    uint64_t place = at < 0 ? place_of(fd) : at;
    size_t most = error < 0 && size > 1 ? size / 2 : size;
    ssize_t answer = at < 0 ? real_write(fd, data, most) : real_pwrite(fd, data, most, at);
    int problem = errno;
    if (answer > 0) note(calls, WRITE, 0, fd, place, path, NULL, data, answer, 0);
    if (error < 0 && fault == HALFWAY) {
        note(calls, WRITE, 0, -1, 0, path, NULL, NULL, 0, SIGKILL);
        die();
    }
    if (error < 0) note(calls, WRITE, 0, -1, 0, path, NULL, NULL, 0, fault_errno);
    done(path, WRITE);
    pthread_mutex_unlock(&alone);
    errno = problem;
    return answer;
}

ssize_t write(int fd, const void *data, size_t size) { return written(fd, data, size, -1); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return written(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return written(fd, data, size, at); }

static ssize_t gathered(int fd, const struct iovec *parts, int count, off_t at) {
    size_t size = 0;
    for (int n = 0; n < count; n++) size += parts[n].iov_len;
    char *whole = malloc(size + 1), *end = whole;
    if (!whole) return errno = ENOMEM, -1;
    for (int n = 0; n < count; end += parts[n++].iov_len) memcpy(end, parts[n].iov_base, parts[n].iov_len);
    ssize_t answer = written(fd, whole, size, at);
    int problem = errno;
    free(whole);
    errno = problem;
    return answer;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    return ours_at(fd) ? gathered(fd, parts, count, -1) : REAL(writev)(fd, parts, count);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    return ours_at(fd) ? gathered(fd, parts, count, at) : REAL(pwritev)(fd, parts, count, at);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    return ours_at(fd) ? gathered(fd, parts, count, at) : REAL(pwritev64)(fd, parts, count, at);
}

/* As by reading and writing, a piece at a time, which is all that such calls promise. */
static ssize_t copied(int from, off_t *from_at, int to, off_t *to_at, size_t size) {
    static char piece[1 << 16];
    size_t most = size < sizeof piece ? size : sizeof piece;
    ssize_t got = from_at ? pread(from, piece, most, *from_at) : read(from, piece, most);
    if (got <= 0) return got;
    ssize_t answer = written(to, piece, got, to_at ? *to_at : -1);
    if (answer > 0 && to_at) *to_at += answer;
    if (answer > 0 && from_at) *from_at += answer;
    return answer;
}

ssize_t sendfile(int to, int from, off_t *at, size_t size) {
    return ours_at(to) ? copied(from, at, to, NULL, size) : REAL(sendfile)(to, from, at, size);
}
ssize_t sendfile64(int to, int from, off64_t *at, size_t size) {
    return ours_at(to) ? copied(from, at, to, NULL, size) : REAL(sendfile64)(to, from, at, size);
}
ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t size, unsigned flags) {
    return ours_at(to) ? copied(from, from_at, to, to_at, size)
                       : REAL(copy_file_range)(from, from_at, to, to_at, size, flags);
}

#define AT_FILE(call, room, at, action)                                  \
    char *path = ours_at(fd);                                            \
    if (!path) return action;                                            \
    pthread_mutex_lock(&alone);                                          \
    int error = numbered(call, room, path);                              \
    if (error > 0) return FAILED(error);                                 \
    int answer = action, problem = errno;                                \
    if (!answer) note(calls, call, 0, fd, at, path, NULL, NULL, 0, 0);   \
    done(path, call);                                                    \
    pthread_mutex_unlock(&alone);                                        \
    errno = problem;                                                     \
    return answer;

int ftruncate(int fd, off_t size) { AT_FILE(TRUNCATE, 0, size, REAL(ftruncate)(fd, size)) }
int ftruncate64(int fd, off64_t size) { AT_FILE(TRUNCATE, 0, size, REAL(ftruncate64)(fd, size)) }
int fsync(int fd) { AT_FILE(SYNC, 0, 0, REAL(fsync)(fd)) }
int fdatasync(int fd) { AT_FILE(SYNC, 0, 0, REAL(fdatasync)(fd)) }

static int refused(int fd, int error) { return ours_at(fd) ? error : 0; }

/* What can be left out: whoever asks for it goes on without. It would change files in a way that is not written down. */
int fallocate(int fd, int mode, off_t at, off_t size) {
    int error = refused(fd, EOPNOTSUPP);
    return error ? (errno = error, -1) : REAL(fallocate)(fd, mode, at, size);
}
int fallocate64(int fd, int mode, off64_t at, off64_t size) {
    int error = refused(fd, EOPNOTSUPP);
    return error ? (errno = error, -1) : REAL(fallocate64)(fd, mode, at, size);
}
int posix_fallocate(int fd, off_t at, off_t size) {
    int error = refused(fd, EOPNOTSUPP);
    return error ? error : REAL(posix_fallocate)(fd, at, size);
}
int posix_fallocate64(int fd, off64_t at, off64_t size) {
    int error = refused(fd, EOPNOTSUPP);
    return error ? error : REAL(posix_fallocate64)(fd, at, size);
}

#define AT_NAME(call, at, name, other, other_at, room, action)                        \
    char one[PATH], two[PATH], *whole = ours(at, name, one);                          \
    char *second = ours(other_at, other, two);                       \
    if (!whole && !second) return action;                                             \
    if (!whole) snprintf(whole = one, PATH, "%s", name);                              \
    pthread_mutex_lock(&alone);                                                       \
    int error = numbered(call, room, second ? second : whole);                        \
    if (error > 0) return FAILED(error);                                              \
    int answer = action, problem = errno;                                             \
    if (!answer) note(calls, call, 0, -1, 0, whole, second, NULL, 0, 0);              \
    done(whole, call);                                                                \
    pthread_mutex_unlock(&alone);                                                     \
    errno = problem;                                                                  \
    return answer;

int rename(const char *from, const char *to) {
    AT_NAME(RENAME, AT_FDCWD, from, to, AT_FDCWD, 0, REAL(rename)(from, to))
}
int renameat(int at, const char *from, int to_at, const char *to) {
    AT_NAME(RENAME, at, from, to, to_at, 0, REAL(renameat)(at, from, to_at, to))
}
int renameat2(int at, const char *from, int to_at, const char *to, unsigned flags) {
    AT_NAME(RENAME, at, from, to, to_at, 0, REAL(renameat2)(at, from, to_at, to, flags))
}
int link(const char *from, const char *to) { AT_NAME(LINK, AT_FDCWD, from, to, AT_FDCWD, 1, REAL(link)(from, to)) }
int symlink(const char *said, const char *to) {
    AT_NAME(SYMLINK, AT_FDCWD, to, (const char *)NULL, AT_FDCWD, 1, REAL(symlink)(said, to))
}
int unlink(const char *path) { AT_NAME(UNLINK, AT_FDCWD, path, (const char *)NULL, AT_FDCWD, 0, REAL(unlink)(path)) }
int remove(const char *path) {
    struct stat found;
    return !lstat(path, &found) && S_ISDIR(found.st_mode) ? rmdir(path) : unlink(path);
}
int unlinkat(int at, const char *path, int flags) {
    AT_NAME(flags & AT_REMOVEDIR ? RMDIR : UNLINK, at, path, (const char *)NULL, AT_FDCWD, 0,
            REAL(unlinkat)(at, path, flags))
}
int rmdir(const char *path) { AT_NAME(RMDIR, AT_FDCWD, path, (const char *)NULL, AT_FDCWD, 0, REAL(rmdir)(path)) }
int mkdir(const char *path, mode_t mode) {
    AT_NAME(MKDIR, AT_FDCWD, path, (const char *)NULL, AT_FDCWD, 1, REAL(mkdir)(path, mode))
}
int mkdirat(int at, const char *path, mode_t mode) {
    AT_NAME(MKDIR, at, path, (const char *)NULL, AT_FDCWD, 1, REAL(mkdirat)(at, path, mode))
}

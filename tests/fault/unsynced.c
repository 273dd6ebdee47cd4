/* Keeps account of what a process has written below one directory and not synced yet.
 *
 * Loaded by LD_PRELOAD. The process works as ever; each change of a file or of a name below UNSYNCED_DIRECTORY, and each
 * fsync or fdatasync that succeeded, is a record at the end of UNSYNCED_JOURNAL, with what is needed to take the change
 * back. Files that lose their last name keep one in UNSYNCED_JOURNAL.graves, so no inode is used twice. What is done in
 * ways that are not followed here (mmap aside) leaves a record of kind '?', and the reader of the journal gives up.
 * tests/fault/unsynced.py reads it. Linux with 64-bit offsets.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAGIC 0x4e59534eu
#define DESCRIPTORS_MAX (1 << 20)

struct header {
    uint32_t magic, kind;
    uint64_t inode, parent, at, length, size;
    uint32_t text_bytes, data_bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *root;
static char graves[PATH_MAX];
static int journal = -1;
static uint64_t position; /* where the journal ends */
static unsigned char followed[DESCRIPTORS_MAX];

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("UNSYNCED_JOURNAL");
    root = getenv("UNSYNCED_DIRECTORY");
    if (!root || !name) {
        root = NULL;
        return;
    }
    snprintf(graves, sizeof graves, "%s.graves", name);
    syscall(SYS_mkdirat, AT_FDCWD, graves, 0755);
    journal = syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (journal < 0)
        abort();
    position = lseek(journal, 0, SEEK_END);
}

/* All below is called with the lock held. */

static void record(int kind, uint64_t inode, uint64_t parent, uint64_t at, uint64_t length, uint64_t size,
                   const char *text, size_t text_bytes, const void *data, size_t data_bytes) {
    struct header header = {MAGIC, kind, inode, parent, at, length, size, text_bytes, data_bytes};
    struct iovec parts[3] = {{&header, sizeof header}, {(void *)text, text_bytes}, {(void *)data, data_bytes}};
    size_t total = sizeof header + text_bytes + data_bytes;
    if (syscall(SYS_writev, journal, parts, 3) != (ssize_t)total)
        abort();
    position += total;
}

static void unknown(const char *what) { record('?', 0, 0, 0, 0, 0, what, strlen(what), NULL, 0); }

static void *read_old(const char *path, uint64_t at, uint64_t length) {
    char *data = malloc(length ? length : 1);
    int file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    uint64_t done = 0;
    while (data && file >= 0 && done < length) {
        ssize_t got = syscall(SYS_pread64, file, data + done, length - done, at + done);
        if (got <= 0)
            abort();
        done += got;
    }
    if (!data || file < 0)
        abort();
    syscall(SYS_close, file);
    return data;
}

/* The bytes [at, at + length) of a file are about to change, and its size. */
static void change(int kind, const char *path, const struct stat *now, uint64_t at, uint64_t length) {
    uint64_t size = now->st_size, end = at + length < size ? at + length : size;
    uint64_t old = end > at ? end - at : 0;
    void *data = old ? read_old(path, at, old) : NULL;
    record(kind, now->st_ino, 0, at, length, size, NULL, 0, data, old);
    free(data);
}

static void change_descriptor(int kind, int descriptor, uint64_t at, uint64_t length) {
    struct stat now;
    char path[64];
    if (fstat(descriptor, &now) || !S_ISREG(now.st_mode))
        return;
    if (kind == 'W' && (fcntl(descriptor, F_GETFL) & O_APPEND))
        at = now.st_size;
    else if (at == UINT64_MAX)
        at = lseek(descriptor, 0, SEEK_CUR);
    if (kind == 'T')
        length = at < (uint64_t)now.st_size ? now.st_size - at : 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    change(kind, path, &now, at, length);
}

static int is_below(const char *path) {
    size_t length = strlen(root);
    return !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

struct place {
    char path[PATH_MAX]; /* without links, up to the name itself */
    const char *name;
    uint64_t parent;
    int is_there;
    struct stat now;
};

/* Where a name stands; 0 if that is not below the directory, or cannot be. */
static int locate(int base, const char *path, struct place *found) {
    char whole[PATH_MAX], link[64];
    struct stat directory;
    size_t used = 0;
    if (!root)
        return 0;
    if (path[0] != '/' && base != AT_FDCWD) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", base);
        ssize_t got = readlink(link, whole, sizeof whole - 2);
        if (got <= 0)
            return 0;
        whole[got] = '/';
        used = got + 1;
    }
    if (used + strlen(path) >= sizeof whole)
        return 0;
    strcpy(whole + used, path);
    for (size_t end = strlen(whole); end > 1 && whole[end - 1] == '/'; end--)
        whole[end - 1] = 0;
    char *slash = strrchr(whole, '/');
    const char *name = slash ? slash + 1 : whole;
    if (slash)
        *slash = 0;
    if (!realpath(slash ? (*whole ? whole : "/") : ".", found->path) || !is_below(found->path))
        return 0;
    if (stat(found->path, &directory))
        return 0;
    size_t length = strlen(found->path);
    if (length + strlen(name) + 2 > sizeof found->path)
        return 0;
    found->path[length] = '/';
    strcpy(found->path + length + 1, name);
    found->name = found->path + length + 1;
    found->parent = directory.st_ino;
    found->is_there = !lstat(found->path, &found->now);
    return 1;
}

/* Keep a file that is about to lose a name; its name in the graves, 0 if there is nothing to keep. */
static uint64_t bury(const struct place *place) {
    char grave[PATH_MAX + 32];
    if (!place->is_there || !S_ISREG(place->now.st_mode))
        return 0;
    snprintf(grave, sizeof grave, "%s/%llu", graves, (unsigned long long)position + 1);
    if (syscall(SYS_linkat, AT_FDCWD, place->path, AT_FDCWD, grave, 0))
        unknown("a file could not be kept");
    return position + 1;
}

/* What the process calls. */

static int open_any(int base, const char *path, int flags, mode_t mode) {
    struct place place;
    char link[64], target[PATH_MAX];
    if (!root)
        return syscall(SYS_openat, base, path, flags, mode);
    pthread_mutex_lock(&lock);
    int is_change = (flags & (O_CREAT | O_TRUNC)) && (flags & O_TMPFILE) != O_TMPFILE && locate(base, path, &place);
    if (is_change && (flags & O_TRUNC) && place.is_there && S_ISREG(place.now.st_mode) && place.now.st_size)
        change('T', place.path, &place.now, 0, place.now.st_size);
    int descriptor = syscall(SYS_openat, base, path, flags, mode);
    int error = errno;
    if (descriptor >= 0) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        ssize_t got = readlink(link, target, sizeof target - 1);
        target[got > 0 ? got : 0] = 0;
        int is_ours = is_below(target);
        if (descriptor < DESCRIPTORS_MAX)
            followed[descriptor] = is_ours;
        else if (is_ours)
            unknown("too many descriptors");
        if (is_ours && (flags & O_TMPFILE) == O_TMPFILE)
            unknown("O_TMPFILE");
        if (is_change && !place.is_there && !fstat(descriptor, &place.now))
            record('C', place.now.st_ino, place.parent, 0, 0, 0, place.name, strlen(place.name), NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return descriptor;
}

#define MODE(last)                                                                                                     \
    mode_t mode = 0;                                                                                                   \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                                                             \
        va_list more;                                                                                                  \
        va_start(more, last);                                                                                          \
        mode = va_arg(more, mode_t);                                                                                   \
        va_end(more);                                                                                                  \
    }

int open(const char *path, int flags, ...) { MODE(flags) return open_any(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return open_any(AT_FDCWD, path, flags, mode); }
int openat(int base, const char *path, int flags, ...) { MODE(flags) return open_any(base, path, flags, mode); }
int openat64(int base, const char *path, int flags, ...) { MODE(flags) return open_any(base, path, flags, mode); }
int creat(const char *path, mode_t mode) { return open_any(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

int close(int descriptor) {
    if (descriptor >= 0 && descriptor < DESCRIPTORS_MAX)
        followed[descriptor] = 0;
    return syscall(SYS_close, descriptor);
}

static int is_followed(int descriptor) {
    return descriptor >= 0 && descriptor < DESCRIPTORS_MAX && followed[descriptor];
}

#define FOLLOWED(descriptor, note, call)                                                                               \
    if (!is_followed(descriptor))                                                                                      \
        return call;                                                                                                   \
    pthread_mutex_lock(&lock);                                                                                         \
    note;                                                                                                              \
    long result = call;                                                                                                \
    pthread_mutex_unlock(&lock);                                                                                       \
    return result

static uint64_t total(const struct iovec *parts, int count) {
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += parts[i].iov_len;
    return bytes;
}

ssize_t write(int fd, const void *data, size_t n) {
    FOLLOWED(fd, change_descriptor('W', fd, UINT64_MAX, n), syscall(SYS_write, fd, data, n));
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    FOLLOWED(fd, change_descriptor('W', fd, at, n), syscall(SYS_pwrite64, fd, data, n, at));
}
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) { return pwrite(fd, data, n, at); }
ssize_t writev(int fd, const struct iovec *parts, int n) {
    FOLLOWED(fd, change_descriptor('W', fd, UINT64_MAX, total(parts, n)), syscall(SYS_writev, fd, parts, n));
}
ssize_t pwritev2(int fd, const struct iovec *parts, int n, off_t at, int flags) {
    FOLLOWED(fd, change_descriptor('W', fd, at, total(parts, n)), syscall(SYS_pwritev2, fd, parts, n, at, 0, flags));
}
ssize_t pwritev64v2(int fd, const struct iovec *parts, int n, off64_t at, int flags) {
    return pwritev2(fd, parts, n, at, flags);
}
ssize_t pwritev(int fd, const struct iovec *parts, int n, off_t at) { return pwritev2(fd, parts, n, at, 0); }
ssize_t pwritev64(int fd, const struct iovec *parts, int n, off64_t at) { return pwritev2(fd, parts, n, at, 0); }

int ftruncate(int fd, off_t size) {
    FOLLOWED(fd, change_descriptor('T', fd, size, 0), syscall(SYS_ftruncate, fd, size));
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int truncate(const char *path, off_t size) {
    struct place place;
    pthread_mutex_lock(&lock);
    if (locate(AT_FDCWD, path, &place) && place.is_there)
        change('T', place.path, &place.now, size, place.now.st_size > size ? place.now.st_size - size : 0);
    int result = syscall(SYS_truncate, path, size);
    pthread_mutex_unlock(&lock);
    return result;
}
int truncate64(const char *path, off64_t size) { return truncate(path, size); }

/* Setting blocks aside changes no byte; a file that grows by it, grows by zeros, as by ftruncate. */
static void note_blocks(int fd, int mode, off_t at, off_t length) {
    struct stat now;
    if (mode & ~FALLOC_FL_KEEP_SIZE)
        unknown("fallocate with a mode");
    else if (!mode && !fstat(fd, &now) && at + length > now.st_size)
        change_descriptor('T', fd, at + length, 0);
}
int fallocate(int fd, int mode, off_t at, off_t n) {
    FOLLOWED(fd, note_blocks(fd, mode, at, n), syscall(SYS_fallocate, fd, mode, at, n));
}
int fallocate64(int fd, int mode, off64_t at, off64_t n) { return fallocate(fd, mode, at, n); }
int posix_fallocate(int fd, off_t at, off_t n) { return fallocate(fd, 0, at, n) ? errno : 0; }
int posix_fallocate64(int fd, off64_t at, off64_t n) { return posix_fallocate(fd, at, n); }

static int sync_any(long call, int fd) {
    struct stat now;
    if (!is_followed(fd) || fstat(fd, &now))
        return syscall(call, fd);
    pthread_mutex_lock(&lock);
    uint64_t before = position;
    pthread_mutex_unlock(&lock);
    int result = syscall(call, fd);
    if (!result) {
        pthread_mutex_lock(&lock);
        record('S', now.st_ino, 0, before, 0, 0, NULL, 0, NULL, 0);
        pthread_mutex_unlock(&lock);
    }
    return result;
}
int fsync(int fd) { return sync_any(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_any(SYS_fdatasync, fd); }

static int rename_any(int from, const char *old, int to, const char *new, unsigned flags) {
    struct place source, target;
    char names[2 * NAME_MAX + 2];
    if (!root)
        return syscall(SYS_renameat2, from, old, to, new, flags);
    pthread_mutex_lock(&lock);
    int is_from = locate(from, old, &source), is_to = locate(to, new, &target);
    if (is_from != is_to)
        unknown("a rename into or out of the directory");
    else if (is_from && flags == RENAME_EXCHANGE) {
        int length = snprintf(names, sizeof names, "%s/%s", source.name, target.name);
        if (source.is_there && target.is_there)
            record('X', source.now.st_ino, source.parent, 0, target.parent, 0, names, length, NULL, 0);
    } else if (is_from && (flags & ~RENAME_NOREPLACE))
        unknown("a rename with flags");
    else if (is_from && source.is_there) {
        uint64_t grave = bury(&target);
        int length = snprintf(names, sizeof names, "%s/%s", source.name, target.name);
        record('R', source.now.st_ino, source.parent, grave, target.parent, 0, names, length, NULL, 0);
    }
    int result = syscall(SYS_renameat2, from, old, to, new, flags);
    pthread_mutex_unlock(&lock);
    return result;
}
int rename(const char *old, const char *new) { return rename_any(AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int from, const char *old, int to, const char *new) { return rename_any(from, old, to, new, 0); }
int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    return rename_any(from, old, to, new, flags);
}

static int remove_any(int base, const char *path, int flags) {
    struct place place;
    pthread_mutex_lock(&lock);
    if (locate(base, path, &place) && place.is_there) {
        uint64_t grave = flags & AT_REMOVEDIR ? 0 : bury(&place);
        int kind = flags & AT_REMOVEDIR ? 'D' : 'U';
        record(kind, place.now.st_ino, place.parent, grave, 0, 0, place.name, strlen(place.name), NULL, 0);
    }
    int result = syscall(SYS_unlinkat, base, path, flags);
    pthread_mutex_unlock(&lock);
    return result;
}
int unlink(const char *path) { return remove_any(AT_FDCWD, path, 0); }
int unlinkat(int base, const char *path, int flags) { return remove_any(base, path, flags); }
int rmdir(const char *path) { return remove_any(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int base, const char *path, mode_t mode) {
    struct place place;
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_mkdirat, base, path, mode);
    int error = errno;
    if (!result && locate(base, path, &place))
        record('M', place.now.st_ino, place.parent, 0, 0, 0, place.name, strlen(place.name), NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* What is not followed is told, so that nobody trusts an account that is not whole. */

#define REFUSE(base, path, what)                                                                                       \
    struct place place;                                                                                                \
    pthread_mutex_lock(&lock);                                                                                         \
    if (locate(base, path, &place))                                                                                    \
        unknown(what);                                                                                                 \
    pthread_mutex_unlock(&lock)

int linkat(int from, const char *old, int to, const char *new, int flags) {
    REFUSE(to, new, "link");
    return syscall(SYS_linkat, from, old, to, new, flags);
}
int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }
int symlinkat(const char *target, int base, const char *path) {
    REFUSE(base, path, "symlink");
    return syscall(SYS_symlinkat, target, base, path);
}
int symlink(const char *target, const char *path) { return symlinkat(target, AT_FDCWD, path); }
ssize_t sendfile(int out, int in, off_t *at, size_t n) {
    FOLLOWED(out, unknown("sendfile"), syscall(SYS_sendfile, out, in, at, n));
}
ssize_t sendfile64(int out, int in, off64_t *at, size_t n) { return sendfile(out, in, at, n); }
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t n, unsigned flags) {
    FOLLOWED(out, unknown("copy_file_range"), syscall(SYS_copy_file_range, in, from, out, to, n, flags));
}

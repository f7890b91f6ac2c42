/* A disk that fails when it is told to: stands before the C library of a process (LD_PRELOAD) and looks after data.mdb.

   FAULTY_DISK_CONTROL names a file of 64-bit numbers that both sides have mapped; FAULTY_DISK_LOG, where it is set, a file
   that every write and sync is noted in, in order: kind (W: write, D: write through, S: sync), offset, length, bytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    int64_t write_error;   /* errno of writes of pages, 0 for none */
    int64_t sync_error;    /* errno of syncs */
    int64_t root_error;    /* errno of writes of the two root pages */
    int64_t short_writes;  /* writes end half way, without an error */
    int64_t sync_delay_us; /* how long a sync takes longer */
    int64_t writes;        /* counted */
    int64_t syncs;
    int64_t failures;
};

static struct control *control;
static int log_file = -1;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_pwritev)(int, const struct iovec *, int, off_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static int (*real_fdatasync)(int);
static int (*real_fsync)(int);

__attribute__((constructor)) static void start(void) {
    real_pwrite = dlsym(RTLD_NEXT, "pwrite");
    real_pwritev = dlsym(RTLD_NEXT, "pwritev");
    real_writev = dlsym(RTLD_NEXT, "writev");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    const char *path = getenv("FAULTY_DISK_CONTROL");
    if (path != NULL) {
        int file = open(path, O_RDWR | O_CLOEXEC);
        if (file >= 0) {
            void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            close(file);
            if (mapped != MAP_FAILED) control = mapped;
        }
    }
    path = getenv("FAULTY_DISK_LOG");
    if (path != NULL) log_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int is_data(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    return length >= 8 && memcmp(path + length - 8, "data.mdb", 8) == 0;
}

static void note(char kind, int64_t offset, const struct iovec *parts, int count, int64_t length) {
    if (log_file < 0) return;
    pthread_mutex_lock(&log_lock);
    char head[17];
    head[0] = kind;
    memcpy(head + 1, &offset, 8);
    memcpy(head + 9, &length, 8);
    if (write(log_file, head, sizeof head) < 0) abort();
    for (int i = 0; i < count && length > 0; i++) {
        size_t size = parts[i].iov_len < (size_t)length ? parts[i].iov_len : (size_t)length;
        if (write(log_file, parts[i].iov_base, size) < 0) abort();
        length -= (int64_t)size;
    }
    pthread_mutex_unlock(&log_lock);
}

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t offset) {
    if (control == NULL || !is_data(file)) return real_pwritev(file, parts, count, offset);
    int64_t error = offset < 8192 ? control->root_error : control->write_error;
    control->writes++;
    if (error != 0) {
        control->failures++;
        errno = (int)error;
        return -1;
    }
    if (control->short_writes && offset >= 8192) {
        control->failures++;
        return real_pwrite(file, parts[0].iov_base, parts[0].iov_len / 2, offset);
    }
    ssize_t done = real_pwritev(file, parts, count, offset);
    if (done > 0) note(fcntl(file, F_GETFL) & O_DSYNC ? 'D' : 'W', offset, parts, count, done);
    return done;
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    if (control == NULL || !is_data(file)) return real_writev(file, parts, count);
    off_t offset = lseek(file, 0, SEEK_CUR);
    ssize_t done = pwritev(file, parts, count, offset);
    if (done > 0) lseek(file, offset + done, SEEK_SET);
    return done;
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t offset) {
    struct iovec part = {(void *)bytes, size};
    if (control == NULL || !is_data(file)) return real_pwrite(file, bytes, size, offset);
    return pwritev(file, &part, 1, offset);
}

ssize_t pwrite64(int file, const void *bytes, size_t size, off_t offset) { return pwrite(file, bytes, size, offset); }

ssize_t pwritev64(int file, const struct iovec *parts, int count, off_t offset) {
    return pwritev(file, parts, count, offset);
}

static int synced(int file, int (*real)(int)) {
    if (control == NULL || !is_data(file)) return real(file);
    control->syncs++;
    if (control->sync_delay_us > 0) {
        struct timespec delay = {control->sync_delay_us / 1000000, control->sync_delay_us % 1000000 * 1000};
        nanosleep(&delay, NULL);
    }
    if (control->sync_error != 0) {
        control->failures++;
        errno = (int)control->sync_error;
        return -1;
    }
    int outcome = real(file);
    if (outcome == 0) note('S', 0, NULL, 0, 0);
    return outcome;
}

int fdatasync(int file) { return synced(file, real_fdatasync); }

int fsync(int file) { return synced(file, real_fsync); }

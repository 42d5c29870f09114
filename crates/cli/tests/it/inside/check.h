/* What the programs of this directory share. Each is given the mount point, and the directory that
   its image was made of. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, strerror(errno)); \
            exit(1); \
        } \
    } while (0)

/* `dir/name`, in memory that is never freed. */
static inline const char *in(const char *dir, const char *name) {
    char *path;
    CHECK(asprintf(&path, "%s/%s", dir, name) > 0);
    return path;
}

enum { FILE_BYTES = 300000 };

/* What is in the file dir/b.bin. */
static inline const char *content(const char *src) {
    static char data[FILE_BYTES];
    int fd = open(in(src, "dir/b.bin"), O_RDONLY);
    CHECK(fd >= 0 && read(fd, data, sizeof data) == sizeof data && close(fd) == 0);
    return data;
}

/* The descriptor of a file that is read from the device each time: reads take the shared-memory
   path. */
static inline int direct(const char *name) {
    int fd = open(name, O_RDONLY | O_DIRECT);
    CHECK(fd >= 0);
    return fd;
}

/* Reads 200 places of `fd`, which is dir/b.bin. */
static inline void read_often(int fd, const char *data) {
    char page[4096];
    for (int turn = 0; turn < 200; turn++) {
        /* O_DIRECT takes whole blocks of the device. */
        off_t at = turn * 7919 % 290000 / 512 * 512;
        CHECK(pread(fd, page, sizeof page, at) == sizeof page);
        CHECK(memcmp(page, data + at, sizeof page) == 0);
    }
}

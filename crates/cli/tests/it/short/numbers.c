/* Threads that write files whose descriptors get each other's numbers, however they are opened and
   closed. Arguments: the directory, rounds of each thread. Each record names its file and place. */
#include "../inside/check.h"

#include <stdint.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { THREADS = 12, FILES = 6, RECORDS = 64 };

struct record {
    uint32_t file, place, round, sum;
};

static const char *dir;
static long rounds;

static struct record record_of(uint32_t file, uint32_t place, uint32_t round) {
    return (struct record){file, place, round, file * 31 + place * 17 + round + 1};
}

static const char *name_of(uint32_t file, char name[]) {
    sprintf(name, "%s/numbers-%u", dir, file);
    return name;
}

static uint32_t next(uint32_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

/* Opens the file in one of several ways; `stream` is set if it is a stream's. */
static int opened(uint32_t file, uint32_t way, FILE **stream) {
    char name[256];
    name_of(file, name);
    int fd = -1;
    *stream = NULL;
    switch (way % 5) {
    case 0:
        return open(name, O_RDWR | O_CREAT, 0644);
    case 1:
        return syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CREAT, 0644);
    case 2:
        *stream = fopen(name, "r+");
        break;
    case 3:
        fd = open(name, O_RDWR);
        *stream = fdopen(fd, "r+");
        break;
    case 4:
        fd = open("/dev/null", O_RDWR);
        CHECK(fd >= 0 && write(fd, "x", 1) == 1);
        *stream = freopen(name, "r+", fdopen(fd, "r+"));
        break;
    }
    CHECK(*stream);
    return fileno(*stream);
}

static void closed(int fd, uint32_t way, FILE *stream) {
    int other;
    if (stream) {
        if (way % 3 == 0) {
            /* The stream goes on as another file, which is closed. */
            stream = freopen("/dev/null", "r+", stream);
            CHECK(stream);
        }
        CHECK(fclose(stream) == 0);
        return;
    }
    switch (way % 4) {
    case 0:
        CHECK(close(fd) == 0);
        break;
    case 1:
        CHECK(syscall(SYS_close, fd) == 0);
        break;
    case 2:
        other = open("/dev/null", O_RDWR);
        CHECK(other >= 0 && dup2(other, fd) == fd && write(fd, "x", 1) == 1);
        CHECK(close(other) == 0 && syscall(SYS_close, fd) == 0);
        break;
    case 3:
        CHECK(close_range(fd, fd, 0) == 0);
        break;
    }
}

static void *work(void *given) {
    uint32_t thread = (uint32_t)(uintptr_t)given, seed = 77 + thread * 7919;
    for (long round = 1; round <= rounds; round++) {
        uint32_t file = thread * FILES + next(&seed) % FILES;
        FILE *stream;
        int fd = opened(file, next(&seed), &stream);
        CHECK(fd >= 0);
        for (uint32_t turn = next(&seed) % 4 + 1; turn > 0; turn--) {
            uint32_t place = next(&seed) % RECORDS;
            struct record put = record_of(file, place, round), got;
            off_t at = place * sizeof put;
            struct iovec iov = {&put, sizeof put};
            switch (next(&seed) % 3) {
            case 0:
                CHECK(pwrite(fd, &put, sizeof put, at) == sizeof put);
                break;
            case 1:
                CHECK(lseek(fd, at, SEEK_SET) == at && write(fd, &put, sizeof put) == sizeof put);
                break;
            case 2:
                CHECK(pwritev(fd, &iov, 1, at) == sizeof put);
                break;
            }
            CHECK(pread(fd, &got, sizeof got, at) == sizeof got);
            CHECK(memcmp(&put, &got, sizeof put) == 0);
        }
        closed(fd, next(&seed), stream);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    dir = argv[1];
    rounds = atol(argv[2]);
    char name[256];
    for (uint32_t file = 0; file < THREADS * FILES; file++)
        CHECK(close(open(name_of(file, name), O_RDWR | O_CREAT | O_TRUNC, 0644)) == 0);
    pthread_t threads[THREADS];
    for (uintptr_t thread = 0; thread < THREADS; thread++)
        CHECK(pthread_create(&threads[thread], NULL, work, (void *)thread) == 0);
    for (int thread = 0; thread < THREADS; thread++)
        CHECK(pthread_join(threads[thread], NULL) == 0);
    long seen = 0;
    for (uint32_t file = 0; file < THREADS * FILES; file++) {
        int fd = open(name_of(file, name), O_RDONLY);
        struct record got;
        CHECK(fd >= 0);
        for (uint32_t place = 0; read(fd, &got, sizeof got) == sizeof got; place++) {
            struct record none = {0, 0, 0, 0}, right = record_of(file, place, got.round);
            CHECK(memcmp(&got, &none, sizeof got) == 0 || memcmp(&got, &right, sizeof got) == 0);
            seen += got.sum != 0;
        }
        close(fd);
    }
    CHECK(seen > 0);
    return 0;
}

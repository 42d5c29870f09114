/* One of several processes that use one file at the same time, and know what has to be in it.

       coherence MODE FILE SHARED INDEX COUNT SECONDS SEED

   SHARED is a file in memory, beside the mount, of zeros at first. Every process with the same
   FILE has the same COUNT, and an INDEX below it. Modes:

   locked   any change of the file, one at a time, by a lock in SHARED, which has the content, too
   slots    each writes slots of its own, and reads all, at the same time
   append   each appends records, by O_APPEND; a child goes on half-way
   check    reads what `append` has left

   The file is closed by all now and then, so that it may change its path
   (docs/shared-memory-path.md). A process that takes the FUSE path asks for the size before it
   maps, copies or has to know where it has appended, as is said there. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 256 << 10, SLOT = 1536, SLOTS = 128, LOGGED = 48, PERIOD = 150 };

struct shared {
    pthread_mutex_t lock;
    _Atomic int is_ready, wants_all, arrived, phase, is_over, is_direct, failed;
    long size, operations;
    _Atomic uint32_t begun[SLOTS], done[SLOTS];
    char log[LOGGED][120];
    unsigned char data[MOST];
};

static struct shared *shared;
static const char *path, *mode;
static int index_, count;
static time_t until;
static uint64_t seed;
/* For reading and writing; for appending. */
static int fd = -1, end_fd = -1;

static void fail(const char *what, int line) {
    int error = errno;
    if (!atomic_exchange(&shared->failed, 1)) {
        for (long n = shared->operations - LOGGED + 1; n <= shared->operations; n++)
            if (n > 0)
                fprintf(stderr, "%ld: %s\n", n, shared->log[n % LOGGED]);
        fprintf(stderr, "%s, process %d of %d, line %d: %s (%s)\n", mode, index_, count, line,
                what, strerror(error));
    }
    _exit(1);
}

#define CHECK(what) ((what) ? (void)0 : fail(#what, __LINE__))

static uint64_t next(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static long below(long most) { return most > 0 ? (long)(next() % (uint64_t)most) : 0; }

/* Notes what is done, for the message of a failure. */
__attribute__((format(printf, 1, 2))) static void note(const char *format, ...) {
    char *line = shared->log[++shared->operations % LOGGED];
    int used = sprintf(line, "process %d: ", index_);
    va_list all;
    va_start(all, format);
    vsnprintf(line + used, sizeof shared->log[0] - used, format, all);
    va_end(all);
}

/* Whether this process takes the shared-memory path. */
static int is_short(void) { return getenv("MEANTIME_SHARED_MEMORY") != NULL; }

static void open_file(void) {
    char block[512];
    int direct = shared->is_direct ? O_DIRECT : 0;
    CHECK((fd = open(path, O_RDWR | O_CREAT | direct, 0644)) >= 0);
    CHECK((end_fd = open(path, O_RDWR | O_APPEND, 0644)) >= 0);
    /* A file grows by the shared-memory path if nobody has it open who has not used it. */
    if (is_short() && below(4))
        CHECK(pread(fd, block, 512, 0) >= 0 && pread(end_fd, block, 512, 0) >= 0);
}

static void close_file(void) { CHECK(close(fd) == 0 && close(end_fd) == 0); }

/* Waits until all have closed the file, and opens it again. */
static void meet(void) {
    int phase = shared->phase;
    close_file();
    if (atomic_fetch_add(&shared->arrived, 1) + 1 == count) {
        shared->arrived = 0;
        shared->wants_all = 0;
        shared->is_direct = strcmp(mode, "slots") == 0 && below(3) == 0;
        /* The owner learns of a close after it has returned. */
        usleep(below(3000));
        shared->is_over = time(NULL) >= until;
        shared->phase = phase + 1;
    }
    while (shared->phase == phase) {
        CHECK(!shared->failed);
        usleep(200);
    }
    /* The first who takes the FUSE path ends the shared-memory one. */
    usleep(below(is_short() ? 500 : 8000));
    open_file();
}

static void begin(const char *name) {
    int memory = open(name, O_RDWR);
    int opened = errno;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (memory < 0 || shared == MAP_FAILED) {
        fprintf(stderr, "%s: %s\n", name, strerror(opened));
        exit(1);
    }
    if (index_ == 0) {
        pthread_mutexattr_t of;
        CHECK(ftruncate(memory, sizeof *shared) == 0);
        CHECK(!pthread_mutexattr_init(&of) && !pthread_mutexattr_setpshared(&of, 1));
        CHECK(!pthread_mutex_init(&shared->lock, &of));
        shared->is_ready = 1;
    }
    while (!shared->is_ready)
        usleep(1000);
    close(memory);
}

/* Compares `len` bytes at `at` with what they have to be. */
static void compare(const unsigned char *got, long at, long len, const char *how) {
    if (memcmp(got, shared->data + at, len) == 0)
        return;
    long first = 0, last = len - 1;
    while (got[first] == shared->data[at + first])
        first++;
    while (got[last] == shared->data[at + last])
        last--;
    note("%s of %ld at %ld: bytes %ld to %ld differ; %02x is there, not %02x", how, len, at,
         at + first, at + last, got[first], shared->data[at + first]);
    fail("the content is another one", __LINE__);
}

static long kernels_size(void) {
    struct stat of;
    CHECK(fstat(fd, &of) == 0);
    CHECK(of.st_size == shared->size);
    return of.st_size;
}

/* New bytes for `len` at `at` of the content, which grows to hold them. */
static unsigned char *renew(long at, long len) {
    if (at > shared->size)
        memset(shared->data + shared->size, 0, at - shared->size);
    for (long n = 0; n < len; n++)
        shared->data[at + n] = next();
    if (at + len > shared->size)
        shared->size = at + len;
    return shared->data + at;
}

static void map(int is_write) {
    long size = kernels_size();
    if (size == 0)
        return;
    long at = below(size), len = 1 + below(size - at);
    note("map %ld at %ld, %s", len, at, is_write ? "write" : "read");
    unsigned char *all = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(all != MAP_FAILED);
    compare(all + at, at, len, "map");
    if (is_write) {
        memcpy(all + at, renew(at, len), len);
        CHECK(below(2) || msync(all, size, MS_SYNC) == 0);
    }
    CHECK(munmap(all, size) == 0);
}

static void copy(void) {
    static unsigned char got[MOST];
    long size = kernels_size(), at = below(size + 1), len = below(size - at + 1);
    if (below(2)) {
        note("sendfile %ld at %ld", len, at);
        int memory = memfd_create("copy", 0);
        off_t from = at;
        for (long done = 0; done < len;) {
            ssize_t sent = sendfile(memory, fd, &from, len - done);
            CHECK(sent > 0);
            done += sent;
        }
        CHECK(memory >= 0 && pread(memory, got, len, 0) == len && close(memory) == 0);
        compare(got, at, len, "sendfile");
        return;
    }
    len = below(len / 2 + 1);
    long room = size - at - 2 * len, to = at + len + below(room);
    note("copy_file_range %ld from %ld to %ld", len, at, to);
    off_t from = at, into = to;
    for (long left = len; left > 0;) {
        ssize_t copied = copy_file_range(fd, &from, fd, &into, left, 0);
        CHECK(copied > 0);
        left -= copied;
    }
    memmove(shared->data + to, shared->data + at, len);
}

static void read_some(void) {
    static unsigned char got[MOST];
    long at = below(shared->size + 100), len = 1 + below(30000);
    at = at < MOST ? at : MOST - 1;
    if (at + len > MOST)
        len = MOST - at;
    long there = shared->size > at ? shared->size - at : 0;
    there = there < len ? there : len;
    int kind = below(4);
    note("read %ld at %ld, kind %d", len, at, kind);
    if (kind == 0) {
        CHECK(pread(fd, got, len, at) == there);
    } else if (kind == 1) {
        CHECK(lseek(fd, at, SEEK_SET) == at && read(fd, got, len) == there);
        CHECK(lseek(fd, 0, SEEK_CUR) == at + there);
    } else if (kind == 2) {
        struct iovec all[2] = {{got, len / 3}, {got + len / 3, len - len / 3}};
        CHECK(preadv(fd, all, 2, at) == there);
    } else {
        int other = open(path, O_RDONLY);
        CHECK(other >= 0 && pread(other, got, len, at) == there && close(other) == 0);
    }
    compare(got, at, there, "read");
}

static void write_some(void) {
    long at = below(MOST), len = 1 + below(30000);
    if (at > shared->size && below(4))
        at = below(shared->size + 1);
    if (at + len > MOST)
        len = MOST - at;
    int kind = below(3);
    note("write %ld at %ld, kind %d", len, at, kind);
    unsigned char *from = renew(at, len);
    if (kind == 0) {
        CHECK(pwrite(fd, from, len, at) == len);
    } else if (kind == 1) {
        CHECK(lseek(fd, at, SEEK_SET) == at && write(fd, from, len) == len);
    } else {
        struct iovec all[2] = {{from, len / 3}, {from + len / 3, len - len / 3}};
        CHECK(pwritev(fd, all, 2, at) == len);
    }
}

static void append_some(void) {
    long at = shared->size, len = 1 + below(5000);
    if (at + len > MOST)
        return;
    /* (Opened while the other one lets it grow; else the position may be another one.) */
    if (!is_short())
        kernels_size();
    note("append %ld at %ld", len, at);
    CHECK(write(end_fd, renew(at, len), len) == len);
    CHECK(lseek(end_fd, 0, SEEK_CUR) == at + len);
}

static void in_child(void) {
    note("fork");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        write_some();
        read_some();
        append_some();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    (void)next();
}

static void one(void) {
    long at;
    switch (below(24)) {
    case 0 ... 5: write_some(); break;
    case 6 ... 10: read_some(); break;
    case 11 ... 12: append_some(); break;
    case 13:
        at = below(MOST);
        if (at > shared->size && below(3))
            at = below(shared->size + 1);
        note("truncate %ld, %ld before", at, shared->size);
        CHECK(ftruncate(fd, at) == 0);
        if (at > shared->size)
            memset(shared->data + shared->size, 0, at - shared->size);
        shared->size = at;
        break;
    case 14: if (below(4) == 0) map(0); break;
    case 15: if (below(4) == 0) map(1); break;
    case 16: if (below(4) == 0) copy(); break;
    case 17: note("fsync"); CHECK((below(2) ? fsync(fd) : fdatasync(fd)) == 0); break;
    case 18: note("size"); kernels_size(); CHECK(lseek(fd, 0, SEEK_END) == shared->size); break;
    case 19: if (below(8) == 0) in_child(); break;
    case 20:
        at = below(shared->size + 1);
        long len = 1 + below(20000);
        note("punch %ld at %ld", len, at);
        CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, len) == 0);
        len = len < shared->size - at ? len : shared->size - at;
        memset(shared->data + at, 0, len);
        break;
    case 21: if (below(8) == 0) { note("close, open"); close_file(); open_file(); } break;
    default: break;
    }
}

static void locked(void) {
    while (!shared->is_over) {
        CHECK(!shared->failed);
        CHECK(pthread_mutex_lock(&shared->lock) == 0);
        one();
        shared->wants_all |= below(PERIOD) == 0;
        CHECK(pthread_mutex_unlock(&shared->lock) == 0);
        if (shared->wants_all)
            meet();
        else if (below(3) == 0)
            sched_yield();
    }
}

/* In whole blocks of the device, for O_DIRECT; some cross the boundaries of pages. */
struct record {
    uint32_t sum, slot, number;
    unsigned char rest[SLOT - 12];
};

static uint32_t sum(const struct record *of) {
    const unsigned char *all = (const unsigned char *)of;
    uint32_t sum = 2166136261;
    for (int n = 4; n < SLOT; n++)
        sum = (sum ^ all[n]) * 16777619;
    return sum;
}

static struct record made(uint32_t slot, uint32_t number) {
    struct record made = {.slot = slot, .number = number};
    for (unsigned n = 0; n < sizeof made.rest; n++)
        made.rest[n] = slot * 7 + number * 13 + n;
    made.sum = sum(&made);
    return made;
}

static void write_slot(int slot) {
    uint32_t number = shared->done[slot] + 1;
    struct record from = made(slot, number);
    off_t at = (off_t)slot * SLOT;
    shared->begun[slot] = number;
    if (!shared->is_direct && below(40) == 0) {
        struct stat of;
        CHECK(fstat(fd, &of) == 0 && of.st_size >= SLOTS * SLOT);
        char *all = mmap(NULL, SLOTS * SLOT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(all != MAP_FAILED);
        memcpy(all + at, &from, SLOT);
        CHECK(msync(all, SLOTS * SLOT, MS_SYNC) == 0 && munmap(all, SLOTS * SLOT) == 0);
    } else {
        CHECK(pwrite(fd, &from, SLOT, at) == SLOT);
    }
    shared->done[slot] = number;
}

static void read_slot(int slot, int is_mapped) {
    struct record got;
    off_t at = (off_t)slot * SLOT;
    char *all = NULL;
    if (is_mapped) {
        struct stat of;
        CHECK(fstat(fd, &of) == 0 && of.st_size >= SLOTS * SLOT);
        CHECK((all = mmap(NULL, SLOTS * SLOT, PROT_READ, MAP_SHARED, fd, 0)) != MAP_FAILED);
    }
    uint32_t before = shared->done[slot];
    if (is_mapped)
        memcpy(&got, all + at, SLOT);
    else
        CHECK(pread(fd, &got, SLOT, at) == SLOT);
    uint32_t after = shared->begun[slot];
    CHECK(!all || munmap(all, SLOTS * SLOT) == 0);
    /* Beside a write, in part. */
    if (before != after && got.sum != sum(&got))
        return;
    if (got.sum != sum(&got) || got.slot != (uint32_t)slot || got.number < before ||
        got.number > after) {
        fprintf(stderr, "slot %d: has slot %u, number %u (sum right: %d), not %u to %u; %s%s\n",
                slot, got.slot, got.number, got.sum == sum(&got), before, after,
                is_mapped ? "mapped" : "read", shared->is_direct ? ", others direct" : "");
        fail("a slot has no record that was written to it", __LINE__);
    }
}

static void slots(void) {
    struct record first;
    for (int slot = index_; slot < SLOTS; slot += count) {
        first = made(slot, 0);
        CHECK(pwrite(fd, &first, SLOT, (off_t)slot * SLOT) == SLOT);
    }
    meet();
    while (!shared->is_over) {
        CHECK(!shared->failed);
        write_slot(index_ + count * below(SLOTS / count));
        read_slot(below(SLOTS), !shared->is_direct && below(40) == 0);
        if (below(100) == 0)
            CHECK(fsync(fd) == 0);
        shared->wants_all |= below(PERIOD) == 0;
        if (shared->wants_all)
            meet();
    }
    for (int slot = 0; slot < SLOTS; slot++)
        read_slot(slot, 0);
}

/* Record `number` of `writer`: a line of a length of its own. */
static int line(char *to, int writer, long number) {
    int used = sprintf(to, "%d %ld ", writer, number);
    int end = 40 + (number * 37 + writer * 11) % 2000;
    memset(to + used, 'a' + writer, end - used);
    to[end] = '\n';
    to[end + 1] = 0;
    return end + 1;
}

enum { RECORDS = 400 };

static void append_records(int writer) {
    char text[2200];
    for (long number = 0; number < RECORDS; number++) {
        int len = line(text, writer, number);
        CHECK(write(end_fd, text, len) == len);
        if (below(30) == 0) {
            close_file();
            open_file();
        }
        if (below(100) == 0)
            CHECK(fdatasync(end_fd) == 0);
        if (writer < count && number == RECORDS / 2) {
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) {
                seed += 12345;
                append_records(writer + count);
                _exit(0);
            }
        }
    }
    int status;
    if (writer < count)
        CHECK(wait(&status) > 0 && status == 0);
}

static void check(void) {
    FILE *file = fopen(path, "r");
    long expected[64] = {0}, number, all = 0;
    char text[2200], should[2200];
    int writer;
    CHECK(file);
    while (fgets(text, sizeof text, file)) {
        int is_whole = sscanf(text, "%d %ld ", &writer, &number) == 2 && writer >= 0 &&
                       writer < 2 * count && line(should, writer, number) &&
                       strcmp(text, should) == 0 && number == expected[writer];
        if (!is_whole) {
            fprintf(stderr, "after %ld records: %.60s\n", all, text);
            fail("a record is torn, lost or at a wrong place", __LINE__);
        }
        expected[writer]++;
        all++;
    }
    CHECK(all == 2L * count * RECORDS);
}

int main(int argc, char **argv) {
    if (argc != 8)
        return 2;
    mode = argv[1], path = argv[2];
    index_ = atoi(argv[4]), count = atoi(argv[5]);
    until = time(NULL) + atoi(argv[6]);
    begin(argv[3]);
    seed = (strtoull(argv[7], NULL, 10) * 64 + index_ + 1) * 0x9E3779B97F4A7C15;
    if (strcmp(mode, "check") == 0) {
        check();
        return 0;
    }
    open_file();
    if (strcmp(mode, "locked") == 0)
        locked();
    else if (strcmp(mode, "slots") == 0)
        slots();
    else
        append_records(index_);
    close_file();
    return 0;
}

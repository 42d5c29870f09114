/* A thread that does nothing but read can be cancelled, and nothing of ours stays locked. */
#include "check.h"
#include <sys/uio.h>

static const char *file, *src;
static int fd, cleaned;

static void clean(void *of) {
    (void)of;
    cleaned++;
}

static void *reader(void *how) {
    char page[4096];
    struct iovec part = {page, sizeof page};
    pthread_cleanup_push(clean, NULL);
    for (off_t at = 0;; at = (at + 4096) % 200000) {
        switch ((long)how % 6) {
        case 0:
            lseek(fd, at, SEEK_SET);
            read(fd, page, sizeof page);
            break;
        case 1: pread(fd, page, sizeof page, at); break;
        case 2: preadv(fd, &part, 1, at); break;
        case 3: preadv2(fd, &part, 1, at, 0); break;
        case 4: close(open(file, O_RDONLY)); break;
        case 5: fsync(fd); break;
        }
    }
    pthread_cleanup_pop(0);
    return NULL;
}

static void *blocked(void *pipe) {
    char byte;
    pthread_cleanup_push(clean, NULL);
    CHECK(read(*(int *)pipe, &byte, 1) == 1);
    pthread_cleanup_pop(0);
    return NULL;
}

static void end(pthread_t thread) {
    void *result;
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    src = argv[2];
    file = in(argv[1], "dir/b.bin");
    fd = direct(file);
    alarm(120);
    const long turns = 48;
    for (long turn = 0; turn < turns; turn++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, reader, (void *)turn) == 0);
        usleep(turn * 100);
        end(thread);
    }
    /* One that sleeps in a read of the kernel's. */
    int ends[2];
    pthread_t thread;
    CHECK(pipe(ends) == 0 && pthread_create(&thread, NULL, blocked, ends) == 0);
    usleep(10000);
    end(thread);
    CHECK(cleaned == turns + 1);
    read_often(fd, content(src));
    return 0;
}

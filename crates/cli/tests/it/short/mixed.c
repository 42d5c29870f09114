/* What a program does with one descriptor in different ways has one order. Argument: the directory. */
#include "../inside/check.h"

#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

static void stdio(const char *dir) {
    int fd = open(in(dir, "stdio"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && write(fd, "one ", 4) == 4 && dprintf(fd, "two ") == 4);
    FILE *stream = fdopen(dup(fd), "r+");
    CHECK(stream && fprintf(stream, "three ") == 6 && fflush(stream) == 0);
    CHECK(write(fd, "four ", 5) == 5 && fputs("five ", stream) >= 0 && fclose(stream) == 0);
    CHECK(write(fd, "six", 3) == 3 && lseek(fd, 0, SEEK_CUR) == 27);
    char got[64] = "";
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && read(fd, got, 4) == 4);
    stream = fdopen(dup(fd), "r");
    CHECK(stream && fgetc(stream) == 't' && fseek(stream, 8, SEEK_SET) == 0 && fflush(stream) == 0);
    CHECK(fclose(stream) == 0);
    CHECK(pread(fd, got, sizeof got, 0) == 27 && strcmp(got, "one two three four five six") == 0);
    CHECK(read(fd, got, sizeof got) == 19 && read(fd, got, sizeof got) == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == 27 && close(fd) == 0);
}

static void sizes(const char *dir) {
    enum { BYTES = 3 << 20 };
    int fd = open(in(dir, "sizes"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    unsigned char *put = malloc(BYTES), *got = malloc(BYTES + 100);
    struct stat stat;
    CHECK(fd >= 0 && put && got);
    for (int at = 0; at < BYTES; at++)
        put[at] = at * 31 + (at >> 12);
    CHECK(write(fd, put, BYTES) == BYTES && lseek(fd, 0, SEEK_CUR) == BYTES);
    CHECK(pread(fd, got, BYTES + 100, 0) == BYTES && memcmp(put, got, BYTES) == 0);
    CHECK(fstat(fd, &stat) == 0 && stat.st_size == BYTES && S_ISREG(stat.st_mode));
    CHECK((stat.st_mode & 0777) == (0644 & ~umask(022)) && stat.st_nlink == 1);
    struct stat by_name;
    CHECK(lstat(in(dir, "sizes"), &by_name) == 0 && by_name.st_ino == stat.st_ino);
    CHECK(by_name.st_dev == stat.st_dev && by_name.st_size == stat.st_size);
    CHECK(lseek(fd, -10, SEEK_END) == BYTES - 10 && read(fd, got, 100) == 10);
    CHECK(lseek(fd, 0, SEEK_CUR) == BYTES && read(fd, got, 100) == 0);
    struct iovec iov[4] = {{put, 10}, {NULL, 0}, {put + 10, (1 << 20) + 5}, {put, 7}};
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && writev(fd, iov, 4) == (1 << 20) + 22);
    struct iovec back[3] = {{got, 3}, {got + 3, (1 << 20) + 12}, {got + (1 << 20) + 15, 7}};
    CHECK(preadv(fd, back, 3, 0) == (1 << 20) + 22 && memcmp(got, put, (1 << 20) + 15) == 0);
    CHECK(memcmp(got + (1 << 20) + 15, put, 7) == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == (1 << 20) + 22);
    CHECK(ftruncate(fd, 100) == 0 && fstat(fd, &stat) == 0 && stat.st_size == 100);
    CHECK(stat.st_blocks <= 8 && read(fd, got, 1) == 0 && lseek(fd, 0, SEEK_END) == 100);
    CHECK(fsync(fd) == 0 && fdatasync(fd) == 0);
    errno = 0;
    CHECK(pread(fd, got, 10, 0) == 10 && errno == 0);
    CHECK(pread(fd, got, 10, -1) == -1 && errno == EINVAL);
    CHECK(lseek(fd, -200, SEEK_END) == -1 && errno == EINVAL);
    CHECK(lseek(fd, 0, SEEK_CUR) == 100 && pwritev2(fd, iov, 1, -1, RWF_APPEND) == 10);
    CHECK(fstat(fd, &stat) == 0 && stat.st_size == 110 && lseek(fd, 0, SEEK_CUR) == 110);
    int reader = open(in(dir, "sizes"), O_RDONLY), writer = open(in(dir, "sizes"), O_WRONLY);
    CHECK(pread(reader, got, 10, 0) == 10 && pwrite(reader, put, 1, 0) == -1 && errno == EBADF);
    CHECK(pwrite(writer, put, 1, 0) == 1 && pread(writer, got, 1, 0) == -1 && errno == EBADF);
    CHECK(ftruncate(reader, 0) == -1 && errno == EINVAL);
    void *volatile none = NULL;
    CHECK(pread(fd, none, 10, 0) == -1 && errno == EFAULT && read(fd, none, 0) == 0);
    CHECK(close(fd) == 0 && pread(fd, got, 1, 0) == -1 && errno == EBADF);
    struct rlimit limit = {200, 200};
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(pwrite(writer, put, 100, 150) == 50 && pwrite(writer, put, 1, 200) == -1);
    CHECK(errno == EFBIG && ftruncate(writer, 1000) == -1 && errno == EFBIG);
    free(put);
    free(got);
}

/* What the kernel does by the size that it knows. */
static void by_size(const char *dir) {
    enum { PAGE = 4096, MANY = 100, LARGE = 2 << 20 };
    char *put = aligned_alloc(PAGE, LARGE), *got = malloc(PAGE * MANY + LARGE);
    CHECK(put && got);
    for (int direct = 0; direct < 2; direct++) {
        int flags = O_RDWR | O_CREAT | O_TRUNC | O_APPEND | (direct ? O_DIRECT : 0);
        int fd = open(in(dir, "append"), flags, 0644);
        memset(put, 'a', LARGE);
        for (int at = 0; at < MANY; at++)
            CHECK(fd >= 0 && write(fd, put, PAGE) == PAGE);
        memset(put, 'b', LARGE);
        CHECK(write(fd, put, LARGE) == LARGE && close(fd) == 0);
        int reader = open(in(dir, "append"), O_RDONLY);
        FILE *stream = fdopen(reader, "r");
        CHECK(stream && fread(got, 1, PAGE * MANY + LARGE, stream) == PAGE * MANY + LARGE);
        for (int at = 0; at < PAGE * MANY + LARGE; at++)
            CHECK(got[at] == (at < PAGE * MANY ? 'a' : 'b'));
        CHECK(fgetc(stream) == EOF && fclose(stream) == 0);
    }
    int fd = open(in(dir, "append"), O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
    memset(put, 'c', LARGE);
    CHECK(fd >= 0 && write(fd, put, 3 * PAGE) == 3 * PAGE);
    CHECK(dprintf(fd, "%.*s", PAGE, put) == PAGE && dprintf(fd, "end") == 3);
    FILE *stream = fopen(in(dir, "append"), "r");
    CHECK(stream && fread(got, 1, LARGE, stream) == 4 * PAGE + 3 && fclose(stream) == 0);
    CHECK(memcmp(got, put, 4 * PAGE) == 0 && memcmp(got + 4 * PAGE, "end", 3) == 0);
    CHECK(close(fd) == 0);
    for (int how = 0; how < 3; how++) {
        int from = open(in(dir, "from"), O_RDWR | O_CREAT | O_TRUNC, 0644);
        int to = open(in(dir, "to"), O_RDWR | O_CREAT | O_TRUNC, 0644), ends[2];
        CHECK(from >= 0 && to >= 0 && write(from, put, 10 * PAGE) == 10 * PAGE && pipe(ends) == 0);
        off_t at = 0;
        ssize_t moved = how == 0   ? sendfile(to, from, &at, 10 * PAGE)
                        : how == 1 ? copy_file_range(from, &at, to, NULL, 10 * PAGE, 0)
                                   : splice(from, &at, ends[1], NULL, 10 * PAGE, 0);
        CHECK(moved == 10 * PAGE && at == 10 * PAGE);
        CHECK(how == 2 || pread(to, got, LARGE, 0) == 10 * PAGE);
        CHECK(close(from) == 0 && close(to) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    umask(022);
    stdio(argv[1]);
    by_size(argv[1]);
    sizes(argv[1]);
    return 0;
}

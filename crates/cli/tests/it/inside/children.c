/* Children made past fork() have no line of their own: they read by the kernel, and do not wait. */
#include "check.h"
#include <sys/syscall.h>

static const char *file;
static int fd;

static int in_child(const char *data) {
    char page[4096];
    struct stat stat;
    alarm(60);
    read_often(fd, data);
    CHECK(lseek(fd, 8192, SEEK_SET) == 8192 && read(fd, page, sizeof page) == sizeof page);
    CHECK(memcmp(page, data + 8192, sizeof page) == 0);
    int again = open(file, O_RDONLY);
    CHECK(again >= 0 && close(again) == 0);
    CHECK(fstat(fd, &stat) == 0 && stat.st_size == FILE_BYTES);
    /* Another file at the same number. */
    int ends[2];
    CHECK(close(fd) == 0 && pipe(ends) == 0 && ends[0] == fd);
    CHECK(write(ends[1], "x", 1) == 1 && read(ends[0], page, 4096) == 1 && page[0] == 'x');
    return 7;
}

static void await(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    const char *data = content(argv[2]);
    file = in(argv[1], "dir/b.bin");
    fd = direct(file);
    read_often(fd, data);
    pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(in_child(data));
    await(child);
#if __GLIBC_PREREQ(2, 34)
    child = _Fork();
    if (child == 0)
        _exit(in_child(data));
    await(child);
#endif
    /* fork() and vfork() are as ever. */
    child = fork();
    if (child == 0) {
        alarm(60);
        read_often(fd, data);
        /* And what it forks in turn. */
        pid_t next = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (next == 0)
            _exit(in_child(data));
        await(next);
        read_often(fd, data);
        _exit(7);
    }
    await(child);
    if ((child = vfork()) == 0)
        _exit(7);
    await(child);
    read_often(fd, data);
    return 0;
}

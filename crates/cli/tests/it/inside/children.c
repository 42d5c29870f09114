/* Children made past fork() have none of our threads: they are told so, and do not wait. */
#include "check.h"
#include <sys/syscall.h>

static const char *file;
static int fd;

static void failed(long result) {
    CHECK(result == -1 && errno == EIO);
}

static int in_child(void) {
    char page[4096];
    struct stat stat;
    alarm(60);
    failed(pread(fd, page, sizeof page, 8192));
    failed(read(fd, page, sizeof page));
    failed(open(file, O_RDONLY));
    failed(fstat(fd, &stat));
    /* Files of the kernel's are as ever, also at a number that was ours. */
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
    fd = open(file, O_RDONLY);
    CHECK(fd >= 0);
    read_often(fd, data);
    pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(in_child());
    await(child);
#if __GLIBC_PREREQ(2, 34)
    child = _Fork();
    if (child == 0)
        _exit(in_child());
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
            _exit(in_child());
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

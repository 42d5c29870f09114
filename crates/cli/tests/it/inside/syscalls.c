/* Files of ours by syscall(2), as the Java and Go-like runtimes that use it see them; and pathconf. */
#include "check.h"
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/syscall.h>

int main(int argc, char **argv) {
    CHECK(argc == 3);
    const char *data = content(argv[2]), *file = in(argv[1], "dir/b.bin"), *put = in(argv[2], "dir/b.bin");
    char page[4096];
    struct stat stat, known;
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC};
    int fd = syscall(SYS_openat2, AT_FDCWD, file, &how, sizeof how);
    CHECK(fd >= 0 && pread(fd, page, 4096, 4096) == 4096 && !memcmp(page, data + 4096, 4096));
    how.flags = O_RDWR;
    CHECK(syscall(SYS_openat2, AT_FDCWD, file, &how, sizeof how) == -1 && errno == EROFS);
    how = (struct open_how){.flags = O_RDONLY, .resolve = RESOLVE_NO_SYMLINKS};
    CHECK(syscall(SYS_openat2, AT_FDCWD, file, &how, sizeof how) == -1 && errno == ENOSYS);
    int theirs = syscall(SYS_openat2, AT_FDCWD, put, &how, sizeof how);
    CHECK(theirs >= 0);

    CHECK(syscall(SYS_newfstatat, AT_FDCWD, file, &stat, 0) == 0 && stat.st_size == FILE_BYTES);
    CHECK(syscall(SYS_newfstatat, AT_FDCWD, put, &known, 0) == 0 && known.st_dev != stat.st_dev);
    CHECK(syscall(SYS_newfstatat, fd, "", &known, AT_EMPTY_PATH) == 0 && known.st_ino == stat.st_ino);
    CHECK(syscall(SYS_faccessat, AT_FDCWD, file, R_OK) == 0);
    CHECK(syscall(SYS_faccessat2, AT_FDCWD, file, R_OK, 0) == 0);
    CHECK(syscall(SYS_faccessat2, AT_FDCWD, in(argv[1], "none"), R_OK, 0) == -1 && errno == ENOENT);
    int length = syscall(SYS_readlinkat, AT_FDCWD, in(argv[1], "dir/link"), page, sizeof page);
    CHECK(length == 8 && !memcmp(page, "../a.txt", 8));

    int high = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 50);
    CHECK(high >= 50 && read(high, page, 10) == 10 && !memcmp(page, data, 10));
    CHECK((syscall(SYS_fcntl, fd, F_GETFL) & O_ACCMODE) == O_RDONLY);
    CHECK(syscall(SYS_dup3, fd, 60, O_CLOEXEC) == 60 && read(60, page, 10) == 10);
    CHECK(!memcmp(page, data + 10, 10));
#ifdef SYS_dup2
    CHECK(syscall(SYS_dup2, fd, 61) == 61 && read(61, page, 10) == 10 && !memcmp(page, data + 20, 10));
    CHECK(syscall(SYS_dup2, theirs, 61) == 61 && read(61, page, 10) == 10 && !memcmp(page, data, 10));
#endif
    char *mapped = (char *)syscall(SYS_mmap, NULL, FILE_BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(mapped != MAP_FAILED && !memcmp(mapped, data, FILE_BYTES));
    /* Who copies falls back on reading. */
    CHECK(syscall(SYS_copy_file_range, fd, NULL, 1, NULL, 100, 0) == -1 && errno == EXDEV);

    int same[] = {_PC_NAME_MAX, _PC_PATH_MAX, _PC_PIPE_BUF, _PC_NO_TRUNC, _PC_CHOWN_RESTRICTED};
    for (size_t at = 0; at < sizeof same / sizeof *same; at++) {
        long expected = pathconf(put, same[at]);
        CHECK(pathconf(file, same[at]) == expected && fpathconf(fd, same[at]) == expected);
    }
    CHECK(pathconf(file, _PC_LINK_MAX) == 65000);
    CHECK(pathconf(file, _PC_REC_XFER_ALIGN) == stat.st_blksize);
    errno = 0;
    CHECK(pathconf(file, _PC_SYMLINK_MAX) == -1 && errno == 0);
    CHECK(pathconf(file, 1000) == -1 && errno == EINVAL);
    CHECK(pathconf(in(argv[1], "none"), _PC_NAME_MAX) == -1 && errno == ENOENT);
    return 0;
}

/* What a program does with numbers that are not in use, as far as it knows: argv[3] says what. */
#include "check.h"
#include <dirent.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static const char *data, *file;

/* Numbers that are open and that this program has not opened, into `found`. */
static int foreign(int *found, int most) {
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fd > 2 && fd != dirfd(dir)) {
            CHECK(count < most);
            found[count++] = fd;
        }
    }
    closedir(dir);
    return count;
}

static int mounted(void) {
    int fd = direct(file);
    read_often(fd, data);
    return fd;
}

/* Puts files of the program's own onto `from` to `to`, and has the device used; nobody else may have
   written to them. */
static void with_files_at(int from, int to, int onto) {
    char name[32];
    for (int fd = from; fd <= to; fd++) {
        snprintf(name, sizeof name, "log.%d", fd);
        int log = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(log >= 0);
        if (onto && log != fd)
            CHECK(dup2(log, fd) == fd && close(log) == 0);
        else
            CHECK(log == fd);
    }
    int fd = direct(file);
    read_often(fd, data);
    struct stat stat;
    for (int log = from; log <= to; log++)
        CHECK(fstat(log, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_size == 0);
}

static void refused(int result) {
    CHECK(result == -1 && errno == EBADF);
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    file = in(argv[1], "dir/b.bin");
    data = content(argv[2]);
    const char *what = argv[3];
    if (!strcmp(what, "closefrom")) {
        mounted();
        closefrom(3);
        with_files_at(3, 12, 0);
    } else if (!strcmp(what, "close_range")) {
        mounted();
        CHECK(close_range(3, ~0U, 0) == 0);
        with_files_at(3, 12, 0);
    } else if (!strcmp(what, "unshare")) {
        mounted();
        CHECK(syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_UNSHARE) == 0);
        with_files_at(3, 12, 0);
    } else if (!strcmp(what, "each")) {
        mounted();
        for (int fd = 3; fd < sysconf(_SC_OPEN_MAX) && fd < 70000; fd++)
            close(fd);
        with_files_at(3, 12, 0);
    } else if (!strcmp(what, "dup2")) {
        mounted();
        with_files_at(4, 40, 1);
    } else if (!strcmp(what, "onto")) {
        /* Nothing is in the way: what is opened gets the lowest numbers. */
        int inherited[64], found[64], lowest = open("/dev/null", O_RDONLY);
        CHECK(close(lowest) == 0);
        int before = foreign(inherited, 64), fd = mounted(), null = dup(1);
        CHECK(fd == lowest && null > fd && null < 64);
        int count = foreign(found, 64), hidden = 0;
        for (int at = 0; at < count; at++) {
            int known = found[at] == fd || found[at] == null;
            for (int old = 0; old < before; old++)
                known |= found[at] == inherited[old];
            if (known)
                continue;
            hidden++;
            refused(dup2(null, found[at]));
            refused(dup3(null, found[at], O_CLOEXEC));
            refused(dup(found[at]));
            refused(close(found[at]));
            refused(fcntl(found[at], F_SETFD, 0));
            CHECK(fcntl(found[at], F_GETFD) == FD_CLOEXEC);
            CHECK(fcntl(null, F_DUPFD, found[at]) > found[at]);
            read_often(fd, data);
            /* The kernel's own call is not refused; what goes on without it does. */
            CHECK(syscall(SYS_close, found[at]) == 0);
        }
        CHECK(hidden > 0);
        read_often(fd, data);
    } else if (!strcmp(what, "few")) {
        struct rlimit limit = {24, 24};
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        int fd = mounted();
        while (open("/dev/null", O_RDONLY) >= 0)
            ;
        CHECK(errno == EMFILE);
        read_often(fd, data);
        closefrom(3);
        with_files_at(3, 12, 0);
    } else {
        return 2;
    }
    return 0;
}

/* A signal that every thread of the program blocks waits until the program takes it. */
#include "check.h"
#include <dirent.h>
#include <sys/signalfd.h>

int main(int argc, char **argv) {
    CHECK(argc == 3);
    const char *data = content(argv[2]);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    /* After the mount, as threads that are there by then do not hear of it. */
    int fd = open(in(argv[1], "dir/b.bin"), O_RDONLY);
    CHECK(fd >= 0);
    read_often(fd, data);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    int signals = signalfd(-1, &set, SFD_CLOEXEC);
    CHECK(signals >= 0);
    for (int turn = 0; turn < 20; turn++) {
        struct signalfd_siginfo info;
        CHECK(kill(getpid(), SIGUSR1) == 0);
        usleep(2000);
        CHECK(read(signals, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR1);
    }
    /* All threads but this one: all blocked but what a thread does itself. */
    DIR *dir = opendir("/proc/self/task");
    CHECK(dir);
    int others = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid())
            continue;
        char path[300], line[200];
        unsigned long long blocked = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *status = fopen(path, "r");
        CHECK(status);
        while (fgets(line, sizeof line, status))
            sscanf(line, "SigBlk: %llx", &blocked);
        fclose(status);
        others++;
        int free[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGKILL, SIGSTOP};
        for (int signal = 1; signal < 32; signal++) {
            int is_free = 0;
            for (size_t at = 0; at < sizeof free / sizeof *free; at++)
                is_free |= free[at] == signal;
            CHECK((blocked >> (signal - 1) & 1) == !is_free);
        }
    }
    CHECK(others > 0);
    return 0;
}

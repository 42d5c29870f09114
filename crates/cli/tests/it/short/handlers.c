/* Signal handlers that write, also to the descriptor that is being written. Arguments: the
   directory, records. */
#include "../inside/check.h"

#include <sys/time.h>

static int fd, other;
static volatile long handled, handled_both;
static volatile sig_atomic_t both;

static void handler(int signal) {
    (void)signal;
    int before = errno;
    /* What a handler writes while a call is in progress has the kernel cache the file. */
    if (write(other, "handler\n", 8) != 8 || (both && write(fd, "handler\n", 8) != 8))
        _exit(9);
    handled++;
    handled_both += both;
    errno = before;
}

static void count(int of, long *mains, long *handlers) {
    char record[9] = "";
    *mains = *handlers = 0;
    CHECK(lseek(of, 0, SEEK_SET) == 0);
    while (read(of, record, 8) == 8) {
        *mains += strcmp(record, "a  main\n") == 0;
        *handlers += strcmp(record, "handler\n") == 0;
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    long records = atol(argv[2]), mains, handlers;
    fd = open(in(argv[1], "handlers"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    other = open(in(argv[1], "handlers-other"), O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
    CHECK(fd >= 0 && other >= 0);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval timer = {{0, 300}, {0, 300}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    long number = 0;
    /* Until the timer has come often enough, too. */
    for (; number < 2 * records || (handled_both < 20 && number < 100 * records); number++) {
        both = number >= records && handled > 0;
        CHECK(write(fd, "a  main\n", 8) == 8);
    }
    timer.it_interval.tv_usec = timer.it_value.tv_usec = 0;
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    count(fd, &mains, &handlers);
    CHECK(mains == number && handlers == handled_both && handlers > 0);
    count(other, &mains, &handlers);
    CHECK(mains == 0 && handlers == handled);
    return 0;
}

/* A signal handler leaves calls by siglongjmp, on the thread's stack or one of its own, as time
   limits do. What a call that was left did is open; each other one has to be right. Arguments: the
   directory, calls. */
#include "../inside/check.h"

#include <setjmp.h>
#include <sys/time.h>

enum { RECORD = 16384, RECORDS = 64 };

static sigjmp_buf before;
static volatile sig_atomic_t may_jump, nests, jumps;
static int fd, other;
static long nested;

static void handler(int signal) {
    (void)signal;
    /* A call while another one is in progress: its line is not to be used. */
    if (nests && pwrite(other, "handler\n", 8, 8 * nested++) != 8)
        _exit(9);
    if (may_jump) {
        may_jump = 0;
        jumps++;
        siglongjmp(before, 1);
    }
}

static void write_record(long number, char *record) {
    memset(record, (int)(number % 251), RECORD);
    CHECK(pwrite(fd, record, RECORD, number % RECORDS * RECORD) == RECORD);
}

/* From deeper in the stack than the calls that are left. */
static __attribute__((noinline)) void check_record(long number, char *record) {
    char seen[RECORD];
    CHECK(pread(fd, seen, RECORD, number % RECORDS * RECORD) == RECORD);
    CHECK(memcmp(seen, record, RECORD) == 0);
}

static void *run(void *calls) {
    static char record[RECORD], left[RECORD];
    for (volatile long number = 0; number < (long)calls || jumps < 100; number++) {
        CHECK(number < 1000 * (long)calls);
        if (sigsetjmp(before, 1) == 0) {
            may_jump = 1;
            /* It is left somewhere in here, or not. */
            memset(left, 255, RECORD);
            pwrite(fd, left, RECORD, RECORDS * RECORD);
            may_jump = 0;
        }
        write_record(number, record);
        check_record(number, record);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    void *calls = (void *)atol(argv[2]);
    fd = open(in(argv[1], "jumps"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    other = open(in(argv[1], "jumps-other"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && other >= 0);
    static char stack[65536];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct itimerval timer = {{0, 300}, {0, 300}}, none = {{0, 0}, {0, 0}};
    for (int way = 0; way < 4; way++) {
        nests = way & 1;
        struct sigaction action = {.sa_handler = handler, .sa_flags = way & 2 ? SA_ONSTACK : 0};
        CHECK(sigaltstack(&alternate, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
        jumps = 0;
        CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
        run(calls);
        CHECK(setitimer(ITIMER_REAL, &none, NULL) == 0);
    }
    /* In a thread, whose stack lies below the one for signals. */
    pthread_t thread;
    sigset_t alarm;
    CHECK(sigemptyset(&alarm) == 0 && sigaddset(&alarm, SIGALRM) == 0);
    struct sigaction action = {.sa_handler = handler};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    jumps = 0;
    CHECK(pthread_create(&thread, NULL, run, calls) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &alarm, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &none, NULL) == 0);
    return 0;
}

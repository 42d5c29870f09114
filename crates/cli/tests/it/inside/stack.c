/* A signal handler that opens files, on a stack of argv[3] bytes: argv[4] says whose. */
#include "check.h"
#include <sys/mman.h>

static const char *file;
static int is_ours;
static volatile int done;

static void handler(int signal) {
    char byte;
    (void)signal;
    if (is_ours) {
        int fd = open(file, O_RDONLY);
        CHECK(fd >= 0 && read(fd, &byte, 1) == 1 && byte == 'h' && close(fd) == 0);
    } else {
        struct stat stat;
        CHECK(open("/none/of/all", O_RDONLY) == -1 && errno == ENOENT);
        CHECK(open("none/of/all", O_RDONLY) == -1 && errno == ENOENT);
        CHECK(fstatat(AT_FDCWD, "../none", &stat, 0) == -1 && access("/none/", R_OK) == -1);
        int fd = open("/dev/null", O_RDONLY);
        CHECK(fd >= 0 && close(fd) == 0);
    }
    done++;
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    file = in(argv[1], "a.txt");
    is_ours = !strcmp(argv[4], "ours");
    size_t bytes = atol(argv[3]), guard = 1 << 20;
    char *memory = mmap(NULL, guard + bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && mprotect(memory + guard, bytes, PROT_READ | PROT_WRITE) == 0);
    stack_t stack = {.ss_sp = memory + guard, .ss_size = bytes};
    CHECK(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    raise(SIGUSR1);
    raise(SIGUSR1);
    CHECK(done == 2);
    return 0;
}

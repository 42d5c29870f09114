/* Children by vfork and posix_spawn, which write to their standard output; beside a thread that
   writes. Arguments: the directory, rounds. */
#include "../inside/check.h"

#include <spawn.h>
#include <stdatomic.h>
#include <sys/syscall.h>

extern char **environ;

static const char *dir;
static atomic_int ends;

static void *beside(void *given) {
    (void)given;
    int fd = open(in(dir, "spawns-beside"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0);
    for (long number = 0; !atomic_load(&ends); number++) {
        long got;
        CHECK(pwrite(fd, &number, sizeof number, (number % 100) * sizeof number) == sizeof number);
        CHECK(pread(fd, &got, sizeof got, (number % 100) * sizeof got) == sizeof got && got == number);
    }
    return NULL;
}

static void holds(int fd, const char *text) {
    char got[256] = "";
    CHECK(pread(fd, got, sizeof got - 1, 0) == (ssize_t)strlen(text) && strcmp(got, text) == 0);
}

static void spawn(int fd) {
    posix_spawn_file_actions_t actions;
    char *argv[] = {"echo", "spawned", NULL};
    pid_t pid;
    int status;
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0);
    CHECK(posix_spawnp(&pid, "echo", &actions, NULL, argv, environ) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    posix_spawn_file_actions_destroy(&actions);
}

static void executed(int fd) {
    int status;
    pid_t pid = vfork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (dup2(fd, 1) != 1)
            _exit(1);
        execlp("echo", "echo", "executed", NULL);
        _exit(1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* A child that borrows the memory has descriptors of its own. */
static void replaced(int fd, int other) {
    int status;
    pid_t pid = vfork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (syscall(SYS_dup3, other, fd, 0) != fd || write(fd, "child\n", 6) != 6)
            _exit(1);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    dir = argv[1];
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, beside, NULL) == 0);
    for (long round = atol(argv[2]); round > 0; round--) {
        int fd = open(in(dir, "spawns"), O_RDWR | O_CREAT | O_TRUNC, 0644);
        int other = open(in(dir, "spawns-other"), O_RDWR | O_CREAT | O_TRUNC, 0644);
        CHECK(fd >= 0 && other >= 0 && write(fd, "first\n", 6) == 6);
        spawn(fd);
        CHECK(write(fd, "second\n", 7) == 7);
        executed(fd);
        CHECK(write(fd, "third\n", 6) == 6 && write(other, "other\n", 6) == 6);
        replaced(fd, other);
        CHECK(write(fd, "last\n", 5) == 5 && write(other, "end\n", 4) == 4);
        holds(fd, "first\nspawned\nsecond\nexecuted\nthird\nlast\n");
        holds(other, "other\nchild\nend\n");
        CHECK(close(fd) == 0 && close(other) == 0);
    }
    atomic_store(&ends, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}

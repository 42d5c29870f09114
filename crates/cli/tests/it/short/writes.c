/* Writes a file and reads it, in a process that is not confined and in a child that is, if that is
   asked for. Arguments: the directory, the file's name, how to confine: no, strict, filter, call. */
#include "../inside/check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { CALLS = 100 };

static void confine(const char *how) {
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {1, &all};
    if (strcmp(how, "strict") == 0)
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) == 0);
    if (strcmp(how, "call") == 0)
        CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL) == 0);
    if (strcmp(how, "filter") == 0) {
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
    }
}

/* Only calls that each way to be confined permits. */
static void child(int to, int from, const char *how) {
    confine(how);
    for (int n = 0; n < CALLS; n++) {
        int got = -1;
        if (write(to, &n, sizeof n) != sizeof n || read(from, &got, sizeof got) != sizeof got ||
            got != n)
            syscall(SYS_exit, 1);
    }
    syscall(SYS_exit, 0);
}

int main(int count, char **args) {
    char path[4096];
    CHECK(count == 4);
    snprintf(path, sizeof path, "%s/%s", args[1], args[2]);
    int to = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    int from = open(path, O_RDWR);
    CHECK(to >= 0 && from >= 0);
    for (int n = 0; n < CALLS; n++) {
        int got = -1;
        CHECK(pwrite(to, &n, sizeof n, 0) == sizeof n);
        CHECK(pread(from, &got, sizeof got, 0) == sizeof got && got == n);
    }
    if (strcmp(args[3], "no") != 0) {
        int status;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            /* It has used the path that it loses. */
            CHECK(pwrite(to, &to, 1, 0) == 1);
            child(to, from, args[3]);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        for (int n = 0; n < CALLS; n++) {
            int got = -1;
            CHECK(pread(from, &got, sizeof got, n * sizeof got) == sizeof got && got == n);
        }
    }
    puts("written");
    return 0;
}

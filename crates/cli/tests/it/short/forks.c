/* Processes that write records by one open file: fork in the middle, while threads write as well.
   Arguments: the directory, records of each writer. */
#include "../inside/check.h"

#include <stdint.h>

enum { WRITERS = 6, LENGTH = 64 };

static int fd;
static long records;

static void *write_all(void *given) {
    char record[LENGTH];
    long writer = (long)(intptr_t)given;
    for (long number = 0; number < records; number++) {
        memset(record, 'a' + writer, sizeof record);
        int len = sprintf(record, "%ld %ld", writer, number);
        record[len] = ' ';
        record[LENGTH - 1] = '\n';
        CHECK(write(fd, record, sizeof record) == sizeof record);
    }
    return NULL;
}

static pid_t child(long writer) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        write_all((void *)(intptr_t)writer);
        _exit(0);
    }
    return pid;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    const char *path = in(argv[1], "forks");
    records = atol(argv[2]);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0);
    pthread_t threads[2];
    for (long writer = 0; writer < 2; writer++)
        CHECK(pthread_create(&threads[writer], NULL, write_all, (void *)(intptr_t)writer) == 0);
    usleep(2000);
    pid_t first = child(2), second = child(3);
    write_all((void *)4);
    pid_t third = child(5);
    for (int writer = 0; writer < 2; writer++)
        CHECK(pthread_join(threads[writer], NULL) == 0);
    pid_t children[] = {first, second, third};
    for (int at = 0; at < 3; at++) {
        int status;
        CHECK(waitpid(children[at], &status, 0) == children[at] && status == 0);
    }
    CHECK(lseek(fd, 0, SEEK_CUR) == (off_t)WRITERS * records * LENGTH);
    /* All records are there, whole, and of each writer in order. */
    long next[WRITERS] = {0};
    for (long at = 0; at < WRITERS * records; at++) {
        char record[LENGTH + 1] = "";
        CHECK(pread(fd, record, LENGTH, at * LENGTH) == LENGTH);
        long writer, number;
        CHECK(sscanf(record, "%ld %ld", &writer, &number) == 2);
        CHECK(writer >= 0 && writer < WRITERS && number == next[writer]++);
        CHECK(record[LENGTH - 2] == 'a' + writer && record[LENGTH - 1] == '\n');
    }
    return 0;
}

/* Four processes that append to one file by open files of their own, and two by one that becomes
   O_APPEND when both have it. Arguments: the directory, records of each. */
#include "../inside/check.h"

enum { PROCESSES = 4 };

static void append(int fd, int writer, long records) {
    char record[256];
    for (long number = 0; number < records; number++) {
        int len = sprintf(record, "%d %ld ", writer, number);
        int end = 40 + (number * 37 + writer * 11) % 200;
        memset(record + len, 'a' + writer, end - len);
        record[end] = '\n';
        CHECK(write(fd, record, end + 1) == end + 1);
    }
}

static void check(const char *path, int writers, long records) {
    FILE *file = fopen(path, "r");
    long next[8] = {0}, count = 0;
    char line[512];
    CHECK(file);
    while (fgets(line, sizeof line, file)) {
        int writer, len;
        long number;
        CHECK(sscanf(line, "%d %ld %n", &writer, &number, &len) == 2);
        CHECK(writer >= 0 && writer < writers && number == next[writer]++);
        int end = 40 + (number * 37 + writer * 11) % 200;
        CHECK((int)strlen(line) == end + 1);
        for (; len < end; len++)
            CHECK(line[len] == 'a' + writer);
        count++;
    }
    CHECK(count == writers * records);
    fclose(file);
}

static void wait_all(int count) {
    while (count-- > 0) {
        int status;
        CHECK(wait(&status) > 0 && status == 0);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    long records = atol(argv[2]);
    const char *path = in(argv[1], "append");
    unlink(path);
    for (int writer = 0; writer < PROCESSES; writer++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
            CHECK(fd >= 0);
            append(fd, writer, records);
            _exit(0);
        }
    }
    wait_all(PROCESSES);
    check(path, PROCESSES, records);

    /* A child sets O_APPEND for its parent's open file, which the parent knows without. */
    path = in(argv[1], "append-later");
    unlink(path);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    CHECK(fd >= 0 && pwrite(fd, "x", 1, 0) == 1 && ftruncate(fd, 0) == 0);
    if (fork() == 0) {
        CHECK(fcntl(fd, F_SETFL, O_APPEND) == 0);
        append(fd, 0, records);
        _exit(0);
    }
    wait_all(1);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    append(fd, 1, records);
    check(path, 2, records);
    /* And a duplicate takes it away again. */
    int other = dup(fd);
    CHECK(other >= 0 && fcntl(other, F_SETFL, 0) == 0);
    CHECK(pwrite(fd, "y", 1, 0) == 1);
    char got;
    CHECK(pread(other, &got, 1, 0) == 1 && got == 'y');
    return 0;
}

/* Many threads with calls of 1 MiB at the same time. The process that owns the mount, the parent's
   parent, needs no more than some memory. Arguments: the directory, threads, MiB. */
#include "../inside/check.h"

enum { MEGA = 1 << 20, FILES = 4, PARTS = 4 };

static pthread_barrier_t all;
static int fds[FILES];

static void *run(void *argument) {
    long thread = (long)argument;
    int fd = fds[thread % FILES], part = (int)(thread / FILES % PARTS);
    char *data = malloc(MEGA);
    CHECK(data);
    /* All threads of a part write the same. */
    for (int turn = 0; turn < 3; turn++) {
        pthread_barrier_wait(&all);
        memset(data, part + 1, MEGA);
        CHECK(pwrite(fd, data, MEGA, (off_t)part * MEGA) == MEGA);
        memset(data, 0, MEGA);
        CHECK(pread(fd, data, MEGA, (off_t)part * MEGA) == MEGA);
        for (int at = 0; at < MEGA; at++)
            CHECK(data[at] == part + 1);
    }
    /* Each has its line still. */
    pthread_barrier_wait(&all);
    free(data);
    return NULL;
}

/* The number in the line of /proc/`pid`/status that begins with `name`. */
static long status(long pid, const char *name) {
    char path[64], line[256];
    long number = -1;
    snprintf(path, sizeof path, "/proc/%ld/status", pid);
    FILE *file = fopen(path, "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            number = atol(line + strlen(name));
    fclose(file);
    return number;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    long count = atol(argv[2]), most = atol(argv[3]);
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    CHECK(threads && pthread_barrier_init(&all, NULL, (unsigned)count) == 0);
    const char *names[FILES] = {"a", "b", "c", "d"};
    for (int n = 0; n < FILES; n++)
        CHECK((fds[n] = open(in(argv[1], names[n]), O_RDWR | O_CREAT, 0644)) >= 0);
    for (long n = 0; n < count; n++)
        CHECK(pthread_create(&threads[n], NULL, run, (void *)n) == 0);
    for (long n = 0; n < count; n++)
        CHECK(pthread_join(threads[n], NULL) == 0);
    long owner = status(getppid(), "PPid:"), used = status(owner, "VmHWM:") / 1024;
    fprintf(stderr, "the owner used %ld MiB\n", used);
    CHECK(used > 0 && used <= most);
    return 0;
}

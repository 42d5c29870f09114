/* A library, loaded by dlopen, whose constructor opens a file: the thread has the loader's lock, for
   which the thread that mounts may have to wait. It is told so, or gets the file; it does not hang. */
#include "check.h"

#ifdef LIBRARY

int opened = -2, opened_errno;

__attribute__((constructor)) static void constructor(void) {
    opened = open(getenv("CONSTRUCTOR_OPENS"), O_RDONLY);
    opened_errno = errno;
}

#else
#include <dlfcn.h>

int main(int argc, char **argv) {
    CHECK(argc == 4);
    const char *file = in(argv[1], "a.txt");
    CHECK(setenv("CONSTRUCTOR_OPENS", file, 1) == 0);
    alarm(120);
    void *library = dlopen(argv[3], RTLD_NOW);
    CHECK(library != NULL);
    int *opened = dlsym(library, "opened"), *why = dlsym(library, "opened_errno");
    CHECK(opened && why && *opened != -2);
    CHECK(*opened >= 0 || *why == EDEADLK);
    /* Nobody has the lock any more. */
    char byte;
    int fd = open(file, O_RDONLY);
    CHECK(fd >= 0 && read(fd, &byte, 1) == 1 && byte == 'h' && close(fd) == 0);
    return 0;
}

#endif

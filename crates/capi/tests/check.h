/* How the tests fail. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <meantime.h>

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, \
                    mt_last_error());                                                      \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

/* The call fails with this errno, and the text has these words. */
#define REFUSED(call, errno_, words)                                               \
    do {                                                                           \
        int got = (call);                                                          \
        CHECK(got == -(errno_));                                                   \
        CHECK(strstr(mt_last_error(), (words)) != NULL);                           \
        CHECK(strchr(mt_last_error(), '\n') == NULL && *mt_strerror(got) != '\0'); \
    } while (0)

/* Linked with the library: whether a file of the image is seen. 10: yes, 11: no. */
#include "check.h"
#include <sys/auxv.h>

int main(int argc, char **argv) {
    CHECK(argc == 3);
    CHECK((getauxval(AT_SECURE) != 0) == atoi(argv[2]));
    return open(in(argv[1], "a.txt"), O_RDONLY) >= 0 ? 10 : 11;
}

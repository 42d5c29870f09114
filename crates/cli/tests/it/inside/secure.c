/* Linked with the library: argv[3] says whether it runs with more rights than its user. */
#include "check.h"
#include <sys/auxv.h>

int main(int argc, char **argv) {
    CHECK(argc == 4);
    CHECK((getauxval(AT_SECURE) != 0) == atoi(argv[3]));
    read_often(direct(in(argv[1], "dir/b.bin")), content(argv[2]));
    return 0;
}

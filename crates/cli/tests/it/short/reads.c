/* Reads of cached pages: the owner leaves the file to the kernel, whose cache has what was written
 * before and after. */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 600 };

static unsigned version[2 * PAGES];

static void fill(unsigned *page, unsigned number)
{
	for (unsigned i = 0; i < PAGE / sizeof *page; i++)
		page[i] = number << 16 ^ version[number] << 10 ^ i;
}

static void put(int fd, unsigned number)
{
	unsigned page[PAGE / sizeof(unsigned)];
	version[number]++;
	fill(page, number);
	if (pwrite(fd, page, PAGE, (off_t)number * PAGE) != PAGE)
		err(1, "pwrite");
}

static void check(int fd, unsigned number)
{
	unsigned page[PAGE / sizeof(unsigned)], expected[PAGE / sizeof(unsigned)];
	fill(expected, number);
	if (pread(fd, page, PAGE, (off_t)number * PAGE) != PAGE)
		err(1, "pread of page %u", number);
	if (memcmp(page, expected, PAGE))
		errx(1, "page %u is wrong", number);
}

int main(int argc, char **argv)
{
	if (argc != 3 || chdir(argv[1]))
		errx(1, "usage: reads DIRECTORY ROUNDS");
	int rounds = atoi(argv[2]);
	int out = open("pages", O_RDWR | O_CREAT | O_TRUNC, 0644);
	for (unsigned number = 0; number < PAGES; number++)
		put(out, number);
	/* As long as nobody may write it: else it is left much later. */
	close(out);
	int first = open("pages", O_RDONLY), second = open("pages", O_RDONLY);
	if (out < 0 || first < 0 || second < 0)
		err(1, "open");
	srandom(1);
	for (int round = 0; round < rounds; round++)
		check(first, random() % PAGES);
	out = open("pages", O_RDWR);
	/* It is left by now: descriptors that were not used yet, and changes. */
	for (int round = 0; round < rounds; round++) {
		unsigned number = random() % PAGES;
		if (round % 8 == 0)
			put(out, number);
		check(round % 2 ? first : second, number);
	}
	for (unsigned number = PAGES; number < 2 * PAGES; number++) {
		put(out, number);
		check(first, number);
	}
	if (ftruncate(out, PAGE) || pread(second, (char[1]){0}, 1, PAGE) != 0)
		errx(1, "there is something after the end");
	check(first, 0);
	return 0;
}

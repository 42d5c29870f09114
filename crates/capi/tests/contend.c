/* contend FILE: threads count up a number in one block by compare-and-write, each by a channel of its own. Prints the sum. */
#include <errno.h>
#include <meantime.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { THREADS = 2, TIMES = 1000, BLOCK = 512, LBA = 7 };

static mt_device *device;

/* What is expected, and then what is to be written. */
static void fill(mt_buf *buf, uint64_t expected, uint64_t wanted)
{
    char *data = mt_buf_data(buf);

    memset(data, 0, 2 * BLOCK);
    memcpy(data, &expected, sizeof expected);
    memcpy(data + BLOCK, &wanted, sizeof wanted);
}

static uint64_t number(mt_channel *channel, mt_buf *block)
{
    uint64_t number;

    CHECK(mt_read(channel, LBA, block) == 0);
    memcpy(&number, mt_buf_data(block), sizeof number);
    return number;
}

static void *count(void *conflicts)
{
    mt_channel *channel;
    mt_buf *block, *pair;

    CHECK(mt_channel_open(device, NULL, &channel) == 0);
    CHECK(mt_alloc(device, BLOCK, &block) == 0 && mt_alloc(device, 2 * BLOCK, &pair) == 0);
    for (int done = 0; done < TIMES;) {
        uint64_t seen = number(channel, block);
        int error;

        fill(pair, seen, seen + 1);
        error = mt_compare_and_write(channel, LBA, pair);
        CHECK(error == 0 || error == -EILSEQ);
        if (error == 0)
            done++;
        else
            ++*(int *)conflicts;
    }
    CHECK(mt_free(block) == 0 && mt_free(pair) == 0 && mt_channel_close(channel) == 0);
    return NULL;
}

/* One thread is enough to find something else there. */
static void a_conflict(void)
{
    mt_channel *channel;
    mt_buf *block, *pair;
    mt_request request = {0};
    mt_ticket ticket;
    mt_result result;
    mt_info info;

    CHECK(mt_device_info(device, &info) == 0 && info.compare_write_blocks >= 1);
    CHECK(mt_channel_open(device, NULL, &channel) == 0);
    CHECK(mt_alloc(device, BLOCK, &block) == 0);
    CHECK(mt_alloc(device, 2 * BLOCK * (info.compare_write_blocks + 1), &pair) == 0);
    CHECK(mt_compare_and_write(channel, LBA, pair) == -EINVAL); /* more than the device does */
    CHECK(strstr(mt_last_error(), "at most") != NULL);
    CHECK(mt_buf_set_len(pair, BLOCK) == 0 && mt_compare_and_write(channel, LBA, pair) == -EINVAL);
    CHECK(strstr(mt_last_error(), "two halves") != NULL);
    CHECK(mt_compare_and_write(channel, LBA, NULL) == -EINVAL);
    CHECK(mt_buf_set_len(pair, 2 * BLOCK) == 0);

    fill(pair, 0, 5);
    CHECK(mt_compare_and_write(channel, LBA, pair) == 0 && number(channel, block) == 5);
    CHECK(mt_compare_and_write(channel, LBA, pair) == -EILSEQ && number(channel, block) == 5);
    CHECK(strstr(mt_last_error(), "differ from the expected") != NULL && *mt_strerror(-EILSEQ) != '\0');
    /* As a request with a ticket; durable, too. */
    request.op = MT_COMPARE_AND_WRITE;
    request.flags = MT_FUA;
    request.lba = LBA;
    request.buf = pair;
    CHECK(mt_submit(channel, &request, &ticket) == 0 && mt_wait(channel, ticket, &result) == -EILSEQ);
    CHECK(result.buf == pair && result.error == -EILSEQ && mt_buf_data(pair) != NULL);
    fill(pair, 5, 0);
    CHECK(mt_submit(channel, &request, &ticket) == 0 && mt_wait(channel, ticket, NULL) == 0);
    CHECK(number(channel, block) == 0);
    CHECK(mt_free(block) == 0 && mt_free(pair) == 0 && mt_channel_close(channel) == 0);
}

static void kernel(const char *path)
{
    mt_device *device;
    mt_channel *channel;
    mt_channel_options options = {0};
    mt_buf *pair;
    mt_info info;
    char uri[512];

    snprintf(uri, sizeof uri, "kernel:%s?direct=0", path);
    CHECK(mt_open(uri, &device) == 0 && mt_device_info(device, &info) == 0 && info.compare_write_blocks == 0);
    options.policy = "interrupt";
    CHECK(mt_channel_open(device, &options, &channel) == 0 && mt_alloc(device, 2 * BLOCK, &pair) == 0);
    CHECK(mt_compare_and_write(channel, LBA, pair) == -EOPNOTSUPP);
    CHECK(strstr(mt_last_error(), "vfio:") != NULL && mt_buf_data(pair) != NULL);
    CHECK(mt_free(pair) == 0 && mt_channel_close(channel) == 0 && mt_close(device) == 0);
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int conflicts[THREADS] = {0}, all = 0;
    mt_channel *channel;
    mt_buf *block;

    CHECK(argc == 2);
    CHECK(mt_open("mem:1M", &device) == 0);
    a_conflict();
    for (int n = 0; n < THREADS; n++)
        CHECK(pthread_create(&threads[n], NULL, count, &conflicts[n]) == 0);
    for (int n = 0; n < THREADS; n++) {
        CHECK(pthread_join(threads[n], NULL) == 0);
        all += conflicts[n];
    }
    CHECK(mt_channel_open(device, NULL, &channel) == 0 && mt_alloc(device, BLOCK, &block) == 0);
    printf("%llu counted, %d conflicts\n", (unsigned long long)number(channel, block), all);
    CHECK(mt_free(block) == 0 && mt_channel_close(channel) == 0 && mt_close(device) == 0);
    kernel(argv[1]);
    return 0;
}

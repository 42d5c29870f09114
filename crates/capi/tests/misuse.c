/* misuse FILE: everything a program can do wrong that the library promises to notice, and that what is right afterwards still works. */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <meantime.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static mt_request of(uint32_t op, uint64_t lba, mt_buf *buf)
{
    mt_request request = {0};
    request.op = op;
    request.lba = lba;
    request.buf = buf;
    return request;
}

static void *other_thread(void *nothing)
{
    CHECK(*mt_last_error() == '\0'); /* none of this thread's calls has failed */
    REFUSED(mt_open("", (mt_device **)&nothing), EINVAL, "no scheme");
    return NULL;
}

static void opening(void)
{
    mt_device *device = NULL;
    mt_channel *channel = NULL;
    mt_buf *buf = NULL;
    mt_policy policy;
    mt_channel_options options = {0};

    CHECK(*mt_last_error() == '\0');
    CHECK(strcmp(mt_version(), MT_VERSION) == 0);
    REFUSED(mt_open(NULL, &device), EINVAL, "uri is NULL");
    REFUSED(mt_open("mem:16M", NULL), EINVAL, "device is NULL");
    device = (mt_device *)&device;
    REFUSED(mt_open("men:16M", &device), EINVAL, "use mem:SIZE");
    CHECK(device == NULL);
    REFUSED(mt_open("mem:16M\xff", &device), EINVAL, "not UTF-8");
    REFUSED(mt_open("mem:16M?model=fast", &device), EINVAL, "no service-time model");
    REFUSED(mt_open("file:/nonexistent/disk.img", &device), ENOENT, "/nonexistent/disk.img");
    REFUSED(mt_open("kernel:/nonexistent/disk.img", &device), ENOENT, "/nonexistent/disk.img");

    CHECK(mt_open("mem:16M", &device) == 0);
    REFUSED(mt_device_info(device, NULL), EINVAL, "info is NULL");
    REFUSED(mt_can_wait(device, "pol"), EINVAL, "hybrid=<time>");
    CHECK(mt_can_wait(device, "interrupt") == 0);
    REFUSED(mt_policy_parse("pol", &policy), EINVAL, "hybrid=<time>");
    REFUSED(mt_policy_parse("poll", NULL), EINVAL, "policy is NULL");
    REFUSED(mt_channel_open(device, NULL, NULL), EINVAL, "channel is NULL");
    REFUSED(mt_channel_open(NULL, NULL, &channel), EINVAL, "device is NULL");
    options.depth = 5000;
    REFUSED(mt_channel_open(device, &options, &channel), EINVAL, "depth 5000");
    options.depth = 100000;
    REFUSED(mt_channel_open(device, &options, &channel), EINVAL, "depth 100000");
    options.depth = 0;
    options.policy = "hybrid=";
    REFUSED(mt_channel_open(device, &options, &channel), EINVAL, "hybrid=<time>");
    options.policy = NULL;
    options.interrupt = 2;
    REFUSED(mt_channel_open(device, &options, &channel), EINVAL, "0 or 1");
    CHECK(channel == NULL);
    REFUSED(mt_alloc(device, 0, &buf), EINVAL, "0 bytes");
    REFUSED(mt_alloc(device, 4096, NULL), EINVAL, "buf is NULL");
    REFUSED(mt_alloc(NULL, 4096, &buf), EINVAL, "device is NULL");
    CHECK(buf == NULL);

    /* Handles of another kind, and no handles at all. */
    CHECK(mt_channel_open(device, NULL, &channel) == 0);
    REFUSED(mt_read((mt_channel *)device, 0, NULL), EINVAL, "no channel");
    REFUSED(mt_close((mt_device *)channel), EINVAL, "no device");
    REFUSED(mt_free((mt_buf *)device), EINVAL, "no buffer");
    REFUSED(mt_free((mt_buf *)&options), EINVAL, "no buffer");
    REFUSED(mt_free((mt_buf *)(uintptr_t)12345), EINVAL, "no buffer");
    CHECK(mt_buf_data((mt_buf *)device) == NULL && mt_buf_len(NULL) == 0 && mt_buf_data(NULL) == NULL);

    /* Twice, and after. */
    CHECK(mt_channel_close(channel) == 0);
    REFUSED(mt_channel_close(channel), EINVAL, "closed");
    REFUSED(mt_read(channel, 0, NULL), EINVAL, "closed");
    CHECK(mt_close(device) == 0);
    REFUSED(mt_close(device), EINVAL, "closed");
    REFUSED(mt_alloc(device, 4096, &buf), EINVAL, "closed");
    CHECK(mt_close(NULL) == 0 && mt_channel_close(NULL) == 0 && mt_free(NULL) == 0);
}

static void requests(mt_device *device, mt_device *other)
{
    mt_channel *channel, *second;
    mt_channel_options options = {0};
    mt_buf *buf, *more, *foreign;
    mt_ticket ticket, wrong, third;
    mt_request request;
    mt_result result;
    mt_info info;
    char name[8];

    options.depth = 2;
    /* Such a channel has no interrupt. */
    options.policy = "poll";
    CHECK(mt_device_info(device, &info) == 0);
    CHECK(mt_channel_open(device, &options, &channel) == 0 && mt_channel_open(device, NULL, &second) == 0);
    CHECK(mt_alloc(device, 4096, &buf) == 0 && mt_alloc(device, 4096, &more) == 0);
    CHECK(mt_alloc(other, 4096, &foreign) == 0);

    /* Requests that make no sense; each leaves the buffer where it was. */
    REFUSED(mt_read(NULL, 0, buf), EINVAL, "channel is NULL");
    REFUSED(mt_read(channel, 0, NULL), EINVAL, "needs a buffer");
    REFUSED(mt_read(channel, info.blocks, buf), EINVAL, "beyond");
    REFUSED(mt_write(channel, UINT64_MAX, buf), EINVAL, "beyond");
    REFUSED(mt_read(channel, 0, foreign), EINVAL, "not allocated by this device");
    CHECK(mt_buf_data(foreign) != NULL);
    request = of(MT_READ, 0, buf);
    REFUSED(mt_submit(channel, &request, NULL), EINVAL, "ticket is NULL");
    REFUSED(mt_submit(channel, NULL, &ticket), EINVAL, "request is NULL");
    REFUSED(mt_enqueue(channel, NULL), EINVAL, "request is NULL");
    request.blocks = 1;
    REFUSED(mt_submit(channel, &request, &ticket), EINVAL, "leave it 0");
    request = of(0, 0, buf);
    REFUSED(mt_submit(channel, &request, &ticket), EINVAL, "MT_READ");
    request = of(MT_READ, 0, buf);
    request.flags = 2;
    REFUSED(mt_submit(channel, &request, &ticket), EINVAL, "MT_FUA");
    request.flags = 0;
    request.policy = 77;
    REFUSED(mt_submit(channel, &request, &ticket), EINVAL, "mt_policy_parse");
    request = of(MT_FLUSH, 0, buf);
    REFUSED(mt_submit(channel, &request, &ticket), EINVAL, "nothing else takes one");
    request = of(MT_WRITE_ZEROES, 0, NULL);
    REFUSED(mt_submit(channel, &request, &ticket), EINVAL, "no blocks");
    REFUSED(mt_buf_set_len(buf, 4097), EINVAL, "from 1 to 4096");
    CHECK(mt_buf_set_len(buf, 100) == 0);
    REFUSED(mt_read(channel, 0, buf), EINVAL, "no whole number of blocks");
    CHECK(mt_buf_set_len(buf, 4096) == 0 && mt_buf_data(buf) != NULL);

    /* A buffer that is with the device. */
    memset(mt_buf_data(buf), 0x5a, 4096);
    request = of(MT_WRITE, 8, buf);
    request.user_data = 17;
    mt_plug(channel);
    CHECK(mt_submit(channel, &request, &ticket) == 0 && mt_in_flight(channel) == 1);
    CHECK(mt_buf_data(buf) == NULL && mt_buf_len(buf) == 0 && mt_buf_capacity(buf) == 0);
    REFUSED(mt_free(buf), EBUSY, "wait for its request");
    REFUSED(mt_buf_set_len(buf, 512), EBUSY, "with the device");
    REFUSED(mt_submit(channel, &request, &wrong), EBUSY, "with the device");
    REFUSED(mt_read(second, 0, buf), EBUSY, "with the device");

    /* Tickets. */
    CHECK(mt_try_take(channel, ticket, &result) == 0);
    REFUSED(mt_wait(second, ticket, &result), EINVAL, "ticket");
    CHECK(result.error == -EINVAL && result.buf == NULL);
    wrong.id = 0;
    REFUSED(mt_wait(channel, wrong, NULL), EINVAL, "ticket");
    wrong.id = ticket.id + 1;
    REFUSED(mt_detach(channel, wrong), EINVAL, "ticket");
    wrong.id = UINT64_MAX;
    REFUSED(mt_try_take(channel, wrong, NULL), EINVAL, "ticket");
    CHECK(mt_unplug(channel) == 0);
    CHECK(mt_wait(channel, ticket, &result) == 0);
    CHECK(result.buf == buf && result.user_data == 17 && result.error == 0);
    REFUSED(mt_wait(channel, ticket, &result), EINVAL, "redeemed");
    REFUSED(mt_try_take(channel, ticket, &result), EINVAL, "redeemed");
    REFUSED(mt_detach(channel, ticket), EINVAL, "redeemed");
    request = of(MT_READ, 8, more);
    CHECK(mt_submit(channel, &request, &wrong) == 0 && wrong.id != ticket.id);
    REFUSED(mt_wait(channel, ticket, &result), EINVAL, "redeemed"); /* its place is taken, and it is not good for that */
    while (mt_try_take(channel, wrong, &result) == 0)
        CHECK(mt_poll(channel) >= 0);
    CHECK(result.buf == more && memcmp(mt_buf_data(buf), mt_buf_data(more), 4096) == 0);

    /* More than there is room for; a result that was not taken takes room. */
    request = of(MT_FLUSH, 0, NULL);
    CHECK(mt_submit(channel, &request, &ticket) == 0 && mt_submit(channel, &request, &third) == 0);
    REFUSED(mt_submit(channel, &request, &wrong), EAGAIN, "wait for one");
    REFUSED(mt_read(channel, 0, buf), EAGAIN, "wait for one");
    CHECK(mt_buf_data(buf) != NULL);
    CHECK(mt_wait(channel, third, &result) == 0 && result.buf == NULL && mt_wait(channel, ticket, NULL) == 0);

    /* Queued ones. */
    REFUSED(mt_wait_done(channel, NULL), EINVAL, "result is NULL");
    REFUSED(mt_next_done(channel, NULL), EINVAL, "result is NULL");
    CHECK(mt_wait_done(channel, &result) == 0 && mt_next_done(channel, &result) == 0);
    request = of(MT_READ, 8, buf);
    request.user_data = 3;
    CHECK(mt_enqueue(channel, &request) == 0);
    request = of(MT_WRITE_ZEROES, 8, NULL);
    request.blocks = 8;
    request.user_data = 4;
    CHECK(mt_enqueue(channel, &request) == 0 && mt_in_flight(channel) <= 2);
    CHECK(mt_wait_done(channel, &result) == 1 && (result.user_data == 3 ? result.buf == buf : result.buf == NULL));
    CHECK(mt_wait_done(channel, &result) == 1 && mt_wait_done(channel, &result) == 0);

    /* Given up: the handle is empty, and still ours. */
    request = of(MT_READ, 8, buf);
    CHECK(mt_submit(channel, &request, &ticket) == 0 && mt_detach(channel, ticket) == 0);
    CHECK(mt_buf_data(buf) == NULL);
    REFUSED(mt_read(channel, 8, buf), EINVAL, "given up");
    CHECK(mt_free(buf) == 0);
    REFUSED(mt_free(buf), EINVAL, "closed");
    REFUSED(mt_read(channel, 8, buf), EINVAL, "closed");

    /* Ways to wait. */
    REFUSED(mt_set_policy(channel, "polling"), EINVAL, "hybrid=<time>");
    REFUSED(mt_set_policy(channel, NULL), EINVAL, "policy is NULL");
    REFUSED(mt_set_policy(channel, "interrupt"), EOPNOTSUPP, "interrupt");
    CHECK(mt_set_policy(channel, "hybrid=2us") == 0 && mt_read(channel, 8, more) == 0);
    CHECK(mt_get_policy(channel, name, sizeof name) == 10 && strcmp(name, "hybrid=") == 0);
    CHECK(mt_get_policy(channel, NULL, 0) == 10);
    REFUSED(mt_get_policy(channel, NULL, 8), EINVAL, "text is NULL");
    request = of(MT_READ, 8, more);
    CHECK(mt_policy_parse("poll", &request.policy) == 0);
    CHECK(mt_submit(channel, &request, &ticket) == 0 && mt_wait(channel, ticket, NULL) == 0);

    /* Closed with requests under way, and the device before its channel: the buffers come back. */
    request = of(MT_READ, 8, more);
    CHECK(mt_submit(channel, &request, &ticket) == 0);
    CHECK(mt_alloc(device, 1 << 20, &buf) == 0);
    request = of(MT_WRITE, 0, buf);
    CHECK(mt_enqueue(channel, &request) == 0);
    CHECK(mt_close(device) == 0);
    CHECK(mt_channel_close(channel) == 0);
    CHECK(mt_buf_data(more) != NULL && mt_buf_len(buf) == 1 << 20);
    CHECK(mt_read(second, 0, buf) == 0);
    CHECK(mt_free(more) == 0 && mt_channel_close(second) == 0 && mt_free(foreign) == 0);
    memset(mt_buf_data(buf), 1, mt_buf_len(buf)); /* all that is left of the device */
    CHECK(mt_free(buf) == 0);
}

static void kernel(const char *path)
{
    mt_device *device;
    mt_channel *channel;
    mt_channel_options options = {0};
    mt_buf *buf;
    mt_info info;
    char uri[512];

    snprintf(uri, sizeof uri, "kernel:%s", path);
    CHECK(mt_open(uri, &device) == 0 && mt_device_info(device, &info) == 0 && strcmp(info.uri, uri) == 0);
    REFUSED(mt_can_wait(device, "hybrid=2us"), EOPNOTSUPP, "hybrid-min");
    options.policy = "hybrid=2us";
    REFUSED(mt_channel_open(device, &options, &channel), EOPNOTSUPP, "hybrid-min");
    options.policy = "interrupt";
    CHECK(mt_channel_open(device, &options, &channel) == 0 && mt_alloc(device, 4096, &buf) == 0);
    memset(mt_buf_data(buf), 0x33, 4096);
    CHECK(mt_write(channel, 0, buf) == 0 && mt_flush(channel) == 0);
    memset(mt_buf_data(buf), 0, 4096);
    CHECK(mt_read(channel, 0, buf) == 0 && *(char *)mt_buf_data(buf) == 0x33);
    CHECK(truncate(path, 0) == 0);
    /* The device failed, not the call: the buffer is back, and the errno is none for misuse. */
    REFUSED(mt_read(channel, 0, buf), EIO, "end of the file");
    CHECK(mt_buf_data(buf) != NULL);
    CHECK(mt_free(buf) == 0 && mt_channel_close(channel) == 0 && mt_close(device) == 0);
}

int main(int argc, char **argv)
{
    mt_device *device, *other;
    pthread_t thread;

    CHECK(argc == 2);
    opening();
    CHECK(pthread_create(&thread, NULL, other_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(mt_open("mem:16M", &device) == 0 && mt_open("mem:16M", &other) == 0);
    requests(device, other);
    CHECK(mt_close(other) == 0);
    kernel(argv[1]);
    return 0;
}

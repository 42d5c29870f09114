/* group DEVICE...: one thread reads from several devices for a second, four times 4 KiB at a time
 * from each.
 *
 *     cc -o group group.c $(pkg-config --cflags --libs meantime)
 *     ./group 'mem:64M?model=optane' 'mem:64M?model=nand'
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <meantime.h>
#include <stdio.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { DEVICES = 8, AT_ONCE = 4, BYTES = 4096, TIMER = DEVICES };

static struct {
    mt_device *device;
    mt_channel *channel;
    mt_buf *bufs[AT_ONCE];
    mt_info info;
    uint64_t reads;
} of[DEVICES];

/* Reads into `buf`; mt_group_wait() has the result. */
static int start(int key, mt_buf *buf)
{
    uint64_t blocks = BYTES / of[key].info.block_bytes;
    uint64_t lba = of[key].reads++ % (of[key].info.blocks / blocks) * blocks;
    mt_request read = {.op = MT_READ, .lba = lba, .buf = buf};

    return mt_enqueue(of[key].channel, &read);
}

static int opened(mt_group *group, int key, const char *uri)
{
    mt_channel_options options = {.policy = "adaptive"};
    int error;

    if ((error = mt_open(uri, &of[key].device)) ||
        (error = mt_device_info(of[key].device, &of[key].info)) ||
        (error = mt_channel_open(of[key].device, &options, &of[key].channel)) ||
        (error = mt_group_add_channel(group, of[key].channel, (uint64_t)key)))
        return error;
    for (int i = 0; i < AT_ONCE && error == 0; i++)
        if ((error = mt_alloc(of[key].device, BYTES, &of[key].bufs[i])) == 0)
            error = start(key, of[key].bufs[i]);
    return error;
}

/* Until the timer has run down. */
static int run(mt_group *group)
{
    mt_ready ready[16];
    int count, error;

    while ((count = mt_group_wait(group, ready, 16, MT_FOREVER)) > 0)
        for (int i = 0; i < count; i++) {
            if (ready[i].key == TIMER)
                return 0;
            if ((error = ready[i].result.error) ||
                (error = start((int)ready[i].key, ready[i].result.buf)))
                return error;
        }
    return count;
}

int main(int argc, char **argv)
{
    struct itimerspec second = {.it_value = {.tv_sec = 1}};
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    mt_group *group = NULL;
    int error;

    if (argc < 2 || argc > 1 + DEVICES || timer < 0) {
        fprintf(stderr, "usage: %s DEVICE..., at most %d\n", argv[0], DEVICES);
        return 2;
    }
    if ((error = mt_group_open(&group)))
        goto out;
    for (int key = 0; key < argc - 1; key++)
        if ((error = opened(group, key, argv[1 + key])))
            goto out;
    timerfd_settime(timer, 0, &second, NULL);
    if ((error = mt_group_add_fd(group, timer, TIMER)) || (error = run(group)))
        goto out;
    for (int key = 0; key < argc - 1; key++)
        printf("%s: %" PRIu64 " reads\n", of[key].info.uri, of[key].reads);
out:
    if (error)
        fprintf(stderr, "%s: %s\n", argv[0], mt_last_error());
    mt_group_close(group); /* first: a channel in a group cannot be closed */
    for (int key = 0; key < DEVICES; key++) {
        mt_channel_close(of[key].channel);
        for (int i = 0; i < AT_ONCE; i++)
            mt_free(of[key].bufs[i]);
        mt_close(of[key].device);
    }
    close(timer);
    return error ? 1 : 0;
}

/* qd1 DEVICE [POLICY]: how long a read of 4 KiB takes when one is under way at a time, and eight at once.
 *
 *     cc -o qd1 qd1.c $(pkg-config --cflags --libs meantime)
 *     ./qd1 'mem:1G?model=optane'
 *     ./qd1 kernel:/dev/nvme0n1 interrupt
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <meantime.h>
#include <stdio.h>
#include <time.h>

enum { AT_ONCE = 8, BYTES = 4096 };

static const uint64_t ONE_SECOND_NS = 1000000000;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* The next of the device's 4 KiB, in an order without sense. */
static uint64_t somewhere(const mt_info *info)
{
    static uint64_t state = 42;
    uint64_t blocks = BYTES / info->block_bytes;

    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % (info->blocks / blocks) * blocks;
}

static int one_at_a_time(mt_channel *channel, const mt_info *info, mt_buf *buf)
{
    uint64_t reads = 0, start_ns = now_ns(), took_ns;

    do {
        mt_request read = {.op = MT_READ, .lba = somewhere(info), .buf = buf};
        mt_ticket ticket;
        int error;

        if ((error = mt_submit(channel, &read, &ticket)) || (error = mt_wait(channel, ticket, NULL)))
            return error;
        reads++;
        took_ns = now_ns() - start_ns;
    } while (took_ns < ONE_SECOND_NS);
    printf("one at a time: %" PRIu64 " reads, %" PRIu64 " ns each\n", reads, took_ns / reads);
    return 0;
}

/* Started together, waited for later. What is under way when an error ends this, mt_channel_close() waits for. */
static int eight_at_once(mt_channel *channel, const mt_info *info, mt_buf *const bufs[AT_ONCE])
{
    mt_ticket tickets[AT_ONCE];
    uint64_t start_ns = now_ns();
    int error;

    mt_plug(channel); /* one doorbell for all of them */
    for (int i = 0; i < AT_ONCE; i++) {
        mt_request read = {.op = MT_READ, .lba = somewhere(info), .buf = bufs[i]};

        if ((error = mt_submit(channel, &read, &tickets[i])))
            return error;
    }
    mt_unplug(channel);
    /* Here is time for something else. */
    for (int i = 0; i < AT_ONCE; i++)
        if ((error = mt_wait(channel, tickets[i], NULL)))
            return error;
    printf("eight at once: %" PRIu64 " ns for all\n", now_ns() - start_ns);
    return 0;
}

int main(int argc, char **argv)
{
    mt_channel_options options = {.policy = argc > 2 ? argv[2] : "poll"};
    mt_device *device = NULL;
    mt_channel *channel = NULL;
    mt_buf *bufs[AT_ONCE] = {NULL};
    mt_info info;
    int error;

    if (argc < 2) {
        fprintf(stderr, "usage: %s DEVICE [POLICY], e.g. %s mem:64M poll\n", argv[0], argv[0]);
        return 2;
    }
    if ((error = mt_open(argv[1], &device)) || (error = mt_device_info(device, &info)) ||
        (error = mt_channel_open(device, &options, &channel)))
        goto out;
    for (int i = 0; i < AT_ONCE; i++)
        if ((error = mt_alloc(device, BYTES, &bufs[i])))
            goto out;
    printf("%s: %s, %" PRIu64 " blocks of %" PRIu32 " bytes\n", info.uri, info.medium, info.blocks, info.block_bytes);
    if ((error = one_at_a_time(channel, &info, bufs[0])) == 0)
        error = eight_at_once(channel, &info, bufs);
out:
    if (error)
        fprintf(stderr, "%s: %s\n", argv[0], mt_last_error());
    mt_channel_close(channel); /* first, so that all buffers are back */
    for (int i = 0; i < AT_ONCE; i++)
        mt_free(bufs[i]);
    mt_close(device);
    return error ? 1 : 0;
}

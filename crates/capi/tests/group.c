/* group FILE: one thread that waits for channels, descriptors, words and other threads; and
 * everything that can be done wrong with groups. */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <meantime.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { BYTES = 4096, DEPTH = 4, MS = 1000000 };

/* What should come in time is waited for this long, so that a test that fails ends. */
static const int64_t LONG_NS = 60000000000;

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void sleep_ns(int64_t ns)
{
    struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

    nanosleep(&time, NULL);
}

/* The one thing that is ready. */
static mt_ready next(mt_group *group, int64_t timeout_ns)
{
    mt_ready ready;
    int64_t start_ns = now_ns();

    memset(&ready, 0xff, sizeof ready);
    CHECK(mt_group_wait(group, &ready, 1, timeout_ns) == 1 && ready.reserved == 0);
    /* What it finds at the end of the time has not ended its sleep. */
    CHECK(now_ns() - start_ns < LONG_NS);
    return ready;
}

static int nothing(mt_group *group, int64_t timeout_ns)
{
    mt_ready ready[2];

    return mt_group_wait(group, ready, 2, timeout_ns) == 0;
}

/* A device with one channel and DEPTH buffers. */
struct one {
    mt_device *device;
    mt_channel *channel;
    mt_buf *bufs[DEPTH];
    uint64_t blocks; /* of BYTES */
};

static struct one opened(const char *uri, const char *policy)
{
    struct one one;
    mt_channel_options options = {.policy = policy, .depth = DEPTH};
    mt_info info;

    CHECK(mt_open(uri, &one.device) == 0 && mt_device_info(one.device, &info) == 0);
    CHECK(mt_channel_open(one.device, &options, &one.channel) == 0);
    for (int i = 0; i < DEPTH; i++)
        CHECK(mt_alloc(one.device, BYTES, &one.bufs[i]) == 0);
    one.blocks = BYTES / info.block_bytes;
    return one;
}

static void closed(struct one *one)
{
    CHECK(mt_channel_close(one->channel) == 0);
    for (int i = 0; i < DEPTH; i++)
        CHECK(mt_free(one->bufs[i]) == 0);
    CHECK(mt_close(one->device) == 0);
}

/* The first places of BYTES have their number. */
static void number(struct one *one, uint64_t places)
{
    for (uint64_t n = 0; n < places; n++) {
        memcpy(mt_buf_data(one->bufs[0]), &n, sizeof n);
        CHECK(mt_write(one->channel, n * one->blocks, one->bufs[0]) == 0);
    }
}

static mt_request of(const struct one *one, uint64_t place, mt_buf *buf)
{
    mt_request request = {0};

    request.op = MT_READ;
    request.lba = place * one->blocks;
    request.buf = buf;
    request.user_data = place;
    return request;
}

static void send(const struct one *one, uint64_t place, mt_buf *buf)
{
    mt_request request = of(one, place, buf);

    CHECK(mt_enqueue(one->channel, &request) == 0);
}

static void check_read(const mt_ready *ready)
{
    CHECK(ready->what == MT_DONE && ready->result.error == 0 && ready->result.buf != NULL);
    CHECK(memcmp(mt_buf_data(ready->result.buf), &ready->result.user_data, sizeof(uint64_t)) == 0);
}

/* Each channel by its own way; every result once, under its key. */
static void channels(const char *path)
{
    enum { CHANNELS = 4, READS = 200, PLACES = 16 };
    static const char *const policies[CHANNELS] = {"poll", "interrupt", "adaptive", "interrupt"};
    const char *uris[CHANNELS] = {"mem:16M?model=optane", "mem:16M?model=nand", "mem:16M", NULL};
    struct one all[CHANNELS];
    int ended[CHANNELS] = {0};
    mt_group *group;
    mt_ready ready[3];
    char uri[512], name[32];
    int count;

    snprintf(uri, sizeof uri, "kernel:%s?direct=0", path);
    uris[3] = uri;
    CHECK(mt_group_open(&group) == 0);
    for (int i = 0; i < CHANNELS; i++) {
        all[i] = opened(uris[i], policies[i]);
        number(&all[i], PLACES);
        /* Some have requests before they are added. */
        for (int n = 0; n < (i % 2 ? 0 : DEPTH); n++)
            send(&all[i], n, all[i].bufs[n]);
        CHECK(mt_group_add_channel(group, all[i].channel, 1000 + i) == 0);
        for (int n = 0; n < (i % 2 ? DEPTH : 0); n++)
            send(&all[i], n, all[i].bufs[n]);
    }
    while ((count = mt_group_wait(group, ready, 3, MT_FOREVER)) > 0) {
        CHECK(count <= 3);
        for (int n = 0; n < count; n++) {
            uint64_t at = ready[n].key - 1000;

            check_read(&ready[n]);
            CHECK(at < CHANNELS);
            if (++ended[at] <= READS - DEPTH)
                send(&all[at], ended[at] % PLACES, ready[n].result.buf);
        }
    }
    CHECK(count == 0);
    for (int i = 0; i < CHANNELS; i++) {
        CHECK(ended[i] == READS && mt_in_flight(all[i].channel) == 0);
        CHECK(mt_get_policy(all[i].channel, name, sizeof name) > 0);
        CHECK(strcmp(name, policies[i]) == 0);
        CHECK(mt_group_remove_channel(group, all[i].channel) == 0);
        closed(&all[i]);
    }
    CHECK(mt_group_close(group) == 0);
}

/* What has ended is given in one call if there is room, else in several. */
static void room(void)
{
    static const int counts[] = {DEPTH + 1, DEPTH, 3, 1};
    struct one one = opened("mem:16M", "poll");
    mt_group *group;
    mt_ready ready[DEPTH + 2];

    number(&one, DEPTH);
    CHECK(mt_group_open(&group) == 0 && mt_group_add_channel(group, one.channel, 7) == 0);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int seen = 0, left = DEPTH;

        for (int n = 0; n < DEPTH; n++)
            send(&one, n, one.bufs[n]);
        while (mt_in_flight(one.channel) > 0)
            CHECK(mt_poll(one.channel) >= 0);
        while (left > 0) {
            int room = counts[i] < left ? counts[i] : left;

            memset(ready, 0xff, sizeof ready);
            CHECK(mt_group_wait(group, ready, counts[i], 0) == room);
            CHECK(ready[room - 1].key == 7 && ready[room].key == UINT64_MAX);
            for (int n = 0; n < room; n++) {
                check_read(&ready[n]);
                seen |= 1 << ready[n].result.user_data;
            }
            left -= room;
        }
        CHECK(seen == (1 << DEPTH) - 1 && nothing(group, 0));
    }
    CHECK(mt_group_close(group) == 0);
    closed(&one);
}

static void timeouts(void)
{
    struct one one = opened("mem:16M", "poll");
    mt_group *group;
    mt_waker *waker;
    mt_request request;
    mt_ticket ticket;
    int64_t start_ns = now_ns();

    CHECK(mt_group_open(&group) == 0 && nothing(group, MT_FOREVER) && nothing(group, 0));
    CHECK(mt_group_add_channel(group, one.channel, 1) == 0 && nothing(group, MT_FOREVER));
    /* A request with a ticket is not the group's. */
    request = of(&one, 0, one.bufs[0]);
    CHECK(mt_submit(one.channel, &request, &ticket) == 0 && nothing(group, MT_FOREVER));
    CHECK(mt_wait(one.channel, ticket, NULL) == 0 && mt_read(one.channel, 0, one.bufs[0]) == 0);
    CHECK(nothing(group, MT_FOREVER));
    CHECK(now_ns() - start_ns < LONG_NS);
    start_ns = now_ns();
    CHECK(nothing(group, 30 * MS) && now_ns() - start_ns >= 30 * MS);
    CHECK(mt_waker_open(group, &waker) == 0);
    start_ns = now_ns();
    CHECK(nothing(group, 30 * MS) && now_ns() - start_ns >= 30 * MS);
    /* Several calls are one. */
    CHECK(mt_wake(waker) == 0 && mt_wake(waker) == 0);
    CHECK(next(group, LONG_NS).what == MT_WOKEN && nothing(group, 0));
    CHECK(mt_waker_close(waker) == 0 && nothing(group, MT_FOREVER));
    CHECK(mt_group_close(group) == 0);
    closed(&one);
}

/* Collected requests are sent by the group's wait. */
static void plugged(void)
{
    struct one one = opened("mem:16M", "interrupt");
    mt_group *group;
    mt_ready ready;

    number(&one, 2);
    CHECK(mt_group_open(&group) == 0 && mt_group_add_channel(group, one.channel, 1) == 0);
    CHECK(mt_plug(one.channel) == 0);
    send(&one, 1, one.bufs[0]);
    ready = next(group, LONG_NS);
    check_read(&ready);
    CHECK(mt_group_close(group) == 0);
    closed(&one);
}

static mt_waker *signalled;
static _Atomic int asked, woken;

static void *wakes(void *waker)
{
    for (int n = 1; n <= 200; n++) {
        atomic_store(&asked, n);
        CHECK(mt_wake(waker) == 0);
        while (atomic_load(&woken) != n)
            sched_yield();
    }
    /* When it surely sleeps. */
    sleep_ns(20 * MS);
    atomic_store(&asked, 201);
    CHECK(mt_wake(waker) == 0);
    return NULL;
}

static void on_signal(int number)
{
    (void)number;
    mt_wake(signalled);
}

static void *signals(void *thread)
{
    sleep_ns(20 * MS);
    CHECK(pthread_kill(*(pthread_t *)thread, SIGUSR1) == 0);
    return NULL;
}

/* No wake-up is lost, with requests under way and without. */
static void others(void)
{
    struct one one = opened("mem:16M?model=nand", "adaptive");
    struct sigaction action = {.sa_handler = on_signal};
    mt_group *group;
    mt_waker *waker, *second;
    mt_ready ready;
    pthread_t thread, self = pthread_self();
    int reads = 100;

    number(&one, 1);
    CHECK(mt_group_open(&group) == 0 && mt_group_add_channel(group, one.channel, 5) == 0);
    CHECK(mt_waker_open(group, &waker) == 0 && mt_waker_open(group, &second) == 0);
    CHECK(pthread_create(&thread, NULL, wakes, waker) == 0);
    send(&one, 0, one.bufs[0]);
    while (atomic_load(&woken) < 201 || reads > 0) {
        ready = next(group, LONG_NS);
        if (ready.what == MT_WOKEN) {
            CHECK(ready.key == 0 && ready.result.buf == NULL && ready.result.error == 0);
            CHECK(atomic_load(&asked) == atomic_load(&woken) + 1);
            atomic_store(&woken, atomic_load(&asked));
        } else {
            check_read(&ready);
            if (--reads > 0)
                send(&one, 0, one.bufs[0]);
        }
    }
    CHECK(pthread_join(thread, NULL) == 0);

    /* From a signal handler, while it sleeps. */
    signalled = second;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, signals, &self) == 0);
    CHECK(next(group, LONG_NS).what == MT_WOKEN && pthread_join(thread, NULL) == 0);

    /* Wakers outlive the group. */
    CHECK(mt_group_close(group) == 0 && mt_wake(waker) == 0);
    CHECK(mt_waker_close(waker) == 0 && mt_waker_close(second) == 0);
    closed(&one);
}

static void *writes(void *fd)
{
    sleep_ns(20 * MS);
    CHECK(write(*(int *)fd, "x", 1) == 1);
    return NULL;
}

static void descriptors(void)
{
    struct one one = opened("mem:16M?model=nand", "interrupt");
    struct epoll_event event = {.events = EPOLLOUT};
    mt_group *group;
    mt_ready ready;
    pthread_t thread;
    char byte;
    int ends[2], other[2], epoll;

    number(&one, 1);
    CHECK(pipe(ends) == 0 && pipe(other) == 0);
    CHECK(mt_group_open(&group) == 0 && mt_group_add_channel(group, one.channel, 1) == 0);
    CHECK(mt_group_add_fd(group, ends[0], 1ull << 63) == 0);
    CHECK(mt_group_add_fd(group, other[0], 3) == 0);
    CHECK(nothing(group, 0) && nothing(group, MS));

    /* It ends a sleep; and is ready until it is read, whatever channels do. */
    CHECK(pthread_create(&thread, NULL, writes, &ends[1]) == 0);
    ready = next(group, MT_FOREVER);
    CHECK(ready.what == MT_READABLE && ready.key == 1ull << 63 && ready.result.buf == NULL);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(next(group, 0).what == MT_READABLE);
    send(&one, 0, one.bufs[0]);
    while ((ready = next(group, LONG_NS)).key != 1)
        CHECK(ready.key == 1ull << 63);
    check_read(&ready);
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 'x');
    while (mt_group_wait(group, &ready, 1, 0) == 1)
        CHECK(ready.what == MT_READABLE); /* noticed before it was read */
    CHECK(nothing(group, MS));

    /* The group has its own: it goes on when ours is closed. */
    CHECK(close(ends[0]) == 0 && write(ends[1], "y", 1) == 1);
    CHECK(next(group, LONG_NS).key == 1ull << 63);
    CHECK(mt_group_remove_fd(group, ends[0]) == 0 && nothing(group, MS));
    REFUSED(mt_group_remove_fd(group, ends[0]), EINVAL, "not in this group");
    signal(SIGPIPE, SIG_IGN);
    CHECK(write(ends[1], "z", 1) == -1 && errno == EPIPE); /* that was the last */

    /* A closed other end. */
    CHECK(close(other[1]) == 0 && next(group, LONG_NS).key == 3);
    CHECK(mt_group_remove_fd(group, other[0]) == 0 && close(other[0]) == 0);

    /* By epoll for room to write. */
    CHECK(pipe(other) == 0 && (epoll = epoll_create1(0)) >= 0);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, other[1], &event) == 0);
    CHECK(mt_group_add_fd(group, epoll, 4) == 0 && next(group, LONG_NS).key == 4);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, other[1], NULL) == 0);
    while (mt_group_wait(group, &ready, 1, 0) == 1)
        CHECK(ready.key == 4);
    CHECK(nothing(group, MS));

    CHECK(mt_group_close(group) == 0);
    CHECK(close(epoll) == 0 && close(other[0]) == 0 && close(other[1]) == 0);
    CHECK(close(ends[1]) == 0);
    closed(&one);
}

enum { CHANGES = 1000 };

/* A word, and something that it tells of. */
static struct {
    _Atomic uint64_t value;
    _Atomic uint32_t parked;
    uint64_t content;
    _Atomic uint64_t taken;
    int event_fd;
} word;

static void *changes(void *nothing)
{
    (void)nothing;
    for (uint64_t n = 1; n <= CHANGES; n++) {
        /* While it looks, is about to sleep, or sleeps. */
        for (volatile uint64_t spins = n % 100 * 50; spins > 0; spins--)
            ;
        if (n % 50 == 0)
            sleep_ns(MS);
        word.content = n;
        atomic_store_explicit(&word.value, n, memory_order_release);
        CHECK(mt_word_changed((uint32_t *)&word.parked, word.event_fd) == 0);
        while (atomic_load(&word.taken) != n)
            sched_yield();
    }
    return NULL;
}

static void words(void)
{
    uint64_t seen = 0, other = 0, other_seen = 0;
    uint32_t parked = 0;
    const mt_word place = {(uint64_t *)&word.value, &seen, (uint32_t *)&word.parked};
    const mt_word second = {&other, &other_seen, &parked};
    mt_group *group;
    mt_ready ready[8];
    pthread_t thread;
    int event_fd, count;

    CHECK(mt_group_open(&group) == 0);
    CHECK(mt_group_add_word(group, &place, 11, &event_fd) == 0 && nothing(group, 0));
    CHECK((word.event_fd = dup(event_fd)) >= 0);
    CHECK(pthread_create(&thread, NULL, changes, NULL) == 0);
    for (uint64_t n = 1; n <= CHANGES; n++) {
        ready[0] = next(group, LONG_NS);
        CHECK(ready[0].what == MT_CHANGED && ready[0].key == 11 && ready[0].result.buf == NULL);
        CHECK(word.content == n);
        seen = n;
        atomic_store(&word.taken, n);
    }
    CHECK(pthread_join(thread, NULL) == 0 && nothing(group, MS));
    CHECK(atomic_load(&word.parked) == 0); /* it is awake */

    /* Each once in a call, in each call until it was seen. */
    CHECK(mt_group_add_word(group, &second, 12, &event_fd) == 0);
    seen--;
    other++;
    for (int n = 0; n < 5; n++) {
        count = mt_group_wait(group, ready, 8, LONG_NS);
        CHECK(count == 2 && ready[0].what == MT_CHANGED && ready[1].what == MT_CHANGED);
        CHECK(ready[0].key + ready[1].key == 11 + 12 && ready[0].key != ready[1].key);
    }
    seen++;
    CHECK(next(group, LONG_NS).key == 12);
    CHECK(mt_group_remove_word(group, &other) == 0 && nothing(group, MS));
    REFUSED(mt_group_remove_word(group, &other), EINVAL, "not in this group");

    /* The other side needs no group, and finds out when the descriptor is none. */
    CHECK(mt_word_changed(&parked, -1) == 0); /* not parked: no system call */
    parked = 1;
    REFUSED(mt_word_changed(&parked, -1), EBADF, "cannot signal");
    REFUSED(mt_word_changed(NULL, word.event_fd), EINVAL, "parked");
    REFUSED(mt_word_changed((uint32_t *)((char *)&parked + 1), 0), EINVAL, "aligned");
    CHECK(mt_word_changed(&parked, word.event_fd) == 0 && nothing(group, MS));
    CHECK(mt_group_close(group) == 0 && close(word.event_fd) == 0);
}

static void removal(void)
{
    struct one one = opened("mem:16M?model=nand", "interrupt");
    mt_group *group, *second;
    mt_ready ready;
    mt_result result;

    number(&one, 4);
    CHECK(mt_group_open(&group) == 0 && mt_group_open(&second) == 0);
    CHECK(mt_group_add_channel(group, one.channel, 1) == 0);
    REFUSED(mt_channel_close(one.channel), EBUSY, "in a group");
    REFUSED(mt_group_add_channel(group, one.channel, 2), EBUSY, "in a group");
    REFUSED(mt_group_add_channel(second, one.channel, 2), EBUSY, "in a group");
    REFUSED(mt_group_remove_channel(second, one.channel), EINVAL, "not in this group");

    /* What is under way stays so, and the result comes from the channel; or from another group. */
    send(&one, 2, one.bufs[0]);
    CHECK(mt_group_remove_channel(group, one.channel) == 0 && nothing(group, MT_FOREVER));
    REFUSED(mt_group_remove_channel(group, one.channel), EINVAL, "not in this group");
    CHECK(mt_wait_done(one.channel, &result) == 1 && result.user_data == 2);
    CHECK(mt_group_add_channel(group, one.channel, 1) == 0);
    send(&one, 3, one.bufs[0]);
    CHECK(mt_group_remove_channel(group, one.channel) == 0);
    CHECK(mt_group_add_channel(second, one.channel, 2) == 0);
    ready = next(second, MT_FOREVER);
    check_read(&ready);
    CHECK(ready.key == 2 && ready.result.user_data == 3);

    /* A group that is closed lets its channels go, with what they have under way. */
    send(&one, 1, one.bufs[0]);
    CHECK(mt_group_close(second) == 0);
    CHECK(mt_wait_done(one.channel, &result) == 1 && result.user_data == 1);
    CHECK(mt_group_add_channel(group, one.channel, 1) == 0 && mt_group_close(group) == 0);
    closed(&one);
}

struct busy {
    mt_group *group;
    mt_waker *waker; /* opened before */
    struct one *one;
};

static void *intrudes(void *argument)
{
    struct busy *busy = argument;
    mt_request request = of(busy->one, 0, busy->one->bufs[0]);
    mt_waker *none = busy->waker;
    mt_ready ready;
    mt_ticket ticket;
    int event_fd;
    uint64_t number = 0;
    const mt_word place = {&number, &number, (uint32_t *)&number};

    while (mt_group_remove_fd(busy->group, 12345) != -EBUSY)
        sched_yield();
    for (int n = 0; n < 100; n++) {
        REFUSED(mt_group_add_fd(busy->group, 0, 1), EBUSY, "another thread");
        REFUSED(mt_group_add_word(busy->group, &place, 1, &event_fd), EBUSY, "another thread");
        REFUSED(mt_group_wait(busy->group, &ready, 1, 0), EBUSY, "another thread");
        REFUSED(mt_group_remove_channel(busy->group, busy->one->channel), EBUSY, "another thread");
        REFUSED(mt_group_close(busy->group), EBUSY, "another thread");
        REFUSED(mt_waker_open(busy->group, &none), EBUSY, "another thread");
        CHECK(none == NULL);
        REFUSED(mt_enqueue(busy->one->channel, &request), EBUSY, "another thread");
        REFUSED(mt_submit(busy->one->channel, &request, &ticket), EBUSY, "another thread");
        REFUSED(mt_read(busy->one->channel, 0, busy->one->bufs[0]), EBUSY, "another thread");
        REFUSED(mt_in_flight(busy->one->channel), EBUSY, "another thread");
        REFUSED(mt_channel_close(busy->one->channel), EBUSY, "in a group");
        CHECK(mt_buf_data(busy->one->bufs[0]) != NULL);
    }
    CHECK(mt_wake(busy->waker) == 0);
    return NULL;
}

static void *waits_there(void *argument)
{
    struct busy *busy = argument;
    mt_ready ready;

    send(busy->one, 0, busy->one->bufs[0]);
    ready = next(busy->group, MT_FOREVER);
    check_read(&ready);
    return NULL;
}

/* A group goes from thread to thread; two at once are told so. */
static void threads(void)
{
    struct one one = opened("mem:16M", "interrupt");
    struct busy busy = {.one = &one};
    pthread_t thread;

    number(&one, 1);
    CHECK(mt_group_open(&busy.group) == 0);
    CHECK(mt_group_add_channel(busy.group, one.channel, 1) == 0);
    CHECK(mt_waker_open(busy.group, &busy.waker) == 0);
    CHECK(pthread_create(&thread, NULL, intrudes, &busy) == 0);
    CHECK(next(busy.group, LONG_NS).what == MT_WOKEN && pthread_join(thread, NULL) == 0);
    CHECK(mt_waker_close(busy.waker) == 0);
    CHECK(pthread_create(&thread, NULL, waits_there, &busy) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(nothing(busy.group, MT_FOREVER) && mt_group_close(busy.group) == 0);
    closed(&one);
}

static void misuse(const char *path)
{
    struct one one = opened("mem:16M", "poll");
    uint64_t number = 0;
    uint32_t parked = 0;
    mt_word place = {&number, &number, &parked};
    mt_channel *channel = NULL;
    mt_group *group = NULL;
    mt_waker *waker = NULL;
    mt_ready ready[2];
    char uri[512];
    int event_fd, ends[2];

    /* NULLs. */
    REFUSED(mt_group_open(NULL), EINVAL, "group is NULL");
    REFUSED(mt_group_wait(NULL, ready, 2, 0), EINVAL, "group is NULL");
    REFUSED(mt_group_add_channel(NULL, one.channel, 1), EINVAL, "group is NULL");
    REFUSED(mt_waker_open(NULL, &waker), EINVAL, "group is NULL");
    REFUSED(mt_wake(NULL), EINVAL, "waker is NULL");
    CHECK(mt_group_close(NULL) == 0 && mt_waker_close(NULL) == 0);
    CHECK(mt_group_open(&group) == 0);
    REFUSED(mt_group_add_channel(group, NULL, 1), EINVAL, "channel is NULL");
    REFUSED(mt_group_remove_channel(group, NULL), EINVAL, "channel is NULL");
    REFUSED(mt_group_add_word(group, NULL, 1, &event_fd), EINVAL, "word is NULL");
    REFUSED(mt_group_add_word(group, &place, 1, NULL), EINVAL, "event_fd is NULL");
    REFUSED(mt_group_wait(group, NULL, 2, 0), EINVAL, "ready is NULL");
    REFUSED(mt_waker_open(group, NULL), EINVAL, "waker is NULL");

    /* Numbers that make no sense. */
    REFUSED(mt_group_wait(group, ready, 0, 0), EINVAL, "room for nothing");
    REFUSED(mt_group_wait(group, ready, 2, -1), EINVAL, "MT_FOREVER");
    REFUSED(mt_group_wait(group, ready, 2, INT64_MIN), EINVAL, "MT_FOREVER");
    REFUSED(mt_group_add_fd(group, -1, 1), EINVAL, "no descriptor -1");
    CHECK(pipe(ends) == 0 && close(ends[0]) == 0);
    REFUSED(mt_group_add_fd(group, ends[0], 1), EBADF, "cannot duplicate");
    CHECK(mt_group_add_fd(group, ends[1], 1) == 0);
    REFUSED(mt_group_add_fd(group, ends[1], 2), EINVAL, "already");
    CHECK(mt_group_remove_fd(group, ends[1]) == 0 && close(ends[1]) == 0);

    /* Words that are none. */
    place.value = NULL;
    REFUSED(mt_group_add_word(group, &place, 1, &event_fd), EINVAL, "value is NULL");
    place.value = (uint64_t *)((char *)&number + 4);
    REFUSED(mt_group_add_word(group, &place, 1, &event_fd), EINVAL, "aligned to 8 bytes");
    place.value = &number;
    place.seen = NULL;
    REFUSED(mt_group_add_word(group, &place, 1, &event_fd), EINVAL, "seen is NULL");
    place.seen = &number;
    place.parked = (uint32_t *)((char *)&parked + 2);
    REFUSED(mt_group_add_word(group, &place, 1, &event_fd), EINVAL, "aligned to 4 bytes");
    place.parked = &parked;
    CHECK(mt_group_add_word(group, &place, 1, &event_fd) == 0);
    REFUSED(mt_group_add_word(group, &place, 2, &event_fd), EINVAL, "already");

    /* Handles of another kind, and no handles at all. */
    REFUSED(mt_group_wait((mt_group *)one.channel, ready, 2, 0), EINVAL, "no group");
    REFUSED(mt_group_add_channel(group, (mt_channel *)group, 1), EINVAL, "no channel");
    REFUSED(mt_read((mt_channel *)group, 0, one.bufs[0]), EINVAL, "no channel");
    REFUSED(mt_wake((mt_waker *)group), EINVAL, "no waker");
    REFUSED(mt_group_close((mt_group *)one.channel), EINVAL, "no group");
    REFUSED(mt_group_close((mt_group *)&number), EINVAL, "no group");
    REFUSED(mt_waker_close((mt_waker *)(uintptr_t)12345), EINVAL, "no waker");

    /* Twice, and after. */
    CHECK(mt_channel_open(one.device, NULL, &channel) == 0 && mt_channel_close(channel) == 0);
    REFUSED(mt_group_add_channel(group, channel, 1), EINVAL, "closed");
    REFUSED(mt_group_remove_channel(group, channel), EINVAL, "not in this group");
    CHECK(mt_waker_open(group, &waker) == 0 && mt_waker_close(waker) == 0);
    REFUSED(mt_wake(waker), EINVAL, "closed");
    REFUSED(mt_waker_close(waker), EINVAL, "closed");
    CHECK(mt_group_add_channel(group, one.channel, 1) == 0 && mt_group_close(group) == 0);
    REFUSED(mt_group_close(group), EINVAL, "closed");
    REFUSED(mt_group_wait(group, ready, 2, 0), EINVAL, "closed");
    REFUSED(mt_group_add_channel(group, one.channel, 1), EINVAL, "closed");
    CHECK(mt_read(one.channel, 0, one.bufs[0]) == 0);
    closed(&one);

    /* A request that fails is a result, not a failure of the wait. */
    snprintf(uri, sizeof uri, "kernel:%s?direct=0", path);
    one = opened(uri, "interrupt");
    CHECK(mt_group_open(&group) == 0 && mt_group_add_channel(group, one.channel, 9) == 0);
    CHECK(truncate(path, 0) == 0);
    send(&one, 0, one.bufs[0]);
    ready[0] = next(group, MT_FOREVER);
    CHECK(ready[0].what == MT_DONE && ready[0].key == 9 && ready[0].result.error == -EIO);
    CHECK(ready[0].result.buf == one.bufs[0] && mt_buf_data(one.bufs[0]) != NULL);
    CHECK(mt_group_close(group) == 0);
    closed(&one);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    channels(argv[1]);
    room();
    timeouts();
    plugged();
    others();
    descriptors();
    words();
    removal();
    threads();
    misuse(argv[1]);
    return 0;
}

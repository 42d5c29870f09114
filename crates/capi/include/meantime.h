/* meantime.h - Meantime's block layer from C (C11) and C++.
 *
 * A *device* is opened by its URI. A *channel* is one thread's way to it. A *buffer* is memory that
 * the device can reach. A *group* is for one thread that waits on many channels.
 *
 *     mt_device *device;
 *     mt_channel *channel;
 *     mt_buf *buf;
 *     if (mt_open("mem:64M", &device) || mt_channel_open(device, NULL, &channel)
 *         || mt_alloc(device, 4096, &buf))
 *         errx(1, "%s", mt_last_error());
 *
 *     mt_ticket ticket;
 *     mt_request read = {.op = MT_READ, .lba = 8, .buf = buf};
 *     if (mt_submit(channel, &read, &ticket))              // the memory is the device's now
 *         errx(1, "%s", mt_last_error());
 *     // ... something else ...
 *     if (mt_wait(channel, ticket, NULL))                  // and yours again
 *         errx(1, "%s", mt_last_error());
 *     use(mt_buf_data(buf));
 *
 *     mt_free(buf);
 *     mt_channel_close(channel);
 *     mt_close(device);
 *
 * Compile with `cc prog.c $(pkg-config --cflags --libs meantime)`.
 *
 * From mt_submit() to the end of mt_wait() a polled request to a device behind our own driver needs
 * no allocation, no lock and no system call. (Two exceptions: the thread of a software SSD that has
 * gone to sleep is woken; and a wait that has polled for a millisecond without result begins to
 * sleep.)
 *
 * ERRORS. A function that returns int returns a negative errno when it fails, and mt_last_error()
 * says in words what is wrong and what to do. Where a handle was to be had, it is NULL then. The
 * meanings:
 *
 *     -EINVAL      your mistake, and nothing has happened: a NULL, a closed handle, a ticket that
 *                  was redeemed, a request beyond the end of the device. No I/O ever ends with it.
 *     -EBUSY       the buffer is with the device; the channel is in a group; another thread is
 *                  using the group; or all queues or interrupt vectors of the controller are in use
 *     -EAGAIN      as many requests are under way as the channel has room for: wait for one
 *     -EOPNOTSUPP  the device lacks the command, or cannot be waited for like that
 *     -EROFS       the device can be read only
 *     -ENOMEM      no memory for DMA
 *     -ETIMEDOUT   the device did not answer in time; it was made to let go of the buffer
 *     -ECANCELED   given up, because another command made a reset necessary. It may or may not have
 *                  been done.
 *     -ENODEV      the device is gone
 *     -ENOSPC      the namespace has no capacity left
 *     -EILSEQ      of a compare-and-write: the data on the device differ from the expected data,
 *                  and nothing was written
 *     -EIO         the device reported an error; or a bug in this library was met, and the channel,
 *                  or the group with its channels, is of no more use
 *     others       what the kernel said, e.g. -ENOENT or -EACCES from mt_open()
 *
 * Nothing is retried behind your back. No Rust panic unwinds into C: where one is caught, the call
 * returns -EIO, and the handle it concerned takes no more calls (nor is its memory freed, which the
 * device might still write to).
 *
 * THREADS. A device, and a waker, may be used by any number of threads at once. A channel, and a
 * buffer, by one thread at a time; they may be handed from one thread to another. So may a group
 * with all that is in it: while one thread is in a call on the group, or on a channel of it, calls
 * of others on these are refused with -EBUSY. mt_last_error() is per thread.
 *
 * BUFFERS. The mt_buf handle stays with you all the time; its memory goes back and forth. From
 * mt_submit() or mt_enqueue() until the request's result was taken it is the device's:
 * mt_buf_data() is NULL, and mt_free() refuses with -EBUSY. Each mt_buf is freed by one mt_free(),
 * whatever became of its requests.
 *
 * WHAT IS CHECKED. NULLs, handles that were closed, handles of another kind, tickets that were
 * redeemed or are of another channel, buffers of another device, buffers in flight, a group used by
 * two threads at once: all are refused with -EINVAL or -EBUSY. What cannot be seen, and is
 * undefined:
 *
 *     - a pointer that is no handle at all, given to another function than mt_close(),
 *       mt_channel_close(), mt_free(), mt_group_close() or mt_waker_close()
 *     - a handle that was closed, when a later open or allocation was given the same address
 *     - one buffer, or one channel that is in no group, used by two threads at the same time
 *     - a device or waker closed by one thread while another uses it
 *     - `ready` of mt_group_wait() with room for less than `count`; the memory of an mt_word that
 *       is gone before the word is removed, or that others change otherwise than atomically
 *     - touching the bytes of a buffer, by a pointer you kept, while it is with the device
 *     - a child of fork() that uses what its parent has opened (mt_alloc()'s memory is not mapped
 *       there)
 */
#ifndef MEANTIME_H
#define MEANTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. Of 0.x, versions that differ in the minor number are not
 * compatible. */
#define MT_VERSION_MAJOR 0
#define MT_VERSION_MINOR 1
#define MT_VERSION_PATCH 0
#define MT_VERSION "0.1.0"

/* The version of the library that is linked; compare it with MT_VERSION. A constant string. */
const char *mt_version(void);

typedef struct mt_device mt_device;   /* a block device */
typedef struct mt_channel mt_channel; /* one thread's way to it */
typedef struct mt_buf mt_buf;         /* a buffer that the device can reach */
typedef struct mt_group mt_group;     /* one thread's way to many channels */
typedef struct mt_waker mt_waker;     /* other threads' way to a group */


/* ---- Errors ---- */

/* A few words for a negative errno that a function here has returned. A constant string, never
 * NULL. */
const char *mt_strerror(int error);

/* What the last call of this thread that failed has to say, in one line. Valid until the next one
 * fails. Never NULL; empty if none has failed. */
const char *mt_last_error(void);


/* ---- Devices ---- */

/* Opens the device that `uri` names, e.g. "mem:1G?model=optane", "file:disk.img" or
 * "kernel:/dev/nvme0n1". Close it with mt_close(). A file or disk that the kernel has mounted or
 * uses otherwise, or that this process may not write, is opened for reading only: what writes
 * fails. So is a device on which a partition table, a file system or another known format lies,
 * unless its URI has overwrite=1. One partition is opened by partition=2, =label:NAME or
 * =uuid:UUID. */
int mt_open(const char *uri, mt_device **device);

/* Closes a device. Channels and buffers of it that are still open go on working; it ends with the
 * last of them. NULL is fine. */
int mt_close(mt_device *device);

typedef struct mt_info {
    uint64_t blocks;               /* size in logical blocks */
    uint32_t block_bytes;          /* logical block size */
    uint32_t max_transfer_bytes;   /* larger requests are split */
    uint32_t volatile_write_cache; /* 1: done writes may be lost by a power cut until mt_flush() */
    uint32_t compare_write_blocks; /* the most blocks of a compare-and-write; 0: there is none */
    const char *uri;               /* as it was opened */
    const char *medium;            /* what is at the bottom, in a few words */
} mt_info;

/* What the device is. The strings are the device's and end with it. */
int mt_device_info(const mt_device *device, mt_info *info);

/* Whether I/O can be waited for by `policy` (see below): 0, or -EOPNOTSUPP, and mt_last_error() has
 * the reason. */
int mt_can_wait(const mt_device *device, const char *policy);


/* ---- Buffers ---- */

/* A zeroed buffer, aligned to 4 KiB, for every channel of the device. Takes a lock: not for the
 * path of an I/O, use buffers again there. */
int mt_alloc(mt_device *device, size_t bytes, mt_buf **buf);

/* Frees a buffer; -EBUSY while it is with the device. NULL is fine. */
int mt_free(mt_buf *buf);

/* The bytes, yours to read and write; NULL while they are with the device, or if they never came
 * back: after mt_detach(), or if the device is gone and might still write to them. */
void *mt_buf_data(const mt_buf *buf);

/* How many bytes a request transfers, and how many it can at most; 0 where mt_buf_data() is
 * NULL. */
size_t mt_buf_len(const mt_buf *buf);
size_t mt_buf_capacity(const mt_buf *buf);

/* Sets the length, within the capacity. */
int mt_buf_set_len(mt_buf *buf, size_t bytes);


/* ---- Ways to wait ----
 *
 * "adaptive", the default, chooses among the others what holds its goal with the least CPU, while
 * running: "adaptive:latency=5" (per cent over polling), "adaptive:cpu=30" (per cent of a CPU),
 * "adaptive:p99=25us", "adaptive:p99.9=1ms". "poll" looks until the completion is there.
 * "interrupt" sleeps until the device's interrupt. "hybrid=2us" sleeps so long, then polls.
 * Published rules, to compare with: "hybrid" (half the mean device time),
 * "hybrid-bucket", "hybrid-min", "ehp", "pas", "dpas". */

/* A policy of one request; 0 is the channel's. */
typedef uint64_t mt_policy;

/* The policy that `text` names, for mt_request. */
int mt_policy_parse(const char *text, mt_policy *policy);


/* ---- Channels ---- */

/* All zero: the defaults. */
typedef struct mt_channel_options {
    /* how to wait; NULL: "adaptive" */
    const char *policy;
    uint32_t depth;     /* how many requests can be under way, up to 1,023; 0: 32 */
    /* 1: a queue with an interrupt, even if `policy` needs none, for requests that do */
    uint32_t interrupt;
} mt_channel_options;

/* A channel to the device; `options` may be NULL. Close it with mt_channel_close(). */
int mt_channel_open(mt_device *device, const mt_channel_options *options, mt_channel **channel);

/* Waits for what is under way (each request has a deadline), gives its buffers back, and closes the
 * channel. -EBUSY while it is in a group. NULL is fine. */
int mt_channel_close(mt_channel *channel);

/* Changes the way to wait from the next request on. */
int mt_set_policy(mt_channel *channel, const char *policy);

/* Writes the name of the present way to wait into `text`, cut off at `bytes` with its NUL. Returns
 * its full length without NUL. */
int mt_get_policy(const mt_channel *channel, char *text, size_t bytes);


/* ---- One request after the other ---- */

/* Fills `buf` from logical block `lba` on. */
int mt_read(mt_channel *channel, uint64_t lba, mt_buf *buf);

/* Writes all of `buf` from logical block `lba` on. */
int mt_write(mt_channel *channel, uint64_t lba, mt_buf *buf);

/* Makes durable what was written before. */
int mt_flush(mt_channel *channel);

/* Compares the first half of `buf` with what is there from logical block `lba` on, and if it is the
 * same writes the second half there. Nothing that anybody else has the device do to these blocks
 * comes between: for counters and locks that programs share. 0: written. -EILSEQ: something else is
 * there, and nothing was written; read it, and try again with that. After any other error of the
 * device only a read tells whether it was written. At most mt_info.compare_write_blocks blocks;
 * -EOPNOTSUPP where there is no such thing, as through the kernel. */
int mt_compare_and_write(mt_channel *channel, uint64_t lba, mt_buf *buf);


/* ---- Many requests at once ----
 *
 * Requests are either *ticketed* (mt_submit(), then mt_wait() for that one) or *queued*
 * (mt_enqueue(), then mt_wait_done() for whichever ends first). A request may be larger than the
 * device takes at once. */

enum {
    MT_READ = 1,      /* into `buf` */
    MT_WRITE,         /* from `buf` */
    MT_FLUSH,         /* everything that is done becomes durable */
    MT_WRITE_ZEROES,  /* `blocks` logical blocks */
    MT_DEALLOCATE,    /* `blocks` logical blocks are no longer needed */
    /* `buf`: what is expected, then, as long, what is to be written; see
     * mt_compare_and_write() */
    MT_COMPARE_AND_WRITE
};

enum {
    MT_FUA = 1 /* flag: durable when done (Force Unit Access) */
};

/* Initialise it whole: what is left out must be 0. */
typedef struct mt_request {
    uint32_t op;        /* MT_READ ... */
    uint32_t flags;     /* MT_FUA or 0 */
    uint64_t lba;       /* first logical block */
    uint64_t blocks;    /* how many; of a read or write 0, the buffer has the length */
    mt_buf *buf;        /* of a read, write or compare-and-write */
    mt_policy policy;   /* how to wait for this one; 0: as the channel does */
    uint64_t user_data; /* yours; comes back with the result */
} mt_request;

/* A request that is under way. Good for one mt_wait(), mt_try_take() that returns 1, or
 * mt_detach(). */
typedef struct mt_ticket {
    uint64_t id; /* never 0 */
} mt_ticket;

typedef struct mt_result {
    mt_buf *buf;        /* the request's */
    uint64_t user_data; /* the request's */
    int32_t error;      /* 0, or a negative errno */
    uint32_t reserved;  /* 0 */
} mt_result;

/* Starts a request. Unless it returns 0 nothing was started, and the buffer is still yours.
 * `request` is not needed any more when it returns. */
int mt_submit(mt_channel *channel, const mt_request *request, mt_ticket *ticket);

/* Waits for the ticket's request. Returns how it ended, as in `result->error`; `result` may be
 * NULL. -EINVAL: the ticket is not good. */
int mt_wait(mt_channel *channel, mt_ticket ticket, mt_result *result);

/* 1 and the result if the ticket's request has ended; 0 if not, and the ticket stays good. Does not
 * look at the device: mt_poll() does. `result` may be NULL. */
int mt_try_take(mt_channel *channel, mt_ticket ticket, mt_result *result);

/* Gives up the ticket and the memory of its buffer, which goes back to the device's heap when the
 * device is done with it. The mt_buf is empty from now on, and still to be freed. */
int mt_detach(mt_channel *channel, mt_ticket ticket);

/* Starts a request whose result comes from mt_wait_done() or mt_next_done(). Else as
 * mt_submit(). */
int mt_enqueue(mt_channel *channel, const mt_request *request);

/* Waits for a queued request to end: 1 and the result; 0 if none is left. */
int mt_wait_done(mt_channel *channel, mt_result *result);

/* 1 and the result of a queued request that has ended; 0 if none has. Does not look at the device:
 * mt_poll() does. */
int mt_next_done(mt_channel *channel, mt_result *result);

/* From now on requests are collected, and the device is told of them by mt_unplug() or the next
 * wait: one doorbell for many. */
int mt_plug(mt_channel *channel);

/* Tells the device of everything collected, and of each further request at once. */
int mt_unplug(mt_channel *channel);

/* Takes what has completed, without waiting. Returns how many requests ended. */
int mt_poll(mt_channel *channel);

/* How many requests are under way, not yet ended. */
int mt_in_flight(const mt_channel *channel);


/* ---- Many channels, one thread ----
 *
 * A group waits for whichever has something first: the queued requests of any number of channels,
 * of several devices, each waited for by its channel's policy; descriptors; words of memory that
 * others change; and other threads. The thread spins while one of the policies does, and sleeps
 * when all may. A channel without requests costs nothing. What is added has a key: any number,
 * yours, that mt_group_wait() returns.
 *
 * A channel in a group is used as before, also by calls that wait for it alone. Its requests with a
 * ticket are no matter of the group: mt_wait() or mt_try_take() has their results. */

/* An empty group. Close it with mt_group_close(). */
int mt_group_open(mt_group **group);

/* Closes a group. Its channels go on as channels in no group, with what they have under way; its
 * wakers are still to be closed. NULL is fine. */
int mt_group_close(mt_group *group);

/* Adds a channel, which may have requests under way; -EBUSY if it is in a group already. */
int mt_group_add_channel(mt_group *group, mt_channel *channel, uint64_t key);

/* Takes a channel out. It stays open, and its requests under way: mt_wait_done() has their results.
 * -EINVAL if it is not in this group. */
int mt_group_remove_channel(mt_group *group, mt_channel *channel);

/* Adds a descriptor, e.g. of a socket, pipe, eventfd or timer: it is waited for until it is
 * readable. (For anything else, add an epoll descriptor that waits for that.) The group has a
 * duplicate of its own: remove `fd` before you close it, or the file stays open. -EBADF if `fd` is
 * no descriptor, -EINVAL if it is in the group already. */
int mt_group_add_fd(mt_group *group, int fd, uint64_t key);

/* Takes out what was added as `fd`; -EINVAL if nothing was. */
int mt_group_remove_fd(mt_group *group, int fd);

/* Memory that other threads or processes change, e.g. the tail of a ring that is shared with them.
 * It stays where it is until the word is removed. */
typedef struct mt_word {
    const uint64_t *value; /* what others change, atomically; aligned to 8 bytes */
    const uint64_t *seen;  /* yours, as aligned: there is something while *value is not *seen */
    uint32_t *parked;      /* for mt_word_changed(); 0 at first; aligned to 4 bytes */
} mt_word;

/* Adds a word; `word` is not needed any more when it returns. While the group's thread is awake it
 * looks at the word, and whoever changes it needs no system call; `event_fd` gets the eventfd that
 * ends its sleep, for mt_word_changed(). It is the group's: do not read or close it; another
 * process needs a duplicate. It is closed when the word is removed. -EINVAL if `word->value` is in
 * the group already. */
int mt_group_add_word(mt_group *group, const mt_word *word, uint64_t key, int *event_fd);

/* Takes out the word whose value is at `value`; -EINVAL if it is not in this group. */
int mt_group_remove_word(mt_group *group, const uint64_t *value);

/* For who has changed a word of a group: ends the sleep of the group's thread, if it sleeps.
 * `parked` is the word's, `event_fd` its eventfd or a duplicate. For any thread of any process that
 * has them; needs no group, and nothing that is open. */
int mt_word_changed(const uint32_t *parked, int event_fd);

/* What is ready. */
enum {
    MT_DONE = 1, /* a queued request of the channel has ended; `result` is as of mt_wait_done() */
    MT_CHANGED,  /* the word differs from what was seen; given again until it does not */
    MT_READABLE, /* the descriptor was readable, or had failed; given again until it is not. It may
                  * have been read since: use non-blocking ones. */
    MT_WOKEN     /* mt_wake() was called, once or more */
};

typedef struct mt_ready {
    uint64_t key;      /* as it was added with; of MT_WOKEN 0 */
    uint32_t what;     /* MT_DONE ... */
    uint32_t reserved; /* 0 */
    mt_result result;  /* of MT_DONE; else all zero */
} mt_ready;

/* A time-out that never ends. */
#define MT_FOREVER INT64_MAX

/* Waits until there is something, at most for `timeout_ns`: 0 only looks. Writes what there is into
 * `ready`, which has room for `count`, and returns how many; what has no room is given by the next
 * calls, in turns. 0: the time is over; with MT_FOREVER, nothing can come, since no queued request
 * is under way, and the group has no descriptor, word or open waker. A signal handler does not end
 * it, but may call mt_wake(). Requests that failed are no failure of this call: see `result.error`.
 * -EINVAL if `count` is 0 or `timeout_ns` negative. */
int mt_group_wait(mt_group *group, mt_ready *ready, size_t count, int64_t timeout_ns);

/* What ends waits of the group from other threads. Open it before the group waits; close it with
 * mt_waker_close(). */
int mt_waker_open(mt_group *group, mt_waker **waker);

/* Closes a waker. NULL is fine. */
int mt_waker_close(mt_waker *waker);

/* Ends the present wait of the group, or the next one, with MT_WOKEN; does nothing when the group
 * was closed. What was stored before is visible after the wait. For any thread, and for signal
 * handlers. */
int mt_wake(const mt_waker *waker);

#ifdef __cplusplus
}
#endif

#endif /* MEANTIME_H */

//! Keys for the I/Os and their places: directions, sizes, checks, offsets, files.

use super::super::value::{self, RW_KINDS};
use super::super::{Payload, lists, trace};
use super::key::{If, Key, MIXED, RANDOM, With, flag, key};
use super::kind::{BYTES, By, FLAG, Field, INT_MAX, LENGTH, Noted, OFFSET, Opt, Unless0};
use super::kind::{field, int};

const PERCENT: &str = "a percentage from 0 to 100";

pub(super) const WHAT: &[Key] = &[
    key(
        "rw",
        field!(rw, By(RW_KINDS, value::rw)),
        "Direction and order: read, write, randread, randwrite, rw, randrw, or trims",
    )
    .also(&["readwrite"])
    .is("read")
    .listed("KIND"),
    key(
        "rwmixread",
        field!(rwmixread_percent, By(PERCENT, value::percent)),
        "Share of reads of rw and randrw, in percent",
    )
    .is("50")
    .applies(&[If(&MIXED)])
    .listed("PERCENT"),
    key(
        "rwmixwrite",
        field!(rwmixread_percent, By(PERCENT, |text| Ok(100 - value::percent(text)?))),
        "The same by its share of writes",
    )
    .is("50")
    .applies(&[If(&MIXED)]),
    key("bs", BS, "Block size; k, m, g are powers of 1024; in a job file READ,WRITE for two sizes")
        .also(&["blocksize"])
        .is("4k")
        .listed("BYTES"),
    key(
        "bssplit",
        field!(sizes, Noted("sizes with their shares, such as 4k/70:16k/30", lists::block_split)),
        "Sizes with their shares in percent, e.g. 4k/70:16k/30; a comma before those of writes",
    )
    .listed("SIZES"),
    key(
        "size",
        field!(size, Opt(LENGTH)),
        "How much of the device to use, e.g. 64m or 25%; alone it ends the job when so much was \
         transferred",
    )
    .means("the rest of the device")
    .listed("BYTES"),
    key("offset", field!(offset, OFFSET), "Where on the device to begin, e.g. 1g or 50%")
        .also(&["fileoffset"])
        .is("0")
        .listed("BYTES"),
    key(
        "io_size",
        field!(io_size, Opt(LENGTH)),
        "How much to transfer, if that is more or less than --size holds",
    )
    .also(&["io_limit"])
    .means("size")
    .listed("BYTES"),
    key(
        "number_ios",
        field!(number_ios, Opt(int(1, u64::MAX))),
        "End after this number of I/Os of each thread",
    )
    .listed("N"),
    key("loops", field!(loops, int(1, INT_MAX)), "How many times to transfer the size")
        .is("1")
        .listed("N"),
];

const BS: Field = Field {
    set: |job, text| {
        let ([read, write], remark) = value::block_sizes(text)?;
        job.bs_read_bytes = read.unwrap_or(job.bs_read_bytes);
        job.bs_write_bytes = write.unwrap_or(job.bs_write_bytes);
        Ok(remark)
    },
    reset: |job, plain| {
        (job.bs_read_bytes, job.bs_write_bytes) = (plain.bs_read_bytes, plain.bs_write_bytes);
    },
    // A size that is set contradicts the other keys of sizes, even if it is the default value.
    differs: |_, _| true,
    takes: |_| "a size such as 4k, or read and write sizes such as 4k,8k".to_owned(),
};

pub(super) const TRACES: &[Key] = &[
    key(
        "read_iolog",
        field!(replay.log, By("the name of an iolog of version 2 or 3", trace::name)),
        "Replay the I/Os of a trace that fio's write_iolog has written, at their times; they all \
         go to the job's device",
    )
    .listed("FILE"),
    flag("replay_no_stall", field!(replay.no_stall, FLAG), "Replay it as fast as it goes")
        .applies(&[With("read_iolog")])
        .listed("0|1"),
    key(
        "replay_time_scale",
        field!(replay.speed_percent, int(1, INT_MAX)),
        "The speed of the replay, in percent of the recorded one",
    )
    .is("100")
    .applies(&[With("read_iolog")])
    .listed("PERCENT"),
];

pub(super) const CHECKS: &[Key] = &[
    key(
        "verify",
        field!(verify, By(value::METHODS, value::verify)),
        "Read back and check what was written: crc32c, crc64, md5, sha256, meta, pattern, \
         pattern_hdr or none",
    )
    .is("none")
    .listed("METHOD"),
    flag("do_verify", field!(verify_keys.checks, FLAG), "Check what was written, or what is read")
        .is("1")
        .applies(&[With("verify")]),
    key(
        "verify_interval",
        field!(verify_keys.interval_bytes, Unless0(BYTES)),
        "The distance between two headers in a block",
    )
    .means("bs")
    .applies(&[With("verify")]),
    key(
        "verify_pattern",
        field!(verify_keys.payload, Opt(By(PATTERN, Payload::parse))),
        "What blocks hold beside their headers, repeated",
    )
    .means("random data")
    .applies(&[With("verify")]),
];

const PATTERN: &str = "numbers such as 0xaa55 or 12, \"text\" and %o (the offset)";

pub(super) const WHERE: &[Key] = &[
    key(
        "filename",
        field!(filename, Opt(By(FILENAME, value::printable))),
        "The device; --device says the same of all jobs, and may name several",
    ),
    flag(
        "norandommap",
        field!(random.norandommap, FLAG),
        "Random places may come again before all have been",
    )
    .applies(&[If(&RANDOM)])
    .listed("0|1"),
    flag("randrepeat", field!(random.randrepeat, FLAG), "The same random places in every run")
        .is("1"),
    key(
        "randseed",
        field!(random.randseed, Opt(int(0, u64::MAX))),
        "What random places are drawn from",
    ),
];

const FILENAME: &str =
    "a device URI such as mem:1G?model=optane, or a file on one, such as file:disk.img:/path";
pub(super) const FILES: &[Key] = &[
    key(
        "direct",
        field!(file.direct, Opt(FLAG)),
        "Read and write files past the page cache, not through it; devices have none",
    )
    .means("0")
    .listed("0|1"),
    key(
        "buffered",
        field!(file.direct, By("1 or 0", |text| Ok(Some(!value::boolean(text)?)))),
        "The opposite of direct",
    )
    .means("1"),
    key(
        "fadvise_hint",
        field!(file.hint, By("0 (none), 1 (by rw), random or sequential", value::hint)),
        "What to say of a file's reads beforehand: 0 (nothing), 1 (by --rw), random, sequential",
    )
    .is("1")
    .listed("KIND"),
    key(
        "overlap",
        field!(file.overlap, By(value::OVERLAPS, value::overlap)),
        "Which steps of a file's read path are taken while the device works: preload, pool, \
         lazy-insert, lazy-unmap; or all, or none",
    )
    .is("all")
    .listed("LIST"),
    key(
        "cache",
        field!(file.cache_bytes, By("a size such as 64m", value::cache_bytes)),
        "Memory of a file system's page cache",
    )
    .is("256m")
    .listed("BYTES"),
    key(
        "commit_overlap",
        field!(file.commit_overlap, By(value::COMMIT_OVERLAPS, value::commit_overlap)),
        "Which waits of a file's fsync are moved from their classic places: direct (no journal \
         thread), data (the log is written beside the data), prepare (the commit block is \
         prepared meanwhile); or all, or none",
    )
    .is("all")
    .for_writes()
    .listed("LIST"),
    flag(
        "fast_commit",
        field!(file.fast_commit, FLAG),
        "Commit changes of single files as fast commits, where the file system has room for them",
    )
    .for_writes()
    .listed("0|1"),
    flag(
        "deferrable",
        field!(file.times_deferrable, FLAG),
        "Time the work that reads of a file can leave for the gap, and how much was done there; \
         costs a few readings of the clock for each read",
    ),
];

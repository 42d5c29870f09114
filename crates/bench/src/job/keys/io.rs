//! Keys for the I/Os and their places: directions, sizes, checks, offsets, zones, files.

use super::super::value::{self, RW_KINDS};
use super::super::{Generator, Payload, ZoneMode, lists};
use super::kind::{
    BYTES, By, FLAG, Field, INT_MAX, LENGTH, Noted, OFFSET, Opt, PLACE, Unless0, Words,
};
use super::kind::{field, int};
use super::{CLONED, If, Key, MIXED, RANDOM, STRIDED, WRITES, With, ZBD, flag, key};

const PERCENT: &str = "a percentage from 0 to 100";
const PART: &str = "a part from 0 to 1, such as 0.7";

pub(super) const WHAT: &[Key] = &[
    key("rw", RW, "Direction and order: read, write, randread, randwrite, rw, randrw, or trims")
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
    key("bs", BS, "Block size; k, m, g are powers of 1024; READ,WRITE for two sizes")
        .also(&["blocksize"])
        .is("4k")
        .listed("BYTES"),
    key(
        "bsrange",
        field!(
            sizes,
            Noted("a range such as 4k-16k, or two, for reads and writes", lists::block_range)
        ),
        "Sizes from a range, all multiples of the first equally likely, e.g. 4k-16k; two for reads \
         and writes",
    )
    .also(&["blocksize_range"])
    .listed("RANGE"),
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
    key("filesize", field!(filesize, Opt(LENGTH)), "How much of the device to use, beside size")
        .means("size"),
    key("offset", field!(offset, OFFSET), "Where on the device to begin, e.g. 1g or 50%")
        .also(&["fileoffset"])
        .is("0")
        .listed("BYTES"),
    key(
        "offset_increment",
        field!(places.offset_increment, PLACE),
        "How far after the one before each thread begins",
    )
    .is("0")
    .applies(&[If(&CLONED)]),
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
    flag("fill_device", field!(fill_device, FLAG), "Write to the end of the device, then end")
        .also(&["fill_fs"])
        .applies(&[If(&WRITES)]),
];

const RW: Field = Field {
    set: |job, text| {
        (job.rw, job.places.skip_bytes, job.places.run) = value::rw_modified(text)?;
        Ok(None)
    },
    takes: |_| RW_KINDS.to_owned(),
    ..field!(rw, By(RW_KINDS, value::rw))
};

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
    // A size that is set contradicts the other keys of sizes, even with the default value.
    differs: |_, _| true,
    takes: |_| "a size such as 4k, or read and write sizes such as 4k,8k".to_owned(),
};

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
    key(
        "rw_sequencer",
        field!(places.identical, Words(&[("sequential", false), ("identical", true)])),
        "Whether the N I/Os of rw=randread:N are of one place, or one after the other",
    )
    .is("sequential")
    .applies(&[If(&RANDOM)]),
    key(
        "random_distribution",
        field!(random.distribution, By(lists::DISTRIBUTIONS, lists::distribution)),
        "How likely random places are: random, zipf:θ, pareto:h, normal:deviation, or in zones, \
         share by length, as zoned:60/10:40/90",
    )
    .is("random")
    .applies(&[If(&RANDOM)])
    .listed("KIND"),
    flag(
        "norandommap",
        field!(random.norandommap, FLAG),
        "Random places may come again before all have been",
    )
    .applies(&[If(&RANDOM)])
    .listed("0|1"),
    key(
        "random_generator",
        field!(random.generator, Words(GENERATORS)),
        "One generator under each name; lfsr visits each block once even with norandommap",
    )
    .is("tausworthe")
    .applies(&[If(&RANDOM)]),
    flag("randrepeat", field!(random.randrepeat, FLAG), "The same random places in every run")
        .is("1"),
    flag("allrandrepeat", ALLRANDREPEAT, "Says the same as randrepeat, and has no effect"),
    key(
        "randseed",
        field!(random.randseed, Opt(int(0, u64::MAX))),
        "What random places are drawn from",
    ),
    key(
        "blockalign",
        field!(
            places.align_bytes,
            By("a size such as 4k, or two, for reads and writes", lists::aligns)
        ),
        "What random places are multiples of",
    )
    .also(&["ba"])
    .means("the smallest block size")
    .applies(&[If(&RANDOM)]),
];

const FILENAME: &str =
    "a device URI such as mem:1G?model=optane, or a file on one, such as file:disk.img:/path";
const GENERATORS: &[(&str, Generator)] = &[
    ("tausworthe", Generator::Tausworthe),
    ("tausworthe64", Generator::Tausworthe),
    ("lfsr", Generator::Lfsr),
];
const ALLRANDREPEAT: Field = Field {
    set: |_, text| {
        value::boolean(text)?;
        Ok(Some("all that is random here is one sequence; see randrepeat"))
    },
    ..field!(random.randrepeat, FLAG)
};

pub(super) const ZONES: &[Key] = &[
    key(
        "zonemode",
        field!(zones.mode, Opt(Words(ZONE_MODES))),
        "Whether zones are accessed by strides, or written from their beginning on",
    )
    .means("strided with zonesize, else none"),
    key(
        "zonesize",
        field!(zones.size_bytes, BYTES),
        "Strided: how much is transferred in each zone; zbd: how long a zone is",
    ),
    key("zonerange", field!(zones.range_bytes, BYTES), "How long a strided zone is")
        .means("zonesize")
        .applies(&[If(&STRIDED)]),
    key("zoneskip", field!(zones.skip_bytes, BYTES), "How much lies between two strided zones")
        .is("0")
        .applies(&[If(&STRIDED)]),
    key("zonecapacity", field!(zones.capacity_bytes, BYTES), "How far a zone can be written")
        .means("zonesize")
        .applies(&[If(&ZBD)]),
    key(
        "max_open_zones",
        field!(zones.open_max, int(0, INT_MAX)),
        "How many zones are written at a time; 0: any number",
    )
    .is("0")
    .applies(&[If(&ZBD)]),
    key(
        "job_max_open_zones",
        field!(zones.open_max_of_thread, int(0, INT_MAX)),
        "The same of one thread",
    )
    .is("0")
    .applies(&[If(&ZBD)]),
    flag(
        "read_beyond_wp",
        field!(zones.reads_anywhere, FLAG),
        "Read anywhere, not only where something was written",
    )
    .applies(&[If(&ZBD)]),
    key(
        "zone_reset_threshold",
        field!(zones.reset_threshold_ppm, By(PART, lists::part)),
        "Empty zones once so much of the range is written",
    )
    .is("0")
    .applies(&[If(&ZBD), With("zone_reset_frequency")]),
    key(
        "zone_reset_frequency",
        field!(zones.reset_frequency_ppm, By(PART, lists::part)),
        "Share of the writes that empty their zone before",
    )
    .is("0")
    .applies(&[If(&ZBD)]),
];

const ZONE_MODES: &[(&str, ZoneMode)] =
    &[("none", ZoneMode::None), ("strided", ZoneMode::Strided), ("zbd", ZoneMode::Zbd)];

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

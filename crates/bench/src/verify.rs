//! Implements `verify`: each written block carries its place, a number and checksums, and is read
//! back and checked.

mod block;

use meantime_hw::DmaBuf;

pub(crate) use block::Rules;
use block::{FOREIGN, Report, Stamp, corrupt};

use super::pattern::{Dir, Io, Pattern, PatternSpec};
use super::replay::Replay;
use super::source::Source;
use super::varied::Varied;

/// Results of the checks.
#[derive(Debug, Default, Clone)]
pub(crate) struct Findings {
    /// Blocks read and checked.
    pub checked: u64,
    /// Blocks that differed from what was written.
    pub errors: u64,
    /// The first of them, as text.
    pub first: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    block: u64,
    is_write: bool,
    /// The number of a write, or the number that a read expects, with 0 for no check.
    number: u64,
}

/// The places of the I/Os.
#[derive(Debug)]
pub(crate) enum Course {
    /// Through the range, or each block once in random order.
    Plain(Box<Pattern>),
    /// With differing sizes, or to places that come again.
    Varied(Box<Varied>),
    /// As a trace says.
    Replay(Box<Replay>),
}

impl Source for Course {
    fn next_in_pass(&mut self) -> Option<Io> {
        match self {
            Self::Plain(pattern) => pattern.next_in_pass(),
            Self::Varied(varied) => varied.next_in_pass(),
            Self::Replay(replay) => replay.next_in_pass(),
        }
    }

    fn begin_pass(&mut self) -> bool {
        match self {
            Self::Plain(pattern) => pattern.begin_pass(),
            Self::Varied(varied) => varied.begin_pass(),
            Self::Replay(replay) => replay.begin_pass(),
        }
    }
}

/// I/Os of a course, pass by pass, with a record of what was written where.
#[derive(Debug)]
pub(crate) struct Verified {
    /// The places of the I/Os.
    pub course: Course,
    rules: Rules,
    offset_bytes: u64,
    block_shift: u32,
    bs_bytes: u64,
    seed: u64,
    /// The number of the last completed write by block of the range. It is 0 if there is none, or
    /// if it is not known.
    numbers: Vec<u64>,
    next_number: u64,
    /// The I/O in flight by slot.
    marks: Vec<Option<Mark>>,
    /// Results of the checks so far.
    pub findings: Findings,
}

impl Verified {
    /// Creates a verification of `course` by `rules`. `course` was made from `spec`, and all its
    /// blocks have the size of its writes.
    pub(crate) fn new(
        course: Course,
        rules: Rules,
        spec: &PatternSpec,
        depth: usize,
        seed: u64,
    ) -> Self {
        Self {
            course,
            offset_bytes: spec.offset_bytes,
            block_shift: spec.block_shift,
            bs_bytes: if rules.is_reader { spec.bs_read_bytes } else { spec.bs_write_bytes },
            seed,
            numbers: match rules.is_reader {
                true => Vec::new(),
                false => vec![0; (spec.range_bytes / spec.bs_write_bytes) as usize],
            },
            rules,
            next_number: 1,
            marks: vec![None; depth],
            findings: Findings::default(),
        }
    }

    /// Reads back everything that was written.
    pub(crate) fn read_back(&mut self) -> ReadBack<'_> {
        ReadBack { verified: self, block: 0 }
    }

    fn block_of(&self, io: &Io) -> u64 {
        ((io.lba << self.block_shift) - self.offset_bytes) / self.bs_bytes
    }

    fn stamp(&self, block: u64, number: u64) -> Stamp {
        let offset_bytes = self.offset_bytes + block * self.bs_bytes;
        let (method, is_foreign) = (self.rules.method, self.rules.is_reader);
        Stamp { offset_bytes, number, seed: self.seed, method, is_foreign }
    }

    fn examine(&mut self, block: u64, number: u64, buf: &[u8]) {
        let stamp = self.stamp(block, number);
        self.findings.checked += 1;
        if let Err((stamp, length, mismatch)) = self.rules.check(buf, stamp) {
            self.findings.errors += 1;
            self.findings.first.get_or_insert_with(|| Report(stamp, length, mismatch).to_string());
        }
    }
}

impl Source for Verified {
    const SLOW_TO_PREPARE: bool = true;

    // The worker begins the next pass, after it has read this one back.
    fn next_in_pass(&mut self) -> Option<Io> {
        self.course.next_in_pass()
    }

    fn prepare(&mut self, slot: usize, io: &Io, buf: &mut DmaBuf) {
        let block = self.block_of(io);
        let mark = match io.dir {
            Dir::Write => {
                let number = self.next_number;
                self.next_number += 1;
                self.rules.fill(buf, self.stamp(block, number));
                // A read of this block in flight may see the old or the new data, and of two writes
                // either may win.
                let mut contended = false;
                for mark in self.marks.iter_mut().flatten().filter(|mark| mark.block == block) {
                    contended |= mark.is_write;
                    mark.number = 0;
                }
                Mark { block, is_write: true, number: if contended { 0 } else { number } }
            }
            Dir::Read | Dir::Trim => {
                let contended =
                    self.marks.iter().flatten().any(|mark| mark.is_write && mark.block == block);
                let known = self.numbers.get(block as usize).copied();
                // The number of another job's write is not known, so any number is accepted.
                let known = if self.rules.checks { known.unwrap_or(FOREIGN) } else { 0 };
                let number = if contended { 0 } else { known };
                if number == FOREIGN {
                    corrupt(buf, &self.rules);
                }
                Mark { block, is_write: false, number }
            }
        };
        self.marks[slot] = Some(mark);
    }

    fn ended(&mut self, slot: usize, _: &Io, buf: &DmaBuf, done: bool) {
        let Some(Mark { block, is_write, number }) = self.marks[slot].take() else { return };
        if is_write {
            // After a failed write the block may be old, new or torn.
            self.numbers[block as usize] = if done { number } else { 0 };
        } else if done && number != 0 {
            self.examine(block, number, buf);
        }
    }
}

/// Reads of every block that was written, in order.
#[derive(Debug)]
pub(crate) struct ReadBack<'a> {
    verified: &'a mut Verified,
    block: u64,
}

impl Source for ReadBack<'_> {
    fn next_in_pass(&mut self) -> Option<Io> {
        if !self.verified.rules.checks {
            return None;
        }
        let numbers = self.verified.numbers.get(self.block as usize..)?;
        let written = numbers.iter().position(|number| *number != 0)?;
        let block = self.block + written as u64;
        self.block = block + 1;
        let lba = self.verified.stamp(block, 0).offset_bytes >> self.verified.block_shift;
        Some(Io { dir: Dir::Read, lba, bytes: self.verified.bs_bytes as usize })
    }

    fn prepare(&mut self, _: usize, _: &Io, buf: &mut DmaBuf) {
        corrupt(buf, &self.verified.rules);
    }

    fn ended(&mut self, _: usize, io: &Io, buf: &DmaBuf, done: bool) {
        if done {
            let block = self.verified.block_of(io);
            self.verified.examine(block, self.verified.numbers[block as usize], buf);
        }
    }
}

//! `rw=trim` and its kind: the places of writes, deallocated.

use meantime_hw::DmaBuf;

use super::engine::Source;
use super::pattern::{Dir, Io};
use super::verify::Course;

/// I/Os of a course of writes, as trims.
#[derive(Debug)]
pub(crate) struct Trims {
    course: Course,
    /// Each place is written once it was trimmed.
    writes: bool,
    next: Option<Io>,
}

impl Trims {
    /// Trims where `course` would write, and then writes there if `writes`.
    pub(crate) fn new(course: Course, writes: bool) -> Self {
        Self { course, writes, next: None }
    }
}

impl Source for Trims {
    const SLOW_TO_PREPARE: bool = false;

    fn next(&mut self) -> Option<Io> {
        if let Some(write) = self.next.take() {
            return Some(write);
        }
        let io = match self.course.next_in_pass() {
            None if self.course.begin_pass() => self.course.next_in_pass(),
            io => io,
        }?;
        self.next = Some(io).filter(|_| self.writes);
        Some(Io { dir: Dir::Trim, ..io })
    }

    #[inline(always)]
    fn prepare(&mut self, _: usize, _: &Io, _: &mut DmaBuf) {}

    #[inline(always)]
    fn ended(&mut self, _: usize, _: &Io, _: &DmaBuf, _: bool) {}
}

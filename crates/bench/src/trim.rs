//! `rw=trim` and its kind: the places of writes, deallocated.

use super::pattern::{Dir, Io};
use super::source::Source;
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
    fn next_in_pass(&mut self) -> Option<Io> {
        if let Some(write) = self.next.take() {
            return Some(write);
        }
        let io = self.course.next()?;
        self.next = Some(io).filter(|_| self.writes);
        Some(Io { dir: Dir::Trim, ..io })
    }
}

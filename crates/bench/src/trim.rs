//! The I/Os of `rw=trim` and related values, which deallocate the places of writes.

use super::pattern::{Dir, Io};
use super::source::Source;
use super::verify::Course;

/// The I/Os of a course of writes, turned into trims.
#[derive(Debug)]
pub(crate) struct Trims {
    course: Course,
    /// Whether each place is written after it was trimmed.
    writes: bool,
    next: Option<Io>,
}

impl Trims {
    /// Creates trims of the places that `course` would write, followed by writes if `writes`.
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

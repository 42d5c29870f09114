//! A record of writes and flushes, in order.
//!
//! A [`SteppedSsd`](crate::SteppedSsd) that [records](crate::SteppedSsd::record) keeps the data of
//! every write, and when each write and flush began and was complete. From that tests derive every
//! state that NVMe allows the medium to be in if power fails at some event.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A write, from when its data were taken.
#[derive(Debug, Clone)]
pub struct Write {
    /// Where on the medium, in bytes.
    pub offset: u64,
    /// What is written.
    pub data: Arc<[u8]>,
    /// Complete only when it is on the non-volatile medium.
    pub fua: bool,
    /// What its buffer held when the write was complete, if that was something else: a device may
    /// take the data at any time between.
    pub changed: Option<Arc<[u8]>>,
}

/// Something that was begun, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The device has taken a write, by its place in [`Record::writes`].
    WriteBegun(usize),
    /// The host has its completion.
    WriteDone(usize),
    /// The host has its failure: any of it may be on the medium, or nothing.
    WriteFailed(usize),
    /// The device has taken a flush.
    FlushBegun(usize),
    /// The host has its completion.
    FlushDone(usize),
}

/// An event, and in which turn of the SSD: what the SSD reports and takes in one turn has no order
/// for the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// What happened.
    pub event: Event,
    /// The turn.
    pub turn: u64,
}

/// All that was written and flushed since recording began.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// The writes, in the order in which they began.
    pub writes: Vec<Write>,
    /// The events, in order.
    pub moments: Vec<Moment>,
    flushes: usize,
    turn: u64,
}

/// A recording under way. Cloning gives another handle to the same one.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Arc<Mutex<Record>>);

/// What a command's completion is to be noted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// How many writes, from this one on.
    Writes(usize, usize),
    /// The same, whose data are not those of the command: it deallocated.
    Deallocations(usize, usize),
    Flush(usize),
}

impl Record {
    fn note(&mut self, event: Event) {
        self.moments.push(Moment { event, turn: self.turn });
    }
}

impl Recorder {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many events there were so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.record().moments.len()
    }

    /// Takes the record so far; recording goes on with an empty one.
    #[must_use]
    pub fn take(&self) -> Record {
        let mut record = self.record();
        let turn = record.turn;
        std::mem::replace(&mut *record, Record { turn, ..Record::default() })
    }

    pub(crate) fn next_turn(&self) {
        self.record().turn += 1;
    }

    pub(crate) fn write(&self, offset: u64, data: Arc<[u8]>, fua: bool) -> usize {
        let mut record = self.record();
        let number = record.writes.len();
        record.writes.push(Write { offset, data, fua, changed: None });
        record.note(Event::WriteBegun(number));
        number
    }

    pub(crate) fn flush(&self) -> Recorded {
        let mut record = self.record();
        let number = record.flushes;
        record.flushes += 1;
        record.note(Event::FlushBegun(number));
        Recorded::Flush(number)
    }

    /// What a write's data were when it was taken.
    pub(crate) fn data(&self, number: usize) -> Option<Arc<[u8]>> {
        self.record().writes.get(number).map(|write| Arc::clone(&write.data))
    }

    /// A write's buffer holds something else by now.
    pub(crate) fn changed(&self, number: usize, data: Arc<[u8]>) {
        if let Some(write) = self.record().writes.get_mut(number) {
            write.changed = Some(data);
        }
    }

    /// A write is over, and may have been done or not. (A flush that failed is one that never
    /// ended.)
    pub(crate) fn failed(&self, recorded: Recorded) {
        if let Recorded::Writes(first, count) | Recorded::Deallocations(first, count) = recorded {
            let mut record = self.record();
            (first..first + count).for_each(|number| record.note(Event::WriteFailed(number)));
        }
    }

    pub(crate) fn done(&self, recorded: Recorded) {
        let mut record = self.record();
        match recorded {
            Recorded::Writes(first, count) | Recorded::Deallocations(first, count) => {
                (first..first + count).for_each(|number| record.note(Event::WriteDone(number)));
            }
            Recorded::Flush(number) => record.note(Event::FlushDone(number)),
        }
    }
}

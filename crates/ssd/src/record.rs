//! A record of writes and flushes, in order.
//!
//! A [`SteppedSsd`](crate::SteppedSsd) that [records](crate::SteppedSsd::record) keeps the data of
//! every write, and the begin and completion of each write and flush. From these, tests derive
//! every state in which NVMe allows the medium to be if power fails at some event.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A write, recorded when the device takes its data.
#[derive(Debug, Clone)]
pub struct Write {
    /// Byte offset on the medium.
    pub offset: u64,
    /// The data.
    pub data: Arc<[u8]>,
    /// Whether it completes only when it is on the non-volatile medium.
    pub fua: bool,
    /// The content of its buffer at the completion, if different, because a device may take the
    /// data at any time between.
    pub changed: Option<Arc<[u8]>>,
}

/// The begin or end of a write or flush, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The device has taken a write, which has this index in [`Record::writes`].
    WriteBegun(usize),
    /// The host has the write's completion.
    WriteDone(usize),
    /// The host has the write's failure. Any part of the write may be on the medium, or nothing.
    WriteFailed(usize),
    /// The device has taken a flush.
    FlushBegun(usize),
    /// The host has the flush's completion.
    FlushDone(usize),
}

/// An event, and its turn of the SSD. What the SSD reports and takes in one turn has no order for
/// the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The event.
    pub event: Event,
    /// The turn.
    pub turn: u64,
}

/// All writes and flushes since recording began.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// The writes, in the order in which they began.
    pub writes: Vec<Write>,
    /// The events, in order.
    pub moments: Vec<Moment>,
    flushes: usize,
    turn: u64,
}

/// A recording in progress. Cloning returns another handle to the same one.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Arc<Mutex<Record>>);

/// The events that a command's completion records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// Writes, by the first one and their number.
    Writes(usize, usize),
    /// Writes of a deallocation, whose data is not the command's, by the first one and their
    /// number.
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

    /// Returns the number of events so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.record().moments.len()
    }

    /// Takes the record so far. Recording continues with an empty one.
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

    /// Returns the data of a write when the device took it.
    pub(crate) fn data(&self, number: usize) -> Option<Arc<[u8]>> {
        self.record().writes.get(number).map(|write| Arc::clone(&write.data))
    }

    /// Records that a write's buffer has changed.
    pub(crate) fn changed(&self, number: usize, data: Arc<[u8]>) {
        if let Some(write) = self.record().writes.get_mut(number) {
            write.changed = Some(data);
        }
    }

    /// Records that a write failed, and may or may not be on the medium. A failed flush counts as
    /// one that never ended.
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

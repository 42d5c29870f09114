//! A record of writes and flushes, in order, and the states that a power cut may leave.
//!
//! A [`SteppedSsd`](crate::SteppedSsd) that [records](crate::SteppedSsd::record) keeps the data of
//! every write, and when each write and flush began and was complete. From that, [`History::cut`]
//! tells every state that NVMe allows the medium to be in if power fails at some event: 1.4 §6.8
//! and §5.21.1.6 say what a flush and Force Unit Access make durable; nothing else has an order,
//! and only the power-fail atomic unit is whole.

mod cut;

pub use cut::{Cut, CutOptions, State, content_hash};

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
    /// The device has taken a write, [`History::writes`].
    WriteBegun(usize),
    /// The host was told that it is complete.
    WriteDone(usize),
    /// The host was told that it failed: any of it may be on the medium, or nothing.
    WriteFailed(usize),
    /// The device has taken a flush.
    FlushBegun(usize),
    /// The host was told that it is complete.
    FlushDone(usize),
}

/// An event, and in which turn of the SSD: what the SSD tells and takes in one turn has no order
/// for the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moment {
    event: Event,
    turn: u64,
}

/// All that was written and flushed since recording began.
#[derive(Debug, Clone, Default)]
pub struct History {
    writes: Vec<Write>,
    moments: Vec<Moment>,
    flushes: usize,
    turn: u64,
}

/// A recording under way. Cloning gives another handle to the same one.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Arc<Mutex<History>>);

/// What a command's completion is to be noted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// How many writes, from this one on.
    Writes(usize, usize),
    Flush(usize),
}

impl History {
    /// The writes, in the order in which they began.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// How many events there were.
    #[must_use]
    pub fn len(&self) -> usize {
        self.moments.len()
    }

    /// Whether nothing has happened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.moments.is_empty()
    }

    /// The events.
    pub fn events(&self) -> impl ExactSizeIterator<Item = Event> + '_ {
        self.moments.iter().map(|moment| moment.event)
    }

    /// Event number `at`.
    #[must_use]
    pub fn event(&self, at: usize) -> Option<Event> {
        self.moments.get(at).map(|moment| moment.event)
    }

    /// Notes something as happening now, in a turn of its own: for histories made by hand.
    pub fn push(&mut self, event: Event) {
        self.turn += 1;
        self.note(event);
    }

    /// Notes that a write begins, in a turn of its own; its number.
    pub fn begin_write(&mut self, offset: u64, data: &[u8], fua: bool) -> usize {
        self.turn += 1;
        self.write_begun(offset, data.into(), fua)
    }

    /// Notes that a flush begins, in a turn of its own; its number.
    pub fn begin_flush(&mut self) -> usize {
        self.turn += 1;
        self.flush_begun()
    }

    fn note(&mut self, event: Event) {
        self.moments.push(Moment { event, turn: self.turn });
    }

    fn write_begun(&mut self, offset: u64, data: Arc<[u8]>, fua: bool) -> usize {
        self.writes.push(Write { offset, data, fua, changed: None });
        let number = self.writes.len() - 1;
        self.note(Event::WriteBegun(number));
        number
    }

    fn flush_begun(&mut self) -> usize {
        self.flushes += 1;
        let number = self.flushes - 1;
        self.note(Event::FlushBegun(number));
        number
    }

    /// Positions right before events after which fewer states are possible, and the end: all states
    /// that were ever possible are possible at one of them. `volatile`: completed writes are not
    /// durable.
    pub fn turning_points(&self, volatile: bool) -> impl Iterator<Item = usize> + '_ {
        let shrinks = move |event: Event| match event {
            Event::WriteDone(number) => !volatile || self.writes[number].fua,
            Event::FlushDone(_) => volatile,
            Event::WriteBegun(_) | Event::WriteFailed(_) | Event::FlushBegun(_) => false,
        };
        let before =
            self.events().enumerate().filter(move |(_, event)| shrinks(*event)).map(|(at, _)| at);
        before.chain([self.len()])
    }
}

impl Recorder {
    fn history(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many events there were so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.history().len()
    }

    /// What was recorded so far.
    #[must_use]
    pub fn snapshot(&self) -> History {
        self.history().clone()
    }

    /// Takes the record so far; recording goes on with an empty one.
    #[must_use]
    pub fn take(&self) -> History {
        let mut history = self.history();
        let turn = history.turn;
        std::mem::replace(&mut *history, History { turn, ..History::default() })
    }

    pub(crate) fn next_turn(&self) {
        self.history().turn += 1;
    }

    pub(crate) fn write(&self, offset: u64, data: Arc<[u8]>, fua: bool) -> usize {
        self.history().write_begun(offset, data, fua)
    }

    pub(crate) fn flush(&self) -> Recorded {
        Recorded::Flush(self.history().flush_begun())
    }

    /// What a write's data were when it was taken.
    pub(crate) fn data(&self, number: usize) -> Option<Arc<[u8]>> {
        self.history().writes.get(number).map(|write| Arc::clone(&write.data))
    }

    /// A write's buffer holds something else by now.
    pub(crate) fn changed(&self, number: usize, data: Arc<[u8]>) {
        if let Some(write) = self.history().writes.get_mut(number) {
            write.changed = Some(data);
        }
    }

    /// A write is over, and may have been done or not. (A flush that failed is one that never
    /// ended.)
    pub(crate) fn failed(&self, recorded: Recorded) {
        if let Recorded::Writes(first, count) = recorded {
            let mut history = self.history();
            (first..first + count).for_each(|number| history.note(Event::WriteFailed(number)));
        }
    }

    pub(crate) fn done(&self, recorded: Recorded) {
        let mut history = self.history();
        match recorded {
            Recorded::Writes(first, count) => {
                (first..first + count).for_each(|number| history.note(Event::WriteDone(number)));
            }
            Recorded::Flush(number) => history.note(Event::FlushDone(number)),
        }
    }
}

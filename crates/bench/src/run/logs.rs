//! Collects data for logs during I/O: each I/O, or averages.
//!
//! Nothing is allocated during I/O. Entries without room are counted and left out.

use meantime_report::run::{LogEntry, LogRows, LogWindow};

use crate::pattern::Io;

/// The number of further entries whose memory is touched, and not only reserved, before a turn. It
/// is more than a turn adds.
const AHEAD: usize = 2 << 20;

/// One direction of an open window of averages.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    ios: u64,
    slat_ns: u64,
    clat_ns: u64,
}

/// The open window, with its end.
#[derive(Debug, Clone, Copy, Default)]
struct Open {
    sums: [Sums; 3],
    end_ms: u64,
}

/// The state to restore if a turn does not count.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    entries: usize,
    windows: usize,
    dropped: u64,
    open: Open,
}

/// The log of one thread of a cell.
#[derive(Debug)]
pub(crate) struct Log {
    avg_ms: u64,
    entries_max: usize,
    rows: LogRows,
    zero_ns: i128,
    open: Open,
    mark: Mark,
}

impl Log {
    /// Creates an empty log of averages over `avg_ms`, or of each I/O if that is 0. It has room for
    /// `entries_max` of them, which is all the memory that it will need.
    pub(crate) fn new(avg_ms: u64, entries_max: usize) -> Self {
        let mut rows = LogRows::default();
        match avg_ms {
            0 => rows.entries = Vec::with_capacity(entries_max),
            _ => rows.windows = Vec::with_capacity(entries_max),
        }
        let (open, mark) = (Open::default(), Mark::default());
        Self { avg_ms, entries_max, rows, zero_ns: 0, open, mark }
    }

    /// Begins a turn at `now_ns` by the clock, `at_ns` in the cell's measured time.
    pub(crate) fn begin(&mut self, now_ns: u64, at_ns: u64) {
        self.zero_ns = i128::from(now_ns) - i128::from(at_ns);
        let LogRows { entries, windows, dropped } = &self.rows;
        let (entries, windows) = (entries.len(), windows.len());
        self.mark = Mark { entries, windows, dropped: *dropped, open: self.open };
    }

    /// Touches the memory that a turn needs, before any clock is read for it.
    pub(crate) fn make_room(&mut self) {
        touch_ahead(&mut self.rows.entries);
    }

    /// Discards the last turn.
    pub(crate) fn undo(&mut self) {
        let Mark { entries, windows, dropped, open } = self.mark;
        self.rows.entries.truncate(entries);
        self.rows.windows.truncate(windows);
        (self.rows.dropped, self.open) = (dropped, open);
    }

    /// Records one I/O.
    #[inline]
    pub(crate) fn record(&mut self, io: &Io, slat_ns: u64, clat_ns: u64, seen_ns: u64) {
        let at_ms = ((i128::from(seen_ns) - self.zero_ns).max(0) / 1_000_000) as u64;
        if self.avg_ms == 0 {
            return self.entry(io, slat_ns, clat_ns, at_ms);
        }
        if at_ms >= self.open.end_ms {
            self.close_sums();
            self.open.end_ms = (at_ms / self.avg_ms + 1) * self.avg_ms;
        }
        let sums = &mut self.open.sums[io.dir as usize];
        sums.ios += 1;
        sums.slat_ns += slat_ns;
        sums.clat_ns += clat_ns;
    }

    #[inline]
    fn entry(&mut self, io: &Io, slat_ns: u64, clat_ns: u64, at_ms: u64) {
        let entries = &mut self.rows.entries;
        if entries.len() >= self.entries_max {
            self.rows.dropped += 1;
            return;
        }
        entries.push(LogEntry {
            clat_ns,
            lba: io.lba,
            slat_ns: u32::try_from(slat_ns).unwrap_or(u32::MAX),
            at_ms: at_ms as u32,
            bytes: io.bytes as u32,
            direction: io.dir as u8,
        });
    }

    #[cold]
    #[inline(never)]
    fn close_sums(&mut self) {
        for (direction, sums) in self.open.sums.iter_mut().enumerate() {
            let Sums { ios, slat_ns, clat_ns } = std::mem::take(sums);
            if ios == 0 {
                continue;
            }
            if self.rows.windows.len() >= self.entries_max {
                self.rows.dropped += ios;
                continue;
            }
            let (at_ms, direction) = (self.open.end_ms, direction as u8);
            self.rows.windows.push(LogWindow { at_ms, direction, ios, slat_ns, clat_ns });
        }
    }

    /// Returns all rows, including those of the open window.
    pub(crate) fn finish(mut self) -> LogRows {
        self.close_sums();
        self.rows
    }
}

/// Touches reserved pages. Otherwise the I/Os that first use them would pay for the page faults.
fn touch_ahead(list: &mut Vec<LogEntry>) {
    let length = list.len();
    list.resize(list.capacity().min(length + AHEAD), LogEntry::default());
    std::hint::black_box(&mut *list);
    list.truncate(length);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Dir;

    const IO: Io = Io { dir: Dir::Read, lba: 8, bytes: 4096 };

    #[test]
    fn each_io_in_the_cells_own_time() {
        let mut log = Log::new(0, 3);
        log.begin(50_000_000, 0);
        log.record(&IO, 10, 1000, 52_500_000);
        // A turn of another cell is in between.
        log.begin(900_000_000, 3_000_000);
        log.record(&IO, 10, 2000, 901_000_000);
        log.undo();
        log.begin(1_900_000_000, 3_000_000);
        for at in 0..5 {
            log.record(&Io { dir: Dir::Write, ..IO }, 10, 3000 + at, 1_901_000_000);
        }
        let rows = log.finish();
        let got: Vec<_> = rows
            .entries
            .iter()
            .map(|entry| (entry.at_ms, entry.clat_ns, entry.direction))
            .collect();
        assert_eq!(got, [(2, 1000, 0), (4, 3000, 1), (4, 3001, 1)]);
        assert_eq!(rows.dropped, 3);
    }

    #[test]
    fn averages() {
        let mut log = Log::new(10, 1000);
        log.begin(0, 0);
        for at_ms in 0..45u64 {
            log.record(&IO, 10, 1000 + at_ms, at_ms * 1_000_000);
        }
        let rows = log.finish();
        let got: Vec<_> =
            rows.windows.iter().map(|window| (window.at_ms, window.ios, window.clat_ns)).collect();
        assert_eq!((got.len(), got[0], got[4]), (5, (10, 10, 10_045), (50, 5, 5210)));
        assert!(rows.windows.iter().all(|window| window.slat_ns == window.ios * 10));
    }

    #[test]
    fn a_turn_that_is_undone_leaves_nothing() {
        let mut log = Log::new(10, 1000);
        log.begin(0, 0);
        log.record(&IO, 10, 1000, 1_000_000);
        log.begin(100_000_000, 2_000_000);
        for at in 0..30 {
            log.record(&IO, 10, 9000, 100_000_000 + at * 1_000_000);
        }
        log.undo();
        log.begin(200_000_000, 2_000_000);
        log.record(&IO, 10, 1000, 201_000_000);
        let rows = log.finish();
        assert_eq!(
            rows.windows.iter().map(|window| (window.ios, window.clat_ns)).collect::<Vec<_>>(),
            [(2, 2000)]
        );
    }
}

//! Data for fio's logs, collected during I/O: each I/O, or averages, or histograms.
//!
//! Nothing is allocated during I/O: entries without room are counted and left out.

use std::num::NonZeroU64;

use meantime_report::run::{HIST_BINS, LogEntry, LogRows, LogWindow, hist_bin};

use crate::job::LogKeys;
use crate::pattern::Io;

/// The number of further entries whose memory is touched, not only reserved, before a turn: more
/// than a turn adds.
const AHEAD: usize = 2 << 20;

/// The number of non-empty bins for which all histograms together have room.
const PAIRS_MAX: usize = 4 << 20;

/// The data to collect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogSpec {
    /// 0: each I/O; else averages over this time in ms; `None`: neither.
    pub avg_ms: Option<u64>,
    /// Histograms over this time in ms; `None`: none.
    pub hist_ms: Option<NonZeroU64>,
    /// The number of I/Os or windows for which there is room.
    pub entries_max: usize,
}

impl LogSpec {
    /// Returns what `keys` request; `None`: no log.
    pub(crate) fn of(keys: &LogKeys, entries_max: usize) -> Option<Self> {
        let avg_ms = keys.has_values().then_some(keys.avg_ms);
        let hist_ms = keys.hist.as_ref().and_then(|_| NonZeroU64::new(keys.hist_ms));
        (avg_ms.is_some() || hist_ms.is_some()).then_some(Self { avg_ms, hist_ms, entries_max })
    }
}

/// One direction of an open window of averages.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    ios: u64,
    bytes: u64,
    slat_ns: [u64; 2],
    clat_ns: [u64; 2],
    lat_ns: [u64; 2],
}

/// One direction of an open histogram.
#[derive(Debug, Clone, Default)]
struct Counts {
    ios: u64,
    bytes: u32,
    counts: Vec<u32>,
}

/// The open window and histogram, with their ends.
#[derive(Debug, Clone, Default)]
struct Open {
    sums: [Sums; 3],
    avg_end_ms: u64,
    counts: [Counts; 3],
    hist_end_ms: u64,
}

impl Open {
    fn new(spec: LogSpec) -> Self {
        let bins = if spec.hist_ms.is_some() { HIST_BINS } else { 0 };
        let counts = [(); 3].map(|()| Counts { counts: vec![0; bins], ..Counts::default() });
        Self { counts, ..Self::default() }
    }
}

/// The state to restore if a turn does not count.
#[derive(Debug, Default)]
struct Mark {
    rows: (usize, usize, usize, usize),
    dropped: u64,
    open: Open,
}

/// The log of one thread of a cell.
#[derive(Debug)]
pub(crate) struct Log {
    spec: LogSpec,
    rows: LogRows,
    zero_ns: i128,
    open: Open,
    mark: Mark,
}

impl Log {
    /// Creates an empty log, with all the memory it will need.
    pub(crate) fn new(spec: LogSpec) -> Self {
        let mut rows = LogRows::default();
        match spec.avg_ms {
            Some(0) => rows.entries = Vec::with_capacity(spec.entries_max),
            Some(_) => rows.windows = Vec::with_capacity(spec.entries_max),
            None => {}
        }
        if spec.hist_ms.is_some() {
            rows.hist_pairs = Vec::with_capacity(spec.entries_max.min(PAIRS_MAX));
            rows.hist_rows = Vec::with_capacity(spec.entries_max.min(PAIRS_MAX));
        }
        let open = Open::new(spec);
        Self { spec, rows, zero_ns: 0, mark: Mark { open: open.clone(), ..Mark::default() }, open }
    }

    /// Begins a turn at `now_ns` by the clock, `at_ns` in the cell's measured time.
    pub(crate) fn begin(&mut self, now_ns: u64, at_ns: u64) {
        self.zero_ns = i128::from(now_ns) - i128::from(at_ns);
        let (rows, dropped) = (self.rows.lengths(), self.rows.dropped);
        self.mark = Mark { rows, dropped, open: self.open.clone() };
    }

    /// Touches the memory that a turn needs, before any clock is read for it.
    pub(crate) fn make_room(&mut self) {
        touch_ahead(&mut self.rows.entries);
    }

    /// Discards the last turn.
    pub(crate) fn undo(&mut self) {
        self.rows.truncate(self.mark.rows);
        self.rows.dropped = self.mark.dropped;
        self.open.clone_from(&self.mark.open);
    }

    /// Discards everything.
    pub(crate) fn reset(&mut self) {
        self.open = Open::new(self.spec);
        self.mark = Mark { open: self.open.clone(), ..Mark::default() };
        self.rows.truncate((0, 0, 0, 0));
        self.rows.dropped = 0;
    }

    /// Records one I/O.
    #[inline]
    pub(crate) fn record(&mut self, io: &Io, slat_ns: u64, clat_ns: u64, seen_ns: u64) {
        let at_ms = ((i128::from(seen_ns) - self.zero_ns).max(0) / 1_000_000) as u64;
        match self.spec.avg_ms {
            Some(0) => self.entry(io, slat_ns, clat_ns, at_ms),
            Some(avg_ms) => {
                if at_ms >= self.open.avg_end_ms {
                    self.close_sums();
                    self.open.avg_end_ms = (at_ms / avg_ms + 1) * avg_ms;
                }
                let sums = &mut self.open.sums[io.dir as usize];
                sums.ios += 1;
                sums.bytes += io.bytes as u64;
                let of = [
                    (&mut sums.slat_ns, slat_ns),
                    (&mut sums.clat_ns, clat_ns),
                    (&mut sums.lat_ns, slat_ns + clat_ns),
                ];
                for ([sum, max], ns) in of {
                    *sum += ns;
                    *max = ns.max(*max);
                }
            }
            None => {}
        }
        if let Some(hist_ms) = self.spec.hist_ms {
            if at_ms >= self.open.hist_end_ms {
                self.close_counts();
                self.open.hist_end_ms = (at_ms / hist_ms.get() + 1) * hist_ms.get();
            }
            let counts = &mut self.open.counts[io.dir as usize];
            counts.ios += 1;
            counts.bytes = io.bytes as u32;
            counts.counts[hist_bin(clat_ns)] += 1;
        }
    }

    #[inline]
    fn entry(&mut self, io: &Io, slat_ns: u64, clat_ns: u64, at_ms: u64) {
        let entries = &mut self.rows.entries;
        if entries.len() >= self.spec.entries_max {
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
            ioprio: io.ioprio,
        });
    }

    #[cold]
    #[inline(never)]
    fn close_sums(&mut self) {
        for (direction, sums) in self.open.sums.iter_mut().enumerate() {
            let Sums { ios, bytes, slat_ns, clat_ns, lat_ns } = std::mem::take(sums);
            if ios == 0 {
                continue;
            }
            if self.rows.windows.len() >= self.spec.entries_max {
                self.rows.dropped += ios;
                continue;
            }
            let at_ms = self.open.avg_end_ms;
            self.rows.windows.push(LogWindow {
                at_ms,
                direction: direction as u8,
                ios,
                bytes,
                slat_ns,
                clat_ns,
                lat_ns,
            });
        }
    }

    #[cold]
    #[inline(never)]
    fn close_counts(&mut self) {
        let LogRows { hist_rows, hist_pairs, dropped, .. } = &mut self.rows;
        let end_ms = self.open.hist_end_ms;
        let counts = self.open.counts.iter_mut().enumerate();
        for (direction, counts) in counts.filter(|(_, counts)| counts.ios > 0) {
            let pairs = counts.counts.iter().filter(|count| **count > 0).count();
            if hist_rows.len() == hist_rows.capacity()
                || hist_pairs.len() + pairs > hist_pairs.capacity()
            {
                *dropped += counts.ios;
            } else {
                let found = counts.counts.iter().enumerate().filter(|(_, count)| **count > 0);
                hist_pairs.extend(found.map(|(bin, count)| (bin as u16, *count)));
                hist_rows.push((end_ms, direction as u8, counts.bytes, hist_pairs.len()));
            }
            counts.ios = 0;
            counts.counts.fill(0);
        }
    }

    /// Returns all rows, including those of the open window.
    pub(crate) fn finish(mut self) -> LogRows {
        self.close_sums();
        self.close_counts();
        self.rows
    }
}

/// Touches reserved pages: otherwise the I/Os that first use them would pay for the page faults.
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

    const IO: Io = Io { dir: Dir::Read, lba: 8, bytes: 4096, ioprio: 0 };

    fn log(avg_ms: Option<u64>, hist_ms: u64, entries_max: usize) -> Log {
        Log::new(LogSpec { avg_ms, hist_ms: NonZeroU64::new(hist_ms), entries_max })
    }

    #[test]
    fn each_io_in_the_cells_own_time() {
        let mut log = log(Some(0), 0, 3);
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
    fn averages_and_histograms() {
        let mut log = log(Some(10), 20, 1000);
        log.begin(0, 0);
        for at_ms in 0..45u64 {
            log.record(&IO, 10, 1000 + at_ms, at_ms * 1_000_000);
        }
        let rows = log.finish();
        let got: Vec<_> =
            rows.windows.iter().map(|window| (window.at_ms, window.ios, window.clat_ns)).collect();
        assert_eq!(got[0], (10, 10, [10_045, 1009]));
        assert_eq!((got.len(), got[4]), (5, (50, 5, [5210, 1044])));
        let ends: Vec<_> = rows.hist_rows.iter().map(|row| row.0).collect();
        assert_eq!(ends, [20, 40, 60]);
        assert_eq!(rows.hist_pairs.iter().map(|(_, count)| count).sum::<u32>(), 45);
    }

    #[test]
    fn a_turn_that_is_undone_leaves_nothing() {
        let mut log = log(Some(10), 10, 1000);
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
            rows.windows.iter().map(|window| (window.ios, window.clat_ns[1])).collect::<Vec<_>>(),
            [(2, 1000)]
        );
        assert_eq!(rows.hist_pairs.len(), 1);
        assert_eq!(rows.hist_pairs[0].1, 2);
    }
}

//! fio's logs, line by line.
//!
//! `time (ms), value, direction (0 read, 1 write), block size, [offset,] priority`. Histograms have
//! all their bins instead of the value. With averages the block size and the offset are 0, as in
//! fio.

use std::io::{self, Write};

/// fio's histogram: 29 groups of 64 bins.
pub const HIST_BINS: usize = 29 * 64;

/// An I/O.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogEntry {
    /// Completion latency.
    pub clat_ns: u64,
    /// First logical block.
    pub lba: u64,
    /// Submission latency.
    pub slat_ns: u32,
    /// Time of the completion in the cell's measured time.
    pub at_ms: u32,
    /// Its length.
    pub bytes: u32,
    /// 0: read, 1: write.
    pub direction: u8,
    /// Its priority in the kernel's encoding; 0: that of its thread.
    pub ioprio: u16,
}

/// Averages over a window; latencies as their sum and their maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogWindow {
    /// When it ended.
    pub at_ms: u64,
    /// 0: read, 1: write.
    pub direction: u8,
    /// Number of I/Os.
    pub ios: u64,
    /// Sum of their lengths.
    pub bytes: u64,
    /// Submission latencies.
    pub slat_ns: [u64; 2],
    /// Completion latencies.
    pub clat_ns: [u64; 2],
    /// Total latencies.
    pub lat_ns: [u64; 2],
}

/// The log of one thread of one result.
#[derive(Debug, Clone, Default)]
pub struct LogRows {
    /// Each I/O …
    pub entries: Vec<LogEntry>,
    /// … or averages.
    pub windows: Vec<LogWindow>,
    /// End of a histogram, direction, block size, and the end of its bins in `hist_pairs`.
    pub hist_rows: Vec<(u64, u8, u32, usize)>,
    /// Bins that are not empty, with their counts.
    pub hist_pairs: Vec<(u16, u32)>,
    /// I/Os that did not fit into the log.
    pub dropped: u64,
}

impl LogRows {
    /// Returns the lengths of the lists.
    pub fn lengths(&self) -> (usize, usize, usize, usize) {
        (self.entries.len(), self.windows.len(), self.hist_rows.len(), self.hist_pairs.len())
    }

    /// Truncates the lists to `lengths`.
    pub fn truncate(&mut self, lengths: (usize, usize, usize, usize)) {
        self.entries.truncate(lengths.0);
        self.windows.truncate(lengths.1);
        self.hist_rows.truncate(lengths.2);
        self.hist_pairs.truncate(lengths.3);
    }
}

/// The value of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    /// `_slat`, in ns.
    Slat,
    /// `_clat`, in ns.
    Clat,
    /// `_lat`, in ns.
    Lat,
    /// `_bw`, in KiB/s; for a single I/O in kB/s, as in fio.
    Bw,
    /// `_iops`; 1 for a single I/O.
    Iops,
    /// `_clat_hist`.
    Hist,
}

impl LogKind {
    /// Returns its part of the file's name.
    pub fn suffix(self) -> &'static str {
        match self {
            LogKind::Slat => "slat",
            LogKind::Clat => "clat",
            LogKind::Lat => "lat",
            LogKind::Bw => "bw",
            LogKind::Iops => "iops",
            LogKind::Hist => "clat_hist",
        }
    }
}

/// The format of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogStyle {
    /// The offset in each line.
    pub offset: bool,
    /// The maximum of a window, not its average.
    pub max_value: bool,
    /// A window's length.
    pub avg_ms: u64,
    /// Number of times that the number of bins is halved.
    pub hist_coarseness: u8,
    /// Bytes of a logical block.
    pub block_bytes: u64,
    /// The priority of threads, in the kernel's encoding.
    pub ioprio: u16,
    /// Each priority, not only whether it is real time.
    pub prio: bool,
}

impl LogStyle {
    /// Returns the last column.
    fn priority(&self, ioprio: u16) -> String {
        let ioprio = if ioprio == 0 { self.ioprio } else { ioprio };
        match self.prio {
            true => format!("{ioprio:#06x}"),
            // The class is in the highest bits; 1 is real time.
            false => u8::from(ioprio >> 13 == 1).to_string(),
        }
    }
}

/// Returns the bin of fio's histogram that `ns` belongs to.
pub fn hist_bin(ns: u64) -> usize {
    let top = ns.max(1).ilog2();
    if top <= 6 {
        return ns as usize;
    }
    // Six bits after the leading one.
    let shift = top - 6;
    let bin = ((shift as usize + 1) << 6) + ((ns >> shift) & 63) as usize;
    bin.min(HIST_BINS - 1)
}

/// Writes the lines of `kind`.
pub fn write_log(
    out: &mut dyn Write,
    rows: &LogRows,
    kind: LogKind,
    style: LogStyle,
) -> io::Result<()> {
    if kind == LogKind::Hist {
        return write_histograms(out, rows, style);
    }
    for entry in &rows.entries {
        let LogEntry { clat_ns, lba, slat_ns, at_ms, bytes, direction, ioprio } = *entry;
        let value = match kind {
            LogKind::Slat => u64::from(slat_ns),
            LogKind::Clat => clat_ns,
            LogKind::Lat => clat_ns + u64::from(slat_ns),
            LogKind::Bw => u64::from(bytes) * 1_000_000 / clat_ns.max(1),
            LogKind::Iops | LogKind::Hist => 1,
        };
        write!(out, "{at_ms}, {value}, {direction}, {bytes}, ")?;
        if style.offset {
            write!(out, "{}, ", lba * style.block_bytes)?;
        }
        writeln!(out, "{}", style.priority(ioprio))?;
    }
    for window in &rows.windows {
        let latency =
            |[sum_ns, max_ns]: [u64; 2]| if style.max_value { max_ns } else { sum_ns / window.ios };
        let value = match kind {
            LogKind::Slat => latency(window.slat_ns),
            LogKind::Clat => latency(window.clat_ns),
            LogKind::Lat => latency(window.lat_ns),
            LogKind::Bw => window.bytes * 1000 / 1024 / style.avg_ms.max(1),
            LogKind::Iops | LogKind::Hist => window.ios * 1000 / style.avg_ms.max(1),
        };
        let offset = if style.offset { "0, " } else { "" };
        writeln!(
            out,
            "{}, {value}, {}, 0, {offset}{}",
            window.at_ms,
            window.direction,
            style.priority(0)
        )?;
    }
    Ok(())
}

fn write_histograms(out: &mut dyn Write, rows: &LogRows, style: LogStyle) -> io::Result<()> {
    let mut bins = vec![0u64; HIST_BINS >> style.hist_coarseness];
    let mut begin = 0;
    for (at_ms, direction, bytes, end) in &rows.hist_rows {
        bins.fill(0);
        for (bin, count) in &rows.hist_pairs[begin..*end] {
            bins[usize::from(*bin) >> style.hist_coarseness] += u64::from(*count);
        }
        begin = *end;
        write!(out, "{at_ms}, {direction}, {bytes}")?;
        for count in &bins {
            write!(out, ", {count}")?;
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: LogStyle = LogStyle {
        offset: false,
        max_value: false,
        avg_ms: 10,
        hist_coarseness: 0,
        block_bytes: 512,
        ioprio: 0,
        prio: false,
    };

    fn text(rows: &LogRows, kind: LogKind, style: LogStyle) -> String {
        let mut out = Vec::new();
        write_log(&mut out, rows, kind, style).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Lines that fio 3.33 wrote for the same I/O.
    #[test]
    fn lines_are_fios() {
        let entry = LogEntry {
            clat_ns: 21_131,
            lba: 120,
            slat_ns: 721,
            at_ms: 0,
            bytes: 4096,
            direction: 1,
            ioprio: 0,
        };
        let rows = LogRows { entries: vec![entry], ..LogRows::default() };
        let with_offset = LogStyle { offset: true, ..STYLE };
        assert_eq!(text(&rows, LogKind::Lat, with_offset), "0, 21852, 1, 4096, 61440, 0\n");
        assert_eq!(text(&rows, LogKind::Clat, with_offset), "0, 21131, 1, 4096, 61440, 0\n");
        assert_eq!(text(&rows, LogKind::Bw, with_offset), "0, 193838, 1, 4096, 61440, 0\n");
        assert_eq!(text(&rows, LogKind::Iops, STYLE), "0, 1, 1, 4096, 0\n");
        assert_eq!(text(&rows, LogKind::Slat, STYLE), "0, 721, 1, 4096, 0\n");
    }

    #[test]
    fn windows_have_averages() {
        let window = LogWindow {
            at_ms: 20,
            direction: 0,
            ios: 4,
            bytes: 16_384,
            slat_ns: [40, 11],
            clat_ns: [4000, 1100],
            lat_ns: [4040, 1110],
        };
        let rows = LogRows { windows: vec![window], ..LogRows::default() };
        assert_eq!(text(&rows, LogKind::Lat, STYLE), "20, 1010, 0, 0, 0\n");
        assert_eq!(
            text(&rows, LogKind::Lat, LogStyle { max_value: true, offset: true, ..STYLE }),
            "20, 1110, 0, 0, 0, 0\n"
        );
        assert_eq!(text(&rows, LogKind::Iops, STYLE), "20, 400, 0, 0, 0\n");
        assert_eq!(text(&rows, LogKind::Bw, STYLE), "20, 1600, 0, 0, 0\n");
    }

    #[test]
    fn bins_are_fios() {
        for (ns, bin) in [
            (0, 0),
            (127, 127),
            (128, 128),
            (129, 128),
            (130, 129),
            (255, 191),
            (256, 192),
            (4096, 448),
        ] {
            assert_eq!(hist_bin(ns), bin, "{ns}");
        }
        assert_eq!(hist_bin(u64::MAX), HIST_BINS - 1);
        let rows = LogRows {
            hist_rows: vec![(10, 0, 4096, 2), (20, 1, 512, 3)],
            hist_pairs: vec![(0, 3), (5, 2), (1855, 9)],
            ..LogRows::default()
        };
        for (coarseness, columns) in [(0, 1856), (3, 232), (6, 29)] {
            let text =
                text(&rows, LogKind::Hist, LogStyle { hist_coarseness: coarseness, ..STYLE });
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!((lines.len(), lines[0].split(", ").count()), (2, 3 + columns));
            assert!(
                lines[1].starts_with("20, 1, 512, ") && lines[1].ends_with(", 9"),
                "{}",
                lines[1]
            );
            let sum: u64 =
                lines[0].split(", ").skip(3).map(|count| count.parse::<u64>().unwrap()).sum();
            assert_eq!(sum, 5);
        }
    }
}

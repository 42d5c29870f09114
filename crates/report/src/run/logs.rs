//! fio's logs of latency, line by line.
//!
//! `time (ms), value, direction (0 read, 1 write), block size, [offset,] priority`. With averages
//! the block size and the offset are 0, as in fio.

use std::io::{self, Write};

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
    /// The direction: 0 is read, 1 is write.
    pub direction: u8,
}

/// Sums over a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogWindow {
    /// The end time.
    pub at_ms: u64,
    /// The direction: 0 is read, 1 is write.
    pub direction: u8,
    /// Number of I/Os.
    pub ios: u64,
    /// Submission latencies.
    pub slat_ns: u64,
    /// Completion latencies.
    pub clat_ns: u64,
}

/// The log of one thread of one result.
#[derive(Debug, Clone, Default)]
pub struct LogRows {
    /// Each I/O …
    pub entries: Vec<LogEntry>,
    /// … or averages.
    pub windows: Vec<LogWindow>,
    /// I/Os that did not fit into the log.
    pub dropped: u64,
}

/// The kind of latency that a log has of each I/O.
#[derive(Debug, Clone, Copy)]
pub struct LogKind {
    /// Its part of the file's name.
    pub suffix: &'static str,
    /// The value of a line, in ns, by submission and completion latency.
    value_ns: fn(u64, u64) -> u64,
}

impl LogKind {
    /// All kinds: submission latency, completion latency, and both together.
    pub const ALL: [Self; 3] = [
        Self { suffix: "slat", value_ns: |slat_ns, _| slat_ns },
        Self { suffix: "clat", value_ns: |_, clat_ns| clat_ns },
        Self { suffix: "lat", value_ns: |slat_ns, clat_ns| slat_ns + clat_ns },
    ];
}

/// The format of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogStyle {
    /// The offset in each line.
    pub offset: bool,
    /// Bytes of a logical block.
    pub block_bytes: u64,
    /// Whether the thread's I/O priority is real time. This is the last column.
    pub real_time: bool,
}

/// Writes the lines of `kind`.
///
/// # Errors
/// Returns the error of `out`.
pub fn write_log(
    out: &mut dyn Write,
    rows: &LogRows,
    kind: LogKind,
    style: LogStyle,
) -> io::Result<()> {
    let priority = u8::from(style.real_time);
    for entry in &rows.entries {
        let LogEntry { clat_ns, lba, slat_ns, at_ms, bytes, direction } = *entry;
        let value = (kind.value_ns)(slat_ns.into(), clat_ns);
        write!(out, "{at_ms}, {value}, {direction}, {bytes}, ")?;
        if style.offset {
            write!(out, "{}, ", lba * style.block_bytes)?;
        }
        writeln!(out, "{priority}")?;
    }
    let offset = if style.offset { "0, " } else { "" };
    for LogWindow { at_ms, direction, ios, slat_ns, clat_ns } in &rows.windows {
        let mean_ns = (kind.value_ns)(*slat_ns, *clat_ns) / ios;
        writeln!(out, "{at_ms}, {mean_ns}, {direction}, 0, {offset}{priority}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: LogStyle = LogStyle { offset: false, block_bytes: 512, real_time: false };

    fn text(rows: &LogRows, kind: LogKind, style: LogStyle) -> String {
        let mut out = Vec::new();
        write_log(&mut out, rows, kind, style).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Lines that fio 3.33 wrote for the same I/O.
    #[test]
    fn lines_are_fios() {
        let [slat, clat, lat] = LogKind::ALL;
        let entry = LogEntry {
            clat_ns: 21_131,
            lba: 120,
            slat_ns: 721,
            at_ms: 0,
            bytes: 4096,
            direction: 1,
        };
        let rows = LogRows { entries: vec![entry], ..LogRows::default() };
        let with_offset = LogStyle { offset: true, ..STYLE };
        assert_eq!(text(&rows, lat, with_offset), "0, 21852, 1, 4096, 61440, 0\n");
        assert_eq!(text(&rows, clat, with_offset), "0, 21131, 1, 4096, 61440, 0\n");
        assert_eq!(text(&rows, slat, STYLE), "0, 721, 1, 4096, 0\n");
        let real_time = LogStyle { real_time: true, ..STYLE };
        assert_eq!(text(&rows, slat, real_time), "0, 721, 1, 4096, 1\n");
    }

    #[test]
    fn windows_have_averages() {
        let [.., lat] = LogKind::ALL;
        let window = LogWindow { at_ms: 20, direction: 0, ios: 4, slat_ns: 40, clat_ns: 4000 };
        let rows = LogRows { windows: vec![window], ..LogRows::default() };
        assert_eq!(text(&rows, lat, STYLE), "20, 1010, 0, 0, 0\n");
        assert_eq!(text(&rows, lat, LogStyle { offset: true, ..STYLE }), "20, 1010, 0, 0, 0, 0\n");
    }
}

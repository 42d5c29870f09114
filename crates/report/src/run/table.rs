//! The comparison table: a row per job, device and policy.

use comfy_table::{Cell, CellAlignment, Table};

use super::stats::{RunResult, SLOWEST_ONE_IN, Settings};
use crate::figures::{change, iops, none, us, wrapped};

/// A line only below the header. (comfy-table breaks those above and below at columns; ours are
/// continuous.)
const PRESET: &str = "     ═             ";

/// Figures that are left out of a narrow table, in this order.
const LEFT_OUT_FIRST: [&str; 3] = ["IOPS/\nCPU-%", "1 in\n6,000 µs", "max\nµs"];

/// The shortest that a name becomes when the table is too wide.
const NAME_MIN_COLUMNS: usize = 8;

#[derive(Clone)]
struct Line {
    texts: [String; 3],
    figures: Vec<String>,
    first_of_job: bool,
}

/// A result in the table; unknown figures are shown as a dash.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    /// The job's name.
    pub job: String,
    /// The device's URI.
    pub device: String,
    /// The storage below the device, in a few words, if that is known.
    pub medium: String,
    /// The completion policy.
    pub completion: String,
    /// The conditions of the threads.
    pub settings: Settings,
    /// The mean latency.
    pub mean_ns: Option<f64>,
    /// p50, p99 and p99.9.
    pub percentiles_ns: [Option<f64>; 3],
    /// The latency that the slowest one in 6,000 reached.
    pub slowest_ns: Option<f64>,
    /// The maximum.
    pub max_ns: Option<f64>,
    /// I/Os per second.
    pub iops: f64,
    /// User and system time over wall time.
    pub cpu_percent: Option<f64>,
    /// I/Os per second for each percent of a CPU.
    pub iops_per_cpu_percent: Option<f64>,
    /// The share of its lone speed that a competing program kept.
    pub competitor_percent: Option<f64>,
    /// Energy of the processors for each I/O, in µJ.
    pub energy_uj_per_io: Option<f64>,
    /// The floor's median.
    pub floor_ns: Option<f64>,
    /// Median of the ratios to the floor.
    pub floor_ratio: Option<f64>,
    /// I/Os that failed, and blocks that differed from what was written.
    pub errors: u64,
}

impl From<&RunResult> for Row {
    fn from(result: &RunResult) -> Self {
        let latency = result.latency();
        let done = |figure: f64| (latency.n() > 0).then_some(figure);
        Self {
            job: result.job_name.clone(),
            device: result.device.clone(),
            medium: result.medium.clone(),
            completion: result.completion.clone(),
            settings: result.settings.clone(),
            mean_ns: done(latency.mean_ns()),
            percentiles_ns: [50.0, 99.0, 99.9]
                .map(|at| Some(latency.known_percentile_ns(at)? as f64)),
            slowest_ns: latency.slowest_1_in(SLOWEST_ONE_IN).map(|ns| ns as f64),
            max_ns: done(latency.max_ns() as f64),
            iops: result.iops(),
            cpu_percent: Some(result.cpu_percent()),
            iops_per_cpu_percent: result.iops_per_cpu_percent(),
            competitor_percent: result.competitor_percent,
            energy_uj_per_io: result.energy_uj_per_io,
            floor_ns: result.floor_ns,
            floor_ratio: result.floor_ratio,
            errors: result.errors + result.verify_errors,
        }
    }
}

/// Returns the table with a caption, ending in a newline; empty without results. Latencies are of
/// reads and writes together, from submission to having seen the completion, in µs.
pub fn comparison_table(results: &[RunResult], width: usize) -> String {
    table_of(&results.iter().map(Row::from).collect::<Vec<_>>(), width)
}

/// Returns the table of these rows. It keeps within `width` columns: names are shortened first, and
/// where that is not enough each device gets a line of its own above its rows.
pub(crate) fn table_of(results: &[Row], width: usize) -> String {
    if results.is_empty() {
        return String::new();
    }
    let mut notes = Vec::new();
    let columns_shown = columns_of(results);
    let names = ["job", "device", "completion"];
    let header: Vec<&str> =
        names.into_iter().chain(columns_shown.iter().map(|column| column.heading)).collect();
    let mut lines = lines(results, &columns_shown, &mut notes);
    let whole = |lines: &[Line], gap| framed(&aligned(&header, &rows_of(lines, true), 3, gap));
    let full = lines.clone();
    let mut table = whole(&lines, 2);
    if columns(&table) > width {
        table = whole(&lines, 1);
    }
    // Names are shortened, the longest column first; numbers are not.
    while columns(&table) > width {
        let longest =
            |at: usize| lines.iter().map(|line| line.texts[at].chars().count()).max().unwrap_or(0);
        let at = (0..3).filter(|at| longest(*at) > NAME_MIN_COLUMNS).max_by_key(|at| longest(*at));
        let Some(at) = at else {
            table = by_device(header, full, width);
            break;
        };
        let narrower = longest(at) - 1;
        for line in &mut lines {
            line.texts[at] = shortened(&line.texts[at], narrower);
        }
        table = whole(&lines, 1);
    }
    table.push('\n');
    for (at, note) in notes.iter().enumerate() {
        table += &wrapped(&format!("{} {note}", mark(at)), width);
        table.push('\n');
    }
    table
}

/// Returns the mark of a note: ¹, ², …, ¹⁰.
fn mark(at: usize) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    (at + 1).to_string().bytes().map(|digit| DIGITS[usize::from(digit - b'0')]).collect()
}

/// Returns the mark of the note that `result` is of another device than `first`, the job's first
/// one.
fn device_mark(result: &Row, first: &Row, notes: &mut Vec<String>) -> String {
    if result.medium == first.medium || result.medium.is_empty() {
        return String::new();
    }
    let note = format!(
        "Another device than {}: {}. Figures of different devices differ by the devices, too.",
        first.device, result.medium
    );
    let at = notes.iter().position(|known| *known == note).unwrap_or_else(|| {
        notes.push(note);
        notes.len() - 1
    });
    format!(" {}", mark(at))
}

/// A column of figures.
struct Column {
    heading: &'static str,
    /// Whether it is shown even if no result has a figure for it.
    always: bool,
    figure: Figure,
}

/// The figure of a result, given the mean of its device's first row.
type Figure = fn(&Row, Option<f64>) -> Option<String>;

const fn always(heading: &'static str, figure: Figure) -> Column {
    Column { heading, always: true, figure }
}

const fn sometimes(heading: &'static str, figure: Figure) -> Column {
    Column { heading, always: false, figure }
}

const COLUMNS: [Column; 18] = [
    sometimes("sched", |row, _| row.settings.sched.clone()),
    sometimes("PM\nQoS µs", |row, _| row.settings.pm_qos.clone()),
    sometimes("hogs", |row, _| (row.settings.hogs > 0).then(|| row.settings.hogs.to_string())),
    always("mean\nµs", |row, _| row.mean_ns.map(us)),
    always("p50\nµs", |row, _| row.percentiles_ns[0].map(us)),
    always("p99\nµs", |row, _| row.percentiles_ns[1].map(us)),
    always("p99.9\nµs", |row, _| row.percentiles_ns[2].map(us)),
    always("1 in\n6,000 µs", |row, _| row.slowest_ns.map(us)),
    always("max\nµs", |row, _| row.max_ns.map(us)),
    always("IOPS", |row, _| Some(iops(row.iops))),
    always("CPU\n%", |row, _| row.cpu_percent.map(|percent| format!("{percent:.1}"))),
    always("IOPS/\nCPU-%", |row, _| row.iops_per_cpu_percent.map(iops)),
    sometimes("µJ/\nI/O", |row, _| row.energy_uj_per_io.map(|uj| format!("{uj:.2}"))),
    always("vs\nfirst", |row, first_ns| {
        first_ns.map(|first_ns| change(row.mean_ns.unwrap_or(0.0), first_ns))
    }),
    sometimes("rival\n%", |row, _| row.competitor_percent.map(|percent| format!("{percent:.0}"))),
    sometimes("floor\nns", |row, _| row.floor_ns.map(|ns| format!("{ns:.0}"))),
    sometimes("floor\nratio", |row, _| row.floor_ratio.map(|ratio| format!("{ratio:.2}"))),
    sometimes("errors", |row, _| Some(row.errors.to_string())),
];

/// Returns the columns that are always shown, and those with a figure other than 0.
fn columns_of(results: &[Row]) -> Vec<&'static Column> {
    const ALL: &[Column] = &COLUMNS;
    let says = |column: &Column| {
        let mut figures = results.iter().filter_map(|row| (column.figure)(row, None));
        figures.any(|figure| figure != "0")
    };
    ALL.iter().filter(|column| column.always || says(column)).collect()
}

fn lines(results: &[Row], columns: &[&Column], notes: &mut Vec<String>) -> Vec<Line> {
    let mut lines = Vec::with_capacity(results.len());
    // The mean of this job and device's first row, and the devices and policies that the job
    // already has.
    let mut first_mean_ns = None;
    let mut seen: Vec<(&str, &str, &Settings)> = Vec::new();
    let mut last_name = None;
    let mut first = results.first();
    for result in results {
        let way = (result.device.as_str(), result.completion.as_str(), &result.settings);
        // Distinct jobs may have one name; the same device and policy again is the next job.
        let first_of_job = last_name != Some(&result.job) || seen.contains(&way);
        if first_of_job {
            seen.clear();
            first = Some(result);
        }
        let new_device = first_of_job || seen.last().is_none_or(|(device, ..)| *device != way.0);
        if new_device {
            first_mean_ns = result.mean_ns;
        }
        seen.push(way);
        last_name = Some(&result.job);
        let first_ns = first_mean_ns.filter(|_| !new_device);
        let figure = |column: &&Column| (column.figure)(result, first_ns).unwrap_or_else(none);
        let figures = columns.iter().map(figure).collect();
        // A name is shown once, in its first row.
        let job = if first_of_job { result.job.clone() } else { String::new() };
        let mark = first.map_or_else(String::new, |first| device_mark(result, first, notes));
        let device = if new_device { result.device.clone() + &mark } else { String::new() };
        lines.push(Line { texts: [job, device, result.completion.clone()], figures, first_of_job });
    }
    lines
}

/// Returns the cells of `lines`, and an empty row before each job but the first.
fn rows_of(lines: &[Line], named: bool) -> Vec<Vec<&str>> {
    let mut rows = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let texts = if named { &line.texts[..] } else { &line.texts[2..] };
        let row: Vec<&str> = texts.iter().chain(&line.figures).map(String::as_str).collect();
        if named && at > 0 && line.first_of_job {
            rows.push(vec![""; row.len()]);
        }
        rows.push(row);
    }
    rows
}

/// Returns a table whose first `texts` columns are names, as lines.
pub(crate) fn aligned(
    header: &[&str],
    rows: &[Vec<&str>],
    texts: usize,
    gap_columns: u16,
) -> Vec<String> {
    let mut table = Table::new();
    table.load_preset(PRESET);
    let cell = |(at, text): (usize, &&str)| {
        let side = if at < texts { CellAlignment::Left } else { CellAlignment::Right };
        Cell::new(text).set_alignment(side)
    };
    table.set_header(header.iter().enumerate().map(cell));
    for row in rows {
        table.add_row(comfy_table::Row::from(row.iter().enumerate().map(cell).collect::<Vec<_>>()));
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if at == 0 { 0 } else { gap_columns }, 0));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Returns `lines` between two rules.
fn framed(lines: &[String]) -> String {
    let rule = "─".repeat(columns(&lines.join("\n")));
    format!("{rule}\n{}\n{rule}", lines.join("\n"))
}

/// Returns the table for a narrow terminal: job and device on lines of their own, without the
/// figures that do not fit.
fn by_device(mut header: Vec<&str>, mut lines: Vec<Line>, width: usize) -> String {
    header.drain(..2);
    let mut first_to_go = LEFT_OUT_FIRST.iter();
    loop {
        let rows = rows_of(&lines, false);
        let table = aligned(&header, &rows, 1, 1);
        let too_wide = columns(&table.join("\n")) > width;
        if too_wide && let Some(name) = first_to_go.next() {
            if let Some(at) = header.iter().position(|column| column == name) {
                header.remove(at);
                lines.iter_mut().for_each(|line| drop(line.figures.remove(at - 1)));
            }
            continue;
        }
        let (head, body) = table.split_at(table.len() - rows.len());
        let mut shown = head.to_vec();
        for (line, row) in lines.iter().zip(body) {
            let [job, device, _] = &line.texts;
            if !device.is_empty() {
                if line.first_of_job && shown.len() > head.len() {
                    shown.push(String::new());
                }
                let place =
                    if job.is_empty() { device.clone() } else { format!("{job} on {device}") };
                shown.push(shortened(&place, width));
            }
            shown.push(row.clone());
        }
        return framed(&shown);
    }
}

fn columns(table: &str) -> usize {
    table.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// Shortens a text in the middle, so that a URI keeps its scheme and its model.
fn shortened(text: &str, columns: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= columns || columns == 0 {
        return text.to_owned();
    }
    // A text that was shortened before loses its mark, too.
    let chars: Vec<char> = chars.into_iter().filter(|c| *c != '…').collect();
    let head = (columns - 1) / 2;
    let tail = columns - 1 - head;
    chars[..head].iter().chain(&['…']).chain(&chars[chars.len().saturating_sub(tail)..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortening_keeps_both_ends() {
        assert_eq!(shortened("mem:1G?model=fast12", 12), "mem:1…fast12");
        assert_eq!(shortened(&shortened("mem:1G?model=fast12", 12), 11), "mem:1…ast12");
        assert_eq!(shortened("short", 8), "short");
    }

    #[test]
    fn another_device_is_marked_once() {
        let result = |device: &str, medium: &str, completion: &str| RunResult {
            device: device.to_owned(),
            medium: medium.to_owned(),
            completion: completion.to_owned(),
            ..RunResult::default()
        };
        let results = [
            result("mem:1G", "software SSD", "poll"),
            result("kernel:x", "virtio disk vda", "interrupt"),
            result("kernel:x", "virtio disk vda", "poll"),
            result("file:x", "software SSD", "poll"),
        ];
        let table = comparison_table(&results, 120);
        assert_eq!(table.matches("kernel:x ¹").count(), 1, "{table}");
        assert!(table.ends_with(
            "¹ Another device than mem:1G: virtio disk vda. Figures of different devices differ by \
             the devices, too.\n"
        ));
        assert_eq!(mark(9), "¹⁰");
    }

    #[test]
    fn a_narrow_one_has_a_line_for_each_device() {
        let result = |job: &str, device: &str, completion: &str| Row {
            job: job.to_owned(),
            device: device.to_owned(),
            completion: completion.to_owned(),
            mean_ns: Some(1_234_560.0),
            percentiles_ns: [Some(1_234_560.0); 3],
            max_ns: Some(5_234_560.0),
            slowest_ns: Some(5_234_560.0),
            iops: 123_456.0,
            cpu_percent: Some(99.1),
            iops_per_cpu_percent: Some(1_234.0),
            ..Row::default()
        };
        let long = "file:a/very/long/path/to/some/disk.img?model=optane";
        let rows = [
            result("rr4k", "mem:256M?model=fast12", "interrupt"),
            result("rr4k", "mem:256M?model=fast12", "adaptive"),
            result("rr4k", long, "adaptive"),
            result("rr512", long, "adaptive"),
        ];
        for width in [80, 60, 120] {
            let table = table_of(&rows, width);
            assert!(columns(&table) <= width, "{table}");
        }
        let table = table_of(&rows, 80);
        assert!(table.contains("\nrr4k on mem:256M?model=fast12\ninterrupt"), "{table}");
        assert!(table.contains(&format!("\n{long}\nadaptive")), "{table}");
        assert!(table.contains(&format!("\n\nrr512 on {long}\n")), "{table}");
        assert!(table.contains("p99.9") && !table.contains("CPU-%"), "{table}");
    }
}

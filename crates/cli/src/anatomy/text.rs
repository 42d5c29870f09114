//! The report as text.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use meantime_report::run::LatencyStats;

use super::fast12::Fast12;
use super::tally::{Tally, Typical};
use super::timeline::{PARTS, Part, QUEUE};
use super::{Anatomy, Bar, scale_end_ns};
use crate::figures;

/// Width of the longest bar, in columns.
const BAR_COLUMNS: usize = 64;

/// Width of a paragraph, in columns.
const NOTE_COLUMNS: usize = 110;

/// A program with a CPU for itself runs more than this.
const OTHERS_BELOW_PERCENT: f64 = 95.0;

/// Points of the submission latency's distribution, in percent.
pub(super) const CDF_PERCENTILES: [f64; 9] = [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 99.0, 99.9, 99.99];

/// Returns whether to use colours: if the output is a terminal whose user does not refuse them.
pub(super) fn wants_colour(to_stderr: bool) -> bool {
    let terminal =
        if to_stderr { std::io::stderr().is_terminal() } else { std::io::stdout().is_terminal() };
    terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns the whole report.
pub(super) fn report(anatomy: &Anatomy, coloured: bool) -> String {
    let mut text = bars(anatomy, coloured);
    text += &parts_tables(anatomy);
    text += &host_and_device(anatomy);
    text += &submission(anatomy);
    text += &fast12(anatomy);
    text += &footer(anatomy);
    text
}

fn bars(anatomy: &Anatomy, coloured: bool) -> String {
    let paint = |part: &Part, text: &str| match coloured {
        true => format!("\x1b[38;5;{}m{text}\x1b[0m", part.xterm),
        false => text.to_owned(),
    };
    let typical: Vec<Typical> = anatomy.bars.iter().map(|bar| bar.alone.typical()).collect();
    let totals_ns: Vec<f64> = typical.iter().map(Typical::total_ns).collect();
    let column_ns = scale_end_ns(&totals_ns) / BAR_COLUMNS as f64;
    let mut text = format!(
        "The typical {} (mean of the middle half); a column is {}\n",
        anatomy.what(),
        figures::time(column_ns)
    );
    let labels: Vec<String> = anatomy.bars.iter().map(Bar::way).collect();
    let label_columns = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let mut device = None;
    for ((bar, typical), label) in anatomy.bars.iter().zip(&typical).zip(&labels) {
        if device.replace(&bar.device) != Some(&bar.device) {
            let _ = writeln!(text, "\n{}", bar.device);
        }
        let _ = write!(text, "  {label:label_columns$}  ");
        for (part, columns) in PARTS.iter().zip(columns(typical, column_ns)) {
            text += &paint(part, &part.glyph.to_string().repeat(columns));
        }
        let cut = if typical.total_ns() / column_ns > BAR_COLUMNS as f64 + 0.5 { "»" } else { "" };
        let _ = writeln!(text, "{cut} {} µs", us(typical.total_ns()));
    }
    text += "\n  ";
    for part in PARTS.iter().filter(|part| anatomy.shows(part)) {
        let name = part.name(anatomy.bars.iter().any(|bar| bar.stamped));
        let _ = write!(text, "{} {name}   ", paint(part, &part.glyph.to_string()));
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

/// Returns the columns of each part: the bar is as long as the total, to half a column, and the
/// borders between parts are exact. The rest beyond the scale is cut off.
fn columns(typical: &Typical, column_ns: f64) -> [usize; 7] {
    let (mut end_ns, mut drawn) = (0.0, 0);
    typical.parts_ns.map(|ns| {
        end_ns += ns;
        let end = ((end_ns / column_ns).round() as usize).min(BAR_COLUMNS);
        end - std::mem::replace(&mut drawn, end)
    })
}

fn parts_tables(anatomy: &Anatomy) -> String {
    let mut text = format!("\nPart by part, µs{:>20}", "typical");
    for head in ["mean", "±1 SD", "p50", "p99", "max", "of mean"] {
        let _ = write!(text, "{head:>11}");
    }
    text.push('\n');
    for bar in &anatomy.bars {
        let tally = &bar.alone;
        let _ = writeln!(text, "{} · {} · {} I/Os", bar.device, bar.way(), tally.ios());
        let typical = tally.typical();
        let mean_ns = tally.total.mean_ns();
        for ((part, stats), typical_ns) in PARTS.iter().zip(&tally.parts).zip(typical.parts_ns) {
            if anatomy.shows(part) && (bar.stamped || stats.max_ns() > 0) {
                text += &stats_row(part.name(bar.stamped), stats, typical_ns, mean_ns);
            }
        }
        text += &stats_row("total", &tally.total, typical.total_ns(), mean_ns);
    }
    text
}

fn stats_row(name: &str, stats: &LatencyStats, typical_ns: f64, whole_ns: f64) -> String {
    let mut text = format!("  {name:22}{:>12}", us(typical_ns));
    let (p50_ns, p99_ns) = (stats.percentile_ns(50.0) as f64, stats.percentile_ns(99.0) as f64);
    for ns in [stats.mean_ns(), stats.stddev_ns(), p50_ns, p99_ns, stats.max_ns() as f64] {
        let _ = write!(text, "{:>11}", us(ns));
    }
    let _ = writeln!(text, "{:>9.1} %", stats.mean_ns() * 100.0 / whole_ns.max(1.0));
    text
}

/// Bates: the times of host and device, and which of them makes the slowest I/Os slow.
fn host_and_device(anatomy: &Anatomy) -> String {
    let heads = ["device: mean", "p99", "max", "host: mean", "p99", "max"];
    let mut text = heading(anatomy, "Host against device, µs", heads, 11);
    let _ = writeln!(text, "{:>12}  host's part", "1 in 6,000");
    for bar in &anatomy.bars {
        let Tally { host, device, .. } = &bar.alone;
        text += &label(anatomy, bar);
        for stats in [device, host] {
            for ns in [stats.mean_ns(), stats.percentile_ns(99.0) as f64, stats.max_ns() as f64] {
                let _ = write!(text, "{:>11}", us(ns));
            }
        }
        if let Some(worst) = bar.alone.worst() {
            let percent = worst.host_ns * 100.0 / worst.mean_ns.max(1.0);
            let _ = write!(text, "{:>12}{percent:>11.0} %", us(worst.from_ns as f64));
        }
        text.push('\n');
    }
    text += &wrapped(
        "The device: from the doorbell to the CQE written; the host: the rest. Last: where the \
         slowest 1 in 6,000 begins, and the host's part of the time of those.",
    );
    text
}

/// AIOS: the distribution of the submission latency.
fn submission(anatomy: &Anatomy) -> String {
    let heads = CDF_PERCENTILES.iter().map(|at| format!("p{at}")).chain(["max".to_owned()]);
    let mut text = heading(anatomy, "Submission latency, µs", heads, 8) + "\n";
    for bar in &anatomy.bars {
        let submit = &bar.alone.parts[0];
        text += &label(anatomy, bar);
        for at in CDF_PERCENTILES {
            let _ = write!(text, "{:>8}", us(submit.percentile_ns(at) as f64));
        }
        let _ = writeln!(text, "{:>8}", us(submit.max_ns() as f64));
    }
    text
}

fn fast12(anatomy: &Anatomy) -> String {
    let Some((kind, alone)) = &anatomy.competitor else { return String::new() };
    let heads = ["Ta", "Td", "Tb", "Tu", "total", "Ta + Tb"];
    let mut text = heading(anatomy, "With a second program, µs", heads, 11);
    text += "    it runs  its speed\n";
    let mut ran_on = false;
    for bar in &anatomy.bars {
        let Some(times) = Fast12::new(bar, alone) else { continue };
        ran_on |= bar.stamped && times.tb_ns < 0.0;
        text += &label(anatomy, bar);
        let known = |ns: f64| if bar.stamped { signed_us(ns) } else { "–".to_owned() };
        let figures = [known(times.ta_ns()), known(times.td_ns), known(times.tb_ns)];
        let always = [times.tu_ns, times.total_ns(), times.cost_ns()].map(signed_us);
        for figure in figures.iter().chain(&always) {
            let _ = write!(text, "{figure:>11}");
        }
        let _ = writeln!(text, "{:>9.0} %{:>9.0} %", times.share_percent, times.speed_percent);
    }
    let mut notes = "Typical I/Os, FAST 2012's times: Ta does not overlap the device, Td is the \
                     device's, Tu is what the second program got, Tb = Td − Tu is nobody's; Ta + \
                     Tb = total − Tu is what the I/O costs the CPU. "
        .to_owned();
    if ran_on {
        notes += "Tb below 0: the second program ran on after the device was done, until the \
                  interrupt had reached the CPU. ";
    }
    let _ = write!(
        notes,
        "The second program ({kind}), alone on the CPU, runs {:.0} % of the time; its speed is \
         compared with that.",
        alone.share_percent()
    );
    if alone.share_percent() < OTHERS_BELOW_PERCENT {
        notes +=
            " So others use this CPU, too: take the shares and speeds for what they are worth.";
    }
    text += &wrapped(&notes);
    text
}

fn footer(anatomy: &Anatomy) -> String {
    let ios: u64 = anatomy.bars.iter().map(|bar| bar.alone.ios()).sum();
    let sum = |of: fn(&Tally) -> u64| anatomy.bars.iter().map(|bar| of(&bar.alone)).sum::<u64>();
    let (overlapped, contradicted) =
        (sum(|tally| tally.overlapped), sum(|tally| tally.contradicted));
    let percent = |count: u64| count as f64 * 100.0 / ios.max(1) as f64;
    let mut notes = format!(
        "A reading of the clock takes {} and is part of what it bounds. In {:.1} % of the I/Os the \
         device had seen the doorbell before `submit` returned. ",
        figures::time(anatomy.clock_read_ns as f64),
        percent(overlapped)
    );
    if contradicted > 0 {
        let _ = write!(
            notes,
            "In {contradicted} I/Os ({:.3} %) the CPUs' clocks contradict each other: a part was \
             cut short there. ",
            percent(contradicted)
        );
    }
    if anatomy.bars.iter().any(|bar| !bar.stamped) {
        notes += "A device that takes no time stamps is seen from the host: from the doorbell to \
                  the completion, wake-up included.";
    }
    format!("\n{}I/O on CPU {}\n{}\n", wrapped(&notes), anatomy.cpu, anatomy.machine.line())
}

/// Wraps a paragraph to the width of the tables.
fn wrapped(text: &str) -> String {
    figures::wrapped(text, NOTE_COLUMNS) + "\n"
}

/// Returns the beginning of a table's first line: the names of columns that are `width` wide.
fn heading<T: std::fmt::Display>(
    anatomy: &Anatomy,
    title: &str,
    heads: impl IntoIterator<Item = T>,
    width: usize,
) -> String {
    let columns = label_columns(anatomy);
    let mut text = format!("\n{title:columns$}");
    for head in heads {
        let _ = write!(text, "{head:>width$}");
    }
    text
}

fn label_columns(anatomy: &Anatomy) -> usize {
    let device = |bar: &Bar| bar.device.chars().count() + 1;
    let way = |bar: &Bar| bar.way().chars().count() + 4;
    let widest =
        anatomy.bars.iter().map(|bar| device(bar).min(30).max(way(bar))).max().unwrap_or(0);
    widest.max(26)
}

/// Returns a row's name, with the device on a line of its own where it begins.
fn label(anatomy: &Anatomy, bar: &Bar) -> String {
    let columns = label_columns(anatomy);
    let begins = anatomy
        .bars
        .iter()
        .find(|other| other.device == bar.device)
        .is_some_and(|first| std::ptr::eq(first, bar));
    let device = if begins { format!("{}\n", bar.device) } else { String::new() };
    format!("{device}{:columns$}", format!("  {}", bar.way()))
}

impl Bar {
    /// Returns policy and size.
    pub(crate) fn way(&self) -> String {
        format!("{}, {}", self.policy, figures::bytes(self.bytes))
    }
}

impl Anatomy {
    /// Returns whether any I/O spent time in `part`. (Most devices queue nothing at depth 1.)
    pub(crate) fn shows(&self, part: &Part) -> bool {
        let some = |bar: &Bar| bar.alone.parts[part.at].max_ns() > 0;
        self.bars.iter().any(some) || part.at != QUEUE && self.bars.iter().any(|bar| bar.stamped)
    }
}

/// Formats µs with two decimals; with fewer for long times.
fn us(ns: f64) -> String {
    match ns {
        ns if ns < 99_995.0 => format!("{:.2}", ns / 1e3),
        ns if ns < 999_500.0 => format!("{:.1}", ns / 1e3),
        ns => format!("{:.0}", ns / 1e3),
    }
}

/// Formats µs with a true minus sign.
fn signed_us(ns: f64) -> String {
    if ns < -5.0 { format!("−{}", us(-ns)) } else { us(ns.max(0.0)) }
}

#[cfg(test)]
mod tests {
    use super::super::testing::anatomy;
    use super::super::timeline::TimeLine;
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_whole() {
        let typical = Typical {
            parts_ns: [240.0, 240.0, 0.0, 2_900.0, 0.0, 240.0, 40.0],
            competitor_ns: 0.0,
        };
        let columns = columns(&typical, 100.0);
        assert_eq!(columns.iter().sum::<usize>(), 37);
        assert_eq!(columns, [2, 3, 0, 29, 0, 2, 1]);
    }

    #[test]
    fn a_bar_beyond_the_scale_is_cut() {
        let mut anatomy = anatomy(true);
        for _ in 0..1_000 {
            let parts_ns = [200, 100, 0, 2_900, 900_000, 150, 50];
            anatomy.bars[1].alone.record(&TimeLine { parts_ns, ..TimeLine::default() });
        }
        for nth in 0..3 {
            anatomy.bars.push(super::super::testing::bar(&format!("mem:{nth}M"), "poll", true));
        }
        let text = bars(&anatomy, false);
        assert_eq!(text.matches('»').count(), 1, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }

    #[test]
    fn what_a_device_does_not_tell_is_not_made_up() {
        let text = report(&anatomy(false), false);
        assert!(
            text.contains("doorbell to CQE seen") && text.contains("takes no time stamps"),
            "{text}"
        );
        assert!(!text.contains("wake  ") && !text.contains("SQE seen"), "{text}");
        let times = text.lines().find(|line| line.contains('%') && line.contains('–'));
        assert_eq!(times.map(|line| line.matches('–').count()), Some(3), "{text}");
        let json = super::super::json::report(&anatomy(false));
        assert!(json["bars"][0]["alone"]["parts"]["wake"].is_null());
        assert!(
            json["bars"][0]["fast12"]["td_ns"].is_null()
                && json["bars"][0]["fast12"]["tu_ns"].is_number()
        );
    }

    #[test]
    fn colours_only_where_they_are_wanted() {
        assert!(report(&anatomy(true), true).contains("\x1b[38;5;"));
        assert!(!report(&anatomy(true), false).contains('\x1b'));
    }

    #[test]
    fn microseconds() {
        assert_eq!(
            [us(0.0), us(1_234.5), us(123_456.0), us(12_345_678.0)],
            ["0.00", "1.23", "123.5", "12346"]
        );
        assert_eq!(wrapped("a b\n c"), "a b c\n");
        let lines = wrapped(&"µs ".repeat(100));
        assert!(
            lines.lines().count() == 3
                && lines.lines().all(|line| line.chars().count() <= NOTE_COLUMNS)
        );
        assert_eq!([signed_us(-1_400.0), signed_us(-1.0)], ["−1.40", "0.00"]);
    }
}

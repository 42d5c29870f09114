//! The report as text.

use std::fmt::Write as _;

use comfy_table::Cell;
use meantime_report::run::LatencyStats;

use super::fast12::Fast12;
use super::results::{Anatomy, Bar};
use super::tally::Tally;
use super::timeline::PARTS;
use crate::figures;
use crate::output;

/// Width of a paragraph, in columns.
const NOTE_COLUMNS: usize = 110;

/// A program with a CPU for itself runs more than this.
const OTHERS_BELOW_PERCENT: f64 = 95.0;

/// Points of the submission latency's distribution, in percent.
pub(super) const CDF_PERCENTILES: [f64; 9] = [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 99.0, 99.9, 99.99];

/// Returns the whole report.
pub(super) fn report(anatomy: &Anatomy) -> String {
    let parts = [parts_tables, host_and_device, submission, fast12, footer];
    format!("One {}, taken apart\n", anatomy.what()) + &parts.map(|part| part(anatomy)).concat()
}

fn parts_tables(anatomy: &Anatomy) -> String {
    let heads = ["typical", "mean", "±1 SD", "p50", "p99", "max", "of mean"];
    table(anatomy, "Part by part, µs", heads, |bar| {
        let (tally, typical) = (&bar.alone, bar.alone.typical());
        let row = |name: &str, stats: &LatencyStats, typical_ns: f64| {
            let part = stats.mean_ns() * 100.0 / tally.total.mean_ns().max(1.0);
            let [p50_ns, p99_ns] = [50.0, 99.0].map(|at| stats.percentile_ns(at) as f64);
            let (mean_ns, max_ns) = (stats.mean_ns(), stats.max_ns() as f64);
            let cells = [typical_ns, mean_ns, stats.stddev_ns(), p50_ns, p99_ns, max_ns].map(us);
            let named = std::iter::once(format!("    {name}")).chain(cells);
            named.chain([format!("{part:.1} %")]).collect::<Vec<_>>()
        };
        let mut rows = vec![vec![format!("  {}, {} I/Os", bar.way(), tally.ios())]];
        for ((part, stats), typical_ns) in PARTS.iter().zip(&tally.parts).zip(typical.parts_ns) {
            if anatomy.shows(part) && (bar.stamped || stats.max_ns() > 0) {
                rows.push(row(part.name(bar.stamped), stats, typical_ns));
            }
        }
        rows.push(row("total", &tally.total, typical.total_ns()));
        rows
    })
}

/// Bates: the times of host and device, and which of them makes the slowest I/Os slow.
fn host_and_device(anatomy: &Anatomy) -> String {
    let heads =
        ["device: mean", "p99", "max", "host: mean", "p99", "max", "1 in 6,000", "host's part"];
    let text = table(anatomy, "Host against device, µs", heads, |bar| {
        let mut row = vec![format!("  {}", bar.way())];
        for stats in [&bar.alone.device, &bar.alone.host] {
            let (p99_ns, max_ns) = (stats.percentile_ns(99.0) as f64, stats.max_ns() as f64);
            row.extend([stats.mean_ns(), p99_ns, max_ns].map(us));
        }
        if let Some(worst) = bar.alone.worst() {
            let percent = worst.host_ns * 100.0 / worst.mean_ns.max(1.0);
            row.extend([us(worst.from_ns as f64), format!("{percent:.0} %")]);
        }
        vec![row]
    });
    text + &wrapped(
        "The device: from the doorbell to the CQE written; the host: the rest. Last: where the \
         slowest 1 in 6,000 begins, and the host's part of the time of those.",
    )
}

/// AIOS: the distribution of the submission latency.
fn submission(anatomy: &Anatomy) -> String {
    let heads = CDF_PERCENTILES.iter().map(|at| format!("p{at}")).chain(["max".to_owned()]);
    table(anatomy, "Submission latency, µs", heads, |bar| {
        let submit = &bar.alone.parts[0];
        let percentiles = CDF_PERCENTILES.map(|at| us(submit.percentile_ns(at) as f64));
        let named = std::iter::once(format!("  {}", bar.way())).chain(percentiles);
        vec![named.chain([us(submit.max_ns() as f64)]).collect()]
    })
}

fn fast12(anatomy: &Anatomy) -> String {
    let Some((kind, alone)) = &anatomy.competitor else { return String::new() };
    let heads = ["Ta", "Td", "Tb", "Tu", "total", "Ta + Tb", "it runs", "its speed"];
    let mut text = table(anatomy, "With a second program, µs", heads, |bar| {
        let Some(times) = Fast12::new(bar, alone) else { return Vec::new() };
        let known = |ns: f64| if bar.stamped { signed_us(ns) } else { "–".to_owned() };
        let figures = [known(times.ta_ns()), known(times.td_ns), known(times.tb_ns)];
        let always = [times.tu_ns, times.total_ns(), times.cost_ns()].map(signed_us);
        let percent = [times.share_percent, times.speed_percent].map(|part| format!("{part:.0} %"));
        let named = std::iter::once(format!("  {}", bar.way())).chain(figures);
        vec![named.chain(always).chain(percent).collect()]
    });
    let mut notes = "Typical I/Os, FAST 2012's times: Ta does not overlap the device, Td is the \
                     device's, Tu is what the second program got, Tb = Td − Tu is nobody's; Ta + \
                     Tb = total − Tu is what the I/O costs the CPU. "
        .to_owned();
    let ran_on = |bar: &Bar| Fast12::new(bar, alone).is_some_and(|times| times.tb_ns < 0.0);
    if anatomy.bars.iter().any(|bar| bar.stamped && ran_on(bar)) {
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

/// Returns a table with the `rows` of each bar. Each device has a heading line above its bars.
fn table<T: Into<Cell>>(
    anatomy: &Anatomy,
    title: &str,
    heads: impl IntoIterator<Item = T>,
    rows: impl Fn(&Bar) -> Vec<Vec<String>>,
) -> String {
    let mut table = output::bare_table();
    table.set_header(std::iter::once(Cell::new(title)).chain(heads.into_iter().map(Into::into)));
    let mut device = None;
    for bar in &anatomy.bars {
        if device.replace(&bar.device) != Some(&bar.device) {
            table.add_row([&bar.device]);
        }
        table.add_rows(rows(bar));
    }
    format!("\n{}\n", output::figure_lines(table, 2).join("\n"))
}

fn footer(anatomy: &Anatomy) -> String {
    let sum = |of: fn(&Tally) -> u64| anatomy.bars.iter().map(|bar| of(&bar.alone)).sum::<u64>();
    let contradicted = sum(|tally| tally.contradicted);
    let ios = sum(Tally::ios).max(1);
    let percent = |count: u64| count as f64 * 100.0 / ios as f64;
    let mut notes = format!(
        "A reading of the clock takes {} and is part of what it bounds. In {:.1} % of the I/Os the \
         device had seen the doorbell before `submit` returned. ",
        figures::time(anatomy.clock_read_ns as f64),
        percent(sum(|tally| tally.overlapped))
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

/// Formats µs with two decimals, or with fewer for long times.
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
    use super::*;

    #[test]
    fn what_a_device_does_not_tell_is_not_made_up() {
        let text = report(&anatomy(false));
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
